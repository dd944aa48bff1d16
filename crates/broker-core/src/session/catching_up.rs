//! Messages of QoS 0 that come to a durable session directly, while what its inbox kept of QoS 0 is still on its way.
//!
//! The inbox keeps messages of QoS 0 until a connection has attached it, and from then on they come directly. Whoever sent
//! them by both ways has sent the kept ones first [MQTT-4.6.0-6]. So direct ones are held until the inbox has given all that
//! it had: a barrier behind what was asked to be read says so, if there was credit left for more. Most connections are never
//! sent any: the first direct message asks for the barrier.
//!
//! | state | input | then |
//! |---|---|---|
//! | closed | a direct message | it is held; the first one asks for a barrier |
//! | closed | a message for an earlier connection, which the inbox did not take | as a direct one, before these |
//! | closed | the barrier, with credit left | open; what was held goes to the session |
//! | closed | the barrier, without credit | the next credit asks again |
//! | closed | credit, when there was none | a barrier that is under way says nothing; asks again |
//! | closed | the inbox is opened at another leader | an earlier barrier says nothing; asks again |
//! | open | a direct message | it goes to the session |
//!
//! Invariant: what is held is within the limits of the session's queue; what is beyond is dropped and counted as there.
//!
//! Deliberately absent: what a session without a connection is sent (`linger.rs`).

use mqtt_session::{Delivery, DropReason, Dropped, Policy};
use store_state::CorrelationId;
use store_state::api::{Slot, Store};

/// How a message came that the inbox does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Directly.
    Alone,
    /// Directly, and other sessions get it too.
    WithOthers,
    /// For an earlier connection, or before routes of this one were there: it goes before those that come directly.
    Earlier,
}

/// What a direct message finds.
#[derive(Debug)]
pub(crate) enum Direct {
    /// It goes to the session.
    Deliver(Delivery),
    /// It is held.
    Held,
    /// It is held, and a barrier of this round is to be asked for.
    Ask(Round),
    /// There is no room.
    Full(Dropped),
}

/// Which barrier it is that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Round(u32);

/// Whether direct messages go to a session, and those that do not yet.
#[derive(Debug)]
pub(crate) struct CatchingUp {
    is_open: bool,
    /// A barrier is under way.
    is_asked: bool,
    /// One has come by this connection.
    has_come: bool,
    round: Round,
    /// Few connections have any, and none for long.
    held: Option<Box<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    deliveries: Vec<Delivery>,
    /// So many of these came first, for an earlier connection.
    late: usize,
    bytes: u64,
}

impl CatchingUp {
    /// `present`: the inbox may have kept messages for an earlier connection.
    pub(crate) const fn new(present: bool) -> Self {
        Self {
            is_open: !present,
            is_asked: false,
            has_come: false,
            round: Round(0),
            held: None,
        }
    }

    /// Whether a direct message has come by this connection: it is likely that more are on their way when it ends.
    pub(crate) const fn has_come(&self) -> bool {
        self.has_come
    }

    /// A message that the inbox does not keep. `policy`: of the session.
    pub(crate) fn handle(&mut self, delivery: Delivery, came: Came, policy: &Policy) -> Direct {
        let is_late = came == Came::Earlier;
        self.has_come |= !is_late;
        if self.is_open {
            return Direct::Deliver(delivery);
        }
        let held = self.held.get_or_insert_default();
        let bytes = held.bytes + delivery.bytes();
        let broken = if held.deliveries.len() >= policy.queue_messages as usize {
            Some(DropReason::QueueFullMessages)
        } else {
            (bytes > policy.queue_bytes).then_some(DropReason::QueueFullBytes)
        };
        if let Some(reason) = broken {
            let message = delivery.message;
            return Direct::Full(Dropped { message, reason });
        }
        held.bytes = bytes;
        if is_late {
            held.deliveries.insert(held.late, delivery);
            held.late += 1;
        } else {
            held.deliveries.push(delivery);
        }
        self.ask().map_or(Direct::Held, Direct::Ask)
    }

    /// The inbox may give more; `was_exhausted`: it may have lacked credit when a barrier passed whose answer is under way.
    /// Some: a barrier is to be asked for behind that.
    pub(crate) fn handle_credit(&mut self, was_exhausted: bool) -> Option<Round> {
        if was_exhausted && std::mem::take(&mut self.is_asked) {
            self.round.0 = self.round.0.wrapping_add(1);
        }
        self.held.as_ref()?;
        self.ask()
    }

    /// The inbox is read from another leader. Some: as [`Self::handle_credit`].
    pub(crate) fn handle_reopened(&mut self) -> Option<Round> {
        self.handle_credit(true)
    }

    /// A barrier has passed. `has_credit`: the inbox could have given more. Gives back what goes to the session, in its
    /// order.
    pub(crate) fn handle_passed(&mut self, round: Round, has_credit: bool) -> Vec<Delivery> {
        if round != self.round || !std::mem::take(&mut self.is_asked) || !has_credit {
            return Vec::new();
        }
        self.is_open = true;
        self.take()
    }

    /// The connection has ended: what the session was not given.
    pub(crate) fn take(&mut self) -> Vec<Delivery> {
        self.held
            .take()
            .map_or_else(Vec::new, |held| held.deliveries)
    }

    fn ask(&mut self) -> Option<Round> {
        let asks = !self.is_open && !std::mem::replace(&mut self.is_asked, true);
        asks.then_some(self.round)
    }
}

/// The shard of an inbox answers when it has given what it was asked to read, as far as it has it.
pub(crate) fn ask_whether_read(store: &impl Store, slot: Slot, ticket: CorrelationId) {
    let shards = store.inbox_shards();
    let own = shards
        .of_slot(slot)
        .expect("the shards of a store have all slots");
    store.inbox_barrier(&[own], ticket);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, SubscriptionIdSet};

    use super::*;

    fn delivery(payload: &str) -> Delivery {
        Delivery {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("t", payload.as_bytes()),
                qos: QoS::AtMostOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            qos: QoS::AtMostOnce,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        }
    }

    /// What becomes of a message.
    fn direct(of: &mut CatchingUp, payload: &str) -> &'static str {
        let policy = Policy {
            queue_messages: 3,
            ..Policy::default()
        };
        match of.handle(delivery(payload), Came::Alone, &policy) {
            Direct::Deliver(_) => "deliver",
            Direct::Held => "held",
            Direct::Ask(_) => "ask",
            Direct::Full(..) => "full",
        }
    }

    fn payloads(deliveries: &[Delivery]) -> Vec<&[u8]> {
        deliveries
            .iter()
            .map(|d| d.message.body.payload())
            .collect()
    }

    #[test]
    fn a_new_session_gets_messages_at_once() {
        let mut new = CatchingUp::new(false);
        assert!(!new.has_come());
        assert_eq!(direct(&mut new, "1"), "deliver");
        assert!(new.has_come());
    }

    #[test]
    fn direct_messages_wait_until_the_inbox_has_given_all() {
        let mut of = CatchingUp::new(true);
        assert_eq!(of.handle_credit(true), None, "nothing waits");
        let all = ["1", "2", "3", "4"].map(|payload| direct(&mut of, payload));
        assert_eq!(all, ["ask", "held", "held", "full"]);
        assert_eq!(of.handle_credit(false), None, "it is asked");
        assert!(of.handle_passed(Round(0), false).is_empty());
        let again = of.handle_credit(true).unwrap();
        let held = of.handle_passed(again, true);
        assert_eq!(payloads(&held), [b"1", b"2", b"3"]);
        assert_eq!(direct(&mut of, "5"), "deliver");
    }

    #[test]
    fn credit_that_comes_before_the_answer_does_not_make_it_an_end() {
        let mut of = CatchingUp::new(true);
        assert_eq!(direct(&mut of, "1"), "ask");
        let again = of.handle_credit(true).unwrap();
        assert!(of.handle_passed(Round(0), true).is_empty());
        assert_eq!(payloads(&of.handle_passed(again, true)), [b"1"]);
    }

    #[test]
    fn what_came_for_an_earlier_connection_goes_first() {
        let mut of = CatchingUp::new(true);
        direct(&mut of, "3");
        for payload in ["1", "2"] {
            let late = of.handle(delivery(payload), Came::Earlier, &Policy::default());
            assert!(matches!(late, Direct::Held), "{late:?}");
        }
        let all = of.handle_passed(Round(0), true);
        assert_eq!(payloads(&all), [b"1", b"2", b"3"]);
    }

    #[test]
    fn a_barrier_of_an_earlier_leader_says_nothing() {
        let mut of = CatchingUp::new(true);
        assert_eq!(of.handle_reopened(), None);
        assert_eq!(direct(&mut of, "1"), "ask");
        let round = of.handle_reopened().unwrap();
        assert!(of.handle_passed(Round(0), true).is_empty());
        assert_eq!(payloads(&of.handle_passed(round, true)), [b"1"]);
    }

    #[test]
    fn what_is_held_is_there_when_the_connection_ends() {
        let mut of = CatchingUp::new(true);
        direct(&mut of, "1");
        assert_eq!(payloads(&of.take()), [b"1"]);
    }
}
