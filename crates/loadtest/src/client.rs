//! One simulated MQTT client on a non-blocking socket.
//!
//! Call order: [`Client::open`]; then [`Client::read`] when the socket may be readable and
//! [`Client::flush`] after anything that may have produced bytes, and when the socket may be writable.
//! Acknowledgements are written by the client itself.
//!
//! After a failure [`Client::reopen`] connects again under the same name; what was not acknowledged is
//! kept for [`Client::resend`].
//!
//! What MQTT asks of a client is [`mqtt_client`]'s. TLS and WebSocket, if there are any, are between the socket and
//! everything else.
//!
//! Deliberately absent: deciding when to connect, to send again or to ping; the engine does. The layers' own
//! farewells: DISCONNECT says it all.

mod layered;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt, mem};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use mqtt_client::{Acknowledgement, Acknowledgements, CommandError, ProtocolError};
use mqtt_proto::{
    Connect, ConnectProperties, Disconnect, DisconnectProperties, EncodeError, LastWill,
    PacketType, Publish, PublishProperties, QoS, ReasonCode, SubscribeProperties,
    SubscriptionOptions, WillProperties,
};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use transport::{ClientOptions, TransportError};

use self::layered::Layered;
use crate::workload::Login;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

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
    /// Seconds for which 5.0 keeps the session after the connection; `None`: not at all.
    pub session_expiry_s: Option<u32>,
    /// What to subscribe to as soon as the server has accepted the connection; after [`Client::reopen`] only
    /// if there is no session.
    pub subscriptions: &'a [(&'a str, QoS)],
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
    /// The server has accepted the connection.
    Connected,
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
    /// The server broke the protocol.
    Protocol(ProtocolError),
    /// The server sent an acknowledgement of nothing.
    Unexpected(PacketType),
    /// A client identifier or will cannot be written.
    Encode(EncodeError),
    /// A message or subscription cannot be sent.
    Command(CommandError),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Layers(error) => error.fmt(f),
            Self::Refused(packet, reason) => write!(f, "refused by {packet:?}: {reason:?}"),
            Self::Protocol(error) => with_source(f, error),
            Self::Unexpected(packet) => write!(f, "unexpected {packet:?}"),
            Self::Encode(error) => write!(f, "cannot be sent: {error}"),
            Self::Command(error) => with_source(f, error),
        }
    }
}

/// An error and what it comes of, on one line.
fn with_source(f: &mut fmt::Formatter<'_>, error: &dyn error::Error) -> fmt::Result {
    match error.source() {
        Some(source) => write!(f, "{error}: {source}"),
        None => write!(f, "{error}"),
    }
}

impl error::Error for ClientError {}

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

impl From<ProtocolError> for ClientError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<CommandError> for ClientError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<EncodeError> for ClientError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

/// What a message that is not acknowledged to the end is known by.
#[derive(Clone, Copy, Debug)]
struct Sent {
    due_ns: u64,
    sequence: u32,
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
    mqtt: mqtt_client::Client<Sent>,
    /// What to subscribe to after CONNACK.
    subscriptions: Vec<(Box<str>, QoS)>,
    /// Whether a session that the server has may be one with these subscriptions.
    is_reopened: bool,
    is_ready: bool,
    server_keep_alive_s: Option<u16>,
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
        let mut mqtt = mqtt_client::Client::new(Acknowledgements::Automatic);
        connect(&mut mqtt, options)?;
        Ok(Self {
            stream: connect_socket(path, options.receive_buffer, registry, token)?,
            layered: Layered::connect(path.layers),
            mqtt,
            subscriptions: owned(options.subscriptions),
            is_reopened: false,
            is_ready: false,
            server_keep_alive_s: None,
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
        connect(&mut self.mqtt, options)?;
        self.subscriptions = owned(options.subscriptions);
        self.is_reopened = true;
        self.is_ready = false;
        self.stream = connect_socket(path, options.receive_buffer, registry, token)?;
        self.layered = Layered::connect(path.layers);
        Ok(())
    }

    /// Whether messages of an earlier connection wait for [`Client::resend`].
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.mqtt.poll_resend().is_some()
    }

    /// Publishes again what was not acknowledged, as the standard asks after a reconnect, as far as there is room:
    /// messages like `message`, with the payload that `payload` writes for a sequence and due time.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn resend(
        &mut self,
        message: &Outgoing<'_>,
        mut payload: impl FnMut(u32, u64) -> Vec<u8>,
    ) -> Result<(), CommandError> {
        while let Some(&Sent { due_ns, sequence }) = self.mqtt.poll_resend() {
            let payload = payload(sequence, due_ns);
            let payload = &payload;
            self.mqtt.resend(packet(&Outgoing {
                payload,
                ..*message
            }))?;
        }
        Ok(())
    }

    /// Whether it is connected, and subscribed if it is to be.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready
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
        self.mqtt.in_flight()
    }

    /// Whether bytes wait for [`Client::flush`].
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.mqtt.poll_transmit().is_empty()
            || self.layered.as_ref().is_some_and(|l| l.has_output())
    }

    /// Whether another message may be published now.
    #[must_use]
    pub fn has_room(&self, qos: QoS) -> bool {
        self.mqtt.has_room(qos)
    }

    /// Publishes a message; [`Client::has_room`] must hold.
    ///
    /// # Errors
    /// The message cannot be sent.
    pub fn publish(&mut self, message: &Outgoing<'_>) -> Result<(), CommandError> {
        let sent = Sent {
            due_ns: message.due_ns,
            sequence: message.sequence,
        };
        self.mqtt.publish(packet(message), sent).map(drop)
    }

    /// Asks the server for a sign of life, which tells it of one too.
    ///
    /// # Errors
    /// The client is not connected.
    pub fn ping(&mut self) -> Result<(), CommandError> {
        self.mqtt.ping()
    }

    /// Writes what waits, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection failed.
    pub fn flush(&mut self, scratch: &mut Scratch) -> Result<(), ClientError> {
        let (stream, out) = (&mut self.stream, self.mqtt.poll_transmit());
        let (written, taken) = match &mut self.layered {
            Some(layered) => layered.flush(stream, out, &mut scratch.sealed)?,
            None => {
                let written = write(stream, out)?;
                (written, written)
            }
        };
        self.traffic.out += written as u64;
        // The time does not count: the engine decides when to ping.
        self.mqtt.handle_transmitted(taken, Duration::ZERO);
        Ok(())
    }

    /// Puts DISCONNECT into what [`Client::flush`] writes. In 5.0 it also ends a persistent session.
    ///
    /// # Errors
    /// The client is not connected.
    pub fn close(&mut self) -> Result<(), CommandError> {
        let is_v5 = self.mqtt.version().is_v5();
        self.mqtt.disconnect(&Disconnect {
            reason: ReasonCode::Success,
            properties: DisconnectProperties {
                session_expiry_interval: is_v5.then_some(0),
                ..DisconnectProperties::default()
            },
        })
    }

    /// Puts DISCONNECT into what [`Client::flush`] writes, and leaves the session as it is.
    ///
    /// # Errors
    /// The client is not connected.
    pub fn leave(&mut self) -> Result<(), CommandError> {
        self.mqtt.disconnect(&Disconnect {
            reason: ReasonCode::Success,
            properties: DisconnectProperties::default(),
        })
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
            self.handle_bytes(&scratch.packets[..arrival.filled], on_event)?;
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
            let (stream, arrived) = (&mut self.stream, &mut scratch.arrived);
            return layered.receive(stream, arrived, packets, chunk);
        }
        if packets.len() < chunk {
            packets.resize(chunk, 0);
        }
        let received = read_once(&mut self.stream, &mut packets[..chunk])?;
        Ok(received.map(|received| Arrival {
            received,
            filled: received,
            end: None,
        }))
    }

    fn handle_bytes(
        &mut self,
        bytes: &[u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        let mut arrival = self.mqtt.handle_bytes(bytes);
        while let Some(event) = self.mqtt.poll_event(&mut arrival)? {
            match event {
                mqtt_client::Event::Message(incoming) => {
                    on_event(Event::Message(incoming.publish.payload));
                }
                mqtt_client::Event::Acknowledged(ack) => on_event(outcome(&ack)),
                mqtt_client::Event::Discarded(sent) => on_event(Event::Acknowledged(sent.due_ns)),
                mqtt_client::Event::Connected(ack) => {
                    self.server_keep_alive_s = ack.properties.server_keep_alive;
                    self.subscribe(ack.session_present)?;
                    on_event(Event::Connected);
                }
                mqtt_client::Event::Subscribed(ack) => {
                    if let Some(reason) = ack.reasons.iter().find(|reason| reason.is_error()) {
                        return Err(ClientError::Refused(PacketType::SubAck, reason));
                    }
                    self.is_ready = true;
                    on_event(Event::Subscribed);
                }
                mqtt_client::Event::Refused(ack) => {
                    return Err(ClientError::Refused(PacketType::ConnAck, ack.reason));
                }
                mqtt_client::Event::Disconnected(packet) => {
                    return Err(ClientError::Refused(PacketType::Disconnect, packet.reason));
                }
                mqtt_client::Event::Stray { packet_type, .. } => {
                    return Err(ClientError::Unexpected(packet_type));
                }
                mqtt_client::Event::Duplicate(_)
                | mqtt_client::Event::Released { .. }
                | mqtt_client::Event::Received(_)
                | mqtt_client::Event::Unsubscribed(_)
                | mqtt_client::Event::PingResp => {}
            }
        }
        Ok(())
    }

    /// Subscribes, if the session does not know of it. A session that has outlasted an earlier run may have
    /// another subscription.
    fn subscribe(&mut self, session_present: bool) -> Result<(), CommandError> {
        let subscriptions = mem::take(&mut self.subscriptions);
        let are_known = session_present && self.is_reopened;
        if are_known || subscriptions.is_empty() {
            self.is_ready = true;
            return Ok(());
        }
        let qos_only = |qos: QoS| SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let filters: Vec<_> = subscriptions
            .iter()
            .map(|(filter, qos)| (&**filter, qos_only(*qos)))
            .collect();
        let properties = SubscribeProperties::default();
        self.mqtt.subscribe(&filters, properties).map(drop)
    }
}

fn outcome(ack: &Acknowledgement<'_, Sent>) -> Event<'static> {
    // PUBCOMP comes when the server has the message, whatever it says.
    if ack.packet_type == PacketType::PubComp || !ack.reason.is_error() {
        Event::Acknowledged(ack.message.due_ns)
    } else {
        Event::MessageRefused(ack.reason)
    }
}

#[inline]
fn packet<'a>(message: &Outgoing<'a>) -> Publish<'a> {
    Publish {
        dup: false,
        qos: message.qos,
        retain: message.retain,
        topic: message.topic,
        packet_id: None,
        properties: PublishProperties::default(),
        payload: message.payload,
    }
}

fn owned(subscriptions: &[(&str, QoS)]) -> Vec<(Box<str>, QoS)> {
    let subscriptions = subscriptions.iter();
    subscriptions
        .map(|&(filter, qos)| (filter.into(), qos))
        .collect()
}

fn connect(mqtt: &mut mqtt_client::Client<Sent>, options: Options<'_>) -> Result<(), EncodeError> {
    let login = options.login;
    mqtt.connect(&Connect {
        version: login.version,
        is_bridge: false,
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
            session_expiry_interval: options.session_expiry_s.filter(|_| login.version.is_v5()),
            ..ConnectProperties::default()
        },
    })
}

/// Writes bytes as far as the socket takes them; how many.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<usize, ClientError> {
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
