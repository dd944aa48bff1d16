//! A network connection: bytes in and out, and how it has gone.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

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
    /// When it has ended, how far it was.
    pub(super) phase: Phase,
    /// The message that the server publishes if this connection does not end normally.
    pub(super) will: Option<MessageIndex>,
}

impl Link {
    pub(super) fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            phase: Phase::Connecting,
            will: None,
        })
    }

    /// Reads what there is, up to about `limit` bytes.
    pub(super) fn fill(&mut self, limit: usize) -> (Vec<u8>, State) {
        let mut chunk = [0; 16 * 1024];
        let mut input = Vec::new();
        while input.len() < limit {
            let wanted = chunk.len().min(limit - input.len());
            match self.stream.read(&mut chunk[..wanted]) {
                Ok(0) => return (input, State::Closed),
                Ok(count) => input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (input, State::Broken),
            }
        }
        (input, State::Open)
    }

    /// Writes what the socket takes, and says how much.
    pub(super) fn write(&mut self, output: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < output.len() {
            match self.stream.write(&output[written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}
