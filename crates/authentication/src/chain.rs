//! The authenticators in their order: the first that allows or denies decides.
//!
//! Invariant: a client that nobody knows is denied, and so is one about whom somebody could not be asked;
//! why is in the log, one line per second and authenticator.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use config::{AuthenticationConfig, AuthenticatorConfig, AuthenticatorKind};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use authentication_api::{Credentials, DatabaseUser, Denial, Source, Step, Verdict};

use crate::{
    OpenError,
    authenticator::{Authenticator, Opinion},
    hash_threads::HashThreads,
    http::Http,
    jwt::{Jwt, KeySets},
    password_file::PasswordFile,
    postgres::Postgres,
    scram::{self, ScramUsers},
    tls_identity::TlsIdentity,
};

/// What authenticators share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Where they run, for tasks of their own.
    pub(crate) runtime: Handle,
    /// Where they compute password hashes.
    pub(crate) hashes: HashThreads,
    /// Key sets that are in use.
    pub(crate) key_sets: Arc<KeySets>,
}

/// All authenticators.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    members: Vec<Member>,
    /// These are asked in exchanges only.
    scram: Vec<ScramUsers>,
}

#[derive(Debug)]
struct Member {
    authenticator: Box<dyn Authenticator>,
    failures: FailureLog,
}

impl Chain {
    /// Reads keys and files of all authenticators.
    pub(crate) fn open(config: &AuthenticationConfig, shared: &Shared) -> Result<Self, OpenError> {
        let mut chain = Self::default();
        for (index, authenticator) in config.chain.iter().enumerate() {
            chain.add_next(index, authenticator, shared)?;
        }
        Ok(chain)
    }

    /// What is wrong with each authenticator, not with the first one only.
    pub(crate) fn problems(config: &AuthenticationConfig, shared: &Shared) -> Vec<OpenError> {
        let mut chain = Self::default();
        let members = config.chain.iter().enumerate();
        members
            .filter_map(|(index, member)| chain.add_next(index, member, shared).err())
            .collect()
    }

    fn add_next(
        &mut self,
        index: usize,
        config: &AuthenticatorConfig,
        shared: &Shared,
    ) -> Result<(), OpenError> {
        let name = format!("{} ({})", config.kind, index + 1);
        self.add(name.clone(), config, shared)
            .map_err(|reason| OpenError(format!("authenticator {name}: {reason}")))
    }

    fn add(
        &mut self,
        name: String,
        config: &AuthenticatorConfig,
        shared: &Shared,
    ) -> Result<(), String> {
        let file = config.file.as_deref();
        let authenticator: Box<dyn Authenticator> = match config.kind {
            AuthenticatorKind::PasswordFile => {
                Box::new(PasswordFile::open(name, file, shared.hashes.clone())?)
            }
            AuthenticatorKind::TlsIdentity => Box::new(TlsIdentity::new(name)),
            AuthenticatorKind::Jwt => Box::new(Jwt::open(name, &config.jwt, shared)?),
            AuthenticatorKind::Scram => {
                self.scram.push(ScramUsers::open(file)?);
                return Ok(());
            }
            AuthenticatorKind::Http => Box::new(Http::open(name, &config.http)?),
            AuthenticatorKind::Postgres => {
                let hashes = shared.hashes.clone();
                Box::new(Postgres::open(name, &config.postgres, hashes)?)
            }
        };
        self.members.push(Member::new(authenticator));
        Ok(())
    }

    /// Whether there are no authenticators.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.scram.is_empty()
    }

    /// Whether what has confirmed a user still has the user; true if that cannot be told.
    pub(crate) fn has_user(&self, source: Source, username: &str) -> bool {
        match source {
            Source::Other => true,
            Source::PasswordFile => {
                let mut members = self.members.iter();
                members.any(|member| member.authenticator.has_user(username))
            }
            Source::ScramFile => self.scram.iter().any(|file| file.has_user(username)),
        }
    }

    /// Begins an enhanced authentication.
    pub(crate) fn begin_exchange(&self, method: &str, data: &[u8]) -> Option<Step> {
        scram::begin(&self.scram, method, data)
    }

    /// Looks a user of a database up again.
    pub(crate) async fn look_up(&self, user: &DatabaseUser) -> Verdict {
        for member in &self.members {
            match member.authenticator.look_up(user).await {
                Opinion::Allow(identity) => return Verdict::Allow(identity),
                Opinion::Deny(denial) => return Verdict::Deny(denial),
                Opinion::Ignore => {}
                Opinion::Failed(reason) => {
                    member.report(&reason);
                    return Verdict::Deny(Denial::Unavailable);
                }
            }
        }
        Verdict::Deny(Denial::UnknownUser)
    }

    /// Asks one after the other.
    pub(crate) async fn ask(&self, credentials: &Credentials) -> Verdict {
        for member in &self.members {
            match member.authenticator.authenticate(credentials).await {
                Opinion::Allow(identity) => return Verdict::Allow(identity),
                Opinion::Deny(denial) => return Verdict::Deny(denial),
                Opinion::Ignore => {}
                Opinion::Failed(reason) => {
                    member.report(&reason);
                    return Verdict::Deny(Denial::Unavailable);
                }
            }
        }
        Verdict::Deny(Denial::UnknownUser)
    }
}

impl Member {
    fn new(authenticator: Box<dyn Authenticator>) -> Self {
        Self {
            authenticator,
            failures: FailureLog::default(),
        }
    }

    fn report(&self, reason: &str) {
        if let Some(failures) = self.failures.count(Instant::now()) {
            let authenticator = self.authenticator.name();
            tracing::warn!(authenticator, failures, "logins fail: {reason}");
        }
    }
}

/// How often a failure that repeats is written.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps failures from filling the log.
#[derive(Debug, Default)]
struct FailureLog(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    unwritten: u64,
    written_at: Option<Instant>,
}

impl FailureLog {
    /// Counts a failure. If a line is due: how many there were since the last line.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut failures = self.0.lock();
        failures.unwritten += 1;
        let is_due = failures
            .written_at
            .is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        is_due.then(|| {
            failures.written_at = Some(now);
            std::mem::take(&mut failures.unwritten)
        })
    }
}

#[cfg(test)]
mod tests;
