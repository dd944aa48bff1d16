//! What a full disk has no room for and nobody would say again: it waits in memory until there is space.
//!
//! Invariants: it keeps its order; what a client is done with is one request, however often it says so.
//! When it is too much, the shard is crowded and publishers are not read ([`Shard::is_crowded`]).
//!
//! Deliberately absent: requests whose sender can be told that they are refused.
//!
//! [`Shard::is_crowded`]: crate::shard::Shard::is_crowded

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store_state::Request;

use crate::kind::Kind;

/// What there is to know of a request beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    /// Bytes that it holds in memory, about.
    pub(crate) bytes: usize,
    /// On a full disk it waits: nobody would say it again.
    pub(crate) must_wait: bool,
}

pub(crate) type Weighed<O> = (Weight, Request<O>);

/// Requests of one shard that wait for space.
pub(crate) struct Later<M: Kind> {
    requests: VecDeque<Weighed<M::Op>>,
    /// Where further ones of a client go, by the client.
    merged: HashMap<Box<str>, usize>,
    bytes: usize,
    debts: Debts,
    debt: Option<Debt>,
}

impl<M: Kind> Later<M> {
    pub(crate) fn new(debts: Debts) -> Self {
        Self {
            requests: VecDeque::new(),
            merged: HashMap::new(),
            bytes: 0,
            debts,
            debt: None,
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
        self.debt.get_or_insert_with(|| self.debts.incur());
        self.bytes += weight.bytes;
        if let Some(client) = M::merges(&request.op) {
            let place = self.merged.get(client);
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
        if let Some(client) = M::merges(&request.op) {
            self.merged.insert(client.into(), self.requests.len());
        }
        self.requests.push_back((weight, request));
        true
    }

    /// Takes the first requests out: at most `limit`, and `bytes` bytes unless it is only one. With the
    /// last ones comes the debt, which is paid when they are applied.
    pub(crate) fn take(
        &mut self,
        limit: usize,
        bytes: usize,
    ) -> (Vec<Weighed<M::Op>>, Option<Debt>) {
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
        let debt = self.debt.take_if(|_| self.requests.is_empty());
        (taken, debt)
    }

    /// Puts back what was taken: the disk is full again.
    pub(crate) fn put_back(&mut self, taken: Vec<Weighed<M::Op>>) {
        self.debt.get_or_insert_with(|| self.debts.incur());
        for (weight, request) in taken.into_iter().rev() {
            self.bytes += weight.bytes;
            self.requests.push_front((weight, request));
        }
    }
}

/// How many shards of a node have something to record from a time when the disk was full. Nothing new
/// is taken before that: who hears an acknowledgement may rely on what happened earlier.
#[derive(Clone, Default)]
pub(crate) struct Debts(Arc<AtomicUsize>);

/// One shard's part; paid when it is dropped.
pub(crate) struct Debt(Debts);

impl Debts {
    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    fn incur(&self) -> Debt {
        self.0.fetch_add(1, Ordering::AcqRel);
        Debt(self.clone())
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use store_state::Ticket;
    use store_state::inbox::{Done, InboxMachine, InboxOp};

    use super::*;

    fn request(op: InboxOp) -> Weighed<InboxOp> {
        let request = Request {
            map_version: 1,
            ticket: Ticket::NONE,
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
            client: client.into(),
            epoch,
            sent,
            done: Done(done.to_vec()),
        })
    }

    fn detach(client: &str, epoch: u64) -> Weighed<InboxOp> {
        request(InboxOp::Detach {
            client: client.into(),
            epoch,
            sent: 0,
        })
    }

    fn shown((taken, _): (Vec<Weighed<InboxOp>>, Option<Debt>)) -> Vec<String> {
        let name = |op| match op {
            InboxOp::Acknowledge {
                client, sent, done, ..
            } => format!("{client} {sent} {:?}", done.0),
            InboxOp::Detach { client, .. } => format!("{client} detached"),
            other => panic!("{other:?}"),
        };
        let requests = taken.into_iter();
        requests.map(|(_, request)| name(request.op)).collect()
    }

    #[test]
    fn what_a_client_is_done_with_is_one_request_in_its_first_place() {
        let mut later = Later::<InboxMachine>::new(Debts::default());
        assert!(later.put(acknowledge("ann", 1, 5, &[4])));
        assert!(later.put(acknowledge("bob", 1, 2, &[1])));
        assert!(!later.put(acknowledge("ann", 1, 6, &[5, 6])));
        assert!(later.put(detach("ann", 1)));
        assert!(later.put(acknowledge("ann", 2, 7, &[7])));
        assert_eq!((later.len(), later.bytes()), (4, 50));
        let all = shown(later.take(9, 1000));
        let expected = ["ann 6 [4, 5, 6]", "bob 2 [1]", "ann detached", "ann 7 [7]"];
        assert_eq!(all, expected);
        assert_eq!(later.bytes(), 0);
    }

    #[test]
    fn it_is_taken_in_parts_and_what_is_put_back_comes_first() {
        let mut later = Later::<InboxMachine>::new(Debts::default());
        for client in ["a", "b", "c", "d"] {
            later.put(detach(client, 1));
        }
        assert_eq!(shown(later.take(2, 1000)), ["a detached", "b detached"]);
        let (taken, _) = later.take(9, 5);
        assert_eq!(taken.len(), 1, "one goes at any rate");
        later.put_back(taken);
        later.put(detach("e", 1));
        let rest = shown(later.take(9, 1000));
        assert_eq!(rest, ["c detached", "d detached", "e detached"]);
    }

    #[test]
    fn a_debt_lasts_until_the_last_part_is_applied() {
        let debts = Debts::default();
        let mut later = Later::<InboxMachine>::new(debts.clone());
        later.put(detach("a", 1));
        later.put(detach("b", 1));
        assert!(later.take(1, 1000).1.is_none());
        let (_, debt) = later.take(1, 1000);
        assert!(debts.is_any());
        drop(debt);
        assert!(!debts.is_any());
    }
}
