//! Changes of the control store that somebody waits for at this node.
//!
//! Purpose: [`change`] has the store begin if it has not, asks it, and returns when the node's view has the change.
//!
//! Invariants: a change is asked for once, under a number of its own; [`ChangeError::Unavailable`] and [`ChangeError::Behind`] mean
//! that nothing was asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admin::ChangeError;
use control::{Bounds, By, Change, ChangeId, Count, Incarnation, Node as NodeNumber, Revision};
use parking_lot::Mutex;
use peer_protocol::{NodeRequest, PeerRequest, Refusal};
use store::BeginError;
use store_state::api::{Event, Failure};
use store_state::control::{ControlOp, ControlReply};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::node::Node;

/// Changes that wait at a node at once; others are refused.
const MOST: usize = 64;

/// How long a change waits for a node that leads the store.
const LEADER_WAIT: Duration = Duration::from_secs(3);

/// How long a change waits for its answer, and for the node's view.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a node has asked the control store.
#[derive(Debug)]
pub(crate) struct ControlRequests {
    /// The number of the last one.
    count: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Event>>>,
    places: Semaphore,
    viewed: Notify,
}

impl Default for ControlRequests {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            waiting: Mutex::default(),
            places: Semaphore::new(MOST),
            viewed: Notify::new(),
        }
    }
}

impl ControlRequests {
    /// The store has answered.
    pub(crate) fn answered(&self, mut answer: Event) {
        let token = answer.token_mut().map(|token| *token);
        let waiting = token.and_then(|token| self.waiting.lock().remove(&token));
        // Else nobody waits any more.
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// The node's view was changed.
    pub(crate) fn view_changed(&self) {
        self.viewed.notify_waiters();
    }

    fn next(&self) -> (u64, oneshot::Receiver<Event>) {
        let token = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        self.waiting.lock().insert(token, tell);
        (token, told)
    }
}

/// Makes all changes or none, and waits until this node's view has them. Within a runtime that has timers.
///
/// # Errors
/// As [`ChangeError`] says.
pub(crate) async fn change(
    node: Arc<Node>,
    by: By,
    changes: Vec<Change>,
) -> Result<Revision, ChangeError> {
    let requests = &node.rim.control.requests;
    control::check(&by, &changes, &Bounds::FIXED).map_err(ChangeError::Refused)?;
    let _place = requests
        .places
        .try_acquire()
        .map_err(|_| unavailable(&format_args!("{MOST} changes are waiting at this node")))?;
    begin(&node).await?;
    let store = node.store();
    if timeout(LEADER_WAIT, store.control_store.until_led())
        .await
        .is_err()
    {
        let why = "no node leads the control store: a majority of its voters cannot be reached";
        return Err(unavailable(&why));
    }
    let (token, answer) = requests.next();
    let id = ChangeId {
        node: NodeNumber(store.node()),
        incarnation: Incarnation(store.incarnation()),
        count: Count(token),
    };
    store
        .control_store
        .ask(token, ControlOp::Change { id, by, changes });
    let answer = timeout(PATIENCE, answer).await;
    requests.waiting.lock().remove(&token);
    match answer {
        Ok(Ok(Event::Control { reply, .. })) => match reply {
            ControlReply::Changed { revision } => {
                until_seen(&node, revision).await;
                Ok(revision)
            }
            ControlReply::Refused(refused) => Err(ChangeError::Refused(refused)),
        },
        Ok(Ok(Event::Failed { failure, .. })) => Err(failed(failure)),
        // Not in time, or the store ends.
        Ok(_) | Err(_) => Err(ChangeError::Unknown),
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

/// Waits until the node's view has an operation, which another node may have applied before.
async fn until_seen(node: &Node, revision: Revision) {
    let control = &node.rim.control;
    let seen = async {
        loop {
            let changed = control.requests.viewed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if control.view.revision() >= revision {
                return;
            }
            changed.await;
        }
    };
    if timeout(PATIENCE, seen).await.is_err() {
        tracing::warn!(
            revision = revision.0,
            "a change is made, and this node has not seen it yet: it is cut off from the node that leads the control store"
        );
    }
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
        return begin_here(node).await.map_err(not_begun);
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

/// Has the store begin, as the node that leads what begins it.
///
/// # Errors
/// Why it has not begun.
pub(crate) async fn begin_here(node: &Node) -> Result<(), Refusal> {
    let begun = node.store().control_store.begin().await;
    begun.map_err(|error| match error {
        BeginError::NotLeader(_) => {
            Refusal::Unavailable("another node leads the first shard of the session store".to_owned())
        }
        BeginError::Level(level) => Refusal::Conflict(format!(
            "the cluster is at level {level}, which has no users, groups and rules of its own: finish its upgrade first"
        )),
        BeginError::Unavailable(why) => Refusal::Unavailable(why),
    })
}

fn not_begun(refusal: Refusal) -> ChangeError {
    match refusal {
        Refusal::Conflict(why) => ChangeError::Behind(why),
        Refusal::Unknown(why) | Refusal::Unavailable(why) => ChangeError::Unavailable(why),
    }
}
