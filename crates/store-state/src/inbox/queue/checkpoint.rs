//! How a queue gets into the tables and lets go of what they have.

use std::collections::VecDeque;

use super::ages::Ages;
use super::{Queue, Slot, accounted};
use crate::inbox::tables::{InboxRow, QueueRow};
use crate::{Changes, row};

/// Slots of messages that the tables have too, which the queue of an attached inbox keeps.
const KEPT_SLOTS: usize = 1024;

impl Queue {
    /// The queue as of the last checkpoint; all of it is cold.
    pub(in crate::inbox) fn load(slot: u16, row: &mut InboxRow) -> Self {
        Self {
            first: row.next,
            head: row.head,
            written: row.next,
            alive: row.alive,
            cold: row.alive,
            bytes: row.bytes,
            sent: row.sent,
            released: std::mem::take(&mut row.released),
            unsent: row.head.max(row.sent + 1),
            ages: Ages::load(std::mem::take(&mut row.rest.marks)),
            ..Self::new(slot, row.number, row.next)
        }
    }

    /// Hands out the rows of messages that the tables do not have.
    pub(in crate::inbox) fn collect(&mut self, changes: &mut Changes) {
        let from = self.written.max(self.first);
        for (sequence, slot) in (from..).zip(self.slots.range((from - self.first) as usize..)) {
            if let Slot::Held { item, body } = slot {
                let row = QueueRow::new(item, accounted(item), *body);
                changes.put(self.key(sequence).to_bytes(), row::encode(&row));
            }
        }
        self.written = self.next();
    }

    /// The tables have what was handed out. An attached inbox keeps places for its recent messages, so
    /// that acknowledging them needs no look at the tables; one that is not attached keeps nothing.
    pub(in crate::inbox) fn saved(&mut self, attached: bool) {
        let stored = self.written.saturating_sub(self.first);
        let stored = self.slots.len().min(stored as usize);
        if attached {
            for slot in self.slots.range_mut(..stored) {
                if let Slot::Held { .. } = slot
                    && let Some(weight) = slot.weight()
                {
                    *slot = Slot::Evicted(weight);
                }
            }
            self.chill(stored.saturating_sub(KEPT_SLOTS));
        } else {
            self.chill(stored);
            self.paged = None;
        }
        if self.alive == 0 {
            self.ages = None;
        }
    }

    /// The client is gone: places that the tables know as well are given up.
    pub(in crate::inbox) fn rest(&mut self) {
        let known = |slot: &&Slot| !matches!(slot, Slot::Held { .. });
        self.chill(self.slots.iter().take_while(known).count());
        self.paged = None;
        if self.alive == 0 {
            self.ages = None;
        }
    }

    /// Gives up the first slots, which the tables know as well.
    fn chill(&mut self, count: usize) {
        for slot in self.slots.drain(..count) {
            self.cold += u32::from(!slot.is_gone());
        }
        self.first += count as u64;
        debug_assert!(self.cold <= self.alive, "what is cold is queued");
        self.trim_slots();
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        } else if self.slots.capacity() / 4 > self.slots.len() {
            self.slots.shrink_to_fit();
        }
        if self.cold == 0 {
            self.head = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, SubscriptionIdSet, Timestamp};

    use super::*;
    use crate::inbox::Item;
    use crate::inbox::stock::Stock;
    use crate::test_table::TestTable;

    #[test]
    fn an_inbox_that_is_not_attached_keeps_nothing_in_memory() {
        let item = Item {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("a", b"x"),
                qos: QoS::AtLeastOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            qos: QoS::AtLeastOnce,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        };
        let mut stock = Stock::new(crate::Level::NEWEST);
        let mut queue = Queue::new(1, 1, 1);
        for _ in 0..5_000 {
            queue.push(item.clone(), 0, Timestamp(1_000), &mut stock);
        }
        let taken = queue.take(7, &mut stock, &TestTable::default());
        assert_eq!(taken, Ok(true));
        queue.collect(&mut Changes::default());
        queue.push(item, 0, Timestamp(9_000), &mut stock);
        queue.saved(true);
        assert_eq!((queue.slots.len(), queue.cold), (KEPT_SLOTS + 1, 3_975));
        queue.rest();
        assert_eq!((queue.slots.len(), queue.cold), (1, 4_999));
        queue.collect(&mut Changes::default());
        queue.saved(false);
        assert_eq!((queue.slots.capacity(), queue.cold), (0, 5_000));
    }
}
