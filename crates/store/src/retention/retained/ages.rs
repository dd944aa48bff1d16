//! How many messages of a rule there are of each age.

use mqtt_session::Timestamp;
use store_state::retain::{RetainedAmount, RetainedSince};

use crate::retention::retained::held::RuleTotals;

/// Parts of each doubling of an age: what is removed in one part is of the same age to a sixteenth.
const PARTS: u64 = 16;

/// Messages by age, in parts that double every [`PARTS`]. At most 16 KiB.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// The youngest first.
    parts: Vec<RuleTotals>,
}

/// An age in ms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Age(u64);

/// Which messages are removed: all that have come before a time, and of those of the part before another one so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Oldest {
    pub(super) before: RetainedSince,
    /// Of those that have come since then, and before this.
    pub(super) partly_before: RetainedSince,
    /// Messages, or bytes.
    pub(super) of_part: RetainedAmount,
}

impl Age {
    fn part(self) -> usize {
        let Self(age) = self;
        if age < PARTS {
            return age as usize;
        }
        let doublings = u64::from(age.ilog2() - PARTS.ilog2());
        let within = (age >> doublings) - PARTS;
        ((doublings + 1) * PARTS + within) as usize
    }

    /// The least age of a part.
    fn least(part: usize) -> Self {
        let part = part as u64;
        match (part / PARTS).checked_sub(1) {
            None => Self(part),
            Some(doublings) => {
                let least = u128::from(PARTS + part % PARTS) << doublings;
                Self(u64::try_from(least).unwrap_or(u64::MAX))
            }
        }
    }

    fn before(self, now: Timestamp) -> RetainedSince {
        RetainedSince(now.0.saturating_sub(self.0))
    }
}

impl Ages {
    /// A message that counts from a time.
    pub(super) fn add(&mut self, since: RetainedSince, counts: RuleTotals, now: Timestamp) {
        let part = Age(now.0.saturating_sub(since.0)).part();
        if self.parts.len() <= part {
            self.parts.resize(part + 1, RuleTotals::default());
        }
        if let Some(totals) = self.parts.get_mut(part) {
            *totals = *totals + counts;
        }
    }

    /// The oldest messages that together are so many, by what `of` counts of them; `None`: none.
    pub(super) fn oldest(
        &self,
        amount: RetainedAmount,
        now: Timestamp,
        of: impl Fn(&RuleTotals) -> RetainedAmount,
    ) -> Option<Oldest> {
        let nothing = RetainedAmount::default();
        let mut left = amount;
        for (part, totals) in self.parts.iter().enumerate().rev() {
            let has = of(totals);
            if has >= left {
                return (left > nothing).then(|| Oldest {
                    before: after(Age::least(part + 1).before(now)),
                    partly_before: after(Age::least(part).before(now)),
                    of_part: left,
                });
            }
            left = left.minus(has);
        }
        (amount > nothing).then(|| Oldest {
            before: after(RetainedSince(now.0)),
            partly_before: after(RetainedSince(now.0)),
            of_part: nothing,
        })
    }
}

/// What has an age of at least that of a time has come before the ms after it.
fn after(time: RetainedSince) -> RetainedSince {
    RetainedSince(time.0.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const TIME: Timestamp = Timestamp(NOW);

    #[test]
    fn parts_are_without_gaps() {
        let mut last = 0;
        for age in (0..5_000).chain((5_000..10_000_000).step_by(997)) {
            let part = Age(age).part();
            assert!(part == last || part == last + 1 || age >= 5_000, "{age}");
            assert!(
                Age::least(part) <= Age(age) && Age(age) < Age::least(part + 1),
                "{age}"
            );
            last = part;
        }
        for age in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
            let part = Age(age).part();
            assert!(part < 1_024);
            assert!(Age::least(part) <= Age(age), "{age}");
        }
    }

    #[test]
    fn the_oldest_are_found() {
        let mut ages = Ages::default();
        for second in 1..=100 {
            ages.add(
                RetainedSince(NOW - second * 1_000),
                RuleTotals::one(RetainedAmount(10)),
                TIME,
            );
        }
        for amount in [1, 2, 10, 50, 99, 100, 200] {
            let oldest = ages.oldest(RetainedAmount(amount), TIME, |of| of.messages);
            let oldest = oldest.unwrap();
            let since = |second: u64| RetainedSince(NOW - second * 1_000);
            let all = (1..=100)
                .filter(|second| since(*second) < oldest.before)
                .count() as u64;
            assert!(
                all + oldest.of_part.0 == amount.min(100),
                "{amount}: {all} {oldest:?}"
            );
            let partly = (1..=100).filter(|second| {
                since(*second) >= oldest.before && since(*second) < oldest.partly_before
            });
            assert!(partly.count() as u64 >= oldest.of_part.0);
        }
        let bytes = ages.oldest(RetainedAmount(995), TIME, |of| of.bytes);
        let bytes = bytes.unwrap();
        assert!(bytes.of_part.0 > 0 && bytes.before < bytes.partly_before);
        let none = RetainedAmount(0);
        assert_eq!(ages.oldest(none, TIME, |of| of.messages), None);
        assert_eq!(Ages::default().oldest(none, TIME, |of| of.messages), None);
    }
}
