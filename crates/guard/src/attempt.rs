//! A login on its way from the credentials to the verdict.
//!
//! Invariants: an attempt counts from its beginning, so that any number of guesses of one account at the same time
//! can fail no more often than as many one after the other. More are judged at the same time only while logins of
//! the same address and user name succeed (`slow_start.rs`). Failures elsewhere shut nobody out: from addresses that a user has not
//! logged in from they slow the logins of that name down, and where it has logged in from they count for nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Network;

use crate::failures::Failures;
use crate::limits::Limits;
use crate::{Guard, Name, Refusal, Source};

/// How often a login is judged for a user name whose logins have failed, of all addresses that it has not logged
/// in from.
const ACCOUNT_INTERVAL_MS: u64 = 100;

/// A login that is being judged. Dropped, it has neither failed nor succeeded.
#[derive(Debug)]
#[must_use = "a verdict has to be told"]
pub struct Attempt {
    guard: Arc<Guard>,
    /// `None`: it is not counted.
    counted: Option<Counted>,
    /// The user name that it gave, if other nodes are told of failures.
    username: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    login: (Network, Name),
    /// Whether it gave a user name: without one there is no account that others could try.
    is_named: bool,
    /// Whether the user name has not logged in from the address yet, so that it is counted for the account.
    is_stranger: bool,
}

/// Why a login is not judged now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// It is refused.
    Refused(Refusal),
    /// It is to be begun again in a moment: others are being judged, or its user name has its turn later.
    Later,
}

impl Guard {
    /// Begins to judge a login by credentials. `source`: none for a Unix domain socket.
    ///
    /// # Errors
    /// It is not judged, or not yet.
    pub fn begin_login(
        self: &Arc<Self>,
        source: Option<Source>,
        username: Option<&str>,
        now_ms: u64,
    ) -> Result<Attempt, NotNow> {
        let limits = *self.limits.read();
        let address = source.and_then(|source| limits.counted(source));
        let counted = address
            .filter(|_| limits.failed_logins.is_some() || limits.logins.is_some())
            .map(|address| {
                let login = (address, self.name(username.unwrap_or_default()));
                let is_named = username.is_some();
                Counted {
                    login,
                    is_named,
                    is_stranger: is_named && !self.homes.look(&login, |()| true),
                }
            });
        if let Some(counted) = counted {
            self.take_turn(&limits, counted, now_ms)?;
        }
        Ok(Attempt {
            guard: Arc::clone(self),
            counted,
            username: username
                .filter(|_| self.reports.get().is_some())
                .map(Box::from),
        })
    }

    fn take_turn(&self, limits: &Limits, counted: Counted, now_ms: u64) -> Result<(), NotNow> {
        let login @ (address, name) = counted.login;
        if self.must_wait(limits, login, now_ms) {
            return Err(NotNow::Refused(self.refuse(Refusal::FailedLogins)));
        }
        let begin = |failures: &mut Failures| failures.begin(limits.logins_of_address(), now_ms);
        if !self.addresses.with(address, begin) {
            return Err(NotNow::Later);
        }
        let may_begin = self.logins.with(login, begin);
        let turn =
            |failures: &mut Failures| failures.take_turn(limits, ACCOUNT_INTERVAL_MS, now_ms);
        if may_begin && (!counted.is_stranger || self.accounts.with(name, turn)) {
            return Ok(());
        }
        self.addresses
            .settle(&address, Failures::end, Failures::is_empty);
        if may_begin {
            self.logins
                .settle(&login, Failures::end, Failures::is_empty);
        }
        Err(NotNow::Later)
    }
}

impl Attempt {
    /// The login was denied.
    pub fn failed(self, now_ms: u64) {
        let guard = &self.guard;
        guard.failed_logins.fetch_add(1, Ordering::Relaxed);
        let limits = *guard.limits.read();
        let Some(Counted {
            login, is_named, ..
        }) = self.counted
        else {
            return;
        };
        if limits.failed_logins.is_none() {
            return;
        }
        guard.count_failure(login, is_named, &limits, now_ms);
        if let Some(reports) = guard.reports.get() {
            reports.add(login.0, self.username.as_deref());
        }
    }

    /// The login was allowed: earlier failures of its address, and for its user name there, are forgotten.
    pub fn succeeded(self) {
        let Some(Counted {
            login,
            is_named,
            is_stranger,
        }) = self.counted
        else {
            return;
        };
        let guard = &self.guard;
        if is_stranger {
            guard.accounts.change(&login.1, Failures::succeeded);
        }
        guard.addresses.change(&login.0, Failures::forgive);
        guard.logins.change(&login, Failures::forgive);
        if is_named {
            guard.homes.with(login, |()| ());
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(Counted {
            login, is_stranger, ..
        }) = self.counted
        {
            let guard = &self.guard;
            if is_stranger {
                guard
                    .accounts
                    .settle(&login.1, Failures::end, Failures::is_empty);
            }
            guard
                .addresses
                .settle(&login.0, Failures::end, Failures::is_empty);
            guard
                .logins
                .settle(&login, Failures::end, Failures::is_empty);
        }
    }
}
