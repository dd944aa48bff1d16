//! What ends a connection of either direction: the peer is silent, or it was started again, or this node does not speak
//! the connection's version of the protocol any more.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::sleep;

use crate::state::clock::Clock;
use crate::state::peer::Peer;
use crate::state::versions::OwnVersions;

/// Returns when a later process than that of the connection was heard of.
pub(crate) async fn renewed(peer: &Peer, incarnation: u64) -> io::Error {
    let mut watched = peer.incarnation.subscribe();
    // The sender lives as long as the peer, which is borrowed.
    let _ = watched.wait_for(|&known| known > incarnation).await;
    io::Error::other("the node was started again")
}

/// Returns when this node does not speak the version of the connection any more.
pub(crate) async fn outdated(own: &OwnVersions, version: u16) -> io::Error {
    own.outdated(version).await;
    io::Error::other("its version of the protocol is not spoken any more")
}

/// Returns when nothing came for too long.
pub(crate) async fn silence(heard_ms: &AtomicU64, clock: &Clock, limit: Duration) -> io::Error {
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    loop {
        let silent_ms = clock.now_ms().saturating_sub(heard_ms.load(Relaxed));
        match limit_ms.checked_sub(silent_ms) {
            None | Some(0) => return io::Error::other("nothing was heard for too long"),
            Some(left_ms) => sleep(Duration::from_millis(left_ms)).await,
        }
    }
}

/// Notes when bytes come.
pub(crate) struct Heard<'a, R> {
    inner: R,
    heard_ms: &'a AtomicU64,
    clock: &'a Clock,
}

impl<'a, R> Heard<'a, R> {
    pub(crate) fn new(inner: R, heard_ms: &'a AtomicU64, clock: &'a Clock) -> Self {
        Self {
            inner,
            heard_ms,
            clock,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Heard<'_, R> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = std::pin::Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard_ms.store(self.clock.now_ms(), Relaxed);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_last_byte() {
        let clock = Clock::new();
        let limit = Duration::from_secs(2);
        let heard_ms = AtomicU64::new(0);
        let hearing = async {
            for _ in 0..5 {
                sleep(limit - Duration::from_millis(1)).await;
                heard_ms.store(clock.now_ms(), Relaxed);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = hearing => {}
            error = silence(&heard_ms, &clock, limit) => {
                assert_eq!(error.to_string(), "nothing was heard for too long");
            }
        }
        assert_eq!(heard_ms.load(Relaxed), 5 * 1999);
        assert_eq!(clock.now_ms(), 5 * 1999 + 2000);
    }
}
