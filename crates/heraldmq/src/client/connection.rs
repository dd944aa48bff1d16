//! One network connection, from CONNECT to DISCONNECT, driven by a single thread.
//!
//! Invariant: everything that the driving thread waits for (frames, lines of standard input, signals)
//! comes through one bounded channel, so that it can keep the connection alive while it waits, and
//! so that a fast sender on either side waits instead of filling memory.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use mqtt_proto::{
    ConnAck, Connect, Disconnect, LastWill, Packet, PacketId, ProtocolVersion, QoS, ReasonCode,
    peek_frame,
};

use transport::Spoken;

use super::{options::ConnectionOptions, property::Properties, stream::Stream};
use crate::failure::Failure;

/// How long to wait for CONNACK.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the broker to close its side after DISCONNECT.
const FAREWELL: Duration = Duration::from_secs(2);

/// Events that wait for the driving thread.
const CHANNEL_EVENTS: usize = 64;

/// What the driving thread can wait for.
pub(crate) enum Event {
    /// A whole packet, other than PINGRESP and DISCONNECT.
    Frame(Vec<u8>),
    /// A line of standard input, without its line end.
    Line(Vec<u8>),
    /// Standard input has ended.
    EndOfInput,
    /// Somebody asked this process to end.
    Stop,
    /// The broker closed the connection, or it broke; the text says how.
    Ended(String),
    /// The broker closed the connection for a reason that stays: whoever comes back meets it again.
    Dismissed(String),
}

/// What CONNACK said about the broker.
struct Grants {
    session_present: bool,
    keep_alive: Duration,
    receive_maximum: u16,
    maximum_packet_size: Option<u32>,
    maximum_qos: QoS,
    retain_available: bool,
}

/// An open connection.
pub(crate) struct Connection<'a> {
    stream: Stream,
    version: ProtocolVersion,
    properties: &'a Properties,
    debug: bool,
    grants: Grants,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    last_sent: Instant,
    /// When the PINGREQ was sent that has no answer yet.
    ping_sent: Option<Instant>,
    next_packet_id: PacketId,
}

impl<'a> Connection<'a> {
    /// Connects and waits for CONNACK, until `deadline` or for as long as patience lasts.
    /// `command` names the client towards a 3.1 broker, which cannot choose a name itself.
    ///
    /// # Errors
    /// No connection, a refusal, or a packet that cannot be written.
    pub(crate) fn open(
        options: &ConnectionOptions,
        properties: &'a Properties,
        command: &str,
        deadline: Option<Instant>,
    ) -> Result<Self, Failure> {
        let stream = Stream::open(options, deadline)?;
        let version = options.version();
        let (sender, events) = sync_channel(CHANNEL_EVENTS);
        let incoming = stream.try_clone().map_err(|error| broken(&error))?;
        let sink = sender.clone();
        thread::spawn(move || read_frames(incoming, version, &sink));
        let mut connection = Self {
            stream,
            version,
            properties,
            debug: options.debug,
            grants: Grants {
                session_present: false,
                keep_alive: Duration::from_secs(options.keepalive.into()),
                receive_maximum: u16::MAX,
                maximum_packet_size: None,
                maximum_qos: QoS::ExactlyOnce,
                retain_available: true,
            },
            events,
            sender,
            last_sent: Instant::now(),
            ping_sent: None,
            next_packet_id: PacketId::FIRST,
        };
        connection.connect(options, command)?;
        connection.await_connack(deadline)?;
        Ok(connection)
    }

    fn connect(&mut self, options: &ConnectionOptions, command: &str) -> Result<(), Failure> {
        let fallback = format!("heraldmq-{command}-{}", std::process::id());
        let client_id = match options.client_id() {
            Some(id) => id,
            None if self.version == ProtocolVersion::V3_1 => fallback,
            None => String::new(),
        };
        let (mut buffer, mut will_buffer) = (Vec::new(), Vec::new());
        let will = match &options.will_topic {
            Some(topic) => Some(LastWill {
                topic,
                payload: options.will_payload.as_bytes(),
                qos: options.will_qos,
                retain: options.will_retain,
                properties: self
                    .properties
                    .will(&mut will_buffer)
                    .map_err(unencodable)?,
            }),
            None => None,
        };
        let mut properties = self.properties.connect(&mut buffer).map_err(unencodable)?;
        properties.session_expiry_interval = options.session_expiry();
        self.send(&Packet::Connect(Connect {
            version: self.version,
            clean_start: !options.disable_clean_session,
            keep_alive: options.keepalive,
            client_id: &client_id,
            will,
            username: options.username(),
            password: options.password().map(str::as_bytes),
            properties,
        }))
    }

    fn await_connack(&mut self, deadline: Option<Instant>) -> Result<(), Failure> {
        let patience = Instant::now() + PATIENCE;
        let frame = match self.next(Some(deadline.map_or(patience, |given| given.min(patience))))? {
            Some(Event::Frame(frame)) => frame,
            Some(Event::Ended(how) | Event::Dismissed(how)) => return Err(Failure::Runtime(how)),
            None if deadline.is_some_and(|given| given < patience) => {
                return Err(Failure::TimedOut);
            }
            _ => return Err(Failure::Runtime("the broker does not answer".to_owned())),
        };
        let ConnAck {
            reason,
            properties,
            session_present,
        } = match self.decode(&frame)? {
            Packet::ConnAck(connack) => connack,
            other => return Err(unexpected(&other)),
        };
        if reason.is_error() {
            return Err(Failure::Runtime(format!(
                "the broker refused the connection: {}",
                explain(reason, properties.reason_string)
            )));
        }
        self.grants.session_present = session_present;
        if let Some(seconds) = properties.server_keep_alive {
            self.grants.keep_alive = Duration::from_secs(seconds.into());
        }
        self.grants.receive_maximum = properties.receive_maximum.map_or(u16::MAX, Into::into);
        self.grants.maximum_packet_size = properties.maximum_packet_size.map(Into::into);
        self.grants.maximum_qos = properties.maximum_qos.unwrap_or(QoS::ExactlyOnce);
        self.grants.retain_available = properties.retain_available.unwrap_or(true);
        Ok(())
    }

    /// Whether the broker has had the session before.
    pub(crate) fn session_present(&self) -> bool {
        self.grants.session_present
    }

    /// How many messages of QoS 1 and 2 the broker takes unacknowledged.
    pub(crate) fn receive_maximum(&self) -> u16 {
        self.grants.receive_maximum
    }

    /// Whether the broker takes messages of this kind at all.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_publish(&self, qos: QoS, retain: bool) -> Result<(), Failure> {
        let maximum = self.grants.maximum_qos;
        if qos > maximum {
            return Err(Failure::Runtime(format!(
                "the broker takes QoS up to {}",
                maximum.as_u8()
            )));
        }
        if retain && !self.grants.retain_available {
            return Err(Failure::Runtime(
                "the broker does not retain messages".to_owned(),
            ));
        }
        Ok(())
    }

    /// A packet identifier for the next packet that needs one.
    pub(crate) fn packet_id(&mut self) -> PacketId {
        let id = self.next_packet_id;
        self.next_packet_id = id.next();
        id
    }

    /// Where other threads put events.
    pub(crate) fn sender(&self) -> SyncSender<Event> {
        self.sender.clone()
    }

    /// Sends one packet.
    ///
    /// # Errors
    /// The packet cannot be written, is too large for the broker, or the connection is broken.
    pub(crate) fn send(&mut self, packet: &Packet<'_>) -> Result<(), Failure> {
        let mut frame = Vec::new();
        packet
            .encode(self.version, &mut frame)
            .map_err(unencodable)?;
        if let Some(maximum) = self.grants.maximum_packet_size
            && u64::try_from(frame.len()).is_ok_and(|length| length > maximum.into())
        {
            return Err(Failure::Runtime(format!(
                "the packet has {} bytes; the broker takes up to {maximum}",
                frame.len()
            )));
        }
        self.trace("sent", &frame);
        self.stream
            .write_all(&frame)
            .map_err(|error| broken(&error))?;
        self.last_sent = Instant::now();
        Ok(())
    }

    /// Waits for an event, and keeps the connection alive meanwhile. `None`: `deadline` has come.
    ///
    /// # Errors
    /// The broker does not answer a PINGREQ, or sends what is no packet.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Failure> {
        loop {
            let now = Instant::now();
            let ping_due = self.keep_alive(now)?;
            let wake = [ping_due, deadline].into_iter().flatten().min();
            let event = match wake {
                Some(wake) => match self
                    .events
                    .recv_timeout(wake.saturating_duration_since(now))
                {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout) => {
                        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                            return Ok(None);
                        }
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => unreachable!("`self` holds a sender"),
                },
                None => match self.events.recv() {
                    Ok(event) => event,
                    Err(_) => unreachable!("`self` holds a sender"),
                },
            };
            let Event::Frame(frame) = event else {
                return Ok(Some(event));
            };
            self.trace("received", &frame);
            match self.decode(&frame)? {
                Packet::PingResp => self.ping_sent = None,
                Packet::Disconnect(Disconnect { reason, properties }) => {
                    let how = format!(
                        "the broker closed the connection: {}",
                        explain(reason, properties.reason_string)
                    );
                    return Ok(Some(if passes(reason) {
                        Event::Ended(how)
                    } else {
                        Event::Dismissed(how)
                    }));
                }
                _ => return Ok(Some(Event::Frame(frame))),
            }
        }
    }

    /// Sends PINGREQ if it is time; says when it will be, or when the answer is overdue.
    fn keep_alive(&mut self, now: Instant) -> Result<Option<Instant>, Failure> {
        let interval = self.grants.keep_alive;
        if interval.is_zero() {
            return Ok(None);
        }
        if let Some(sent) = self.ping_sent {
            let overdue = sent + interval;
            return if now >= overdue {
                Err(Failure::Runtime(
                    "the broker does not answer any more".to_owned(),
                ))
            } else {
                Ok(Some(overdue))
            };
        }
        if now < self.last_sent + interval {
            return Ok(Some(self.last_sent + interval));
        }
        self.send(&Packet::PingReq)?;
        self.ping_sent = Some(now);
        Ok(Some(now + interval))
    }

    /// The packet in a frame.
    ///
    /// # Errors
    /// The frame breaks a rule of the protocol.
    pub(crate) fn decode<'f>(&self, frame: &'f [u8]) -> Result<Packet<'f>, Failure> {
        Packet::decode(frame, self.version).map_err(|error| {
            Failure::Runtime(format!("the broker sent what is no packet: {error}"))
        })
    }

    /// Sends DISCONNECT and closes the connection.
    ///
    /// # Errors
    /// DISCONNECT could not be sent; the broker will publish the will message.
    pub(crate) fn disconnect(mut self) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let packet = Packet::Disconnect(Disconnect {
            reason: ReasonCode::Success,
            properties: self
                .properties
                .disconnect(&mut buffer)
                .map_err(unencodable)?,
        });
        self.send(&packet)?;
        // What the broker still sends is not read; ending only the sending side keeps that from
        // becoming a reset that overtakes DISCONNECT.
        let _ = self.stream.end();
        let patience = Instant::now() + FAREWELL;
        loop {
            let left = patience.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Ended(_) | Event::Dismissed(_)) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    fn trace(&self, what: &str, frame: &[u8]) {
        if self.debug
            && let Ok(Some(header)) = peek_frame(frame, Some(self.version))
        {
            let name = format!("{:?}", header.packet_type).to_uppercase();
            crate::failure::complain(&format!("{what} {name}, {} bytes", frame.len()));
        }
    }
}

/// Whether a client that was disconnected for this reason may have better luck when it comes back.
fn passes(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::Success
            | ReasonCode::UnspecifiedError
            | ReasonCode::ImplementationSpecificError
            | ReasonCode::ServerBusy
            | ReasonCode::ServerShuttingDown
            | ReasonCode::KeepAliveTimeout
            | ReasonCode::QuotaExceeded
            | ReasonCode::ConnectionRateExceeded
            | ReasonCode::MaximumConnectTime
            | ReasonCode::UseAnotherServer
    )
}

/// Reason code and, if the broker gave one, reason string.
pub(crate) fn explain(reason: ReasonCode, reason_string: Option<&str>) -> String {
    let code = format!("{} (0x{:02X})", reason.name(), reason.as_u8());
    match reason_string {
        Some(text) => format!("{code}: {}", text.escape_debug()),
        None => code,
    }
}

/// A packet that has no place here.
pub(crate) fn unexpected(packet: &Packet<'_>) -> Failure {
    Failure::Runtime(format!(
        "the broker sent an unexpected {:?}",
        packet.packet_type()
    ))
}

/// A packet that breaks a rule because of what the command line says.
pub(crate) fn unencodable(error: mqtt_proto::EncodeError) -> Failure {
    Failure::Usage(error.to_string())
}

fn broken(error: &io::Error) -> Failure {
    Failure::Runtime(format!("the connection broke: {error}"))
}

/// Cuts what arrives into frames until the connection ends or nobody listens any more.
fn read_frames(mut stream: Stream, version: ProtocolVersion, sink: &SyncSender<Event>) {
    let mut pending: Vec<u8> = Vec::new();
    let mut is_first = true;
    let how = loop {
        let mut rest = pending.as_slice();
        if is_first && let Some(first) = rest.first() {
            is_first = false;
            match Spoken::by(*first) {
                Some(Spoken::Tls) => {
                    break "the broker speaks TLS here: --tls or --cafile goes with it".to_owned();
                }
                Some(Spoken::Http) => {
                    break "the broker speaks HTTP here: --ws goes with WebSocket".to_owned();
                }
                Some(Spoken::Mqtt) | None => {}
            }
        }
        let problem = loop {
            match peek_frame(rest, Some(version)) {
                Ok(Some(header)) => {
                    let Some((frame, after)) = rest.split_at_checked(header.len()) else {
                        break None;
                    };
                    if sink.send(Event::Frame(frame.to_vec())).is_err() {
                        return;
                    }
                    rest = after;
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = problem {
            break format!("the broker sent what is no packet: {error}");
        }
        let done = pending.len() - rest.len();
        pending.drain(..done);
        match stream.read(&mut pending) {
            Ok(0) => break "the broker closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break format!("the connection broke: {error}"),
        }
    };
    // Nobody listens any more: nothing to tell.
    let _ = sink.send(Event::Ended(how));
}
