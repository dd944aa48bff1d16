//! TLS and WebSocket under a simulated client.
//!
//! Invariant: an idle client holds no buffer here; what the socket did not take is the exception.

use mio::net::TcpStream;
use transport::{ClientOptions, Layers};

use super::{Arrival, CHUNK, ClientError, read_once, write};

/// What is between the socket and MQTT.
#[derive(Debug)]
pub(super) struct Layered {
    layers: Box<Layers>,
    /// For the socket, which has not taken it yet.
    unsent: Vec<u8>,
}

impl Layered {
    pub(super) fn connect(options: &ClientOptions) -> Option<Box<Self>> {
        let layers = Layers::connect(options)?;
        let unsent = Vec::new();
        Some(Box::new(Self { layers, unsent }))
    }

    pub(super) fn has_output(&self) -> bool {
        !self.unsent.is_empty() || self.layers.has_output()
    }

    /// Writes what waits, then what the layers have to say and, once they are established, `out`. Returns the bytes
    /// that the socket took, and those of `out` that are taken care of.
    pub(super) fn flush(
        &mut self,
        stream: &mut TcpStream,
        out: &[u8],
        sealed: &mut Vec<u8>,
    ) -> Result<(usize, usize), ClientError> {
        let before = write(stream, &self.unsent)?;
        self.unsent.drain(..before);
        if !self.unsent.is_empty() {
            return Ok((before, 0));
        }
        sealed.clear();
        self.layers.take_output(sealed);
        let mut taken = 0;
        if self.layers.is_established() && !out.is_empty() {
            self.layers.send(out, sealed);
            taken = out.len();
        }
        let written = write(stream, sealed)?;
        // Mostly nothing, and then it takes no memory.
        self.unsent = sealed.get(written..).unwrap_or_default().to_vec();
        Ok((before + written, taken))
    }

    /// Reads once, and appends what is in the layers to `packets`. `None`: nothing is there.
    pub(super) fn receive(
        &mut self,
        stream: &mut TcpStream,
        arrived: &mut Vec<u8>,
        packets: &mut Vec<u8>,
        chunk: usize,
    ) -> Result<Option<Arrival>, ClientError> {
        arrived.resize(CHUNK, 0);
        let Some(received) = read_once(stream, &mut arrived[..chunk])? else {
            return Ok(None);
        };
        let end = self.layers.receive(&arrived[..received], packets).err();
        Ok(Some(Arrival {
            received,
            filled: packets.len(),
            end,
        }))
    }
}
