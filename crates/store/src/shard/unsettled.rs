//! Answers that are held until later operations have settled what they say: a connection that was asked for is answered
//! when the wills of the client's earlier ones are published.
//!
//! Invariant: an answer is held only while this node leads the shard. Whoever asked from another node asks its next leader;
//! what this node has asked is asked again.

use std::collections::BTreeMap;

use store_state::api::Event;
use store_state::{Machine, Request};

use crate::kinds::kind::Kind;

/// A request that is applied, with its answer.
type Applied<M> = (Request<<M as Machine>::Op>, Event);

/// Such requests by the name that they wait for.
pub(crate) struct Unsettled<M: Kind> {
    by_name: BTreeMap<Box<str>, Vec<Applied<M>>>,
}

impl<M: Kind> Default for Unsettled<M> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
        }
    }
}

impl<M: Kind> Unsettled<M> {
    /// Holds an answer, if it is to be held; else gives it back.
    pub(super) fn hold(
        &mut self,
        machine: &M,
        request: &Request<M::Op>,
        answer: Event,
    ) -> Option<Event> {
        match M::settles(&request.op).filter(|_| machine.is_unsettled(&request.op)) {
            None => Some(answer),
            Some(name) => {
                let held = self.by_name.entry(name.into()).or_default();
                held.push((request.clone(), answer));
                None
            }
        }
    }

    /// An operation was applied: the answers that need not be held any more, in the order of their requests.
    pub(super) fn settled(&mut self, machine: &M, op: &M::Op) -> Vec<Applied<M>> {
        // Most of the time none is held.
        let name = M::settles(op).filter(|_| !self.by_name.is_empty());
        let mut settled = Vec::new();
        if let Some(name) = name
            && let Some(waiting) = self.by_name.get_mut(name)
        {
            let is_settled = |(request, _): &mut Applied<M>| !machine.is_unsettled(&request.op);
            settled.extend(waiting.extract_if(.., is_settled));
            if waiting.is_empty() {
                self.by_name.remove(name);
            }
        }
        settled
    }

    /// Takes out those that `takes` says.
    pub(super) fn take(&mut self, takes: impl Fn(&M::Op) -> bool) -> Vec<Request<M::Op>> {
        let mut taken = Vec::new();
        self.by_name.retain(|_, waiting| {
            let out = waiting.extract_if(.., |(request, _)| takes(&request.op));
            taken.extend(out.map(|(request, _)| request));
            !waiting.is_empty()
        });
        taken
    }
}
