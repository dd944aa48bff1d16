//! Where a session lives, as one number.

use net_api::Key;
use peer_protocol::{Foreign, HASH_BITS, Slot};
use store_state::inbox::publisher_hash;

/// A session of this node: the loop it belongs to, and its slot and generation there. Never 0, so that
/// 0 can stand for the broker itself as a publisher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionKey(u64);

/// Bits of a [`Key`] within a loop.
const KEY_BITS: u32 = 56;

impl SessionKey {
    /// Loops are numbered in 7 bits, of which one value is not used.
    pub const MAX_LOOPS: usize = 126;

    pub(crate) fn new(loop_index: usize, key: Key) -> Self {
        Self((loop_index as u64 + 1) << KEY_BITS | key.to_bits())
    }

    /// The loop that it lives in.
    pub fn loop_index(self) -> usize {
        (self.0 >> KEY_BITS) as usize - 1
    }

    pub(crate) fn key(self) -> Key {
        Key::from_bits(self.0 & ((1 << KEY_BITS) - 1))
    }

    /// As a number, which sorts as the key does.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// `None` for 0, the broker itself.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits >> KEY_BITS != 0).then_some(Self(bits))
    }
}

impl SessionKey {
    /// What other nodes name it by. There may be others of this name, in other times of the same slot.
    pub fn found_by(self) -> u64 {
        let key = self.key();
        peer_protocol::found_by(self.loop_index(), key.slot, key.generation)
    }
}

/// Who has published a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Publisher {
    /// A session of this node.
    Here(SessionKey),
    /// One of another node.
    Elsewhere(Foreign),
}

impl Publisher {
    /// `None`: the broker itself, or somebody who is not to be found.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let here = SessionKey::from_bits(bits).map(Self::Here);
        here.or_else(|| Foreign::from_bits(bits).map(Self::Elsewhere))
    }

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Self::Here(session) => session.to_bits(),
            Self::Elsewhere(foreign) => foreign.to_bits(),
        }
    }
}

/// A receiver in the route index, as one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Receiver(u64);

/// What a receiver is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A session that is connected to this node.
    Session(SessionKey),
    /// A shared subscription group.
    Group(u32),
    /// An inbox shard with sessions that subscribe.
    Shard(u16),
    /// An inbox shard with sessions that subscribe and are not connected.
    Detached(u16),
    /// Another node with connected sessions that get messages of each QoS.
    Node(Slot),
    /// Another node with connected sessions that get messages of QoS 0 only: inboxes get the others.
    Qos0Node(Slot),
}

/// Marks what is no session.
const OTHER: u64 = 1 << 63;

/// Bits of a number within a kind; the kind stands above.
const NUMBER_BITS: u32 = 32;

/// Bits of a slot. The same shard is another receiver by the word of each node.
const SLOT_BITS: u32 = 16;

impl Receiver {
    pub(crate) fn group(number: u32) -> Self {
        Self(OTHER | u64::from(number))
    }

    pub(crate) fn shard(number: u16, by: Slot) -> Self {
        Self::numbered(1, number, by)
    }

    pub(crate) fn detached(number: u16, by: Slot) -> Self {
        Self::numbered(2, number, by)
    }

    pub(crate) fn node(slot: Slot) -> Self {
        Self::numbered(3, 0, slot)
    }

    pub(crate) fn qos0_node(slot: Slot) -> Self {
        Self::numbered(4, 0, slot)
    }

    fn numbered(kind: u64, number: u16, slot: Slot) -> Self {
        let number = u64::from(number) << SLOT_BITS | u64::from(slot.0);
        Self(OTHER | kind << NUMBER_BITS | number)
    }

    pub(crate) fn kind(self) -> Kind {
        if self.0 & OTHER == 0 {
            return Kind::Session(SessionKey(self.0));
        }
        let (number, slot) = ((self.0 >> SLOT_BITS) as u16, Slot(self.0 as u16));
        match (self.0 & !OTHER) >> NUMBER_BITS {
            0 => Kind::Group(self.0 as u32),
            1 => Kind::Shard(number),
            2 => Kind::Detached(number),
            3 => Kind::Node(slot),
            _ => Kind::Qos0Node(slot),
        }
    }
}

impl From<SessionKey> for Receiver {
    fn from(key: SessionKey) -> Self {
        Self(key.0)
    }
}

/// What groups that keep a publisher's messages with one member know a client by: unlike its session's key,
/// it is the same after a reconnect.
pub(crate) fn ordering_hash(client_id: &str) -> u32 {
    (publisher_hash(client_id) >> (u64::BITS - HASH_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use peer_protocol::place_of;

    use super::*;

    #[test]
    fn keys_survive_their_packing() {
        for loop_index in [0, 1, SessionKey::MAX_LOOPS - 1] {
            let inner = Key {
                slot: u32::MAX,
                generation: Key::GENERATIONS - 1,
            };
            let key = SessionKey::new(loop_index, inner);
            assert_eq!((key.loop_index(), key.key()), (loop_index, inner));
            assert_eq!(Receiver::from(key).kind(), Kind::Session(key));
            assert_eq!(SessionKey::from_bits(key.to_bits()), Some(key));
        }
        assert_eq!(Receiver::group(u32::MAX).kind(), Kind::Group(u32::MAX));
        for slot in [Slot::OWN, Slot(1), Slot(u16::MAX)] {
            let shard = Receiver::shard(u16::MAX, slot);
            assert_eq!(shard.kind(), Kind::Shard(u16::MAX));
            assert_eq!(Receiver::detached(7, slot).kind(), Kind::Detached(7));
            assert_eq!(Receiver::node(slot).kind(), Kind::Node(slot));
            assert_eq!(Receiver::qos0_node(slot).kind(), Kind::Qos0Node(slot));
        }
        let key = SessionKey::new(
            125,
            Key {
                slot: 70_000,
                generation: 40,
            },
        );
        assert_eq!(place_of(key.found_by()), Some((125, 70_000)));
        assert_eq!(place_of(0), None);
        let foreign = Foreign::new(Slot(4_095), key.found_by());
        assert_eq!(
            Publisher::from_bits(foreign.to_bits()),
            Some(Publisher::Elsewhere(foreign))
        );
        assert_eq!(
            Publisher::from_bits(key.to_bits()),
            Some(Publisher::Here(key))
        );
        assert_ne!(Receiver::shard(1, Slot::OWN), Receiver::shard(1, Slot(1)));
        assert_eq!(SessionKey::from_bits(0), None);
    }
}
