//! Requests that wait for their answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{error, fmt};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::protocol::channel::Channel;

/// Calls of this node that wait, over all peers.
///
/// Limit: calls to other nodes under way | {} | fail
const WAITING_LIMIT: usize = 16 * 1024;

/// Why a call has no answer. The request may have been carried out all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// There is no connection to the node, or its queue is full.
    NotConnected,
    /// A connection, there or back, was lost before the answer came.
    ConnectionLost,
    /// No answer came in time.
    TimedOut,
    /// The node gives no answer to this request.
    NoAnswer,
    /// Too many calls of this node wait.
    TooManyCalls,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "there is no connection to the node",
            Self::ConnectionLost => "the connection to the node was lost",
            Self::TimedOut => "the node gave no answer in time",
            Self::NoAnswer => "the node gives no answer to the request",
            Self::TooManyCalls => "too many calls wait for an answer",
        })
    }
}

impl error::Error for Unreachable {}

pub(crate) type Outcome = Result<Bytes, Unreachable>;

struct Waiting {
    peer: u64,
    channel: Channel,
    deadline_ms: u64,
    outcome: oneshot::Sender<Outcome>,
}

pub(crate) struct Calls {
    /// Begins at a random number: an answer to an earlier incarnation fits no call of this one.
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
}

impl Calls {
    pub(crate) fn new(first: u64) -> Self {
        let waiting = Mutex::default();
        let next = AtomicU64::new(first);
        Self { next, waiting }
    }

    /// Begins a call: its number, and where its outcome appears.
    pub(crate) fn begin(
        &self,
        peer: u64,
        channel: Channel,
        deadline_ms: u64,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), Unreachable> {
        let (sender, receiver) = oneshot::channel();
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_LIMIT {
            return Err(Unreachable::TooManyCalls);
        }
        waiting.insert(
            call,
            Waiting {
                peer,
                channel,
                deadline_ms,
                outcome: sender,
            },
        );
        Ok((call, receiver))
    }

    /// Ends a call. One that `peer` was not asked, or that has ended, is left alone.
    pub(crate) fn end(&self, call: u64, peer: u64, outcome: Outcome) {
        let mut waiting = self.waiting.lock();
        if waiting.get(&call).is_some_and(|call| call.peer == peer)
            && let Some(call) = waiting.remove(&call)
        {
            // Who asked may have gone away.
            let _ = call.outcome.send(outcome);
        }
    }

    /// Nobody waits for it any more.
    pub(crate) fn forget(&self, call: u64) {
        self.waiting.lock().remove(&call);
    }

    /// A connection, there or back, is lost.
    pub(crate) fn fail(&self, peer: u64, channel: Channel) {
        self.end_those(Unreachable::ConnectionLost, |call| {
            call.peer == peer && call.channel == channel
        });
    }

    /// All connections are lost.
    pub(crate) fn fail_all(&self) {
        self.end_those(Unreachable::ConnectionLost, |_| true);
    }

    pub(crate) fn expire(&self, now_ms: u64) {
        self.end_those(Unreachable::TimedOut, |call| call.deadline_ms <= now_ms);
    }

    fn end_those(&self, reason: Unreachable, ends: impl Fn(&Waiting) -> bool) {
        let ended = |_: &u64, call: &mut Waiting| ends(call);
        for (_, call) in self.waiting.lock().extract_if(ended) {
            let _ = call.outcome.send(Err(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Channel::{Bulk, Raft};

    #[test]
    fn an_answer_ends_the_call_of_its_number_and_peer() {
        let calls = Calls::new(u64::MAX);
        let (first, mut first_outcome) = calls.begin(1, Raft, 10).unwrap();
        let (second, mut second_outcome) = calls.begin(2, Raft, 10).unwrap();
        calls.end(second, 1, Ok("forged".into()));
        assert!(second_outcome.try_recv().is_err());
        calls.end(second, 2, Ok("b".into()));
        calls.end(first, 1, Ok("a".into()));
        assert_eq!(first_outcome.try_recv(), Ok(Ok("a".into())));
        assert_eq!(second_outcome.try_recv(), Ok(Ok("b".into())));
    }

    #[test]
    fn a_lost_connection_fails_its_calls_only() {
        let calls = Calls::new(0);
        let (_, mut lost) = calls.begin(1, Raft, 10).unwrap();
        let (_, mut bulk) = calls.begin(1, Bulk, 10).unwrap();
        let (_, mut other) = calls.begin(2, Raft, 10).unwrap();
        calls.fail(1, Raft);
        assert_eq!(lost.try_recv(), Ok(Err(Unreachable::ConnectionLost)));
        assert!(bulk.try_recv().is_err() && other.try_recv().is_err());
    }

    #[test]
    fn calls_expire_and_are_forgotten() {
        let calls = Calls::new(0);
        let (_, mut early) = calls.begin(1, Raft, 10).unwrap();
        let (late, mut later) = calls.begin(1, Raft, 11).unwrap();
        calls.expire(10);
        assert_eq!(early.try_recv(), Ok(Err(Unreachable::TimedOut)));
        assert!(later.try_recv().is_err());
        calls.forget(late);
        assert!(calls.waiting.lock().is_empty());
    }

    #[test]
    fn waiting_calls_are_bounded() {
        let calls = Calls::new(0);
        for _ in 0..WAITING_LIMIT {
            calls.begin(1, Raft, 10).unwrap();
        }
        let refused = calls.begin(1, Raft, 10);
        assert_eq!(refused.unwrap_err(), Unreachable::TooManyCalls);
    }
}
