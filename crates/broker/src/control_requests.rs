//! Changes of the control store that somebody waits for at this node.
//!
//! Purpose: [`change`] has the store begin if it has not, asks it, and returns when the change counts at all nodes that can be
//! reached.
//!
//! Invariants: a change is asked for once, under a number of its own; [`ChangeError::Unavailable`] and [`ChangeError::Behind`] mean
//! that nothing was asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admin::{ChangeError, Made};
use cluster::Reach;
use control::{Bounds, By, Change, ChangeId, Count, Incarnation, Node as NodeNumber, Revision};
use futures_util::future::join_all;
use peer_protocol::{NodeRequest, PeerRequest, Refusal};
use store_state::api::{Event, Failure};
use store_state::control::{ControlOp, ControlReply};
use store_state::{LEVELS, Level, LevelFacts};
use tokio::time::{Instant, timeout, timeout_at};

use crate::audit_notes::Batch;
use crate::control_waiting::{IN_FORCE_WAIT, begin_here};
use crate::node::Node;

/// How long a change waits for a node that leads the store.
const LEADER_WAIT: Duration = Duration::from_secs(3);

/// How long a change may take until it is made. The HTTP port waits ten seconds, and would say then that the request did not arrive;
/// [`IN_FORCE_WAIT`] comes behind this.
const PATIENCE: Duration = Duration::from_millis(6_500);

/// What the cluster is not ready for, if a log of its level cannot have an operation.
const BEHIND: &str =
    "the cluster is at a level that has no people, keys and notes yet: finish its upgrade first";

/// The identifier of the operation with this number.
fn id_of(node: &Node, token: u64) -> ChangeId {
    let store = node.store();
    ChangeId {
        node: NodeNumber(store.node()),
        incarnation: Incarnation(store.incarnation()),
        count: Count(token),
    }
}

/// What has come of notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    /// The store has them, or never takes them.
    Sent,
    /// They may not have arrived: they are to be sent again under the same identifier.
    Later,
}

/// The identifier of the next notes: later than those of all before.
pub(crate) fn note_id(node: &Node) -> ChangeId {
    id_of(node, node.rim.control.waiting.number())
}

/// Gives the store notes for the audit.
pub(crate) async fn note(node: &Node, Batch { id, notes }: Batch) -> Noted {
    let deadline = Instant::now() + PATIENCE;
    let count = notes.len();
    let asked = ask(node, deadline, |_| ControlOp::Note { id, notes });
    match asked.await {
        Ok(ControlReply::Changed { .. }) => Noted::Sent,
        Ok(ControlReply::Refused(refused)) => {
            tracing::error!(?refused, count, "the store refuses notes for the audit");
            Noted::Sent
        }
        Err(error) => {
            tracing::debug!(%error, count, "notes for the audit wait");
            Noted::Later
        }
    }
}

/// Asks the store for an operation that has the identifier that it is given; the answer comes, or `deadline` passes.
async fn ask(
    node: &Node,
    deadline: Instant,
    op: impl FnOnce(ChangeId) -> ControlOp,
) -> Result<ControlReply, ChangeError> {
    let (waiting, store) = (&node.rim.control.waiting, node.store());
    if timeout(LEADER_WAIT, store.control_store.until_led())
        .await
        .is_err()
    {
        let why = "no node leads the control store: a majority of its voters cannot be reached";
        return Err(unavailable(&why));
    }
    let (token, answer) = waiting.next();
    let id = id_of(node, token);
    let level = level(node);
    let Some(op) = op(id).lowered(level) else {
        waiting.forget(token);
        return Err(ChangeError::Behind(BEHIND.to_owned()));
    };
    store.control_store.ask(token, op);
    let answer = timeout_at(deadline, answer).await;
    waiting.forget(token);
    match answer {
        Ok(Ok(Event::Control { reply, .. })) => Ok(reply),
        Ok(Ok(Event::Failed { failure, .. })) => Err(failed(failure)),
        // Not in time, or the store ends.
        Ok(_) | Err(_) => Err(ChangeError::Unknown),
    }
}

/// The level of the store, as far as this node knows.
pub(crate) fn level(node: &Node) -> Level {
    let by_protocol = || {
        let clustered = node.rim.clustered();
        let speak = |facts: &&LevelFacts| {
            clustered.is_none_or(|clustered| clustered.cluster().all_speak(facts.protocol.0))
        };
        let known = LEVELS.iter().rev().find(speak);
        known.map_or(Level::OLDEST, |facts| facts.level)
    };
    // A node without a replica has just joined, or the store has just begun elsewhere.
    node.store()
        .control_store
        .level()
        .unwrap_or_else(by_protocol)
}

/// Makes all changes or none, and waits until they count at all nodes that can be reached. Within a runtime that has timers.
///
/// # Errors
/// As [`ChangeError`] says.
pub(crate) async fn change(
    node: Arc<Node>,
    by: By,
    changes: Vec<Change>,
) -> Result<Made, ChangeError> {
    let waiting = &node.rim.control.waiting;
    if node.rim.control.view.is_off() {
        return Err(ChangeError::Off);
    }
    control::check(&by, &changes, &Bounds::FIXED).map_err(ChangeError::Refused)?;
    let place = waiting.place();
    let _place = place.ok_or_else(|| unavailable(&"too many changes are waiting at this node"))?;
    let deadline = Instant::now() + PATIENCE;
    let begun = timeout_at(deadline, begin(&node)).await;
    begun.map_err(|_| unavailable(&"the control store has not begun in time"))??;
    let asked = ask(&node, deadline, |id| ControlOp::Change { id, by, changes });
    match asked.await? {
        ControlReply::Changed { revision } => {
            let missing = count_everywhere(&node, revision).await;
            Ok(Made { revision, missing })
        }
        ControlReply::Refused(refused) => Err(ChangeError::Refused(refused)),
    }
}

/// The store has not carried out a request.
fn failed(failure: Failure) -> ChangeError {
    match failure {
        Failure::Full => unavailable(&"the disk of the node that leads the control store is full"),
        Failure::TooLong => unavailable(&"the change is too long for the store"),
        Failure::Moved => unavailable(&"the store could not be asked"),
        Failure::Stopped => ChangeError::Unknown,
    }
}

fn unavailable(why: &dyn fmt::Display) -> ChangeError {
    ChangeError::Unavailable(why.to_string())
}

/// Waits until an operation counts at all members that are up: those at which it does not count in time.
async fn count_everywhere(node: &Node, revision: Revision) -> Vec<NodeNumber> {
    let own = node.store().node();
    let others = node.rim.clustered().map_or_else(Vec::new, |clustered| {
        let members = clustered.cluster().members();
        let up = members.nodes.iter().filter(|(other, member)| {
            **other != own && matches!(member.reach, Reach::Up | Reach::Suspect)
        });
        let up = up.map(|(other, _)| (*other, Arc::clone(clustered)));
        up.collect::<Vec<_>>()
    });
    let asked = others.into_iter().map(async |(other, clustered)| {
        let request = PeerRequest::Node(NodeRequest::CountControl {
            revision: revision.0,
        });
        let call = clustered.call(other, request, IN_FORCE_WAIT);
        let counts = match call {
            Ok(call) => match call.await {
                Ok(answer) => matches!(NodeRequest::decode_answer(&answer), Ok(Ok(()))),
                Err(_) => false,
            },
            Err(_) => false,
        };
        (other, counts)
    });
    let counts_here = node.rim.control.waiting.until_counts(revision);
    let own_counts = async { (own, counts_here.await.is_ok()) };
    let (own, mut others) = futures_util::future::join(own_counts, join_all(asked)).await;
    others.push(own);
    let missing = others.into_iter().filter(|(_, counts)| !counts);
    let missing: Vec<NodeNumber> = missing.map(|(other, _)| NodeNumber(other)).collect();
    if !missing.is_empty() {
        tracing::warn!(
            revision = revision.0,
            nodes = missing.len(),
            "a change of the control store is made, and nodes have not taken it over yet"
        );
    }
    missing
}

/// Has the store begin, unless it has.
async fn begin(node: &Arc<Node>) -> Result<(), ChangeError> {
    let store = &node.store().control_store;
    if store.has_begun() {
        return Ok(());
    }
    let leader = store.begun_by();
    let leader =
        leader.ok_or_else(|| unavailable(&"no node leads the first shard of the session store"))?;
    if leader == node.store().node() {
        return begin_here(store).await.map_err(not_begun);
    }
    let Some(clustered) = node.rim.clustered() else {
        return Err(unavailable(&"this node leaves its cluster"));
    };
    let cannot = |why: &dyn fmt::Display| unavailable(&format_args!("node {leader:016x}: {why}"));
    let request = PeerRequest::Node(NodeRequest::BeginControl);
    let call = clustered.call(leader, request, PATIENCE);
    let answer = call.map_err(|error| cannot(&error))?.await;
    let answer = answer.map_err(|error| cannot(&error))?;
    NodeRequest::decode_answer(&answer)
        .map_err(|_| cannot(&"its answer is not understood"))?
        .map_err(not_begun)
}

fn not_begun(refusal: Refusal) -> ChangeError {
    match refusal {
        Refusal::Conflict(why) => ChangeError::Behind(why),
        Refusal::Unknown(why) | Refusal::Unavailable(why) => ChangeError::Unavailable(why),
    }
}
