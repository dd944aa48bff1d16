//! Replies and pages by their receivers, until they are sent.
//!
//! Invariant: what one receiver gets keeps its order.

use store_state::CorrelationId;
use store_state::api::{Event, LastSlot};

use crate::api::listener::Listener;
use crate::peers::message::Answers;
use crate::shard::work::Work;

/// What the next mail brings.
#[derive(Debug)]
pub(crate) struct Outbox<O> {
    /// By event loop.
    pub(crate) loops: Vec<Vec<Event>>,
    /// Other nodes, of which there are few.
    pub(super) peers: Vec<(u64, Answers)>,
    /// Answers to what the store itself waits for.
    pub(super) own: Vec<Event>,
    /// Answers to threads that are no loops.
    pub(super) threads: Vec<Event>,
    /// What this node has asked, and what is for other shards by now as well, or only for these; in order.
    pub(super) split_off: Vec<SplitOff<O>>,
}

/// Work of this node that a shard does not have all the slots of any more.
#[derive(Debug)]
pub(crate) struct SplitOff<O> {
    pub(crate) work: Work<O>,
    pub(crate) bytes: usize,
    /// The answer of the shard; `None`: it has done nothing.
    pub(crate) reply: Option<Event>,
    /// The last slot of the shard.
    pub(crate) last: LastSlot,
}

impl<O> Default for Outbox<O> {
    fn default() -> Self {
        Self {
            loops: Vec::new(),
            peers: Vec::new(),
            own: Vec::new(),
            threads: Vec::new(),
            split_off: Vec::new(),
        }
    }
}

impl<O> Outbox<O> {
    /// Puts in a reply, for whoever waits for it.
    pub(crate) fn address(
        &mut self,
        correlation_id: CorrelationId,
        event: impl FnOnce(u64) -> Event,
    ) {
        if correlation_id == CorrelationId::LEADER {
            // Nobody waits for it.
        } else if correlation_id.peer != 0 {
            self.mail(correlation_id.peer)
                .answers
                .push(event(correlation_id.token));
        } else if correlation_id.loop_number == CorrelationId::STORE {
            self.own.push(event(correlation_id.token));
        } else if correlation_id.loop_number == CorrelationId::THREADS {
            self.threads.push(event(correlation_id.token));
        } else if let Some(loop_index) = correlation_id.loop_number.checked_sub(1) {
            self.put(0, loop_index, event(correlation_id.token));
        }
    }

    /// Puts in an event for a loop of a node (0: this one).
    pub(crate) fn put(&mut self, peer: u64, loop_index: u16, event: Event) {
        if peer != 0 {
            self.mail(peer).pages.push((loop_index, event));
            return;
        }
        let index = usize::from(loop_index);
        if self.loops.len() <= index {
            self.loops.resize_with(index + 1, Vec::new);
        }
        if let Some(events) = self.loops.get_mut(index) {
            events.push(event);
        }
    }

    fn mail(&mut self, peer: u64) -> &mut Answers {
        let known = self.peers.iter().position(|(known, _)| *known == peer);
        let at = known.unwrap_or_else(|| {
            self.peers.push((peer, Answers::default()));
            self.peers.len() - 1
        });
        &mut self.peers[at].1
    }
}

/// Gives event loops their mail.
pub(crate) fn give(listener: &dyn Listener, outbox: Vec<Vec<Event>>) {
    for (loop_index, events) in outbox.into_iter().enumerate() {
        if !events.is_empty() {
            listener.mail(loop_index, events);
        }
    }
}

#[cfg(test)]
mod tests {
    use store_state::api::StoreId;

    use super::*;

    fn correlation_id(peer: u64, loop_number: u16, token: u64) -> CorrelationId {
        CorrelationId {
            peer,
            loop_number,
            token,
        }
    }

    fn tokens(events: &[Event]) -> Vec<u64> {
        let token = |event: &Event| match event {
            Event::Passed { token } => *token,
            other => panic!("{other:?}"),
        };
        events.iter().map(token).collect()
    }

    #[test]
    fn replies_go_to_the_loop_or_node_that_asked_in_their_order() {
        let mut outbox = Outbox::<()>::default();
        for correlation_id in [
            correlation_id(0, 3, 1),
            correlation_id(9, 1, 2),
            correlation_id(0, 1, 3),
            CorrelationId::NONE,
            CorrelationId::LEADER,
            correlation_id(0, 3, 4),
            correlation_id(9, 1, 5),
        ] {
            outbox.address(correlation_id, Event::passed);
        }
        let loops: Vec<_> = outbox.loops.iter().map(|events| tokens(events)).collect();
        assert_eq!(loops, [vec![3], vec![], vec![1, 4]]);
        let (peer, answers) = outbox.peers.pop().unwrap();
        assert!(outbox.peers.is_empty());
        let mail: Vec<_> = answers.parts(StoreId::Retain, 7).collect();
        assert_eq!((peer, mail.len()), (9, 1));
        assert_eq!((mail[0].store, mail[0].shard), (StoreId::Retain, 7));
        assert_eq!(tokens(&mail[0].answers), [2, 5]);
    }

    #[test]
    fn pages_of_a_peer_say_which_of_its_loops_they_are_for() {
        let mut outbox = Outbox::<()>::default();
        outbox.put(9, 4, Event::Reopen { shard: 1 });
        outbox.put(0, 0, Event::Fenced);
        let (_, answers) = outbox.peers.pop().unwrap();
        assert!(answers.answers.is_empty());
        assert!(matches!(
            answers.pages[..],
            [(4, Event::Reopen { shard: 1 })]
        ));
        assert!(matches!(outbox.loops[..], [ref events] if events.len() == 1));
    }
}
