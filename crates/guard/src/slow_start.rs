//! How many logins may be judged at the same time: few at first, more with each success.
//!
//! Invariants: until a login succeeds, the logins under way and those that have failed are together no more than
//! may fail. Each success doubles that number, up to a limit; a failure takes it back to where it began. Who
//! guesses has no success to show for the account he guesses, so his guesses at the same time are no more than his
//! guesses one after the other. Successes are forgotten when no login has begun for some seconds, and at once if
//! none had to wait meanwhile.
//!
//! Deliberately absent: how long failures make one wait (`failures.rs`).

/// How far the number can grow: beyond 2^31 times the first it is without a limit.
const MOST_DOUBLINGS: u8 = 31;

/// How long successes are remembered after the last login has begun: logins that wait for their turn are tried
/// again sooner.
const REMEMBERED_MS: u64 = 10_000;

/// A number of logins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Logins(pub u32);

impl Logins {
    /// One more.
    pub(crate) fn add_one(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// One less.
    pub(crate) fn remove_one(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}

/// The logins under way of an address, for a user name there, or for a user name from anywhere.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SlowStart {
    under_way: Logins,
    /// Successes since the last failure.
    doublings: u8,
    /// Whether one had to wait since the successes were forgotten.
    was_full: bool,
    /// When the last one was let through.
    began_ms: u64,
}

/// Between which numbers of logins under way it moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Those allowed before one has succeeded.
    pub(crate) first: Logins,
    /// Those ever allowed.
    pub(crate) most: Logins,
}

impl SlowStart {
    /// Lets a login through to be judged if there is room beside the failed ones and those under way. One is
    /// always let through.
    pub(crate) fn begin(&mut self, bounds: Bounds, failed: u32, now_ms: u64) -> bool {
        if now_ms >= self.began_ms + REMEMBERED_MS {
            self.doublings = 0;
            self.was_full = false;
        }
        let grown = bounds.first.0.saturating_mul(1 << self.doublings);
        let allowed = grown.min(bounds.most.0);
        let Logins(under_way) = self.under_way;
        let fits = under_way == 0 || under_way.saturating_add(failed) < allowed;
        match fits {
            true => self.begin_anyway(now_ms),
            false => self.was_full = true,
        }
        fits
    }

    /// Counts a login that is let through for another reason.
    pub(crate) fn begin_anyway(&mut self, now_ms: u64) {
        self.under_way.add_one();
        self.began_ms = now_ms;
    }

    /// A login is judged, or given up.
    pub(crate) fn end(&mut self) {
        self.under_way.remove_one();
    }

    /// A login that is under way has succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// A login that is under way has failed.
    pub(crate) fn failed(&mut self) {
        self.doublings = 0;
    }

    /// When the last login was let through.
    pub(crate) fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// Whether there is nothing to remember: no login is under way, and none waits that successes would help.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way == Logins(0) && !(self.was_full && self.doublings > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        first: Logins(3),
        most: Logins(20),
    };

    /// Begins as many as it can.
    fn fill(logins: &mut SlowStart, failed: u32) -> u32 {
        let begun = (0..1_000)
            .filter(|_| logins.begin(BOUNDS, failed, 0))
            .count();
        u32::try_from(begun).unwrap()
    }

    #[test]
    fn each_success_doubles_up_to_the_most() {
        let mut logins = SlowStart::default();
        assert_eq!(fill(&mut logins, 0), 3);
        for under_way in [6, 12, 20, 20] {
            logins.succeeded();
            logins.end();
            fill(&mut logins, 0);
            assert_eq!(logins.under_way, Logins(under_way));
        }
        for _ in 0..100 {
            logins.succeeded();
        }
        assert!(!logins.begin(BOUNDS, 0, 0));
    }

    #[test]
    fn a_failure_takes_it_back() {
        let mut logins = SlowStart::default();
        fill(&mut logins, 0);
        (0..9).for_each(|_| logins.succeeded());
        fill(&mut logins, 0);
        logins.failed();
        logins.end();
        assert_eq!(fill(&mut logins, 1), 0);
        (0..18).for_each(|_| logins.end());
        // One is under way, one has failed.
        assert_eq!(fill(&mut logins, 1), 1);
    }

    #[test]
    fn guesses_without_a_success_are_no_more_than_may_fail() {
        let (mut logins, mut failed, mut guesses) = (SlowStart::default(), 0, 0);
        while failed < BOUNDS.first.0 {
            let begun = fill(&mut logins, failed);
            assert!(begun > 0);
            guesses += begun;
            for _ in 0..begun {
                failed += 1;
                logins.failed();
                logins.end();
            }
        }
        assert_eq!(guesses, BOUNDS.first.0);
    }

    #[test]
    fn one_is_always_let_through() {
        let mut logins = SlowStart::default();
        let (first, most) = (Logins(0), Logins(0));
        assert!(logins.begin(Bounds { first, most }, 9, 0));
        assert!(!logins.begin(Bounds { first, most }, 9, 0));
        logins.end();
        assert!(logins.is_empty() && logins.begin(BOUNDS, 9, 0));
    }

    #[test]
    fn the_most_may_be_less_than_the_first() {
        let mut logins = SlowStart::default();
        let (first, most) = (Logins(5), Logins(2));
        let bounds = Bounds { first, most };
        assert_eq!((0..9).filter(|_| logins.begin(bounds, 0, 0)).count(), 2);
    }

    #[test]
    fn successes_are_remembered_for_those_that_wait_and_not_for_long() {
        let mut logins = SlowStart::default();
        for is_full in [false, true] {
            assert!(logins.begin(BOUNDS, 0, 0));
            if is_full {
                fill(&mut logins, 0);
            }
            logins.succeeded();
            while logins.under_way > Logins(0) {
                logins.end();
            }
            assert_eq!(logins.is_empty(), !is_full);
        }
        let began = |logins: &mut SlowStart, now_ms| {
            let begins = |_: &u32| logins.begin(BOUNDS, 0, now_ms);
            let begun = (0..100).filter(begins).count();
            (0..begun).for_each(|_| logins.end());
            begun
        };
        assert_eq!(began(&mut logins, REMEMBERED_MS - 1), 12);
        assert_eq!(began(&mut logins, 2 * REMEMBERED_MS), 3);
    }
}
