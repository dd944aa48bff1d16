//! Batches that are proposed and not applied yet.
//!
//! Invariant: batches are requeued in the order in which they were proposed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use store_state::Batch;
use tokio::sync::Notify;

use crate::shard::deferred::Weight;

/// Batches on their way.
pub(super) struct InFlight<O> {
    batches: Mutex<Numbered<O>>,
    /// One was not taken.
    pub(super) failed: Notify,
}

struct Numbered<O> {
    next: u64,
    batches: BTreeMap<u64, Underway<O>>,
}

pub(super) struct Underway<O> {
    pub(super) batch: Arc<Batch<O>>,
    pub(super) weights: Vec<Weight>,
}

impl<O> InFlight<O> {
    pub(super) fn new() -> Self {
        Self {
            batches: Mutex::new(Numbered {
                next: 0,
                batches: BTreeMap::new(),
            }),
            failed: Notify::new(),
        }
    }

    pub(super) fn add(&self, batch: Arc<Batch<O>>, weights: Vec<Weight>) -> u64 {
        let mut numbered = self.batches.lock();
        let number = numbered.next;
        numbered.next += 1;
        numbered.batches.insert(number, Underway { batch, weights });
        number
    }

    /// A batch is not on its way any more. False: it was taken before.
    pub(super) fn remove(&self, number: u64) -> bool {
        self.batches.lock().batches.remove(&number).is_some()
    }

    /// All of them, in order.
    pub(super) fn take(&self) -> impl Iterator<Item = Underway<O>> + use<O> {
        std::mem::take(&mut self.batches.lock().batches).into_values()
    }
}

#[cfg(test)]
mod tests {
    use mqtt_session::{Qos0Inbox, QueueFull};
    use store_state::{Header, Limits, ProposedHere, Requeued};

    use super::*;

    fn batch(now_ms: u64) -> Arc<Batch<()>> {
        Arc::new(Batch {
            header: Header {
                now_ms,
                limits: Limits {
                    queue: store_state::QueueLimits {
                        messages: 1,
                        bytes: 1,
                        full: QueueFull::DropOldest,
                        is_closed: false,
                    },
                    qos0: Qos0Inbox::Offline,
                    retained_messages: 1,
                    retained_bytes: 1,
                    classes: store_state::ClassLimits::NONE,
                },
            },
            requests: Vec::new(),
            bytes: 0,
            requeued: Requeued::default(),
            level: store_state::Level::NEWEST,
            proposed_here: ProposedHere::default(),
            written: store_state::Written::default(),
        })
    }

    #[test]
    fn what_is_not_applied_is_taken_in_the_order_of_its_proposals() {
        let in_flight = InFlight::new();
        let numbers: Vec<u64> = (1..=3)
            .map(|now_ms| in_flight.add(batch(now_ms), Vec::new()))
            .collect();
        assert!(in_flight.remove(numbers[1]));
        let taken = in_flight.take();
        let times: Vec<u64> = taken.map(|left| left.batch.header.now_ms).collect();
        assert_eq!(times, [1, 3]);
        assert!(!in_flight.remove(numbers[0]), "it was taken");
        assert_eq!(in_flight.take().count(), 0);
        assert!(in_flight.add(batch(4), Vec::new()) > numbers[2]);
    }
}
