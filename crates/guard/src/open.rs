//! Connections that are open, by address. There are as many entries as open connections at most.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;

use config::Network;
use parking_lot::Mutex;

/// Independent parts, so that loops seldom wait for each other.
const PARTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Open {
    hasher: RandomState,
    parts: [Mutex<HashMap<Network, u32>>; PARTS],
}

impl Open {
    /// Counts a connection more, unless the address has as many already.
    pub(crate) fn enter(&self, address: Network, most: NonZero<u32>) -> bool {
        let mut part = self.part(&address).lock();
        let open = part.entry(address).or_default();
        let fits = *open < most.get();
        if fits {
            *open += 1;
        }
        fits
    }

    /// A connection that was counted is closed.
    pub(crate) fn leave(&self, address: &Network) {
        let mut part = self.part(address).lock();
        let Some(open) = part.get_mut(address) else {
            return;
        };
        *open -= 1;
        if *open == 0 {
            part.remove(address);
            if part.len() < part.capacity() / 4 {
                part.shrink_to_fit();
            }
        }
    }

    fn part(&self, address: &Network) -> &Mutex<HashMap<Network, u32>> {
        &self.parts[self.hasher.hash_one(address) as usize % PARTS]
    }
}

#[cfg(test)]
impl Open {
    pub(crate) fn parts_are_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().is_empty())
    }
}
