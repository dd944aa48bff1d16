//! A network connection: bytes in and out, whole frames.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use mqtt_proto::{DecodeError, Packet, ProtocolVersion, peek_frame};

use crate::model::MessageIndex;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// CONNECT is sent.
    Connecting,
    /// CONNACK came.
    Up,
    /// DISCONNECT is sent.
    Leaving,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It does.
    Open,
    /// The other side has closed it in order.
    Closed,
    /// It is broken, or is to be given up.
    Broken,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) phase: Phase,
    /// The message that the server publishes if this connection does not end normally.
    pub(super) will: Option<MessageIndex>,
    version: ProtocolVersion,
    input: Vec<u8>,
    /// Bytes of `input` that are handled.
    taken: usize,
    output: Vec<u8>,
}

impl Link {
    pub(super) fn open(server: SocketAddr, version: ProtocolVersion) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            phase: Phase::Connecting,
            will: None,
            version,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
        })
    }

    /// Reads what there is, up to about `limit` bytes.
    pub(super) fn fill(&mut self, limit: usize) -> State {
        let mut chunk = [0; 16 * 1024];
        let mut read = 0;
        while read < limit {
            let wanted = chunk.len().min(limit - read);
            match self.stream.read(&mut chunk[..wanted]) {
                Ok(0) => return State::Closed,
                Ok(count) => {
                    self.input.extend_from_slice(&chunk[..count]);
                    read += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return State::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return State::Broken,
            }
        }
        State::Open
    }

    /// The next whole frame.
    pub(super) fn next_frame(&mut self) -> Result<Option<Vec<u8>>, DecodeError> {
        let rest = &self.input[self.taken..];
        let frame = match peek_frame(rest, Some(self.version))? {
            Some(header) if rest.len() >= header.len() => rest[..header.len()].to_vec(),
            _ => {
                self.input.drain(..self.taken);
                self.taken = 0;
                return Ok(None);
            }
        };
        self.taken += frame.len();
        Ok(Some(frame))
    }

    /// Queues a packet for [`Link::flush`].
    pub(super) fn put(&mut self, packet: &Packet<'_>) {
        packet
            .encode(self.version, &mut self.output)
            .expect("the client's own packets can be written");
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
