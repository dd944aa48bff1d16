//! Failed logins, and how long they make one wait.

use crate::limits::Limits;

/// The first wait; each further failure doubles it.
const FIRST_WAIT_MS: u64 = 1_000;

/// Failed logins of an address, or for a user name from there, or for a user name from anywhere.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Failures {
    count: u32,
    last_ms: u64,
    /// Logins that are being judged.
    under_way: u32,
    /// When the last login was let through to be judged.
    began_ms: u64,
}

impl Failures {
    /// Lets a login through to be judged, unless those that are being judged would be too many failures if all
    /// of them failed. One is always let through.
    pub(crate) fn begin(&mut self, limits: &Limits) -> bool {
        let allowed = limits.failed_logins.map_or(u32::MAX, |n| n.get().into());
        let fits = self.under_way == 0 || self.count.saturating_add(self.under_way) < allowed;
        self.under_way += u32::from(fits);
        fits
    }

    /// A login is judged, or given up.
    pub(crate) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Lets a login through to be judged: once in an interval, if as many have failed as may.
    pub(crate) fn take_turn(&mut self, limits: &Limits, interval_ms: u64, now_ms: u64) -> bool {
        let is_suspect = limits
            .failed_logins
            .is_some_and(|allowed| self.count >= allowed.get().into())
            && now_ms < self.last_ms + limits.longest_wait_ms;
        let may = !is_suspect || now_ms >= self.began_ms + interval_ms;
        if may {
            self.began_ms = now_ms;
        }
        may
    }

    /// A login has succeeded. Those that are being judged still are.
    pub(crate) fn forgive(&mut self) {
        self.count = 0;
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.under_way == 0
    }

    /// One more. Those before count no longer once the longest wait has passed after the last one's wait.
    pub(crate) fn add(&mut self, limits: &Limits, now_ms: u64) {
        if now_ms >= self.waits_until(limits) + limits.longest_wait_ms {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last_ms = now_ms;
    }

    /// Whether the next login is not looked at yet.
    pub(crate) fn must_wait(&self, limits: &Limits, now_ms: u64) -> bool {
        now_ms < self.waits_until(limits)
    }

    fn waits_until(&self, limits: &Limits) -> u64 {
        let Some(allowed) = limits.failed_logins else {
            return 0;
        };
        let wait = match self.count.checked_sub(allowed.get().into()) {
            None => 0,
            Some(doublings) => 1u64
                .checked_shl(doublings)
                .and_then(|factor| factor.checked_mul(FIRST_WAIT_MS))
                .map_or(limits.longest_wait_ms, |wait| {
                    wait.min(limits.longest_wait_ms)
                }),
        };
        self.last_ms + wait
    }
}
