//! One network connection, from CONNECT to DISCONNECT, driven by a single thread.
//!
//! What MQTT asks of a client is [`mqtt_client`]'s; here are the socket, the clock and the words.
//!
//! Invariant: everything that the driving thread waits for (bytes, lines of standard input, signals)
//! comes through one bounded channel, so that it can keep the connection alive while it waits, and
//! so that a fast sender on either side waits instead of filling memory.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use mqtt_client::{
    Acknowledgements, Answer, Arrival, Client, CommandError, Deadline, Event as PacketEvent,
    ProtocolError,
};
use mqtt_proto::{
    Connect, Disconnect, LastWill, PacketType, ProtocolVersion, Publish, QoS, ReasonCode,
    SubscriptionOptions, peek_frame,
};

use net_api::Spoken;

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
    /// What the broker has sent: for [`Connection::receive`].
    Bytes(Vec<u8>),
    /// A line of standard input, without its line end.
    Line(Vec<u8>),
    /// Standard input has ended.
    EndOfInput,
    /// Somebody asked this process to end.
    Stop,
    /// The broker closed the connection, or it broke; the text says how.
    Ended(String),
}

/// An open connection.
pub(crate) struct Connection<'a> {
    stream: Stream,
    mqtt: Client<()>,
    properties: &'a Properties,
    debug: bool,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    /// Where the client's time begins.
    start: Instant,
    /// What came right behind CONNACK.
    early: Vec<u8>,
}

impl<'a> Connection<'a> {
    /// Connects and waits for CONNACK, until `deadline` or for as long as patience lasts.
    /// `command` names the client towards a 3.1 broker, which cannot choose a name itself. `earlier` is the client of
    /// the connection before, if there was one.
    ///
    /// # Errors
    /// No connection, a refusal, or a packet that cannot be written.
    pub(crate) fn open(
        options: &ConnectionOptions,
        properties: &'a Properties,
        command: &str,
        deadline: Option<Instant>,
        earlier: Option<Client<()>>,
    ) -> Result<Self, Failure> {
        let stream = Stream::open(options, deadline)?;
        let (sender, events) = sync_channel(CHANNEL_EVENTS);
        let incoming = stream.try_clone().map_err(|error| broken(&error))?;
        let sink = sender.clone();
        thread::spawn(move || read(incoming, &sink));
        let mut connection = Self {
            stream,
            mqtt: earlier.unwrap_or_else(|| Client::new(Acknowledgements::Manual)),
            properties,
            debug: options.debug,
            events,
            sender,
            start: Instant::now(),
            early: Vec::new(),
        };
        connection.connect(options, command)?;
        connection.await_connack(deadline)?;
        Ok(connection)
    }

    fn connect(&mut self, options: &ConnectionOptions, command: &str) -> Result<(), Failure> {
        let fallback = format!("heraldmq-{command}-{}", std::process::id());
        let version = options.version();
        let client_id = match options.client_id() {
            Some(id) => id,
            None if version == ProtocolVersion::V3_1 => fallback,
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
        let connect = Connect {
            version,
            is_bridge: false,
            clean_start: !options.disable_clean_session,
            keep_alive: options.keepalive,
            client_id: &client_id,
            will,
            username: options.username(),
            password: options.password().map(str::as_bytes),
            properties,
        };
        self.mqtt.connect(&connect).map_err(unencodable)?;
        self.flush()
    }

    fn await_connack(&mut self, deadline: Option<Instant>) -> Result<(), Failure> {
        let patience = Instant::now() + PATIENCE;
        let until = deadline.map_or(patience, |given| given.min(patience));
        loop {
            let bytes = match self.next(Some(until))? {
                Some(Event::Bytes(bytes)) => bytes,
                Some(Event::Ended(how)) => return Err(Failure::Runtime(how)),
                None if deadline.is_some_and(|given| given < patience) => {
                    return Err(Failure::TimedOut);
                }
                _ => return Err(Failure::Runtime("the broker does not answer".to_owned())),
            };
            let mut arrival = self.receive(&bytes);
            match self.poll(&mut arrival)? {
                Some(PacketEvent::Refused(connack)) => {
                    return Err(Failure::Runtime(format!(
                        "the broker refused the connection: {}",
                        explain(connack.reason, connack.properties.reason_string)
                    )));
                }
                Some(_) => {
                    // CONNACK is the first packet, or there is none.
                    self.early = arrival.rest().to_vec();
                    return Ok(());
                }
                None => {}
            }
        }
    }

    /// The client, for the next connection.
    pub(crate) fn client(&self) -> Client<()> {
        self.mqtt.clone()
    }

    /// How many messages of QoS 1 and 2 the broker takes unacknowledged.
    pub(crate) fn receive_maximum(&self) -> u16 {
        self.mqtt.server_limits().receive_maximum
    }

    /// How many messages of QoS 1 and 2 wait for an acknowledgement.
    pub(crate) fn in_flight(&self) -> usize {
        self.mqtt.in_flight()
    }

    /// Whether PUBREL is to come for messages that were acknowledged by PUBREC.
    pub(crate) fn is_awaiting_release(&self) -> bool {
        self.mqtt.awaiting_release().next().is_some()
    }

    /// Whether the broker takes messages of this kind at all.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_publish(&self, qos: QoS, retain: bool) -> Result<(), Failure> {
        self.mqtt.check_publish(qos, retain).map_err(refused)
    }

    /// Where other threads put events.
    pub(crate) fn sender(&self) -> SyncSender<Event> {
        self.sender.clone()
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// The packet cannot be written, is too large for the broker, or the connection is broken.
    pub(crate) fn publish(&mut self, packet: Publish<'_>) -> Result<(), Failure> {
        self.mqtt.publish(packet, ()).map_err(refused)?;
        self.flush()
    }

    /// Sends SUBSCRIBE.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn subscribe(
        &mut self,
        filters: &[(&str, SubscriptionOptions)],
    ) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let properties = self.properties.subscribe(&mut buffer);
        let properties = properties.map_err(unencodable)?;
        self.mqtt.subscribe(filters, properties).map_err(refused)?;
        self.flush()
    }

    /// Sends UNSUBSCRIBE.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn unsubscribe(&mut self, filters: &[&str]) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let properties = self.properties.unsubscribe(&mut buffer);
        let properties = properties.map_err(unencodable)?;
        self.mqtt
            .unsubscribe(filters, properties)
            .map_err(refused)?;
        self.flush()
    }

    /// Acknowledges a message.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn answer(&mut self, answer: Answer) -> Result<(), Failure> {
        self.mqtt.answer(answer);
        self.flush()
    }

    /// Sends what waits.
    fn flush(&mut self) -> Result<(), Failure> {
        let bytes = self.mqtt.poll_transmit();
        let mut rest = bytes;
        while let Ok(Some(header)) = peek_frame(rest, Some(self.mqtt.version())) {
            self.trace("sent", header.packet_type, header.len());
            rest = rest.get(header.len()..).unwrap_or_default();
        }
        let count = bytes.len();
        self.stream
            .write_all(bytes)
            .map_err(|error| broken(&error))?;
        self.mqtt.handle_transmitted(count, self.start.elapsed());
        Ok(())
    }

    /// Waits for an event, and keeps the connection alive meanwhile. `None`: `deadline` has come.
    ///
    /// # Errors
    /// The broker does not answer a PINGREQ, or the connection is broken.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Failure> {
        if !self.early.is_empty() {
            return Ok(Some(Event::Bytes(std::mem::take(&mut self.early))));
        }
        loop {
            if self.mqtt.handle_deadline(self.start.elapsed()) == Deadline::KeepAliveTimeout {
                let silent = "the broker does not answer any more";
                return Err(Failure::Runtime(silent.to_owned()));
            }
            self.flush()?;
            let ping_due = self.mqtt.poll_deadline().map(|due| self.start + due);
            let wake = [ping_due, deadline].into_iter().flatten().min();
            match wake {
                Some(wake) => {
                    let left = wake.saturating_duration_since(Instant::now());
                    match self.events.recv_timeout(left) {
                        Ok(event) => return Ok(Some(event)),
                        Err(RecvTimeoutError::Timeout) => {
                            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                                return Ok(None);
                            }
                        }
                        Err(RecvTimeoutError::Disconnected) => {
                            unreachable!("`self` holds a sender")
                        }
                    }
                }
                None => match self.events.recv() {
                    Ok(event) => return Ok(Some(event)),
                    Err(_) => unreachable!("`self` holds a sender"),
                },
            }
        }
    }

    /// Begins with the packets among these bytes, which [`poll`](Self::poll) tells.
    pub(crate) fn receive<'b>(&mut self, bytes: &'b [u8]) -> Arrival<'b> {
        self.mqtt.handle_bytes(bytes)
    }

    /// What came of the next packet; `None`: there are no more.
    ///
    /// # Errors
    /// The broker breaks a rule of the protocol.
    pub(crate) fn poll<'e>(
        &mut self,
        arrival: &'e mut Arrival<'_>,
    ) -> Result<Option<PacketEvent<'e, ()>>, Failure> {
        if self.debug
            && let Some((packet_type, bytes)) = self.mqtt.peek_packet(arrival)
        {
            self.trace("received", packet_type, bytes);
        }
        self.mqtt.poll_event(arrival).map_err(|error| {
            Failure::Runtime(match error {
                ProtocolError::Decode(error) => {
                    format!("the broker sent what is no packet: {error}")
                }
                ProtocolError::Violation(violation) => {
                    format!("the broker broke the protocol: {violation}")
                }
            })
        })
    }

    /// Sends DISCONNECT and closes the connection.
    ///
    /// # Errors
    /// DISCONNECT could not be sent; the broker will publish the will message.
    pub(crate) fn disconnect(mut self) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let properties = self.properties.disconnect(&mut buffer);
        let disconnect = Disconnect {
            reason: ReasonCode::Success,
            properties: properties.map_err(unencodable)?,
        };
        match self.mqtt.disconnect(&disconnect) {
            // The broker was faster.
            Ok(()) | Err(CommandError::NotConnected) => self.flush()?,
            Err(error) => return Err(refused(error)),
        }
        // What the broker still sends is not read; ending only the sending side keeps that from
        // becoming a reset that overtakes DISCONNECT.
        let _ = self.stream.end();
        let patience = Instant::now() + FAREWELL;
        loop {
            let left = patience.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Ended(_)) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    fn trace(&self, what: &str, packet_type: PacketType, bytes: usize) {
        if self.debug {
            let name = format!("{packet_type:?}").to_uppercase();
            crate::failure::complain(&format!("{what} {name}, {bytes} bytes"));
        }
    }
}

/// Whether the broker's DISCONNECT has a reason that may pass, so that it may be worth to come back; and its words.
pub(crate) fn farewell(packet: &Disconnect<'_>) -> (bool, String) {
    let how = format!(
        "the broker closed the connection: {}",
        explain(packet.reason, packet.properties.reason_string)
    );
    (passes(packet.reason), how)
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

/// An acknowledgement that has no place here.
pub(crate) fn unexpected(packet_type: PacketType) -> Failure {
    Failure::Runtime(format!("the broker sent an unexpected {packet_type:?}"))
}

/// Why a command cannot be carried out.
fn refused(error: CommandError) -> Failure {
    Failure::Runtime(match error {
        CommandError::Encode(error) => return unencodable(error),
        CommandError::QosNotSupported(maximum) => {
            format!("the broker takes QoS up to {}", maximum.as_u8())
        }
        CommandError::RetainNotSupported => "the broker does not retain messages".to_owned(),
        CommandError::PacketTooLarge { bytes, maximum } => {
            format!("the packet has {bytes} bytes; the broker takes up to {maximum}")
        }
        CommandError::NotConnected | CommandError::NoRoom => error.to_string(),
    })
}

/// A packet that breaks a rule because of what the command line says.
pub(crate) fn unencodable(error: mqtt_proto::EncodeError) -> Failure {
    Failure::Usage(error.to_string())
}

fn broken(error: &io::Error) -> Failure {
    Failure::Runtime(format!("the connection broke: {error}"))
}

/// Hands on what arrives until the connection ends or nobody listens any more.
fn read(mut stream: Stream, sink: &SyncSender<Event>) {
    let mut is_first = true;
    let how = loop {
        let mut bytes = Vec::new();
        match stream.read(&mut bytes) {
            Ok(0) => break "the broker closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break format!("the connection broke: {error}"),
        }
        let Some(first) = bytes.first() else { continue };
        match Spoken::by(*first) {
            Some(Spoken::Tls) if is_first => {
                break "the broker speaks TLS here: --tls or --cafile goes with it".to_owned();
            }
            Some(Spoken::Http) if is_first => {
                break "the broker speaks HTTP here: --ws goes with WebSocket".to_owned();
            }
            _ => is_first = false,
        }
        if sink.send(Event::Bytes(bytes)).is_err() {
            return;
        }
    };
    // Nobody listens any more: nothing to tell.
    let _ = sink.send(Event::Ended(how));
}
