//! The retained messages of this node, in memory.
//!
//! Invariant: at most one message per topic; never more messages or bytes than the limits allow.
//! Expired messages are not handed out, and are removed when found or by [`Retained::sweep`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use parking_lot::RwLock;
use topic_router::{Cursor, RetainedIndex};

use crate::sys::PREFIX;

/// Accounted for each message beside its bytes.
const OVERHEAD: u64 = 128;

/// Retained messages in memory.
#[derive(Debug, Default)]
pub(crate) struct Retained(RwLock<Kept>);

#[derive(Debug, Default)]
struct Kept {
    index: RetainedIndex<Arc<ApplicationMessage>>,
    /// Of clients; the broker's own are not counted.
    messages: u64,
    bytes: u64,
    /// Soonest expiry first. An entry may be about a message that has been replaced.
    expiries: BinaryHeap<Reverse<(Timestamp, Box<str>)>>,
}

/// How many messages may be retained, and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedLimits {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// One page of retained messages that a filter selects.
pub(crate) struct Page {
    pub(crate) messages: Vec<Arc<ApplicationMessage>>,
    /// Where the next page begins; `None`: there is none.
    pub(crate) next: Option<Cursor>,
}

impl Retained {
    /// Keeps, replaces, or (empty payload) removes the message of a topic. False: the limits leave no
    /// room, and nothing was changed.
    pub(crate) fn set(&self, message: &Arc<ApplicationMessage>, limits: RetainedLimits) -> bool {
        let topic = message.body.topic();
        let own = topic.starts_with(PREFIX);
        let mut kept = self.0.write();
        if message.body.payload().is_empty() {
            // [MQTT-3.3.1-6] [MQTT-3.3.1-7] an empty payload removes, and is itself not kept
            if let Some(before) = kept.index.remove(topic) {
                kept.forget(&before);
            }
            return true;
        }
        let replaced = kept.index.get(topic).map_or(0, cost);
        // The broker's own topics are few, and do not take room from the clients'.
        if !own {
            let bytes = kept.bytes - replaced + cost(message);
            let messages = kept.messages + u64::from(replaced == 0);
            if bytes > limits.bytes || messages > limits.messages {
                return false;
            }
            kept.bytes = bytes;
            kept.messages = messages;
        }
        // [MQTT-3.3.1-5] replaces the message of the same topic
        kept.index.insert(topic, Arc::clone(message));
        if let Some(at) = message.expires_at {
            kept.expiries.push(Reverse((at, topic.into())));
            if kept.expiries.len() > 64 + 2 * kept.index.len() {
                kept.prune_expiries();
            }
        }
        true
    }

    /// Up to `limit` messages whose topics match, from where the last page ended.
    pub(crate) fn page(
        &self,
        filter: &str,
        after: Option<Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Page {
        let kept = self.0.read();
        let mut messages = Vec::new();
        let next = kept
            .index
            .page(filter, after.as_ref(), limit, |_, message| {
                if !message.is_expired(now) {
                    messages.push(Arc::clone(message));
                }
            });
        Page { messages, next }
    }

    /// Removes what has expired.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if self
            .0
            .read()
            .expiries
            .peek()
            .is_none_or(|Reverse((at, _))| *at > now)
        {
            return;
        }
        let mut kept = self.0.write();
        while let Some(Reverse((at, _))) = kept.expiries.peek()
            && *at <= now
        {
            let Some(Reverse((_, topic))) = kept.expiries.pop() else {
                break;
            };
            if kept
                .index
                .get(&topic)
                .is_some_and(|message| message.is_expired(now))
                && let Some(before) = kept.index.remove(&topic)
            {
                kept.forget(&before);
            }
        }
    }

    /// Messages of clients, and their accounted bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        let kept = self.0.read();
        (kept.messages, kept.bytes)
    }
}

impl Kept {
    /// A message has been removed.
    fn forget(&mut self, message: &Arc<ApplicationMessage>) {
        if !message.body.topic().starts_with(PREFIX) {
            self.bytes -= cost(message);
            self.messages -= 1;
        }
    }

    /// Forgets entries about messages that have been replaced since.
    fn prune_expiries(&mut self) {
        let index = &self.index;
        let current = |at, topic: &str| {
            index
                .get(topic)
                .is_some_and(|message| message.expires_at == Some(at))
        };
        self.expiries
            .retain(|Reverse((at, topic))| current(*at, topic));
    }
}

fn cost(message: &Arc<ApplicationMessage>) -> u64 {
    message.body.heap_len() as u64 + OVERHEAD
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;

    const LIMITS: RetainedLimits = RetainedLimits {
        messages: 3,
        bytes: 10_000,
    };

    fn message(topic: &str, payload: &[u8], expires_at: Option<u64>) -> Arc<ApplicationMessage> {
        Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, payload),
            qos: QoS::AtMostOnce,
            retain: true,
            publisher: 1,
            expires_at: expires_at.map(Timestamp),
        })
    }

    fn topics(retained: &Retained, now: u64) -> usize {
        retained.page("#", None, 100, Timestamp(now)).messages.len()
    }

    #[test]
    fn limits_hold_and_replacing_needs_no_room() {
        let retained = Retained::default();
        for topic in ["a", "b", "c"] {
            assert!(retained.set(&message(topic, b"1", None), LIMITS));
        }
        assert!(!retained.set(&message("d", b"1", None), LIMITS));
        assert!(retained.set(&message("a", b"2", None), LIMITS));
        assert!(!retained.set(&message("a", &[0; 20_000], None), LIMITS));
        assert!(retained.set(&message("$SYS/broker/x", b"1", None), LIMITS));
        assert_eq!(retained.size().0, 3);
        for topic in ["a", "b", "c", "c", "$SYS/broker/x"] {
            assert!(retained.set(&message(topic, b"", None), LIMITS));
        }
        assert_eq!(retained.size(), (0, 0));
    }

    #[test]
    fn an_expired_message_is_neither_sent_nor_kept() {
        let retained = Retained::default();
        retained.set(&message("a", b"1", Some(100)), LIMITS);
        retained.set(&message("b", b"1", Some(200)), LIMITS);
        retained.set(&message("b", b"2", None), LIMITS);
        assert_eq!((topics(&retained, 99), topics(&retained, 100)), (2, 1));
        retained.sweep(Timestamp(300));
        assert_eq!(retained.size().0, 1);
    }

    #[test]
    fn replacing_again_and_again_does_not_grow_the_list_of_expiries() {
        let retained = Retained::default();
        for n in 0..10_000 {
            retained.set(&message("a", b"1", Some(1_000 + n)), LIMITS);
        }
        assert!(retained.0.read().expiries.len() < 200);
    }
}
