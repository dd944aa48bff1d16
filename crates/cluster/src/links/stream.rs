//! The bytes of a connection: TCP, or TLS over it.
//!
//! To TCP any thread can write, if the stream was [`shared`](Stream::shared). TLS has a state for each direction that
//! changes with every write, so that only the link writes to it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::state::outbox::Socket;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, encrypted or not.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Other(Box<dyn Duplex>),
}

impl Stream {
    pub(crate) fn encrypted(stream: impl Duplex + 'static) -> Self {
        Self::Other(Box::new(stream))
    }

    /// The same stream, and what other threads may write to, if they may. The connection is closed when both are dropped.
    pub(crate) fn shared(self) -> (Self, Option<Arc<dyn Socket>>) {
        match self {
            Self::Tcp(tcp) => {
                let tcp = Arc::new(tcp);
                let stream = Self::Other(Box::new(SharedTcp(Arc::clone(&tcp))));
                (stream, Some(tcp))
            }
            Self::Other(_) => (self, None),
        }
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp),
            Self::Other(stream) => Pin::new(&mut **stream),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }
}

impl Socket for TcpStream {
    fn write_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(parts)
    }
}

/// TCP that other threads write to as well.
struct SharedTcp(Arc<TcpStream>);

impl AsyncRead for SharedTcp {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                // It was not ready after all; the system tells when it is.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SharedTcp {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// TCP keeps nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// It is closed when the last owner drops it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
