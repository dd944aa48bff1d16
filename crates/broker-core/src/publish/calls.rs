//! The numbers of requests to inbox shards that must not be carried out twice, and have no origin.
//!
//! Such are QoS 2 messages of sessions that end with their connections, those that go from one member of a shared group
//! to another, and messages of QoS 0. While a shard changes its leader, a request is said again that may have been
//! carried out.

use std::collections::BTreeSet;

use store_state::inbox::{Call, Caller, InboxOp};

use crate::publish::once::Once;

/// What a loop has asked in this way.
#[derive(Debug)]
pub(crate) struct Calls {
    caller: Caller,
    last: u64,
    /// The first numbers of those that are waited for.
    waiting: BTreeSet<u64>,
}

impl Calls {
    pub(crate) fn new(caller: Caller) -> Self {
        Self {
            caller,
            last: 0,
            waiting: BTreeSet::new(),
        }
    }

    /// Requests are about to be made that one answer waits for. Returns what [`Calls::end`] is to be given.
    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last);
        self.last
    }

    /// They are answered, or not waited for any more.
    pub(crate) fn end(&mut self, begun: u64) {
        self.waiting.remove(&begun);
    }

    /// The request as one that happens once.
    ///
    /// One that nobody waits for is lost if a later one of the loop was carried out before it.
    pub(crate) fn once(&mut self, op: InboxOp) -> InboxOp {
        self.last += 1;
        let call = Call {
            caller: self.caller,
            number: self.last,
            oldest: self.waiting.first().copied().unwrap_or(self.last),
        };
        match op {
            InboxOp::Publish {
                message,
                publisher,
                origin: None,
            } => InboxOp::PublishOnce {
                call,
                message,
                publisher,
            },
            InboxOp::Deliver {
                session,
                items,
                origin: None,
            } => InboxOp::DeliverOnce {
                call,
                session,
                items,
            },
            other => other,
        }
    }
}

/// Whether a message needs such a number.
pub(crate) fn needs_call(qos: mqtt_proto::QoS, once: Option<&Once>) -> bool {
    qos != mqtt_proto::QoS::AtLeastOnce && once.is_none()
}

#[cfg(test)]
mod tests {
    use mqtt_proto::QoS;
    use store_state::inbox::Origin;

    use super::*;

    #[test]
    fn what_may_come_again_or_has_a_name_needs_no_number() {
        let once = Once::Client {
            origin: Origin {
                client: "c".into(),
                incarnation: 1,
                packet_id: 1,
            },
            epoch: 1,
        };
        assert!(needs_call(QoS::AtMostOnce, None));
        assert!(!needs_call(QoS::AtLeastOnce, None));
        assert!(needs_call(QoS::ExactlyOnce, None));
        assert!(!needs_call(QoS::ExactlyOnce, Some(&once)));
    }

    #[test]
    fn what_is_waited_for_is_the_oldest() {
        let mut calls = Calls::new(Caller {
            node: 1,
            loop_index: 0,
            incarnation: 1,
        });
        let ask = |calls: &mut Calls| {
            let op = InboxOp::Deliver {
                session: "c".into(),
                items: Vec::new(),
                origin: None,
            };
            match calls.once(op) {
                InboxOp::DeliverOnce { call, .. } => (call.number, call.oldest),
                other => panic!("{other:?}"),
            }
        };
        let first = calls.begin();
        let (one, oldest) = ask(&mut calls);
        assert!(one > first && oldest == first);
        let second = calls.begin();
        assert_eq!(ask(&mut calls).1, first);
        calls.end(first);
        assert_eq!(ask(&mut calls).1, second);
        calls.end(second);
        let (number, oldest) = ask(&mut calls);
        assert_eq!(number, oldest);
    }
}
