//! Chooses which packets of a loop are looked at more closely: all while they are few, one of [`SPARSE`] at random while
//! they are many.

use mqtt_session::Timestamp;

/// Packets in a second up to which all of the next second are chosen.
const FEW: u64 = 1_000;

/// One of so many is chosen while there are more. A power of two.
const SPARSE: u64 = 16;

/// One second.
const SECOND_MS: u64 = 1_000;

/// How many packets a chosen one stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weight(pub(crate) u64);

/// Chooses some of many.
#[derive(Debug)]
pub(crate) struct Sampler {
    second_began: Timestamp,
    in_this_second: Seen,
    is_sparse: bool,
    random: Xorshift,
}

/// How many there were.
#[derive(Debug, Default)]
struct Seen(u64);

/// The state of a generator: never 0.
#[derive(Debug)]
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            second_began: Timestamp(0),
            in_this_second: Seen(0),
            is_sparse: false,
            random: Xorshift(0x9e37_79b9_7f4a_7c15),
        }
    }
}

impl Sampler {
    /// There is one: how many it stands for, if it is chosen.
    pub(crate) fn handle(&mut self, now: Timestamp) -> Option<Weight> {
        if now.saturating_since(self.second_began) >= SECOND_MS {
            self.is_sparse = self.in_this_second.0 > FEW;
            self.in_this_second.0 = 0;
            self.second_began = now;
        }
        self.in_this_second.0 += 1;
        if !self.is_sparse {
            return Some(Weight(1));
        }
        let is_chosen = self.random.next().is_multiple_of(SPARSE);
        is_chosen.then_some(Weight(SPARSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(sampler: &mut Sampler, now_ms: u64, all: u64) -> (u64, u64) {
        let weights: Vec<u64> = (0..all)
            .filter_map(|_| sampler.handle(Timestamp(now_ms)))
            .map(|Weight(weight)| weight)
            .collect();
        (weights.len() as u64, weights.iter().sum())
    }

    #[test]
    fn few_are_chosen_all_and_of_many_one_of_sixteen() {
        let mut sampler = Sampler::default();
        assert_eq!(chosen(&mut sampler, 10_000, 500), (500, 500));
        // Until the second is over nobody knows that they are many.
        assert_eq!(chosen(&mut sampler, 10_500, 100_000), (100_000, 100_000));
        let (sparse, stand_for) = chosen(&mut sampler, 11_000, 160_000);
        assert!((9_500..10_500).contains(&sparse), "{sparse}");
        assert_eq!(stand_for, 16 * sparse);
        let (next, _) = chosen(&mut sampler, 12_500, 10);
        assert!(next < 10, "{next}");
        assert_eq!(chosen(&mut sampler, 13_500, 10), (10, 10));
    }
}
