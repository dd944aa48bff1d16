//! How a retain shard is cut in two.
//!
//! All that it holds is cut by the slot of the topic. What a cursor of a page says is a place among all possible topics, so
//! it goes on in both halves.
//!
//! Deliberately absent: the range, which the shard knows; limits, which come with each batch as those of the half.

use super::machine::{MESSAGE, RetainMachine, cost};
use super::recent::{FENCE, WILL};
use crate::{SlotRange, Split, partition, row};

impl Split for RetainMachine {
    fn split_off(&mut self, at: u16) -> Self {
        assert!(at > 0, "the parent keeps a slot");
        let hash = self.hash;
        let is_childs = |topic: &str| hash.slot_of(topic) >= at;
        let index = self.index.split_off(is_childs);
        // In a loop of its own, which waits for several messages of memory at once.
        let bytes = index.values().map(|kept| cost(&kept.message)).sum();
        self.bytes -= bytes;
        Self {
            hash,
            level: self.level,
            index,
            bytes,
            expiries: partition::set(&mut self.expiries, |(_, topic)| is_childs(topic)),
            touched: self.touched.split_off(|topic| is_childs(topic)),
            known: self.known.split_off(at),
            aged_from: self.aged_from,
            own_row_is_due: self.own_row_is_due,
        }
    }

    fn keeps(key: &[u8], range: SlotRange) -> bool {
        row::is_within(key, range, &[MESSAGE, WILL, FENCE])
    }
}
