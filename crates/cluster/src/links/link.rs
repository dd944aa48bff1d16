//! Our connection to a peer on one channel: dialled again whenever it is lost.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{sleep, timeout};

use crate::links::backoff::Backoff;
use crate::links::connect::{Dialled, dial_endpoint};
use crate::links::heard::{Heard, outdated, renewed, silence};
use crate::links::stream::Stream;
use crate::links::writer::Writer;
use crate::options::Timings;
use crate::protocol::channel::Channel;
use crate::protocol::frame::Frame;
use crate::protocol::handshake::{Identity, Purpose};
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::clock::Clock;
use crate::state::connect_error::ConnectError;
use crate::state::outbox::Outbox;
use crate::state::peer::Peer;
use crate::state::shared::Shared;
use crate::state::stats::LinkCounters;

/// Keeps up the connection until the peer is gone.
async fn run(shared: Arc<Shared>, peer: Arc<Peer>, channel: Channel) {
    let gone = peer.gone.clone();
    gone.run_until_cancelled(keep_up(&shared, &peer, channel))
        .await;
    // Whoever was told that it is up is told that it is not.
    lose(&shared, &peer, channel);
}

/// Takes a node that has proven to be of this cluster into the list.
pub(crate) fn meet(shared: &Arc<Shared>, identity: &Identity) -> Result<Arc<Peer>, Refusal> {
    shared.greet(identity)?;
    reconcile(shared);
    let place = &identity.place;
    let peer = shared.peers.get(place.node).ok_or(Refusal::Twin)?;
    match peer.is_process(place.incarnation, identity.instance) {
        true => Ok(peer),
        false => Err(Refusal::Twin),
    }
}

/// Makes links to nodes that are new in the list, and ends those to nodes that are not there any more.
/// On the cluster's thread.
pub(crate) fn reconcile(shared: &Arc<Shared>) {
    let places = shared.roster.lock().places();
    for peer in shared.peers.reconcile(places, shared.clock.now_ms()) {
        for channel in Channel::ALL {
            tokio::spawn(run(shared.clone(), peer.clone(), channel));
        }
    }
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
    meet(shared, &dialled.peer).map_err(Failure::We)?;
    Ok(dialled)
}

/// Serves the connection until it is lost.
async fn carry(shared: &Arc<Shared>, peer: &Peer, channel: Channel, dialled: Dialled) {
    let link = peer.link(channel);
    let incarnation = dialled.peer.place.incarnation;
    let session = shared.next_session();
    link.counters.connects.fetch_add(1, Relaxed);
    link.version.store(dialled.version, Relaxed);
    let (stream, socket) = dialled.stream.shared();
    link.outbox.open();
    shared.handler.connected(peer.node, channel, session);
    if let Some(socket) = socket {
        link.outbox.share(socket);
    }
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
        reason = outdated(&shared.versions, dialled.version) => reason,
        reason = exchange(stream, link_io(peer, channel), &shared.clock, timings) => reason,
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
        let rest = match outbox.take(&mut frames) {
            Ok(rest) => rest,
            Err(broken) => return broken.into(),
        };
        let result = if !frames.is_empty() || !rest.is_empty() {
            counters.count_sent(frames.len(), frames.iter().map(Frame::size).sum());
            writer.frames(&rest, &mut frames).await
        } else if timeout(keep_alive, outbox.changed()).await.is_ok() {
            Ok(())
        } else if outbox.begin_keep_alive() {
            writer.keep_alive().await
        } else {
            // Frames go to the peer, which hears them.
            Ok(())
        };
        if let Err(error) = result {
            return error;
        }
    }
}
