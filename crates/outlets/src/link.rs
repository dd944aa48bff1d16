//! One network connection of an MQTT client, over any stream of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use mqtt_client::{Acknowledgements, Client, Deadline, Event};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Bytes that are read at once.
const BUFFER: usize = 64 * 1024;

/// A client and its connection. `M` is what a message that it publishes is known by.
pub(crate) struct Link<M> {
    stream: Box<dyn Stream>,
    client: Client<M>,
    buffer: Box<[u8]>,
    start: Instant,
    /// Nothing that was written waits in the stream's own layers.
    is_flushed: bool,
}

impl<M> std::fmt::Debug for Link<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl<M: Clone> Link<M> {
    /// A client without a session, whose CONNECT is still to be given to [`Self::client`].
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            client: Client::new(Acknowledgements::Manual),
            buffer: vec![0; BUFFER].into(),
            start: Instant::now(),
            is_flushed: true,
        }
    }

    pub(crate) fn client(&mut self) -> &mut Client<M> {
        &mut self.client
    }

    /// Writes what waits, and reads if `reads`; gives what has come to `handle`, event by event. Ends after something was written
    /// or read, or a deadline of the client's own has passed. May be dropped and called again: no byte is lost.
    ///
    /// # Errors
    /// The connection is over; the error says how.
    pub(crate) async fn turn(
        &mut self,
        reads: bool,
        mut handle: impl FnMut(&mut Client<M>, Event<'_, M>),
    ) -> io::Result<()> {
        let due = self.client.poll_deadline();
        let waits = due.map(|due| due.saturating_sub(self.start.elapsed()));
        let moved = std::future::poll_fn(|cx| self.poll(cx, reads));
        let count = match waits {
            None => moved.await?,
            Some(waits) => match tokio::time::timeout(waits, moved).await {
                Ok(moved) => moved?,
                Err(_) => {
                    return match self.client.handle_deadline(self.start.elapsed()) {
                        Deadline::None => Ok(()),
                        Deadline::KeepAliveTimeout => Err(io::ErrorKind::TimedOut.into()),
                    };
                }
            },
        };
        let bytes = self.buffer.get(..count).unwrap_or_default();
        let mut arrival = self.client.handle_bytes(bytes);
        loop {
            match self.client.poll_event(&mut arrival) {
                Ok(Some(event)) => handle(&mut self.client, event),
                Ok(None) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// Ready with how many bytes were read; 0: some were written.
    fn poll(&mut self, cx: &mut Context<'_>, reads: bool) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(&mut *self.stream);
        let waiting = self.client.poll_transmit();
        if !waiting.is_empty() {
            if let Poll::Ready(written) = stream.as_mut().poll_write(cx, waiting)? {
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.client
                    .handle_transmitted(written, self.start.elapsed());
                self.is_flushed = false;
                return Poll::Ready(Ok(0));
            }
        } else if !self.is_flushed && stream.as_mut().poll_flush(cx)?.is_ready() {
            self.is_flushed = true;
        }
        if !reads {
            return Poll::Pending;
        }
        let mut read = ReadBuf::new(&mut self.buffer);
        match stream.poll_read(cx, &mut read)? {
            Poll::Ready(()) if read.filled().is_empty() => {
                Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            Poll::Ready(()) => Poll::Ready(Ok(read.filled().len())),
            Poll::Pending => Poll::Pending,
        }
    }
}
