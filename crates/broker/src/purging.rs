//! What was dropped from queues while operators empty them.
//!
//! Invariant: a client has an entry as long as somebody empties its queue.

use std::collections::HashMap;

use mqtt_session::DropReason;
use parking_lot::Mutex;
use store_state::inbox::InboxDrop;

/// Messages that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Purged {
    pub(crate) messages: Messages,
    pub(crate) payloads: PayloadBytes,
}

/// A number of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Messages(pub(crate) u64);

/// The size of their payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PayloadBytes(pub(crate) u64);

/// The queues that are emptied.
#[derive(Debug, Default)]
pub(crate) struct Purges(Mutex<HashMap<String, Counted>>);

#[derive(Debug, Default)]
struct Counted {
    purged: Purged,
    /// Who counts.
    counters: usize,
}

impl Purges {
    /// Begins to count what is dropped from the queue of a client.
    pub(crate) fn count(&self, client_id: &str) -> Counting<'_> {
        let mut all = self.0.lock();
        let counted = all.entry(client_id.to_owned()).or_default();
        counted.counters += 1;
        Counting {
            purges: self,
            client_id: client_id.to_owned(),
            before: counted.purged,
        }
    }

    /// A message was dropped, for whatever reason.
    pub(crate) fn handle_drop(&self, drop: &InboxDrop<'_>) {
        if drop.reason == DropReason::Purged
            && let Some(counted) = self.0.lock().get_mut(drop.client)
        {
            counted.purged.messages.0 += 1;
            counted.purged.payloads.0 += drop.message.body.payload().len() as u64;
        }
    }
}

/// Counts what is dropped from a queue, as long as it is there.
#[derive(Debug)]
pub(crate) struct Counting<'a> {
    purges: &'a Purges,
    client_id: String,
    before: Purged,
}

impl Counting<'_> {
    /// What was dropped so far.
    pub(crate) fn purged(&self) -> Purged {
        let all = self.purges.0.lock();
        let now = all.get(&self.client_id).map(|counted| counted.purged);
        let now = now.expect("who counts has an entry");
        Purged {
            messages: Messages(now.messages.0 - self.before.messages.0),
            payloads: PayloadBytes(now.payloads.0 - self.before.payloads.0),
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let mut all = self.purges.0.lock();
        if let Some(counted) = all.get_mut(&self.client_id) {
            counted.counters -= 1;
            if counted.counters == 0 {
                all.remove(&self.client_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::ApplicationMessage;

    use super::*;

    #[test]
    fn each_counts_from_when_it_began() {
        let purges = Purges::default();
        let message = Arc::new(ApplicationMessage {
            body: MessageBody::new("t", b"1234567"),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        });
        let drop_one = |client, reason| {
            purges.handle_drop(&InboxDrop {
                client,
                message: &message,
                reason,
            });
        };
        drop_one("a", DropReason::Purged);
        let one = purges.count("a");
        drop_one("a", DropReason::Purged);
        let two = purges.count("a");
        drop_one("a", DropReason::Purged);
        drop_one("a", DropReason::Expired);
        drop_one("b", DropReason::Purged);
        let told = |counting: &Counting<'_>| {
            let Purged { messages, payloads } = counting.purged();
            (messages.0, payloads.0)
        };
        assert_eq!((told(&one), told(&two)), ((2, 14), (1, 7)));
        drop(one);
        assert_eq!(told(&two), (1, 7));
        drop(two);
        assert!(purges.0.lock().is_empty());
    }
}
