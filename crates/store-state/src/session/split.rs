//! How a session shard is cut in two.
//!
//! Sessions, deadlines and wills are cut by the slot of the client. The incarnations of nodes are copied, and so is the
//! next epoch: a client stays within one half, in which its epochs go on growing. Neither number is compared between
//! the halves.
//!
//! Deliberately absent: the range. The shard knows it, and asks for no cut outside of it.

use super::machine::SessionMachine;
use super::tables::{ENDING, HELD, SESSION, WILL};
use crate::{SlotRange, Split, row};

impl Split for SessionMachine {
    fn split_off(&mut self, at: u16) -> Self {
        assert!(at > 0, "the parent keeps a slot");
        assert!(self.left.is_none(), "no split within an operation");
        let hash = self.unsaved.hash();
        let is_childs = |client: &str| hash.slot_of(client) >= at;
        Self {
            next_epoch: self.next_epoch,
            nodes: self.nodes.clone(),
            records: self.records.split_off(is_childs),
            firing: self.firing.split_off(is_childs),
            held: self.held.split_off(is_childs),
            ending: self.ending.split_off(is_childs),
            unsaved: self.unsaved.split_off(is_childs),
            left: None,
        }
    }

    fn keeps(key: &[u8], range: SlotRange) -> bool {
        row::is_within(key, range, &[SESSION, WILL, ENDING, HELD])
    }
}
