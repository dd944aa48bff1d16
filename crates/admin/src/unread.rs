//! Bytes that a peer does not read: there are so many of them, and they are kept so long.
//!
//! Invariant: while bytes are to be sent, the peer takes some within [`UNREAD_TIME`], or the connection ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_send_buffer_size, set_tcp_user_timeout};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a peer may take none of the bytes that are to be sent.
const UNREAD_TIME: Duration = Duration::from_secs(10);

/// How long the kernel keeps bytes that a peer does not take, also of a connection that is closed, in ms.
const KERNEL_MS: u32 = 20_000;

/// Bytes that the kernel keeps for a peer; Linux takes twice as many.
const KERNEL_BYTES: usize = 128 * 1024;

/// Has the kernel keep few bytes for a peer, and not for long.
pub(crate) fn limit(stream: &TcpStream) {
    let limited = set_socket_send_buffer_size(stream, KERNEL_BYTES)
        .and_then(|()| set_tcp_user_timeout(stream, KERNEL_MS));
    if let Err(error) = limited {
        tracing::debug!(%error, "a connection to the HTTP port has the limits of the kernel");
    }
}

/// A connection that ends when its peer does not read.
#[derive(Debug)]
pub(crate) struct Unread<S> {
    stream: S,
    /// How long the peer may take nothing.
    time: Duration,
    /// Runs while the peer takes nothing.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Unread<S> {
    /// Of this connection.
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            time: UNREAD_TIME,
            deadline: None,
        }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let begin = || Box::pin(sleep(self.time));
        let deadline = self.deadline.get_or_insert_with(begin);
        ready!(deadline.as_mut().poll(context));
        let why = "the peer reads nothing";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn only_a_peer_that_takes_nothing_for_the_whole_time_is_given_up() {
        let mut unread = Unread {
            stream: (),
            time: Duration::from_millis(1),
            deadline: None,
        };
        poll_fn(|context| {
            assert!(unread.judge::<()>(context, Poll::Pending).is_pending());
            assert!(unread.deadline.is_some());
            assert!(unread.judge(context, Poll::Ready(Ok(()))).is_ready());
            assert!(unread.deadline.is_none(), "some bytes were taken");
            Poll::Ready(())
        })
        .await;
        let ended = poll_fn(|context| unread.judge::<()>(context, Poll::Pending)).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
