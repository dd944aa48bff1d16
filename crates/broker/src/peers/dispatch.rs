//! What arrives from other nodes: decoded once, here, and handed to the part of the node that it concerns.
//!
//! Invariant: what a peer has sent against the protocol changes nothing, and is complained of in the log.
//!
//! Deliberately absent: what each part does with it (`broker-core/src/peers`, `control.rs`, `cluster_time.rs`, `store`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use cluster::{Channel, Reply, Source};
use peer_protocol::{PeerMessage, PeerRequest, ReplicaRequest, Violation};
use route_exchange::NodeId;

use crate::node::Node;
use crate::store_listener::StoreListener;
use crate::{cluster_time, control};

/// Handles a message of a member.
pub(crate) fn message(node: &Arc<Node>, from: Source, bytes: &[u8]) {
    if let Err(violation) = receive(node, from.node, from.version, bytes) {
        complain(from.node, &violation);
    }
}

/// Handles a request of a member. On the cluster's own runtime, which calls this; without an answer the member is told
/// so.
pub(crate) fn request(node: &Arc<Node>, from: Source, bytes: Bytes, reply: Reply) {
    if from.channel != Channel::Data {
        return replica_request(node, bytes, reply);
    }
    match PeerRequest::decode(&bytes, from.version) {
        Ok(PeerRequest::Clock) => {
            reply.send(cluster_time::answer(node));
        }
        Ok(PeerRequest::Node(request)) => {
            let node = Arc::clone(node);
            tokio::spawn(async move { control::answer(&node, from.node, request, reply).await });
        }
        Ok(PeerRequest::Inspection(question)) => {
            // Before the node serves it has nobody who answers.
            if let Some(answerer) = node.rim.answerer() {
                tokio::spawn(async move {
                    reply.send(answerer.answer(question).await);
                });
            }
        }
        Err(violation) => complain(from.node, &violation),
    }
}

fn replica_request(node: &Arc<Node>, bytes: Bytes, reply: Reply) {
    let Some(ReplicaRequest { group, request }) = ReplicaRequest::decode(bytes) else {
        return;
    };
    let node = Arc::clone(node);
    tokio::spawn(async move {
        if let Some(answer) = node.store().handle(group, request).await {
            reply.send(answer);
        }
    });
}

fn complain(from: NodeId, error: &dyn fmt::Display) {
    tracing::error!(
        from = format!("{from:016x}"),
        %error,
        "a message of another node cannot be understood"
    );
}

/// Bytes of a member, in their order. `version`: that of the link.
///
/// # Errors
/// What is wrong with them.
pub(super) fn receive(
    node: &Arc<Node>,
    from: NodeId,
    version: u16,
    bytes: &[u8],
) -> Result<(), Violation> {
    let message = PeerMessage::decode(bytes, version)?;
    if matches!(message, PeerMessage::Store(_)) {
        let listener = StoreListener::new(Arc::clone(node));
        if let Err(error) = node.store().received(&listener, from, bytes) {
            complain(from, &error);
        }
        return Ok(());
    }
    if let PeerMessage::Bans(bans) = message {
        if let Some(shared) = node.rim.bans() {
            shared.received(from, bans);
        }
        return Ok(());
    }
    match node.peers() {
        Some(peers) => peers.message(&**node, from, message, bytes.len()),
        None => Ok(()),
    }
}
