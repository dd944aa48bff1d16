//! One simulated MQTT client on a non-blocking socket.
//!
//! Call order: [`Client::open`]; then [`Client::read`] when the socket may be readable and
//! [`Client::flush`] after anything that may have produced bytes, and when the socket may be writable.
//! Acknowledgements are written by the client itself.
//!
//! Invariant: no more messages above QoS 0 are unacknowledged than the server's receive maximum allows.
//!
//! Deliberately absent: reconnecting, keep-alive (the load asks for none).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::{fmt, mem};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, DecodeError, Disconnect, DisconnectProperties,
    EncodeError, Packet, PacketId, PacketType, ProtocolVersion, PubAck, PubComp, PubRec, PubRel,
    Publish, PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilters, SubscribeProperties,
    SubscriptionOptions, peek_frame,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// Unwritten bytes at which a client has no room for another message.
const UNWRITTEN_LIMIT: usize = 256 * 1024;

/// How long a persistent session is kept: longer than any run.
const SESSION_EXPIRY_S: u32 = 24 * 60 * 60;

/// How to connect.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Client identifier.
    pub client_id: &'a str,
    /// Whether the session ends with the connection; if not, [`Client::close`] ends it where the
    /// version allows.
    pub clean_session: bool,
    /// What to subscribe to as soon as the server has accepted the connection.
    pub subscription: Option<(&'a str, QoS)>,
}

/// What a client has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Connected, and subscribed if that was asked for.
    Ready,
    /// A message arrived; its payload.
    Message(&'a [u8]),
    /// A message above QoS 0 is acknowledged to the end; the due time it was published with.
    Acknowledged(u64),
}

/// Why a client is of no more use.
#[derive(Debug)]
pub enum ClientError {
    /// The socket failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
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
#[derive(Debug)]
struct Unacknowledged {
    packet_id: PacketId,
    due_ns: u64,
}

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
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
    /// Identifiers of inbound messages at QoS 2 between PUBREC and PUBREL.
    received: Vec<PacketId>,
}

impl Client {
    /// Starts to connect, from a certain address of this machine if one is given (and its port, unless
    /// that is taken). CONNECT is waiting to be flushed.
    ///
    /// # Errors
    /// Those of making the socket; an identifier or filter that cannot be written.
    pub fn open(
        server: SocketAddr,
        local: Option<SocketAddr>,
        registry: &Registry,
        token: Token,
        options: Options<'_>,
    ) -> Result<Self, ClientError> {
        let connect = Connect {
            version: options.version,
            clean_start: options.clean_session,
            keep_alive: 0,
            client_id: options.client_id,
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: (options.version.is_v5() && !options.clean_session)
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
            packet.encode(options.version, &mut subscribe)?;
        }
        let mut stream = connect_socket(server, local)?;
        // Watched for edges, so that both interests together cost nothing.
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            stream,
            version: options.version,
            phase: Phase::Connecting,
            partial: Vec::new(),
            out,
            subscribe,
            next_id: PacketId::FIRST,
            unacknowledged: VecDeque::new(),
            receive_maximum: usize::from(u16::MAX),
            received: Vec::new(),
        })
    }

    /// Messages that were published above QoS 0 and are not acknowledged to the end.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Whether bytes wait for [`Client::flush`].
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
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

    /// Publishes a message; [`Client::has_room`] must hold. `due_ns` comes back in
    /// [`Event::Acknowledged`].
    ///
    /// # Errors
    /// The topic cannot be written.
    pub fn publish(
        &mut self,
        topic: &str,
        qos: QoS,
        payload: &[u8],
        due_ns: u64,
    ) -> Result<(), EncodeError> {
        let packet_id = (qos > QoS::AtMostOnce).then_some(self.next_id);
        let packet = Publish {
            dup: false,
            qos,
            retain: false,
            topic,
            packet_id,
            properties: PublishProperties::default(),
            payload,
        };
        packet.encode(self.version, &mut self.out)?;
        if let Some(packet_id) = packet_id {
            self.unacknowledged
                .push_back(Unacknowledged { packet_id, due_ns });
            self.next_id = self.next_id.next();
        }
        Ok(())
    }

    /// Writes what waits, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection failed.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let mut written = 0;
        while let Some(rest) = self.out.get(written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.drain(..written);
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

    /// Reads all that has arrived and tells what it was. `buffer` is working space that all clients can
    /// share; it grows to the longest frame.
    ///
    /// # Errors
    /// The connection ended or failed, or the server broke the protocol.
    pub fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        loop {
            let kept = self.partial.len();
            if buffer.len() < kept + CHUNK {
                buffer.resize(kept + CHUNK, 0);
            }
            buffer[..kept].copy_from_slice(&self.partial);
            let count = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let filled = &buffer[..kept + count];
            let consumed = self.handle_bytes(filled, on_event)?;
            self.partial.clear();
            self.partial.extend_from_slice(&filled[consumed..]);
            // A short read has emptied the socket, and the next byte makes a new edge.
            if kept + count < buffer.len() {
                return Ok(());
            }
        }
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
                let subscribe = mem::take(&mut self.subscribe);
                if subscribe.is_empty() {
                    self.phase = Phase::Ready;
                    on_event(Event::Ready);
                } else {
                    self.phase = Phase::Subscribing;
                    self.out.extend_from_slice(&subscribe);
                }
            }
            Packet::SubAck(ack) if self.phase == Phase::Subscribing => {
                ack.reasons.iter().try_for_each(accepted)?;
                self.phase = Phase::Ready;
                on_event(Event::Ready);
            }
            Packet::Publish(publish) => self.handle_publish(publish, on_event)?,
            Packet::PubAck(ack) => {
                accepted(ack.reason)?;
                self.acknowledge(ack.packet_id, packet_type, on_event)?;
            }
            Packet::PubRec(rec) => {
                accepted(rec.reason)?;
                let packet_id = rec.packet_id;
                PubRel {
                    packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                }
                .encode(self.version, &mut self.out)?;
            }
            Packet::PubComp(comp) => self.acknowledge(comp.packet_id, packet_type, on_event)?,
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

    fn acknowledge(
        &mut self,
        packet_id: PacketId,
        packet_type: PacketType,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        // Mostly the front one.
        let at = self
            .unacknowledged
            .iter()
            .position(|message| message.packet_id == packet_id);
        let message = at.and_then(|at| self.unacknowledged.remove(at));
        let message = message.ok_or(ClientError::Unexpected(packet_type))?;
        on_event(Event::Acknowledged(message.due_ns));
        Ok(())
    }
}

fn connect_socket(server: SocketAddr, local: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(server),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    // Small messages are to leave when they are due.
    socket.set_tcp_nodelay(true)?;
    if let Some(local) = local {
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
    match socket.connect(&server.into()) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
