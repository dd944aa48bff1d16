//! The way to the broker: a TCP or Unix socket, with TLS and WebSocket on it if they are asked for.
//!
//! Invariant: what is sealed goes out in the order of its sealing, because both happen under one lock.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use net_api::Spoken;
use socket2::{Domain, Socket, Type};
use transport::{Layers, TransportError};

use super::options::{ConnectionOptions, Place};
use crate::failure::Failure;

/// How long to wait for a TCP connection, for handshakes, and for the network to take a packet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes read at once.
const CHUNK: usize = 65_536;

/// The sending side of a connection, or the receiving one.
pub(super) struct Stream {
    socket: Socket,
    layers: Option<Arc<Mutex<Layers>>>,
    chunk: Vec<u8>,
}

impl Stream {
    /// Connects, and goes through the handshakes, until `deadline` or for as long as patience lasts.
    ///
    /// # Errors
    /// No connection, files that cannot be used, or a handshake that fails.
    pub(super) fn open(
        options: &ConnectionOptions,
        deadline: Option<Instant>,
    ) -> Result<Self, Failure> {
        let layers = Layers::connect(&options.layers()?);
        let socket = match options.place() {
            Place::Socket(path) => dial_unix(path)?,
            Place::Port(host, port) => dial(host, port, options.bind_address, deadline)?,
        };
        let mut stream = Self {
            socket,
            layers: layers.map(|layers| Arc::new(Mutex::new(*layers))),
            chunk: Vec::new(),
        };
        let transport = options.chosen();
        stream
            .prepare(transport.tls.is_some(), transport.websocket.is_some())
            .map_err(|error| Failure::Runtime(format!("cannot connect: {error}")))?;
        Ok(stream)
    }

    /// The handshakes. Only the broker's answers come before they are done.
    fn prepare(&mut self, tls: bool, websocket: bool) -> io::Result<()> {
        self.socket.set_write_timeout(Some(PATIENCE))?;
        self.socket.set_read_timeout(Some(PATIENCE))?;
        self.write_all(&[])?;
        let mut early = Vec::new();
        while !self.is_established() {
            if self.read(&mut early).map_err(hinted)? == 0 {
                return Err(io::Error::other(match (tls, websocket) {
                    (true, _) => {
                        "the broker closed the connection in the handshake: it may not speak TLS here \
                         (leave --tls, --cafile and the like out, or use another port)"
                    }
                    (false, true) => {
                        "the broker closed the connection in the handshake: it may not speak WebSocket \
                         here (leave --ws out, or use another port)"
                    }
                    (false, false) => "the broker closed the connection",
                }));
            }
        }
        self.socket.set_read_timeout(None)
    }

    fn is_established(&self) -> bool {
        (self.layers.as_deref()).is_none_or(|layers| locked(layers).is_established())
    }

    /// The same connection, for another thread.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            layers: self.layers.clone(),
            chunk: Vec::new(),
        })
    }

    /// Sends bytes of MQTT.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(layers) = &self.layers else {
            return self.socket.write_all(bytes);
        };
        let mut layers = locked(layers);
        let mut sealed = Vec::new();
        layers.take_output(&mut sealed);
        if !bytes.is_empty() {
            layers.send(bytes, &mut sealed);
        }
        self.socket.write_all(&sealed)
    }

    /// Waits for bytes, and appends those of MQTT. Returns how many came from the socket; 0: the end.
    pub(super) fn read(&mut self, inner: &mut Vec<u8>) -> io::Result<usize> {
        self.chunk.resize(CHUNK, 0);
        let length = self.socket.read(&mut self.chunk)?;
        let bytes = self.chunk.get(..length).unwrap_or_default();
        let Some(layers) = &self.layers else {
            inner.extend_from_slice(bytes);
            return Ok(length);
        };
        let mut layers = locked(layers);
        let before = inner.len();
        let result = layers.receive(bytes, inner);
        let mut answer = Vec::new();
        layers.take_output(&mut answer);
        self.socket.write_all(&answer)?;
        match result {
            Ok(()) => Ok(length),
            // What came before the end is heard first; the next call says the end.
            Err(TransportError::Closed) if inner.len() > before => Ok(length),
            Err(TransportError::Closed) => Ok(0),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Says that nothing more is sent.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Some(layers) = &self.layers {
            let mut last = Vec::new();
            let mut layers = locked(layers);
            layers.close(&mut last);
            self.socket.write_all(&last)?;
        }
        self.socket.shutdown(Shutdown::Write)
    }
}

/// An error of a handshake; what the options have to do with it stands behind it.
fn hinted(error: io::Error) -> io::Error {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<TransportError>()) {
        Some(TransportError::NotTls(_)) => io::Error::other(
            "the broker does not speak TLS here (leave --tls, --cafile and the like out, or use another \
             port)",
        ),
        Some(TransportError::NotWebSocket(Spoken::Tls)) => {
            io::Error::other("the broker speaks TLS here (--tls or --cafile goes with it)")
        }
        Some(TransportError::NotWebSocket(_)) => io::Error::other(
            "the broker does not speak WebSocket here (leave --ws out, or use another port)",
        ),
        _ => error,
    }
}

/// The layers; a thread that panicked with them has ended the process.
fn locked(layers: &Mutex<Layers>) -> MutexGuard<'_, Layers> {
    layers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dial_unix(path: &Path) -> Result<Socket, Failure> {
    let stream = UnixStream::connect(path).map_err(|error| {
        Failure::Runtime(format!("cannot connect to {}: {error}", path.display()))
    })?;
    Ok(stream.into())
}

/// Connects to one address, from one of this machine's if it is given.
fn connect(address: SocketAddr, from: Option<IpAddr>, patience: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&address.into(), patience)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// Tries each address of the host in turn.
fn dial(
    host: &str,
    port: u16,
    from: Option<IpAddr>,
    deadline: Option<Instant>,
) -> Result<Socket, Failure> {
    let failed = |error: &io::Error| {
        Failure::Runtime(format!("cannot connect to {host}, port {port}: {error}"))
    };
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| failed(&error))?;
    let mut last = io::Error::other("the name has no address");
    for address in addresses {
        let left = deadline.map(|given| given.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Failure::TimedOut);
        }
        let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        if from.is_some_and(|from| from.is_ipv4() != address.is_ipv4()) {
            continue;
        }
        match connect(address, from, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    if deadline.is_some_and(|given| given <= Instant::now()) {
        return Err(Failure::TimedOut);
    }
    Err(failed(&last))
}
