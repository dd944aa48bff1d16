//! Who waits for the control store at this node, and what other nodes ask of it.
//!
//! Deliberately absent: what is asked of the store, and when it is given up (`control_requests.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::Revision;
use parking_lot::Mutex;
use peer_protocol::Refusal;
use store::{BeginError, ControlStore};
use store_state::api::Event;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::timeout;

/// How long a change that is made waits for nodes at which it does not count yet.
pub(crate) const IN_FORCE_WAIT: Duration = Duration::from_secs(3);

/// Changes that wait at a node at once; others are refused.
const MOST: usize = 64;

/// What a node has asked the control store, and what of it counts.
#[derive(Debug)]
pub(crate) struct ControlWaiting {
    /// The number of the last request.
    count: AtomicU64,
    answers: Mutex<HashMap<u64, oneshot::Sender<Event>>>,
    places: Semaphore,
    /// The last operation that counts for logins and for connected clients.
    taken: watch::Sender<Revision>,
}

impl Default for ControlWaiting {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            answers: Mutex::default(),
            places: Semaphore::new(MOST),
            taken: watch::Sender::default(),
        }
    }
}

impl ControlWaiting {
    /// A place for a change; `None`: too many wait.
    pub(crate) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// A number that no other request of the process has, and that is larger than all before.
    pub(crate) fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of a request, which no other one of the process has, and its answer.
    pub(crate) fn next(&self) -> (u64, oneshot::Receiver<Event>) {
        let token = self.number();
        let (tell, told) = oneshot::channel();
        self.answers.lock().insert(token, tell);
        (token, told)
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn forget(&self, token: u64) {
        self.answers.lock().remove(&token);
    }

    /// The store has answered.
    pub(crate) fn answered(&self, mut answer: Event) {
        let token = answer.token_mut().map(|token| *token);
        let waiting = token.and_then(|token| self.answers.lock().remove(&token));
        // Else nobody waits any more.
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// All up to an operation counts.
    pub(crate) fn taken(&self, revision: Revision) {
        self.taken.send_if_modified(|taken| {
            let is_later = revision > *taken;
            *taken = revision.max(*taken);
            is_later
        });
    }

    /// Waits until all up to an operation counts.
    ///
    /// # Errors
    /// Not within [`IN_FORCE_WAIT`].
    pub(crate) async fn until_counts(&self, revision: Revision) -> Result<(), Refusal> {
        let mut taken = self.taken.subscribe();
        let counts = taken.wait_for(|taken| *taken >= revision);
        match timeout(IN_FORCE_WAIT, counts).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let why = "this node has not taken over the change yet";
                Err(Refusal::Unavailable(why.to_owned()))
            }
        }
    }
}

/// Has the store begin, as the node that leads what begins it.
///
/// # Errors
/// Why it has not begun.
pub(crate) async fn begin_here(store: &ControlStore) -> Result<(), Refusal> {
    let begun = store.begin().await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_counts_never_goes_back() {
        let waiting = ControlWaiting::default();
        waiting.taken(Revision(3));
        waiting.taken(Revision(2));
        assert_eq!(waiting.until_counts(Revision(3)).await, Ok(()));
        let (first, answer) = waiting.next();
        let (second, _) = waiting.next();
        assert_ne!(first, second);
        waiting.answered(Event::Passed { token: first });
        assert!(matches!(answer.await, Ok(Event::Passed { token }) if token == first));
        waiting.forget(second);
        assert!(waiting.answers.lock().is_empty());
    }
}
