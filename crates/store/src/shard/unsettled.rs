//! Answers that are held until later operations have settled what they say: a connection that was asked for is answered
//! when the wills of the client's earlier ones are published.
//!
//! Invariants: an answer is held only while this node leads the shard. Whoever asked from another node asks its next leader;
//! what this node has asked is asked again. At most [`HELD_MOST`] answers are held: a further request is answered at once, with
//! a failure, so that its connection is refused instead of going ahead of the wills.

use std::collections::BTreeMap;

use store_state::api::{Event, Failure};
use store_state::{Machine, Request};

use crate::kinds::kind::Kind;

/// Answers that a shard holds at most. Each is a connection that waits for its CONNACK.
///
/// Limit: answers that a session shard holds until wills of older connections are published | {} | the client is
/// refused: 0x88; it connects again
const HELD_MOST: usize = if cfg!(test) { 3 } else { 65_536 };

/// A request that is applied, with its answer.
type Applied<M> = (Request<<M as Machine>::Op>, Event);

/// Such requests by the name that they wait for.
pub(crate) struct Unsettled<M: Kind> {
    by_name: BTreeMap<Box<str>, Vec<Applied<M>>>,
    /// Requests of all names.
    held: usize,
}

impl<M: Kind> Default for Unsettled<M> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            held: 0,
        }
    }
}

impl<M: Kind> Unsettled<M> {
    /// Answers that are held.
    pub(super) fn len(&self) -> usize {
        self.held
    }

    /// Holds an answer, if it is to be held; else gives it back, or a failure if no more can be held.
    pub(super) fn hold(
        &mut self,
        machine: &M,
        request: &Request<M::Op>,
        answer: Event,
    ) -> Option<Event> {
        match M::settles(&request.op).filter(|_| machine.is_unsettled(&request.op)) {
            None => Some(answer),
            Some(_) if self.held >= HELD_MOST => Some(Event::failed(Failure::Stopped)(
                request.correlation_id.token,
            )),
            Some(name) => {
                self.held += 1;
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
            self.held -= settled.len();
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
        self.held -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
    use store_state::session::{
        ClaimRequest, OfAnotherUser, SessionEnd, SessionMachine, SessionOp, SessionOutlet,
        StoredWill,
    };
    use store_state::{
        ClassLimits, CorrelationId, Header, Limits, QueueLimits, RoutedUntil, Slots, Table,
        TableError,
    };

    use super::*;

    struct Nothing;

    impl Table for Nothing {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
            Ok(None)
        }

        fn range(
            &self,
            _: &[u8],
            _: &[u8],
            _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        ) -> Result<(), TableError> {
            Ok(())
        }
    }

    impl SessionOutlet for Nothing {
        fn fire(&mut self, _: &str, _: u64, _: &StoredWill) {}
        fn ended(&mut self, _: &str, _: u64, _: Option<SessionEnd>) {}
        fn known(&mut self, _: &str, _: bool) {}
    }

    fn apply(machine: &mut SessionMachine, op: &SessionOp) {
        let queue = QueueLimits {
            messages: 0,
            bytes: 0,
            full: QueueFull::REFUSE,
            is_closed: false,
        };
        let limits = Limits {
            queue,
            qos0: Qos0Inbox::Never,
            retained_messages: 0,
            retained_bytes: 0,
            classes: ClassLimits::NONE,
        };
        let header = Header { now_ms: 0, limits };
        let reply = machine.apply(&header, op, &Nothing, &mut Nothing);
        reply.expect("tables without rows");
    }

    /// A connection of a client to a node.
    fn claim(client: &str, node: u64, will: Option<StoredWill>) -> SessionOp {
        let request = ClaimRequest {
            client: client.into(),
            node,
            node_incarnation: 1,
            clean_start: false,
            expiry: 60,
            will,
            asked_ms: u64::MAX,
        };
        SessionOp::claim(request, None, OfAnotherUser::Refuse)
    }

    fn will() -> StoredWill {
        let message = ApplicationMessage {
            body: MessageBody::new("gone", b""),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        };
        StoredWill {
            message: Arc::new(message),
            message_expiry: None,
            delay: 0,
        }
    }

    /// What the second connection of a client asks, by its number.
    fn asked(number: u64) -> Request<SessionOp> {
        let client = format!("c{number}").into();
        Request {
            until: RoutedUntil::FIRST,
            correlation_id: CorrelationId {
                peer: 0,
                loop_number: 1,
                token: number,
            },
            op: SessionOp::WillDue { client, epoch: 0 },
        }
    }

    #[test]
    fn so_many_answers_are_held_and_further_ones_are_failures() {
        let mut machine = SessionMachine::load(Slots::ALL, &Nothing).expect("tables without rows");
        let mut unsettled = Unsettled::<SessionMachine>::default();
        let answer = |number: u64| Event::passed(number);
        for number in 0..=HELD_MOST as u64 {
            let client = format!("c{number}");
            apply(&mut machine, &claim(&client, 1, Some(will())));
            apply(&mut machine, &claim(&client, 2, None));
            let held = unsettled.hold(&machine, &asked(number), answer(number));
            let failure = (number == HELD_MOST as u64).then_some((number, Failure::Stopped));
            let failed = held.map(|event| match event {
                Event::Failed { token, failure } => (token, failure),
                other => panic!("{other:?}"),
            });
            assert_eq!(failed, failure);
        }
        assert_eq!(unsettled.len(), HELD_MOST);
        // The first connection of one has ended without a will.
        let discard = SessionOp::DiscardWill {
            client: "c0".into(),
            epoch: 1,
        };
        apply(&mut machine, &discard);
        assert_eq!(unsettled.settled(&machine, &discard).len(), 1);
        assert_eq!(unsettled.len(), HELD_MOST - 1);
        assert_eq!(unsettled.take(|_| true).len(), HELD_MOST - 1);
        assert_eq!(unsettled.len(), 0);
    }
}
