//! Connections of other nodes to this one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

use crate::links::connect::{Accepted, accept, write as write_handshake};
use crate::links::heard::{Heard, outdated, renewed, silence};
use crate::links::link;
use crate::links::strangers::{Stranger, Strangers};
use crate::links::stream::Stream;
use crate::links::writer::Writer;
use crate::protocol::channel::{Channel, Source};
use crate::protocol::frame::{FRAME_LIMIT, Frame, Kind};
use crate::protocol::handshake::{Admission, Identity, Judging, Purpose};
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::calls::Unreachable;
use crate::state::connect_error::ConnectError;
use crate::state::handler::Reply;
use crate::state::peer::Peer;
use crate::state::shared::Shared;

/// What is read at once, in bytes.
const READ: usize = 64 * 1024;

/// How long to wait when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let strangers = Arc::new(Strangers::default());
    loop {
        let accepted = listener.accept().await;
        let accepted = accepted.map(|(tcp, address)| (tcp, canonical(address)));
        match accepted {
            Ok((_, address)) if !shared.options.security.admits(address.ip()) => {
                shared.refused(address, &ConnectError::PublicAddress);
            }
            Ok((tcp, address)) => {
                let stranger = strangers.admit(address.ip());
                tokio::spawn(serve(shared.clone(), tcp, address, stranger));
            }
            Err(error) => {
                shared.complain("this node", "accept", &error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Without the form that addresses of IPv4 have at a socket of IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn serve(shared: Arc<Shared>, tcp: TcpStream, address: SocketAddr, stranger: Stranger) {
    let displaced = stranger.displaced.clone();
    let greeting = async {
        let Accepted {
            mut stream,
            judging,
        } = accept(&shared, tcp, address.ip()).await?;
        let purpose = judging.purpose;
        match purpose {
            Purpose::Join => admit(&shared, &mut stream, &judging).await.map(|()| None),
            Purpose::Carry(channel) => {
                let peer = introduce(&shared, &mut stream, &judging).await?;
                Ok(Some((stream, peer, channel, judging)))
            }
        }
    };
    let result = tokio::select! {
        biased;
        result = greeting => result,
        () = displaced.cancelled() => Err(ConnectError::Displaced),
    };
    match result {
        Ok(None) => {}
        Ok(Some((stream, peer, channel, judging))) => {
            drop(stranger);
            carry(&shared, &peer, channel, stream, &judging).await;
        }
        Err(error) => shared.refused(address, &error),
    }
}

/// Tells a node that joins what it has to know. A member that was started is remembered before it is told so.
async fn admit(
    shared: &Arc<Shared>,
    stream: &mut Stream,
    judging: &Judging,
) -> Result<(), ConnectError> {
    let is_new = judging.peer.cluster == 0;
    let outcome = match is_new {
        // It may belong to one by now, and has said otherwise.
        true if judging.waits => Err(Refusal::NotReady),
        true => shared.judge(&judging.peer),
        false => remember(shared, &judging.peer).await,
    };
    let outcome = outcome.map(|()| Some(shared.admission(is_new, judging.version)));
    conclude(shared, stream, judging, outcome).await
}

async fn remember(shared: &Arc<Shared>, peer: &Identity) -> Result<(), Refusal> {
    shared.greet(peer)?;
    let kept = shared.keep_stamps_now().await;
    kept.map_err(|error| {
        shared.complain("this node", "stamp", &error);
        Refusal::Disk
    })
}

/// Lets a member know that it is heard.
async fn introduce(
    shared: &Arc<Shared>,
    stream: &mut Stream,
    judging: &Judging,
) -> Result<Arc<Peer>, ConnectError> {
    match meet(shared, &judging.peer) {
        Ok(peer) => {
            // On a full disk it is remembered as long as this process lives.
            if let Err(error) = shared.keep_stamps_now().await {
                shared.complain("this node", "stamp", &error);
            }
            conclude(shared, stream, judging, Ok(None)).await?;
            Ok(peer)
        }
        Err(refusal) => {
            conclude(shared, stream, judging, Err(refusal.clone())).await?;
            Err(Failure::We(refusal).into())
        }
    }
}

fn meet(shared: &Arc<Shared>, peer: &Identity) -> Result<Arc<Peer>, Refusal> {
    if shared.is_ready() {
        return link::meet(shared, peer);
    }
    // It may be one that this node's folder does not know of.
    shared.greet(peer)?;
    Err(Refusal::NotReady)
}

async fn conclude(
    shared: &Shared,
    stream: &mut Stream,
    judging: &Judging,
    outcome: Result<Option<Admission>, Refusal>,
) -> Result<(), ConnectError> {
    let refusal = outcome.as_ref().err().cloned();
    let verdict = judging.verdict(outcome);
    timeout(
        shared.options.timings.handshake,
        write_handshake(stream, &verdict),
    )
    .await
    .map_err(|_| ConnectError::TimedOut)??;
    match refusal {
        None => Ok(()),
        Some(refusal) => Err(Failure::We(refusal).into()),
    }
}

/// Serves the connection until it is lost, or the peer has another.
async fn carry(
    shared: &Arc<Shared>,
    peer: &Peer,
    channel: Channel,
    stream: Stream,
    judging: &Judging,
) {
    let from = Source {
        node: peer.node,
        channel,
        version: judging.version,
    };
    let link = peer.link(channel);
    let end = CancellationToken::new();
    link.heard_ms.store(shared.clock.now_ms(), Relaxed);
    if link.begin_incoming(end.clone()) {
        lose(shared, peer, channel);
    }
    shared.handler.incoming(peer.node, channel, true);
    link.retry.notify_one();
    shared.changed.notify_one();
    let reason = tokio::select! {
        biased;
        () = end.cancelled() => io::Error::other("the node has connected again"),
        () = peer.gone.cancelled() => io::Error::other("the node is a member no longer"),
        reason = renewed(peer, judging.peer.place.incarnation) => reason,
        reason = outdated(&shared.versions, judging.version) => reason,
        reason = exchange(shared, peer, from, stream) => reason,
    };
    tracing::debug!(
        node = format_args!("{:016x}", peer.node),
        channel = channel.name(),
        %reason,
        "a node's connection is lost"
    );
    if link.end_incoming(&end) {
        lose(shared, peer, channel);
    }
}

fn lose(shared: &Shared, peer: &Peer, channel: Channel) {
    shared.calls.fail(peer.node, channel);
    shared.handler.incoming(peer.node, channel, false);
    shared.changed.notify_one();
}

async fn exchange(shared: &Arc<Shared>, peer: &Peer, from: Source, stream: Stream) -> io::Error {
    let (reader, writer) = tokio::io::split(stream);
    let heard_ms = &*peer.link(from.channel).heard_ms;
    let reader = Heard::new(reader, heard_ms, &shared.clock);
    let codec = LengthDelimitedCodec::builder()
        .max_frame_length(FRAME_LIMIT)
        .new_codec();
    let timings = &shared.options.timings;
    tokio::select! {
        reason = silence(heard_ms, &shared.clock, timings.silence) => reason,
        reason = receive(shared, peer, from, FramedRead::with_capacity(reader, codec, READ)) => reason,
        reason = keep_alive(Writer::new(writer, timings.stall), timings.keep_alive) => reason,
    }
}

async fn receive(
    shared: &Arc<Shared>,
    peer: &Peer,
    from: Source,
    mut frames: FramedRead<impl AsyncRead + Unpin, LengthDelimitedCodec>,
) -> io::Error {
    loop {
        let bytes = match frames.next().await {
            Some(Ok(bytes)) => bytes.freeze(),
            Some(Err(error)) => return error,
            None => return io::Error::other("the node has closed it"),
        };
        if !bytes.is_empty() && !dispatch(shared, peer, from, bytes) {
            return io::Error::other("the node does not keep to the protocol");
        }
    }
}

/// Whether it was a frame of ours.
fn dispatch(shared: &Arc<Shared>, peer: &Peer, from: Source, bytes: Bytes) -> bool {
    peer.link(from.channel).counters.count_received(bytes.len());
    let Some(Frame { kind, payload }) = Frame::decode(bytes) else {
        return false;
    };
    match kind {
        Kind::Message => shared.handler.message(from, payload),
        Kind::Request(call) => {
            let reply = Reply::new(shared.peers.clone(), from.node, from.channel, call);
            shared.handler.request(from, payload, reply);
        }
        Kind::Answer(call) => shared.calls.end(call, from.node, Ok(payload)),
        Kind::NoAnswer(call) => shared
            .calls
            .end(call, from.node, Err(Unreachable::NoAnswer)),
    }
    true
}

async fn keep_alive(mut writer: Writer<impl AsyncWrite + Unpin>, interval: Duration) -> io::Error {
    loop {
        sleep(interval).await;
        if let Err(error) = writer.keep_alive().await {
            return error;
        }
    }
}
