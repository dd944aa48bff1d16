//! Grace periods: whether all that was under way at some time has ended since, also while more begins all the time.
//!
//! What is under way holds a token of the current period. There are two tokens, of odd and of even periods; a period
//! ends when nobody holds the token of the one before it. So three more periods cannot begin before everything has
//! ended that was under way in the first of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is under way, in all threads.
#[derive(Debug, Default)]
pub(crate) struct GracePeriods {
    current: AtomicU64,
    tokens: [Arc<()>; 2],
}

/// Something is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    _token: Arc<()>,
}

/// When something was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period(u64);

/// Periods until everything has ended. One may begin right after the time was taken, by somebody who looked at the
/// token before; after it, each token has been looked at once.
const PERIODS: u64 = 3;

impl GracePeriods {
    /// Something begins.
    pub(crate) fn begin(&self) -> UnderWay {
        let current = self.current.load(Ordering::SeqCst);
        UnderWay {
            _token: Arc::clone(self.token(current)),
        }
    }

    /// Nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.tokens.iter().all(is_free)
    }

    /// The time now.
    pub(crate) fn now(&self) -> Period {
        Period(self.current.load(Ordering::SeqCst))
    }

    /// Whether all that was under way at a time has ended.
    pub(crate) fn is_over(&self, Period(period): Period) -> bool {
        loop {
            let current = self.current.load(Ordering::SeqCst);
            if current >= period + PERIODS {
                return true;
            }
            if !is_free(self.token(current + 1)) {
                return false;
            }
            // If it fails, another thread was faster.
            let _ = self.current.compare_exchange(
                current,
                current + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }

    fn token(&self, period: u64) -> &Arc<()> {
        let [even, odd] = &self.tokens;
        if period.is_multiple_of(2) { even } else { odd }
    }
}

/// Nobody holds a token.
fn is_free(token: &Arc<()>) -> bool {
    let free = Arc::strong_count(token) == 1;
    // What was done before it was given back is seen.
    std::sync::atomic::fence(Ordering::SeqCst);
    free
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_begins_later_is_not_waited_for() {
        let periods = GracePeriods::default();
        let before = periods.begin();
        let time = periods.now();
        let mut after = VecDeque::new();
        for _ in 0..9 {
            after.push_back(periods.begin());
            assert!(!periods.is_over(time));
        }
        drop(before);
        // Those of the period that was current then may be waited for, and no others.
        while !periods.is_over(time) {
            assert!(after.pop_front().is_some());
            after.push_back(periods.begin());
        }
        assert!(!periods.is_quiet());
        after.clear();
        assert!(periods.is_quiet());
    }

    proptest! {
        #[test]
        fn nothing_is_over_while_what_was_under_way_has_not_ended(
            steps in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>()), 0..200),
        ) {
            let periods = GracePeriods::default();
            // Each with a number; times with the numbers that were under way.
            let mut under_way: Vec<(usize, UnderWay)> = Vec::new();
            let mut times: Vec<(Period, Vec<usize>)> = Vec::new();
            for (number, (step, index)) in steps.into_iter().enumerate() {
                match step {
                    0 => under_way.push((number, periods.begin())),
                    1 if !under_way.is_empty() => {
                        under_way.swap_remove(index.index(under_way.len()));
                    }
                    2 => times.push((periods.now(), under_way.iter().map(|u| u.0).collect())),
                    _ => for (time, waited_for) in &times {
                        if periods.is_over(*time) {
                            prop_assert!(!under_way.iter().any(|u| waited_for.contains(&u.0)));
                        }
                    },
                }
            }
            under_way.clear();
            prop_assert!(times.iter().all(|(time, _)| periods.is_over(*time)));
        }
    }
}
