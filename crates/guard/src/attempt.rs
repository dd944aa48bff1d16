//! A login on its way from the credentials to the verdict.
//!
//! Invariants: an attempt counts from its beginning, so that any number of guesses of one account at the same time
//! can fail no more often than as many one after the other. More are judged at the same time only while logins of
//! the same address and user name succeed (`slow_start.rs`). What makes a user name wait at an address is guesses: a
//! device that shows the same wrong password again and again guesses once, and makes only those wait that show that
//! password. Who shows credentials that were right when they were judged last waits for nobody. Failures elsewhere
//! shut nobody out: from addresses that a user has not logged in from they slow the logins of that name down, and
//! where it has logged in from they count for nothing. Failures of an address hold up user names that have not
//! logged in from there, by a rate (`address.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::Network;

use crate::address::{Address, Share};
use crate::failures::Failures;
use crate::limits::Limits;
use crate::{Guard, Name, Refusal, Source};

/// How often a login is judged for a user name whose logins have failed, of all addresses that it has not logged
/// in from.
///
/// Limit: logins for one user name whose logins have failed, from addresses that it has not logged in from | one in
/// {} | wait
const ACCOUNT_INTERVAL_MS: u64 = 100;

/// What a client shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The user name.
    pub username: Option<&'a str>,
    /// The password or token. `None`: it cannot be told from another one, as a proof of SCRAM.
    pub password: Option<&'a [u8]>,
}

/// A login that is being judged. Dropped, it has neither failed nor succeeded.
#[derive(Debug)]
#[must_use = "a verdict has to be told"]
pub struct Attempt {
    guard: Arc<Guard>,
    /// `None`: it is not counted.
    counted: Option<Counted>,
    /// The user name that it gave, for those who ask who fails.
    username: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    login: (Network, Name),
    /// User name and password, hashed. `None`: what it shows cannot be told from something else.
    credentials: Option<Name>,
    /// Whether it gave a user name: without one there is no account that others could try.
    is_named: bool,
    /// Whether the user name has not logged in from the address yet, so that it is counted for the account.
    is_stranger: bool,
    /// Whether its credentials were right when they were judged last: it is no guess.
    is_proven: bool,
    /// What it has taken of the address's budgets.
    share: Share,
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
        shown: Shown<'_>,
        now_ms: u64,
    ) -> Result<Attempt, NotNow> {
        let limits = *self.limits.read();
        let address = source.and_then(|source| limits.counted(source));
        let counted = address
            .filter(|_| limits.judges_attempts())
            .map(|address| self.count(address, shown));
        if let Some(counted) = counted {
            self.take_turn(&limits, counted, now_ms)
                .inspect_err(|not_now| {
                    if let NotNow::Refused(_) = not_now {
                        self.failing
                            .refused(counted.login.0, shown.username, now_ms);
                    }
                })?;
        }
        Ok(Attempt {
            guard: Arc::clone(self),
            counted,
            username: counted.and(shown.username).map(Box::from),
        })
    }

    fn count(&self, address: Network, shown: Shown<'_>) -> Counted {
        let login = (address, self.name(shown.username.unwrap_or_default()));
        let is_named = shown.username.is_some();
        let credentials = shown
            .password
            .map(|password| self.credentials(shown.username, password));
        let is_proven = credentials.is_some_and(|shown| self.proven.look(&shown, |()| true));
        let is_home = is_named && self.homes.look(&login, |()| true);
        let share = match is_proven || is_home {
            true => Share::None,
            false if self.logins.look(&login, Failures::has_failed) => Share::Again,
            false => Share::First,
        };
        Counted {
            login,
            credentials,
            is_named,
            is_stranger: is_named && !is_home && !is_proven,
            is_proven,
            share,
        }
    }

    fn take_turn(&self, limits: &Limits, counted: Counted, now_ms: u64) -> Result<(), NotNow> {
        let login @ (address, name) = counted.login;
        let wrong = counted.credentials.map(|shown| (address, shown));
        let waits = |failures: &Failures| failures.must_wait(limits, now_ms);
        if !counted.is_proven
            && (self.logins.look(&login, waits)
                || wrong.is_some_and(|wrong| self.wrong.look(&wrong, waits)))
        {
            return Err(NotNow::Refused(self.refuse(Refusal::FailedLogins)));
        }
        let begin_of_address = |of: &mut Address| of.begin(limits, counted.share, now_ms);
        if !self.addresses.with(address, begin_of_address) {
            return Err(NotNow::Later);
        }
        if counted.is_proven {
            return Ok(());
        }
        let begin = |failures: &mut Failures| failures.begin(limits.logins_of_address(), now_ms);
        let turn =
            |failures: &mut Failures| failures.take_turn(limits, ACCOUNT_INTERVAL_MS, now_ms);
        let may_begin = self.logins.with(login, begin);
        let may_show = may_begin && wrong.is_none_or(|wrong| self.wrong.with(wrong, begin));
        if may_show && (!counted.is_stranger || self.accounts.with(name, turn)) {
            return Ok(());
        }
        if may_show {
            self.end_credentials(wrong);
        }
        if may_begin {
            self.logins
                .settle(&login, Failures::end, Failures::is_empty);
        }
        self.end_at_address(counted, true);
        Err(NotNow::Later)
    }

    fn end_credentials(&self, wrong: Option<(Network, Name)>) {
        if let Some(wrong) = wrong {
            self.wrong.settle(&wrong, Failures::end, Failures::is_empty);
        }
    }

    /// `gives_back`: it has not failed.
    fn end_at_address(&self, counted: Counted, gives_back: bool) {
        let end = |of: &mut Address| {
            if gives_back {
                of.give_back(counted.share);
            }
            of.end();
        };
        self.addresses
            .settle(&counted.login.0, end, Address::is_empty);
    }
}

impl Attempt {
    /// The login was denied.
    pub fn failed(mut self, now_ms: u64) {
        let guard = &self.guard;
        guard.failed_logins.fetch_add(1, Ordering::Relaxed);
        let Some(counted) = self.counted.take() else {
            return;
        };
        guard
            .failing
            .failed(counted.login.0, self.username.as_deref(), now_ms);
        if let Some(shown) = counted.credentials {
            guard.proven.forget(&shown);
        }
        let limits = *guard.limits.read();
        if limits.failed_logins.is_some() && guard.is_new_guess(counted, &limits, now_ms) {
            guard.count_failure(counted.login, counted.is_named, &limits, now_ms);
            if let Some(reports) = guard.reports.get() {
                reports.add(counted.login.0, self.username.as_deref());
            }
        }
        self.end(counted, false);
    }

    /// The login was denied, and was no guess: what it has shown was right once. It waits for itself alone.
    pub fn ended(self, now_ms: u64) {
        let guard = &self.guard;
        guard.failed_logins.fetch_add(1, Ordering::Relaxed);
        if let Some(counted) = self.counted {
            let user = self.username.as_deref();
            guard.failing.failed(counted.login.0, user, now_ms);
            let limits = *guard.limits.read();
            if let Some(shown) = counted.credentials {
                guard.proven.forget(&shown);
            }
            if limits.failed_logins.is_some() {
                guard.is_new_guess(counted, &limits, now_ms);
            }
        }
    }

    /// The login was allowed: earlier failures for its user name at its address are forgotten, unless its credentials
    /// were known to be right.
    pub fn succeeded(mut self) {
        let Some(counted) = self.counted.take() else {
            return;
        };
        let guard = &self.guard;
        // What was right before says nothing about what others have guessed since.
        if !counted.is_proven {
            guard.logins.change(&counted.login, Failures::forgive);
        }
        if counted.is_stranger {
            guard.accounts.change(&counted.login.1, Failures::succeeded);
        }
        if let Some(shown) = counted.credentials {
            let wrong = (counted.login.0, shown);
            guard.wrong.change(&wrong, Failures::forgive);
            guard.proven.with(shown, |()| ());
        }
        if counted.is_named {
            guard.homes.with(counted.login, |()| ());
        }
        self.end(counted, true);
    }

    fn end(&self, counted: Counted, gives_back: bool) {
        let guard = &self.guard;
        guard.end_at_address(counted, gives_back);
        if counted.is_proven {
            return;
        }
        if counted.is_stranger {
            guard
                .accounts
                .settle(&counted.login.1, Failures::end, Failures::is_empty);
        }
        guard
            .logins
            .settle(&counted.login, Failures::end, Failures::is_empty);
        guard.end_credentials(counted.credentials.map(|shown| (counted.login.0, shown)));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(counted) = self.counted.take() {
            self.end(counted, true);
        }
    }
}

impl Guard {
    /// Counts a failure for the credentials that were shown. Whether they are others than those that have failed at
    /// the address before.
    fn is_new_guess(&self, counted: Counted, limits: &Limits, now_ms: u64) -> bool {
        let Some(shown) = counted.credentials else {
            return true;
        };
        self.wrong.with((counted.login.0, shown), |failures| {
            let is_new = !failures.has_failed();
            failures.add_unless_waiting(limits, now_ms);
            is_new
        })
    }
}
