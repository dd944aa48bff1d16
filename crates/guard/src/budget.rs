//! How many logins of one address may fail: a number at once, and so many a minute.
//!
//! Invariant: a login that is being judged has its share taken, so that any number of them at the same time fails no
//! more often than as many one after the other. What did not fail is given back.

use crate::slow_start::Logins;

/// One login, in the unit in which shares come back: thousandths.
const SHARE: u64 = 1_000;

const MINUTE_MS: u64 = 60_000;

/// What was taken and has not come back, in thousandths of a login.
#[derive(Clone, Copy, Default, Debug)]
struct Taken(u64);

/// In ms.
#[derive(Clone, Copy, Default, Debug)]
struct Moment(u64);

/// The failures that an address has left. Full at first.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Budget {
    taken: Taken,
    /// Until when it has come back.
    at: Moment,
}

/// How large a budget is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Failures at once.
    pub(crate) burst: Logins,
    /// Failures that come back in a minute.
    pub(crate) per_minute: Logins,
}

impl Budget {
    /// Takes one login's share. `false`: nothing is left now.
    pub(crate) fn take(&mut self, of: Allowance, now_ms: u64) -> bool {
        self.refill(of, now_ms);
        let fits = self.taken.0 + SHARE <= u64::from(of.burst.0) * SHARE;
        if fits {
            self.taken.0 += SHARE;
        }
        fits
    }

    /// The login has not failed.
    pub(crate) fn give_back(&mut self) {
        self.taken.0 = self.taken.0.saturating_sub(SHARE);
    }

    /// Whether nothing is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.taken.0 == 0
    }

    fn refill(&mut self, of: Allowance, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.at.0);
        let back = passed.saturating_mul(u64::from(of.per_minute.0) * SHARE) / MINUTE_MS;
        self.taken.0 = self.taken.0.saturating_sub(back);
        // What is less than a thousandth is not lost: the time stays where it was until there is one.
        if back > 0 || self.taken.0 == 0 {
            self.at = Moment(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Allowance = Allowance {
        burst: Logins(3),
        per_minute: Logins(60),
    };

    fn take_all(budget: &mut Budget, now_ms: u64) -> usize {
        (0..100).filter(|_| budget.take(OF, now_ms)).count()
    }

    #[test]
    fn so_many_at_once_and_so_many_a_minute() {
        let mut budget = Budget::default();
        assert_eq!(take_all(&mut budget, 50_000), 3);
        assert_eq!(take_all(&mut budget, 50_999), 0);
        assert_eq!(take_all(&mut budget, 51_000), 1);
        assert_eq!(take_all(&mut budget, 53_000), 2);
        assert_eq!(take_all(&mut budget, 500_000), 3, "no more than at once");
    }

    #[test]
    fn looking_often_loses_nothing() {
        let mut budget = Budget::default();
        take_all(&mut budget, 0);
        let taken = (1..=60_000).filter(|now| budget.take(OF, *now)).count();
        assert_eq!(taken, 60);
    }

    #[test]
    fn what_did_not_fail_is_given_back() {
        let mut budget = Budget::default();
        for _ in 0..100 {
            assert!(budget.take(OF, 0));
            budget.give_back();
        }
        assert!(budget.is_full());
        budget.give_back();
        assert_eq!(take_all(&mut budget, 0), 3);
    }
}
