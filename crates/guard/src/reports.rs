//! Failed logins that other nodes of a cluster are told of, so that attempts at several nodes count together.
//!
//! Invariant: at most [`MOST`] pairs of an address and a user name wait to be told. Failures of further ones count at
//! this node only.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::Ordering;

use config::Network;
use parking_lot::Mutex;

use crate::address::Share;
use crate::failures::Failures;
use crate::{Guard, Name};

/// Pairs of an address and a user name that wait to be told.
const MOST: usize = 1_000;

/// User names that are longer are not told.
const LONGEST_NAME: usize = 256;

/// Failures of one pair that count when another node tells them: more than any wait takes to reach its limit.
const MOST_AT_ONCE: u32 = 64;

/// Logins of an address that have failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedLogin {
    /// The address.
    pub address: Network,
    /// The user name that they gave.
    pub user: Option<Box<str>>,
    /// How many.
    pub count: NonZero<u32>,
}

/// An address and a user name that was tried there.
type Tried = (Network, Option<Box<str>>);

/// What waits to be told.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<HashMap<Tried, u32>>);

impl Reports {
    /// A login has failed.
    pub(crate) fn add(&self, address: Network, user: Option<&str>) {
        let is_told = user.is_none_or(|user| user.len() <= LONGEST_NAME);
        let mut waiting = self.0.lock();
        let key = (address, user.map(Box::from));
        if is_told && (waiting.len() < MOST || waiting.contains_key(&key)) {
            let count = waiting.entry(key).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    fn take(&self) -> Vec<FailedLogin> {
        let waiting = std::mem::take(&mut *self.0.lock());
        let told = waiting.into_iter().filter_map(|((address, user), count)| {
            Some(FailedLogin {
                address,
                user,
                count: NonZero::new(count)?,
            })
        });
        told.collect()
    }
}

impl Guard {
    /// From now on what fails is kept for [`Self::take_failed_logins`].
    pub fn report_failed_logins(&self) {
        self.reports.get_or_init(Reports::default);
    }

    /// The logins that have failed here since the last call: 1,000 pairs of an address and a user name at most.
    #[must_use]
    pub fn take_failed_logins(&self) -> Vec<FailedLogin> {
        self.reports.get().map_or_else(Vec::new, Reports::take)
    }

    /// Logins denied at other nodes since the start, as far as these have told.
    #[must_use]
    pub fn failed_logins_elsewhere(&self) -> u64 {
        self.failed_elsewhere.load(Ordering::Relaxed)
    }

    /// Logins have failed at another node. They count as if they had failed here, and are told nobody.
    pub fn failed_elsewhere(&self, failed: &FailedLogin, now_ms: u64) {
        let limits = *self.limits.read();
        let count = u64::from(failed.count.get());
        self.failed_elsewhere.fetch_add(count, Ordering::Relaxed);
        if limits.failed_logins.is_some() {
            let name = self.name(failed.user.as_deref().unwrap_or_default());
            let login = (failed.address, name);
            for _ in 0..failed.count.get().min(MOST_AT_ONCE) {
                let share = match self.logins.look(&login, Failures::has_failed) {
                    true => Share::Again,
                    false => Share::First,
                };
                self.addresses
                    .with(failed.address, |of| of.charge(&limits, share, now_ms));
                self.count_failure(login, failed.user.is_some(), &limits, now_ms);
            }
        }
    }

    pub(crate) fn count_failure(
        &self,
        login: (Network, Name),
        is_named: bool,
        limits: &crate::limits::Limits,
        now_ms: u64,
    ) {
        let add = |failures: &mut Failures| failures.add_unless_waiting(limits, now_ms);
        self.logins.with(login, add);
        if is_named {
            self.accounts
                .with(login.1, |failures| failures.add(limits, now_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::AbuseConfig;

    use super::*;
    use crate::{Attempt, NotNow, Shown, Source};

    fn guard() -> Arc<Guard> {
        Arc::new(Guard::new(&AbuseConfig::default()))
    }

    fn source(last: u8) -> Option<Source> {
        Some(Source {
            ip: [192, 0, 2, last].into(),
            is_proxied: false,
        })
    }

    fn begin(guard: &Arc<Guard>, last: u8, user: &str, text: &str) -> Result<Attempt, NotNow> {
        let shown = Shown {
            username: Some(user),
            password: Some(text.as_bytes()),
        };
        guard.begin_login(source(last), shown, 1_000)
    }

    fn fail(guard: &Arc<Guard>, last: u8, user: &str, text: &str) {
        let attempt = begin(guard, last, user, text);
        attempt.expect("it is judged").failed(1_000);
    }

    #[test]
    fn failures_at_two_nodes_count_together() {
        let (here, there) = (guard(), guard());
        here.report_failed_logins();
        for guess in ["a", "b", "c", "c"] {
            fail(&here, 1, "bob", guess);
        }
        for guess in ["d", "e"] {
            fail(&there, 1, "bob", guess);
        }
        let told = here.take_failed_logins();
        assert_eq!((told.len(), told[0].count.get()), (1, 3));
        assert_eq!(here.take_failed_logins(), []);
        there.failed_elsewhere(&told[0], 1_000);
        assert_eq!(there.failed_logins(), 2, "those that failed there");
        assert_eq!(there.failed_logins_elsewhere(), 3);
        let refused = begin(&there, 1, "bob", "f");
        assert!(matches!(refused, Err(NotNow::Refused(_))));
        for (last, user) in [(1, "alice"), (2, "bob")] {
            let attempt = begin(&there, last, user, "g");
            assert!(!matches!(attempt, Err(NotNow::Refused(_))), "{user}");
        }
        assert_eq!(
            there.take_failed_logins(),
            [],
            "it was not asked to keep them"
        );
    }

    #[test]
    fn so_many_are_told() {
        let guard = guard();
        guard.report_failed_logins();
        let reports = guard.reports.get().expect("they are kept");
        let address = Network::around([192, 0, 2, 1].into(), 64);
        reports.add(address, Some(&"x".repeat(LONGEST_NAME + 1)));
        assert_eq!(guard.take_failed_logins(), []);
        for number in 0..=MOST {
            reports.add(address, Some(&number.to_string()));
        }
        reports.add(address, Some("0"));
        let told = guard.take_failed_logins();
        assert_eq!(told.len(), MOST);
        assert_eq!(
            told.iter().map(|of| of.count.get()).sum::<u32>(),
            MOST as u32 + 1
        );
    }
}
