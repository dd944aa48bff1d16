//! Where a session lives, as one number.

use net::Key;

/// A session of this node: the loop it belongs to, and its slot and generation there. Never 0, so that
/// 0 can stand for the broker itself as a publisher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct SessionKey(u64);

/// Bits of a [`Key`] within a loop.
const KEY_BITS: u32 = 56;

impl SessionKey {
    /// Loops are numbered in 7 bits, of which one value is not used.
    pub(crate) const MAX_LOOPS: usize = 126;

    pub(crate) fn new(loop_index: usize, key: Key) -> Self {
        Self((loop_index as u64 + 1) << KEY_BITS | key.to_bits())
    }

    pub(crate) fn loop_index(self) -> usize {
        (self.0 >> KEY_BITS) as usize - 1
    }

    pub(crate) fn key(self) -> Key {
        Key::from_bits(self.0 & ((1 << KEY_BITS) - 1))
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// `None` for 0, the broker itself.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        (bits >> KEY_BITS != 0).then_some(Self(bits))
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
}

/// Marks what is no session.
const OTHER: u64 = 1 << 63;

/// Bits of a number within a kind; the kind stands above.
const NUMBER_BITS: u32 = 32;

impl Receiver {
    pub(crate) fn group(number: u32) -> Self {
        Self(OTHER | u64::from(number))
    }

    pub(crate) fn shard(number: u16) -> Self {
        Self(OTHER | 1 << NUMBER_BITS | u64::from(number))
    }

    pub(crate) fn detached(number: u16) -> Self {
        Self(OTHER | 2 << NUMBER_BITS | u64::from(number))
    }

    pub(crate) fn kind(self) -> Kind {
        if self.0 & OTHER == 0 {
            return Kind::Session(SessionKey(self.0));
        }
        match (self.0 & !OTHER) >> NUMBER_BITS {
            0 => Kind::Group(self.0 as u32),
            1 => Kind::Shard(self.0 as u16),
            _ => Kind::Detached(self.0 as u16),
        }
    }
}

impl From<SessionKey> for Receiver {
    fn from(key: SessionKey) -> Self {
        Self(key.0)
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(Receiver::shard(u16::MAX).kind(), Kind::Shard(u16::MAX));
        assert_eq!(Receiver::detached(7).kind(), Kind::Detached(7));
        assert_eq!(SessionKey::from_bits(0), None);
    }
}
