//! How long an outlet waits before it tries again.

use crate::item::{Attempt, Milliseconds};

const FIRST: u64 = 1_000;
const LONGEST: u64 = 60_000;

/// 1 s after the first attempt that failed, then twice as long each time, up to 60 s; each 20 % more or less, so that the outlets
/// of a cluster do not come at once.
#[derive(Clone, Debug)]
pub struct Backoff(Spread);

/// The state of xorshift.
#[derive(Clone, Debug)]
struct Spread(u64);

impl Spread {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 32
    }
}

impl Backoff {
    /// `seed`: another one for each outlet and each start.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Spread(seed | 1))
    }

    /// The pause after this attempt, from 1. `asked`: what the target has asked for, if longer; an hour at most.
    pub fn pause(&mut self, attempt: Attempt, asked: Option<Milliseconds>) -> Milliseconds {
        let doublings = attempt.0.saturating_sub(1).min(16);
        let pause = (FIRST << doublings).min(LONGEST);
        let share = 80 + self.0.next() % 41;
        let asked = asked.map_or(0, |asked| asked.0.min(3_600_000));
        Milliseconds((pause * share / 100).max(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_differ() {
        let mut backoff = Backoff::new(7);
        for (attempt, middle) in [
            (1, 1_000),
            (2, 2_000),
            (6, 32_000),
            (7, 60_000),
            (4_000_000_000, 60_000),
        ] {
            let pause = backoff.pause(Attempt(attempt), None).0;
            assert!(
                (middle * 8 / 10..=middle * 12 / 10).contains(&pause),
                "{attempt}: {pause}"
            );
        }
        let pauses: std::collections::BTreeSet<_> = (0..100)
            .map(|_| backoff.pause(Attempt(7), None).0)
            .collect();
        assert!(pauses.len() > 20);
    }

    #[test]
    fn a_target_may_ask_for_longer_pauses_but_not_for_shorter_ones() {
        let mut backoff = Backoff::new(7);
        let asked = |ms| Some(Milliseconds(ms));
        assert_eq!(backoff.pause(Attempt(1), asked(30_000)).0, 30_000);
        assert!(backoff.pause(Attempt(1), asked(1)).0 >= 800);
        assert_eq!(backoff.pause(Attempt(1), asked(u64::MAX)).0, 3_600_000);
    }
}
