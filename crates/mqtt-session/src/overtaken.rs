//! Deliveries in flight that newer ones have left far behind, because the client keeps their acknowledgements
//! back: as many entries as there are such deliveries, and no more, however far the newer ones get.
//!
//! Invariants: the oldest comes first and is not acknowledged; at most half of the entries, and one, are of
//! acknowledged ones, so that what is done about an acknowledgement stays constant in the mean.
//!
//! Deliberately absent: what is sent; see `outbound.rs`.

use std::collections::VecDeque;

use mqtt_proto::PacketId;

use crate::slot::Slot;

/// Deliveries that were overtaken, in the order in which they were sent first.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    entries: VecDeque<(PacketId, Slot)>,
    /// Entries that are acknowledged.
    done: usize,
}

impl Overtaken {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Slot> {
        self.entries.get(index).map(|(_, slot)| slot)
    }

    pub(crate) fn id_at(&self, index: usize) -> Option<PacketId> {
        self.entries.get(index).map(|(id, _)| *id)
    }

    /// The position of an identifier that is in use here. Linear in the entries.
    pub(crate) fn position(&self, packet_id: PacketId) -> Option<usize> {
        self.entries
            .iter()
            .position(|(id, slot)| *id == packet_id && !matches!(slot, Slot::Acknowledged))
    }

    /// Another one was overtaken, after all that are here.
    pub(crate) fn push(&mut self, packet_id: PacketId, slot: Slot) {
        self.entries.push_back((packet_id, slot));
    }

    /// Puts `by` in the place of the slot at `index`, which is returned.
    pub(crate) fn replace(&mut self, index: usize, by: Slot) -> Option<Slot> {
        let is_done = matches!(by, Slot::Acknowledged);
        let slot = std::mem::replace(&mut self.entries.get_mut(index)?.1, by);
        if is_done && !matches!(slot, Slot::Acknowledged) {
            self.done += 1;
        }
        Some(slot)
    }

    /// Forgets acknowledged entries: those at the front, and all when they are many. `sent`, a number of entries
    /// from the front, goes down by as many as were among these.
    pub(crate) fn trim(&mut self, sent: &mut usize) {
        while let Some((_, Slot::Acknowledged)) = self.entries.front() {
            self.entries.pop_front();
            self.done -= 1;
            *sent = sent.saturating_sub(1);
        }
        if self.done * 2 > self.entries.len() + 1 {
            let (mut index, mut gone) = (0, 0);
            let before = *sent;
            self.entries.retain(|(_, slot)| {
                let is_done = matches!(slot, Slot::Acknowledged);
                gone += usize::from(is_done && index < before);
                index += 1;
                !is_done
            });
            self.done = 0;
            *sent -= gone;
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<(PacketId, Slot)>()
    }
}
