//! Our connection to a peer on one channel: dialled again whenever it is lost.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{sleep, timeout};

use crate::backoff::Backoff;
use crate::connect::{ConnectError, Dialled, Stream, dial_endpoint};
use crate::frame::Frame;
use crate::handler::Channel;
use crate::handshake::{Failure, Purpose};
use crate::options::Timings;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::shared::{Clock, Shared};
use crate::stats::LinkCounters;
use crate::writer::Writer;

/// Keeps up the connection until the peer is gone.
pub(crate) async fn run(shared: Arc<Shared>, peer: Arc<Peer>, channel: Channel) {
    let gone = peer.gone.clone();
    gone.run_until_cancelled(keep_up(&shared, &peer, channel))
        .await;
    // Whoever was told that it is up is told that it is not.
    lose(&shared, &peer, channel);
}

async fn keep_up(shared: &Arc<Shared>, peer: &Peer, channel: Channel) {
    let mut backoff = Backoff::new(&shared.options.timings);
    let mut incarnation = peer.incarnation.subscribe();
    loop {
        incarnation.mark_unchanged();
        let dialled = dial(shared, peer, channel).await;
        note_refusal(shared, peer, channel, dialled.as_ref().err());
        match dialled {
            Ok(dialled) => {
                backoff.reset();
                carry(shared, peer, channel, dialled).await;
                lose(shared, peer, channel);
            }
            Err(error) => shared.complain_of_peer(peer.node, channel, &error),
        }
        tokio::select! {
            () = sleep(backoff.wait(rand::random())) => {}
            () = peer.link(channel).retry.notified() => {}
            Ok(()) = incarnation.changed() => {}
        }
    }
}

/// A host that refuses has no process of the peer any more: nobody needs to wait until that is silent for long.
fn note_refusal(shared: &Shared, peer: &Peer, channel: Channel, error: Option<&ConnectError>) {
    let is_refusal = matches!(error, Some(ConnectError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused);
    if peer.link(channel).refused.swap(is_refusal, Relaxed) != is_refusal {
        shared.changed.notify_one();
    }
}

async fn dial(
    shared: &Arc<Shared>,
    peer: &Peer,
    channel: Channel,
) -> Result<Dialled, ConnectError> {
    let endpoint = shared.address_of(peer.node);
    let purpose = Purpose::Carry(channel);
    let dialled = dial_endpoint(shared, &endpoint, purpose, Some(peer.node)).await?;
    shared.meet(&dialled.peer).map_err(Failure::We)?;
    Ok(dialled)
}

/// Serves the connection until it is lost.
async fn carry(shared: &Arc<Shared>, peer: &Peer, channel: Channel, dialled: Dialled) {
    let link = peer.link(channel);
    let incarnation = dialled.peer.place.incarnation;
    let session = shared.next_session();
    link.counters.connects.fetch_add(1, Relaxed);
    link.version.store(dialled.version, Relaxed);
    link.outbox.open();
    shared.handler.connected(peer.node, channel, session);
    shared.changed.notify_one();
    tracing::debug!(
        node = format_args!("{:016x}", peer.node),
        channel = channel.name(),
        session,
        protocol = dialled.version,
        "connected to a node"
    );
    let timings = &shared.options.timings;
    let reason = tokio::select! {
        reason = renewed(peer, incarnation) => reason,
        reason = exchange(dialled.stream, link_io(peer, channel), &shared.clock, timings) => reason,
    };
    tracing::debug!(
        node = format_args!("{:016x}", peer.node),
        channel = channel.name(),
        reason = %reason,
        "the connection to a node is lost"
    );
}

fn link_io(peer: &Peer, channel: Channel) -> (&Outbox, &LinkCounters) {
    let link = peer.link(channel);
    (&link.outbox, &link.counters)
}

fn lose(shared: &Arc<Shared>, peer: &Peer, channel: Channel) {
    let link = peer.link(channel);
    if link.outbox.close() {
        link.connected_ms.store(shared.clock.now_ms(), Relaxed);
        shared.calls.fail(peer.node, channel);
        shared.handler.disconnected(peer.node, channel);
        shared.changed.notify_one();
    }
}

/// Returns when a later process than that of the connection was heard of.
pub(crate) async fn renewed(peer: &Peer, incarnation: u64) -> io::Error {
    let mut watched = peer.incarnation.subscribe();
    // The sender lives as long as the peer, which is borrowed.
    let _ = watched.wait_for(|&known| known > incarnation).await;
    io::Error::other("the node was started again")
}

async fn exchange(
    stream: Stream,
    (outbox, counters): (&Outbox, &LinkCounters),
    clock: &Clock,
    timings: &Timings,
) -> io::Error {
    let (reader, writer) = tokio::io::split(stream);
    let writer = Writer::new(writer, timings.stall);
    let heard_ms = AtomicU64::new(clock.now_ms());
    let reader = Heard::new(reader, &heard_ms, clock);
    tokio::select! {
        reason = silence(&heard_ms, clock, timings.silence) => reason,
        reason = expect_keep_alives(reader) => reason,
        reason = drain(writer, outbox, counters, timings.keep_alive) => reason,
    }
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

/// Nothing else comes back on this connection.
async fn expect_keep_alives(reader: impl AsyncRead) -> io::Error {
    let mut reader = pin!(reader);
    loop {
        match reader.read_u32().await {
            Ok(0) => {}
            Ok(_) => return io::Error::other("the node does not keep to the protocol"),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return io::Error::other("the node has closed it");
            }
            Err(error) => return error,
        }
    }
}

/// Writes what waits, and keep-alives while nothing does.
async fn drain(
    mut writer: Writer<impl AsyncWrite + Unpin>,
    outbox: &Outbox,
    counters: &LinkCounters,
    keep_alive: Duration,
) -> io::Error {
    let mut frames = Vec::new();
    loop {
        if outbox.take(&mut frames).is_err() {
            return io::Error::other("more was to be sent than may wait");
        }
        let result = if !frames.is_empty() {
            counters.count_sent(frames.len(), frames.iter().map(Frame::size).sum());
            writer.frames(&mut frames).await
        } else if timeout(keep_alive, outbox.changed()).await.is_err() {
            writer.keep_alive().await
        } else {
            Ok(())
        };
        if let Err(error) = result {
            return error;
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
