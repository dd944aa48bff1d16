//! CPU time that is measured now and then: asking for it is a system call, which costs as much as a small turn of work.
//!
//! Invariants: a turn that is measured stands for those that were not measured before it; asking takes about a hundredth of
//! the time that is counted, or one turn in [`TURNS_MOST`] is measured.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A turn that takes so long may be measured each time: two system calls take less than a hundredth of it.
const LONG_TURN: Duration = Duration::from_micros(100);

/// One turn in so many is measured, however short they are.
const TURNS_MOST: u32 = 16;

/// The CPU time of turns of one kind. Several threads may take turns; what is lost between two of them is a turn.
#[derive(Debug)]
pub(super) struct SampledTime {
    counted_ns: AtomicU64,
    /// How many turns the next one that is measured stands for.
    turns: AtomicU32,
    /// How many of these are still to come.
    left: AtomicU32,
}

impl Default for SampledTime {
    fn default() -> Self {
        Self {
            counted_ns: AtomicU64::new(0),
            turns: AtomicU32::new(1),
            left: AtomicU32::new(1),
        }
    }
}

impl SampledTime {
    /// Takes a turn, which is measured if it is due.
    pub(super) fn during<R>(&self, clock: impl Fn() -> Duration, work: impl FnOnce() -> R) -> R {
        let left = self.left.load(Ordering::Relaxed);
        if left > 1 {
            self.left.store(left - 1, Ordering::Relaxed);
            return work();
        }
        let begun = clock();
        let outcome = work();
        self.measured(clock().saturating_sub(begun));
        outcome
    }

    fn measured(&self, time: Duration) {
        let turns = self.turns.load(Ordering::Relaxed);
        let counted = nanoseconds(time).saturating_mul(turns.into());
        self.counted_ns.fetch_add(counted, Ordering::Relaxed);
        let short = LONG_TURN.as_nanos() / time.as_nanos().max(1);
        let next = u32::try_from(short).map_or(TURNS_MOST, |short| short.clamp(1, TURNS_MOST));
        self.turns.store(next, Ordering::Relaxed);
        self.left.store(next, Ordering::Relaxed);
    }

    /// All of it.
    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.counted_ns.load(Ordering::Relaxed))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that work sets, and how often it was looked at.
    #[derive(Default)]
    struct Clock {
        now: Cell<Duration>,
        looks: Cell<u32>,
    }

    impl Clock {
        fn turn(&self, time: &SampledTime, takes: Duration) {
            let look = || {
                self.looks.set(self.looks.get() + 1);
                self.now.get()
            };
            time.during(look, || self.now.set(self.now.get() + takes));
        }
    }

    #[test]
    fn short_turns_are_measured_now_and_then_and_count_for_all() {
        let (clock, time) = (Clock::default(), SampledTime::default());
        for _ in 0..16_001 {
            clock.turn(&time, Duration::from_micros(2));
        }
        assert_eq!(time.total(), clock.now.get());
        assert_eq!(clock.looks.get(), 2 * 1_001);
    }

    #[test]
    fn long_turns_are_measured_each() {
        let (clock, time) = (Clock::default(), SampledTime::default());
        for n in 0..100 {
            clock.turn(&time, Duration::from_micros(100 + n));
        }
        assert_eq!(time.total(), clock.now.get());
        assert_eq!(clock.looks.get(), 200);
    }

    #[test]
    fn turns_of_all_lengths_are_counted_about_right() {
        let (clock, time) = (Clock::default(), SampledTime::default());
        let mut random = 1_u64;
        for _ in 0..100_000 {
            // Knuth's generator of MMIX: no period of the lengths falls in with that of the measurements.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let dice = random >> 33;
            let takes = if dice.is_multiple_of(10) {
                150
            } else {
                5 + dice % 7
            };
            clock.turn(&time, Duration::from_micros(takes));
        }
        let ratio = time.total().as_secs_f64() / clock.now.get().as_secs_f64();
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
        assert!(clock.looks.get() < 2 * 100_000 / 4, "{:?}", clock.looks);
    }

    #[test]
    fn a_turn_that_takes_no_time_is_one() {
        let (clock, time) = (Clock::default(), SampledTime::default());
        for _ in 0..40 {
            clock.turn(&time, Duration::ZERO);
        }
        assert_eq!(time.total(), Duration::ZERO);
        assert_eq!(clock.looks.get(), 2 * 3);
    }
}
