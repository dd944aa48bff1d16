//! Random choices that a seed repeats.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): a few lines, and any seed is a good one.

use std::ops::Range;

/// A source of random choices.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The choices that belong to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A source of its own, so that what one part of a run chooses does not shift what another does.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number of `range`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn among(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "nothing to choose from");
        range.start + self.bits() % (range.end - range.start)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.among(0..times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_all_values_occur() {
        let numbers = |seed| {
            let mut chance = Chance::new(seed);
            (0..100).map(|_| chance.among(3..7)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        for value in 3..7 {
            assert!(numbers(1).contains(&value));
        }
    }
}
