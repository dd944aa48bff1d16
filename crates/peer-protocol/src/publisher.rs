//! How nodes name each other's sessions.

/// Bits of what a node finds a session of its own by: the loop, the slot, and a part of the generation.
const FOUND_BITS: u32 = 44;

/// Bits of a generation that tell most sessions of one slot apart.
const GENERATION_BITS: u32 = 5;

/// Bits of a slot of an arena.
const ARENA_BITS: u32 = 32;

/// Bits below those that sessions of the own node have, and others do not.
const FOREIGN_BITS: u32 = 56;

/// The place of a node in the route index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Slot(pub u16);

impl Slot {
    /// This node's.
    pub const OWN: Self = Self(0);
}

/// A publisher that is connected to another node, as one number: that node, and what it finds the session by.
/// The upper byte is 0, so it is no session of this node, and No Local never takes it for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Foreign(u64);

impl Foreign {
    /// `found_by`: see [`found_by`]; any other number is a publisher that nobody finds.
    #[must_use]
    pub fn new(node: Slot, found_by: u64) -> Self {
        // Of the nodes that have no number in the bits that are left, publishers are not found either.
        let node = u64::from(node.0);
        let node = if node >> (FOREIGN_BITS - FOUND_BITS) == 0 {
            node
        } else {
            0
        };
        Self(node << FOUND_BITS | found_by & ((1 << FOUND_BITS) - 1))
    }

    /// `None`: it is no publisher of another node, or that node is not known.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let is_known = bits >> FOUND_BITS != 0 && bits >> FOREIGN_BITS == 0;
        is_known.then_some(Self(bits))
    }

    /// The inverse of [`Foreign::from_bits`].
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The node that the publisher is connected to.
    #[must_use]
    pub fn node(self) -> Slot {
        Slot((self.0 >> FOUND_BITS) as u16)
    }

    /// What that node finds it by.
    #[must_use]
    pub fn found_by(self) -> u64 {
        self.0 & ((1 << FOUND_BITS) - 1)
    }
}

/// Bits of a hash of a publisher's client identifier, as messages between nodes carry it.
pub const HASH_BITS: u32 = 64 - FOUND_BITS;

/// What other nodes name a session by, which stands in a slot of a loop. There may be others of this name, in other
/// times of the same slot.
#[must_use]
pub fn found_by(loop_index: usize, slot: u32, generation: u32) -> u64 {
    let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
    let in_loop = u64::from(slot) << GENERATION_BITS | generation;
    (loop_index as u64 + 1) << (ARENA_BITS + GENERATION_BITS) | in_loop
}

/// The loop and the slot there in which another node means a publisher to be; it may lie.
#[must_use]
pub fn place_of(found_by: u64) -> Option<(usize, u32)> {
    let loop_number = found_by >> (ARENA_BITS + GENERATION_BITS);
    let loop_index = usize::try_from(loop_number).ok()?.checked_sub(1)?;
    Some((loop_index, (found_by >> GENERATION_BITS) as u32))
}

/// What a node finds a session by, and the hash of its client identifier above it.
#[must_use]
pub fn with_hash(found_by: u64, hash: u32) -> u64 {
    u64::from(hash) << FOUND_BITS | found_by
}

/// The hash in what [`with_hash`] gave; 0 from nodes of versions that do not send it.
#[must_use]
pub fn hash_in(named: u64) -> u32 {
    (named >> FOUND_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_survive_their_packing() {
        let named = found_by(125, 70_000, 40);
        assert_eq!(named, found_by(125, 70_000, 40 + (1 << GENERATION_BITS)));
        assert_ne!(named, found_by(125, 70_000, 41));
        assert_eq!(place_of(named), Some((125, 70_000)));
        assert_eq!(place_of(0), None);
        let foreign = Foreign::new(Slot(4_095), named);
        assert_eq!(Foreign::from_bits(foreign.to_bits()), Some(foreign));
        assert_eq!(foreign.node(), Slot(4_095));
        assert_eq!(foreign.found_by(), named);
        let nowhere = Foreign::new(Slot(4_096), named);
        assert_eq!(Foreign::from_bits(nowhere.to_bits()), None);
        assert_eq!(hash_in(with_hash(named, 0xF_FFFF)), 0xF_FFFF);
        assert_eq!(hash_in(named), 0);
    }
}
