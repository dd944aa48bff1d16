//! One simulated MQTT client on a non-blocking socket.
//!
//! Call order: [`Client::open`]; then [`Client::read`] when the socket may be readable and
//! [`Client::flush`] after anything that may have produced bytes, and when the socket may be writable.
//! Acknowledgements are written by the client itself.
//!
//! After a failure [`Client::reopen`] connects again under the same name; what was not acknowledged is
//! kept for [`Client::resend`].
//!
//! Invariant: no more messages above QoS 0 are unacknowledged than the server's receive maximum allows.
//!
//! TLS and WebSocket, if there are any, are between the socket and everything else.
//!
//! Deliberately absent: deciding when to connect, to send again or to ping; the engine does. The layers' own
//! farewells: DISCONNECT says it all.

mod layered;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::{fmt, mem};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, DecodeError, Disconnect, DisconnectProperties,
    EncodeError, LastWill, Packet, PacketId, PacketType, ProtocolVersion, PubAck, PubComp, PubRec,
    PubRel, Publish, PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilters,
    SubscribeProperties, SubscriptionOptions, WillProperties, peek_frame,
};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use transport::{ClientOptions, TransportError};

use self::layered::Layered;
use crate::workload::Login;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// Unwritten bytes at which a client has no room for another message.
const UNWRITTEN_LIMIT: usize = 256 * 1024;

/// How long a persistent session is kept: longer than any run.
const SESSION_EXPIRY_S: u32 = 24 * 60 * 60;

/// How to connect.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Protocol version, keep alive, user name and password.
    pub login: &'a Login,
    /// Client identifier.
    pub client_id: &'a str,
    /// Whether the session ends with the connection; if not, [`Client::close`] ends it where the
    /// version allows.
    pub clean_session: bool,
    /// What to subscribe to as soon as the server has accepted the connection without a session.
    pub subscription: Option<(&'a str, QoS)>,
    /// Topic, QoS and payload of the will.
    pub will: Option<(&'a str, QoS, &'a [u8])>,
    /// Bytes that the kernel may keep of what was not read; its own choice if `None`.
    pub receive_buffer: Option<usize>,
}

/// Where to connect.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// The server's listener.
    pub server: SocketAddr,
    /// An address of this machine to connect from, and a port, unless that is taken.
    pub local: Option<SocketAddr>,
    /// What the connection begins with.
    pub layers: &'a ClientOptions,
}

/// Working space that all clients can share. It grows to the longest frame.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Bytes of packets that have arrived.
    packets: Vec<u8>,
    /// Bytes of a socket under layers: those that came, and those to be sent.
    arrived: Vec<u8>,
    sealed: Vec<u8>,
}

/// What one read of a socket brought.
struct Arrival {
    /// Bytes that came from the socket.
    received: usize,
    /// Bytes of packets that there are now in [`Scratch`].
    filled: usize,
    /// That of the layers, if it has come.
    end: Option<TransportError>,
}

/// What a client has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The server has accepted the connection, and says whether it still had the session.
    Connected {
        /// Whether it had.
        session_present: bool,
    },
    /// The subscription is granted.
    Subscribed,
    /// A message arrived; its payload.
    Message(&'a [u8]),
    /// A message above QoS 0 is acknowledged to the end; the due time it was published with.
    Acknowledged(u64),
    /// The server refused a message above QoS 0.
    MessageRefused(ReasonCode),
}

/// Why a client is of no more use.
#[derive(Debug)]
pub enum ClientError {
    /// The socket failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// TLS or WebSocket failed.
    Layers(TransportError),
    /// The server refused the connection, a subscription or a message, or ended the connection.
    Refused(PacketType, ReasonCode),
    /// The server sent something that is no packet.
    Decode(DecodeError),
    /// The server sent a packet that has no place here.
    Unexpected(PacketType),
    /// A topic or client identifier cannot be written.
    Encode(EncodeError),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Layers(error) => error.fmt(f),
            Self::Refused(packet, reason) => write!(f, "refused by {packet:?}: {reason:?}"),
            Self::Decode(error) => write!(f, "malformed packet: {error}"),
            Self::Unexpected(packet) => write!(f, "unexpected {packet:?}"),
            Self::Encode(error) => write!(f, "cannot be sent: {error}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Closed => Self::Closed,
            error => Self::Layers(error),
        }
    }
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<EncodeError> for ClientError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Connecting,
    Subscribing,
    Ready,
}

/// A message that was published and is not acknowledged to the end.
#[derive(Clone, Copy, Debug)]
struct Unacknowledged {
    packet_id: PacketId,
    due_ns: u64,
    sequence: u32,
    /// At QoS 2: whether the server has it, and waits for PUBREL.
    is_received: bool,
}

/// A message to publish.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to.
    pub topic: &'a str,
    /// Of publishing.
    pub qos: QoS,
    /// Whether the server is to keep it.
    pub retain: bool,
    /// Content.
    pub payload: &'a [u8],
    /// Comes back in [`Event::Acknowledged`] and [`Client::resend`].
    pub due_ns: u64,
    /// Comes back in [`Client::resend`].
    pub sequence: u32,
}

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    layered: Option<Box<Layered>>,
    version: ProtocolVersion,
    phase: Phase,
    /// The start of a frame whose end has not arrived; mostly empty.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// The SUBSCRIBE to send after CONNACK.
    subscribe: Vec<u8>,
    next_id: PacketId,
    /// In the order of publishing, so that the oldest identifier in use is in front.
    unacknowledged: VecDeque<Unacknowledged>,
    receive_maximum: usize,
    server_keep_alive_s: Option<u16>,
    /// Identifiers of inbound messages at QoS 2 between PUBREC and PUBREL.
    received: Vec<PacketId>,
    traffic: ByteCounts,
}

/// Bytes through a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Written.
    pub out: u64,
    /// Read.
    pub received: u64,
}

impl Client {
    /// Starts to connect. CONNECT is waiting to be flushed.
    ///
    /// # Errors
    /// Those of making the socket; an identifier or filter that cannot be written.
    pub fn open(
        path: Path<'_>,
        registry: &Registry,
        token: Token,
        options: Options<'_>,
    ) -> Result<Self, ClientError> {
        let (out, subscribe) = first_packets(options)?;
        Ok(Self {
            stream: connect_socket(path, options.receive_buffer, registry, token)?,
            layered: Layered::connect(path.layers),
            version: options.login.version,
            phase: Phase::Connecting,
            partial: Vec::new(),
            out,
            subscribe,
            next_id: PacketId::FIRST,
            unacknowledged: VecDeque::new(),
            receive_maximum: usize::from(u16::MAX),
            server_keep_alive_s: None,
            received: Vec::new(),
            traffic: ByteCounts::default(),
        })
    }

    /// Starts to connect anew, whatever state the connection is in.
    ///
    /// # Errors
    /// As of [`Client::open`]. The client can be opened again later.
    pub fn reopen(
        &mut self,
        path: Path<'_>,
        registry: &Registry,
        token: Token,
        options: Options<'_>,
    ) -> Result<(), ClientError> {
        let (out, subscribe) = first_packets(options)?;
        self.phase = Phase::Connecting;
        self.partial.clear();
        self.out = out;
        self.subscribe = subscribe;
        self.receive_maximum = usize::from(u16::MAX);
        self.stream = connect_socket(path, options.receive_buffer, registry, token)?;
        self.layered = Layered::connect(path.layers);
        Ok(())
    }

    /// Publishes again what was not acknowledged, as the standard asks after a reconnect: messages like
    /// `message`, with the payload that `payload` writes for a sequence and due time. Call it after
    /// [`Event::Connected`]. Messages that the server had received but whose session it has lost count as
    /// acknowledged.
    ///
    /// # Errors
    /// The topic cannot be written.
    pub fn resend(
        &mut self,
        session_present: bool,
        message: &Outgoing<'_>,
        mut payload: impl FnMut(u32, u64) -> Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), EncodeError> {
        if !session_present {
            self.received.clear();
            self.unacknowledged.retain(|message| {
                if message.is_received {
                    on_event(Event::Acknowledged(message.due_ns));
                }
                !message.is_received
            });
        }
        for sent in &self.unacknowledged {
            if sent.is_received {
                PubRel {
                    packet_id: sent.packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                }
                .encode(self.version, &mut self.out)?;
                continue;
            }
            Publish {
                dup: session_present,
                qos: message.qos,
                retain: message.retain,
                topic: message.topic,
                packet_id: Some(sent.packet_id),
                properties: PublishProperties::default(),
                payload: &payload(sent.sequence, sent.due_ns),
            }
            .encode(self.version, &mut self.out)?;
        }
        Ok(())
    }

    /// Whether it is connected, and subscribed if it is to be.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// The keep alive that the server has set instead of the client's, in seconds.
    #[must_use]
    pub fn server_keep_alive_s(&self) -> Option<u16> {
        self.server_keep_alive_s
    }

    /// Bytes since the call before.
    pub fn take_traffic(&mut self) -> ByteCounts {
        mem::take(&mut self.traffic)
    }

    /// Messages that were published above QoS 0 and are not acknowledged to the end.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Whether bytes wait for [`Client::flush`].
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() || self.layered.as_ref().is_some_and(|l| l.has_output())
    }

    /// Whether another message may be published now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        // Identifiers are given in turn, so the next one is in use only if the oldest is.
        let id_is_free = self
            .unacknowledged
            .front()
            .is_none_or(|m| m.packet_id != self.next_id);
        id_is_free
            && self.unacknowledged.len() < self.receive_maximum
            && self.out.len() < UNWRITTEN_LIMIT
    }

    /// Publishes a message; [`Client::has_room`] must hold.
    ///
    /// # Errors
    /// The topic cannot be written.
    pub fn publish(&mut self, message: &Outgoing<'_>) -> Result<(), EncodeError> {
        let packet_id = (message.qos > QoS::AtMostOnce).then_some(self.next_id);
        let packet = Publish {
            dup: false,
            qos: message.qos,
            retain: message.retain,
            topic: message.topic,
            packet_id,
            properties: PublishProperties::default(),
            payload: message.payload,
        };
        packet.encode(self.version, &mut self.out)?;
        if let Some(packet_id) = packet_id {
            self.unacknowledged.push_back(Unacknowledged {
                packet_id,
                due_ns: message.due_ns,
                sequence: message.sequence,
                is_received: false,
            });
            self.next_id = self.next_id.next();
        }
        Ok(())
    }

    /// Asks the server for a sign of life, which tells it of one too.
    ///
    /// # Errors
    /// None but those of encoding, which this packet has no cause for.
    pub fn ping(&mut self) -> Result<(), EncodeError> {
        Packet::PingReq.encode(self.version, &mut self.out)
    }

    /// Writes what waits, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection failed.
    pub fn flush(&mut self, scratch: &mut Scratch) -> Result<(), ClientError> {
        let (stream, out) = (&mut self.stream, &mut self.out);
        let written = match &mut self.layered {
            Some(layered) => layered.flush(stream, out, &mut scratch.sealed)?,
            None => write(stream, out)?,
        };
        self.traffic.out += written as u64;
        Ok(())
    }

    /// Puts DISCONNECT into what [`Client::flush`] writes. In 5.0 it also ends a persistent session.
    ///
    /// # Errors
    /// None but those of encoding, which this packet has no cause for.
    pub fn close(&mut self) -> Result<(), EncodeError> {
        let disconnect = Disconnect {
            reason: ReasonCode::Success,
            properties: DisconnectProperties {
                session_expiry_interval: self.version.is_v5().then_some(0),
                ..DisconnectProperties::default()
            },
        };
        disconnect.encode(self.version, &mut self.out)
    }

    /// Reads what has arrived, up to about `limit` bytes, and tells what it was. Returns the bytes read; as
    /// many as `limit` or more mean that there may be more.
    ///
    /// # Errors
    /// The connection ended or failed, or the server broke the protocol.
    pub fn read(
        &mut self,
        scratch: &mut Scratch,
        limit: usize,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, ClientError> {
        let chunk = CHUNK.min(limit);
        let mut total = 0;
        while total < limit {
            let Some(arrival) = self.receive(scratch, chunk)? else {
                break;
            };
            let count = arrival.received;
            total += count;
            self.traffic.received += count as u64;
            let filled = &scratch.packets[..arrival.filled];
            let consumed = self.handle_bytes(filled, on_event)?;
            self.partial.clear();
            self.partial.extend_from_slice(&filled[consumed..]);
            if let Some(end) = arrival.end {
                // The layers say why, to a server that still listens.
                let _ = self.flush(scratch);
                return Err(end.into());
            }
            // A short read has emptied the socket, and the next byte makes a new edge.
            if count < chunk {
                break;
            }
        }
        Ok(total)
    }

    /// Reads once from the socket. `None`: nothing is there.
    fn receive(
        &mut self,
        scratch: &mut Scratch,
        chunk: usize,
    ) -> Result<Option<Arrival>, ClientError> {
        let packets = &mut scratch.packets;
        if let Some(layered) = &mut self.layered {
            packets.clear();
            packets.extend_from_slice(&self.partial);
            let (stream, arrived) = (&mut self.stream, &mut scratch.arrived);
            return layered.receive(stream, arrived, packets, chunk);
        }
        let kept = self.partial.len();
        if packets.len() < kept + chunk {
            packets.resize(kept + chunk, 0);
        }
        packets[..kept].copy_from_slice(&self.partial);
        let received = read_once(&mut self.stream, &mut packets[kept..kept + chunk])?;
        Ok(received.map(|received| Arrival {
            received,
            filled: kept + received,
            end: None,
        }))
    }

    /// Handles the whole frames in `bytes` and returns their length.
    fn handle_bytes(
        &mut self,
        bytes: &[u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, ClientError> {
        let mut consumed = 0;
        while let Some(header) = peek_frame(&bytes[consumed..], Some(self.version))?
            && let Some(frame) = bytes.get(consumed..consumed + header.len())
        {
            let packet = Packet::decode(frame, self.version)?;
            self.handle_packet(&packet, header.packet_type, on_event)?;
            consumed += header.len();
        }
        Ok(consumed)
    }

    fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        packet_type: PacketType,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        let accepted = |reason: ReasonCode| {
            // Codes below 0x80 are those of success (5.0 §2.4).
            let refused = reason.as_u8() >= 0x80;
            if refused {
                Err(ClientError::Refused(packet_type, reason))
            } else {
                Ok(())
            }
        };
        match packet {
            Packet::ConnAck(ack) if self.phase == Phase::Connecting => {
                accepted(ack.reason)?;
                if let Some(maximum) = ack.properties.receive_maximum {
                    self.receive_maximum = usize::from(maximum.get());
                }
                self.server_keep_alive_s = ack.properties.server_keep_alive;
                let session_present = ack.session_present;
                let subscribe = mem::take(&mut self.subscribe);
                if subscribe.is_empty() || session_present {
                    self.phase = Phase::Ready;
                } else {
                    self.phase = Phase::Subscribing;
                    self.out.extend_from_slice(&subscribe);
                }
                on_event(Event::Connected { session_present });
            }
            Packet::SubAck(ack) if self.phase == Phase::Subscribing => {
                ack.reasons.iter().try_for_each(accepted)?;
                self.phase = Phase::Ready;
                on_event(Event::Subscribed);
            }
            Packet::Publish(publish) => self.handle_publish(publish, on_event)?,
            Packet::PubAck(ack) => {
                let message = self.settle(ack.packet_id, packet_type)?;
                on_event(outcome(message, ack.reason));
            }
            Packet::PubRec(rec) if accepted(rec.reason).is_err() => {
                let message = self.settle(rec.packet_id, packet_type)?;
                on_event(outcome(message, rec.reason));
            }
            Packet::PubRec(rec) => {
                let packet_id = rec.packet_id;
                let mut waiting = self.unacknowledged.iter_mut();
                if let Some(message) = waiting.find(|message| message.packet_id == packet_id) {
                    message.is_received = true;
                }
                PubRel {
                    packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                }
                .encode(self.version, &mut self.out)?;
            }
            Packet::PubComp(comp) => {
                let message = self.settle(comp.packet_id, packet_type)?;
                on_event(Event::Acknowledged(message.due_ns));
            }
            Packet::PingResp => {}
            Packet::PubRel(rel) => {
                let packet_id = rel.packet_id;
                self.received.retain(|&received| received != packet_id);
                PubComp {
                    packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                }
                .encode(self.version, &mut self.out)?;
            }
            Packet::Disconnect(disconnect) => {
                return Err(ClientError::Refused(packet_type, disconnect.reason));
            }
            _ => return Err(ClientError::Unexpected(packet_type)),
        }
        Ok(())
    }

    fn handle_publish(
        &mut self,
        publish: &Publish<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        let reason = ReasonCode::Success;
        let properties = AckProperties::default();
        match (publish.qos, publish.packet_id) {
            (QoS::AtLeastOnce, Some(packet_id)) => {
                PubAck {
                    packet_id,
                    reason,
                    properties,
                }
                .encode(self.version, &mut self.out)?;
            }
            (QoS::ExactlyOnce, Some(packet_id)) => {
                PubRec {
                    packet_id,
                    reason,
                    properties,
                }
                .encode(self.version, &mut self.out)?;
                // Sent again before PUBREL it is the same message.
                if self.received.contains(&packet_id) {
                    return Ok(());
                }
                self.received.push(packet_id);
            }
            _ => {}
        }
        on_event(Event::Message(publish.payload));
        Ok(())
    }

    /// Removes a message from those that wait for an answer.
    fn settle(
        &mut self,
        packet_id: PacketId,
        packet_type: PacketType,
    ) -> Result<Unacknowledged, ClientError> {
        // Mostly the front one.
        let at = self
            .unacknowledged
            .iter()
            .position(|message| message.packet_id == packet_id);
        let message = at.and_then(|at| self.unacknowledged.remove(at));
        message.ok_or(ClientError::Unexpected(packet_type))
    }
}

fn outcome(message: Unacknowledged, reason: ReasonCode) -> Event<'static> {
    // Codes below 0x80 are those of success (5.0 §2.4).
    if reason.as_u8() < 0x80 {
        Event::Acknowledged(message.due_ns)
    } else {
        Event::MessageRefused(reason)
    }
}

/// CONNECT, and the SUBSCRIBE for later.
fn first_packets(options: Options<'_>) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
    let login = options.login;
    let connect = Connect {
        version: login.version,
        clean_start: options.clean_session,
        keep_alive: login.keep_alive_s,
        client_id: options.client_id,
        will: options.will.map(|(topic, qos, payload)| LastWill {
            qos,
            retain: false,
            topic,
            payload,
            properties: WillProperties::default(),
        }),
        username: login.username.as_deref(),
        password: login.password.as_deref().map(str::as_bytes),
        properties: ConnectProperties {
            session_expiry_interval: (login.version.is_v5() && !options.clean_session)
                .then_some(SESSION_EXPIRY_S),
            ..ConnectProperties::default()
        },
    };
    let mut out = Vec::new();
    connect.encode(&mut out)?;
    let mut subscribe = Vec::new();
    if let Some((filter, qos)) = options.subscription {
        let qos_only = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let mut filters = Vec::new();
        let packet = Subscribe {
            packet_id: PacketId::FIRST,
            properties: SubscribeProperties::default(),
            filters: SubscribeFilters::encode_from(&[(filter, qos_only)], &mut filters)?,
        };
        packet.encode(login.version, &mut subscribe)?;
    }
    Ok((out, subscribe))
}

/// Writes what `bytes` hold, as far as the socket takes it, and removes that.
fn write(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<usize, ClientError> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.drain(..written);
    Ok(written)
}

/// `None`: nothing is there.
fn read_once(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<Option<usize>, ClientError> {
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn connect_socket(
    path: Path<'_>,
    receive_buffer: Option<usize>,
    registry: &Registry,
    token: Token,
) -> io::Result<TcpStream> {
    let domain = Domain::for_address(path.server);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Small messages are to leave when they are due.
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(local) = path.local {
        // Ports of earlier runs may still be in TIME_WAIT.
        socket.set_reuse_address(true)?;
        if let Err(error) = socket.bind(&local.into()) {
            if error.kind() != ErrorKind::AddrInUse {
                return Err(error);
            }
            // Asked to reuse, the kernel would pick a port that another client is using.
            socket.set_reuse_address(false)?;
            socket.bind(&SocketAddr::from((local.ip(), 0)).into())?;
        }
    }
    let connected = socket.connect(&path.server.into());
    if let Err(error) = connected
        && error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error())
    {
        return Err(error);
    }
    let mut stream = TcpStream::from_std(socket.into());
    // Watched for edges, so that both interests together cost nothing.
    registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(stream)
}
