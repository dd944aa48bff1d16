//! Seeded hashes of topics and levels.
//!
//! Invariant: both the hasher's state and its table of constants come from the caller's seed, so that
//! a client, which chooses topics freely, cannot choose colliding ones.

use core::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::level::{MULTI, SINGLE};

/// The hash functions of one index.
#[derive(Debug)]
pub(crate) struct Hashing {
    seed: u64,
    shared: SharedSeed,
    /// `name(SINGLE)`, wanted at nearly each step of a match.
    pub(crate) single: u64,
    /// `name(MULTI)`.
    pub(crate) multi: u64,
}

impl Hashing {
    pub(crate) fn with_seed(seed: u64) -> Self {
        let mut hashing = Hashing {
            seed,
            shared: SharedSeed::from_u64(seed.rotate_left(32)),
            single: 0,
            multi: 0,
        };
        hashing.single = hashing.name(SINGLE);
        hashing.multi = hashing.name(MULTI);
        hashing
    }

    /// The hash of a level or of a whole filter.
    #[inline]
    pub(crate) fn name(&self, name: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        hasher.write(name);
        hasher.finish()
    }

    /// The hash of the edge that leaves the node `parent` by a level whose hash is `level`.
    #[inline]
    pub(crate) fn edge(&self, parent: u32, level: u64) -> u64 {
        let mut hasher = FoldHasher::with_seed(level, &self.shared);
        hasher.write_u32(parent);
        hasher.finish()
    }
}
