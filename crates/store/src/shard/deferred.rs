//! Deferred requests: a full disk has no room for them and nobody would retry them, so they wait in memory for space.
//!
//! Invariants: deferred requests keep their order; the acknowledgements of one session are merged into one request. When they
//! hold too much memory, the shard is over its limit and publishers are not read ([`Shard::is_over_limit`]).
//!
//! Deliberately absent: requests whose sender can be told that they are refused.
//!
//! [`Shard::is_over_limit`]: crate::shard::handle::Shard::is_over_limit

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store_state::Request;
use store_state::inbox::SessionName;

use crate::kinds::kind::Kind;

/// What there is to know of a request beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    /// Bytes that it holds in memory, about.
    pub(crate) bytes: usize,
    /// On a full disk the request is deferred: nobody would retry it.
    pub(crate) must_wait: bool,
}

pub(crate) type Weighed<O> = (Weight, Request<O>);

/// Requests of one shard that wait for space.
pub(crate) struct DeferredRequests<M: Kind> {
    requests: VecDeque<Weighed<M::Op>>,
    /// Where further ones of a session go.
    merged: HashMap<SessionName, usize>,
    bytes: usize,
    backlog: Backlog,
    backlog_share: Option<BacklogShare>,
}

impl<M: Kind> DeferredRequests<M> {
    pub(crate) fn new(backlog: Backlog) -> Self {
        Self {
            requests: VecDeque::new(),
            merged: HashMap::new(),
            bytes: 0,
            backlog,
            backlog_share: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// What the requests hold in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a request behind the others, or into one of them: then it is gone, and `false` is returned.
    pub(crate) fn put(&mut self, (weight, mut request): Weighed<M::Op>) -> bool {
        self.backlog_share
            .get_or_insert_with(|| self.backlog.join());
        self.bytes += weight.bytes;
        if let Some(session) = M::merges(&request.op) {
            let place = self.merged.get(session);
            if let Some((merged, waiting)) = place.and_then(|at| self.requests.get_mut(*at)) {
                match M::merge(&mut waiting.op, request.op) {
                    Ok(()) => {
                        merged.bytes += weight.bytes;
                        return false;
                    }
                    Err(op) => request.op = op,
                }
            }
        }
        if let Some(session) = M::merges(&request.op) {
            self.merged.insert(session.clone(), self.requests.len());
        }
        self.requests.push_back((weight, request));
        true
    }

    /// Takes the first requests out: at most `limit`, and `bytes` bytes unless it is only one. With the
    /// last ones comes the share of the backlog, to be dropped when they are applied.
    pub(crate) fn take(
        &mut self,
        limit: usize,
        bytes: usize,
    ) -> (Vec<Weighed<M::Op>>, Option<BacklogShare>) {
        // Places change.
        self.merged.clear();
        let mut taken = Vec::new();
        let mut sum = 0;
        while taken.len() < limit
            && let Some((weight, request)) = self
                .requests
                .pop_front_if(|(weight, _)| taken.is_empty() || sum + weight.bytes <= bytes)
        {
            sum += weight.bytes;
            taken.push((weight, request));
        }
        self.bytes -= sum;
        let backlog_share = self.backlog_share.take_if(|_| self.requests.is_empty());
        (taken, backlog_share)
    }

    /// Puts back what was taken: the disk is full again.
    pub(crate) fn put_back(&mut self, taken: Vec<Weighed<M::Op>>) {
        self.backlog_share
            .get_or_insert_with(|| self.backlog.join());
        for (weight, request) in taken.into_iter().rev() {
            self.bytes += weight.bytes;
            self.requests.push_front((weight, request));
        }
    }
}

/// How many shards of a node have deferred requests. New requests are refused until there are none: a client that gets an
/// acknowledgement may rely on what happened earlier.
#[derive(Clone, Default)]
pub(crate) struct Backlog(Arc<AtomicUsize>);

/// One shard's share of the backlog; dropping it takes the shard out.
pub(crate) struct BacklogShare(Backlog);

impl Backlog {
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    fn join(&self) -> BacklogShare {
        self.0.fetch_add(1, Ordering::AcqRel);
        BacklogShare(self.clone())
    }
}

impl Drop for BacklogShare {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use store_state::inbox::{Done, InboxMachine, InboxOp};
    use store_state::{CorrelationId, RoutedUntil};

    use super::*;

    fn request(op: InboxOp) -> Weighed<InboxOp> {
        let request = Request {
            until: RoutedUntil::FIRST,
            correlation_id: CorrelationId::NONE,
            op,
        };
        let weight = Weight {
            bytes: 10,
            must_wait: true,
        };
        (weight, request)
    }

    fn acknowledge(client: &str, epoch: u64, sent: u64, done: &[u64]) -> Weighed<InboxOp> {
        request(InboxOp::Acknowledge {
            session: client.into(),
            epoch,
            sent,
            done: Done(done.to_vec()),
        })
    }

    fn detach(client: &str, epoch: u64) -> Weighed<InboxOp> {
        request(InboxOp::Detach {
            session: client.into(),
            epoch,
            sent: 0,
        })
    }

    fn shown((taken, _): (Vec<Weighed<InboxOp>>, Option<BacklogShare>)) -> Vec<String> {
        let name = |op| match op {
            InboxOp::Acknowledge {
                session,
                sent,
                done,
                ..
            } => format!("{session} {sent} {:?}", done.0),
            InboxOp::Detach { session, .. } => format!("{session} detached"),
            other => panic!("{other:?}"),
        };
        let requests = taken.into_iter();
        requests.map(|(_, request)| name(request.op)).collect()
    }

    #[test]
    fn what_a_client_is_done_with_is_one_request_in_its_first_place() {
        let mut deferred = DeferredRequests::<InboxMachine>::new(Backlog::default());
        assert!(deferred.put(acknowledge("ann", 1, 5, &[4])));
        assert!(deferred.put(acknowledge("bob", 1, 2, &[1])));
        assert!(!deferred.put(acknowledge("ann", 1, 6, &[5, 6])));
        assert!(deferred.put(detach("ann", 1)));
        assert!(deferred.put(acknowledge("ann", 2, 7, &[7])));
        assert_eq!((deferred.len(), deferred.bytes()), (4, 50));
        let all = shown(deferred.take(9, 1000));
        let expected = ["ann 6 [4, 5, 6]", "bob 2 [1]", "ann detached", "ann 7 [7]"];
        assert_eq!(all, expected);
        assert_eq!(deferred.bytes(), 0);
    }

    #[test]
    fn it_is_taken_in_parts_and_what_is_put_back_comes_first() {
        let mut deferred = DeferredRequests::<InboxMachine>::new(Backlog::default());
        for client in ["a", "b", "c", "d"] {
            deferred.put(detach(client, 1));
        }
        assert_eq!(shown(deferred.take(2, 1000)), ["a detached", "b detached"]);
        let (taken, _) = deferred.take(9, 5);
        assert_eq!(taken.len(), 1, "one goes at any rate");
        deferred.put_back(taken);
        deferred.put(detach("e", 1));
        let rest = shown(deferred.take(9, 1000));
        assert_eq!(rest, ["c detached", "d detached", "e detached"]);
    }

    #[test]
    fn a_debt_lasts_until_the_last_part_is_applied() {
        let backlog = Backlog::default();
        let mut deferred = DeferredRequests::<InboxMachine>::new(backlog.clone());
        deferred.put(detach("a", 1));
        deferred.put(detach("b", 1));
        assert!(deferred.take(1, 1000).1.is_none());
        let (_, backlog_share) = deferred.take(1, 1000);
        assert!(backlog.is_pending());
        drop(backlog_share);
        assert!(!backlog.is_pending());
    }
}
