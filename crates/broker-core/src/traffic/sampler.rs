//! Chooses which packets of a loop are looked at more closely: all while they are few, and as many at random while they are
//! many.

use mqtt_session::Timestamp;

/// Packets of a second of which all are chosen. Of twice as many after them one of two is, and so on; in the next second,
/// about so many of all. So what is looked at more closely is bounded by time, and not by what clients send.
const MOST: u64 = 512;

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
    /// Those of this second at which fewer of the others are chosen.
    until: Seen,
    /// What a chosen one stands for: one of so many is chosen. A power of two.
    weight: Weight,
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
            until: Seen(MOST),
            weight: Weight(1),
            random: Xorshift(0x9e37_79b9_7f4a_7c15),
        }
    }
}

impl Sampler {
    /// There is one: how many it stands for, if it is chosen.
    pub(crate) fn handle(&mut self, now: Timestamp) -> Option<Weight> {
        if now.saturating_since(self.second_began) >= SECOND_MS {
            self.weight.0 = self.in_this_second.0.div_ceil(MOST).next_power_of_two();
            self.until.0 = MOST * self.weight.0;
            self.in_this_second.0 = 0;
            self.second_began = now;
        } else if self.in_this_second.0 >= self.until.0 {
            self.weight.0 *= 2;
            self.until.0 *= 2;
        }
        self.in_this_second.0 += 1;
        let weight = self.weight;
        let is_chosen = weight.0 == 1 || self.random.next().is_multiple_of(weight.0);
        is_chosen.then_some(weight)
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
    fn of_many_as_many_are_chosen_as_of_few() {
        let mut sampler = Sampler::default();
        assert_eq!(chosen(&mut sampler, 10_000, MOST), (MOST, MOST));
        // Until the second is over nobody knows how many they are.
        let (sparse, stand_for) = chosen(&mut sampler, 10_500, 319 * MOST);
        assert!((4 * MOST..8 * MOST).contains(&sparse), "{sparse}");
        assert!((280 * MOST..360 * MOST).contains(&stand_for), "{stand_for}");
        // The next power of two above 320.
        let (sparse, stand_for) = chosen(&mut sampler, 11_000, 320 * MOST);
        assert!((MOST / 2..MOST).contains(&sparse), "{sparse}");
        assert_eq!(stand_for, 512 * sparse);
        // A few that come after many are not seen one by one, in one second.
        chosen(&mut sampler, 12_000, 10);
        assert_eq!(chosen(&mut sampler, 13_000, 10), (10, 10));
        assert_eq!(chosen(&mut sampler, 15_000, 10), (10, 10));
    }
}
