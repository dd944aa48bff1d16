//! The authenticators in their order: the first that allows or denies decides.
//!
//! Invariant: a client that nobody knows is denied, and so is one about whom somebody could not be asked;
//! why is in the log, one line per second and authenticator.

use std::{sync::Arc, time::Instant};

use config::{AuthenticationConfig, AuthenticatorConfig, AuthenticatorKind};
use control_view::View;
use tokio::runtime::Handle;

use authentication_api::{
    Credentials, DatabaseUser, Denial, Identity, Source, Step, UserNow, Verdict,
};

use crate::{
    OpenError,
    authenticator::{Authenticator, Opinion},
    control_users::{Control, ControlUsers},
    failure_log::FailureLog,
    hash_threads::HashThreads,
    http::Http,
    jwt::{Jwt, KeySets},
    password_file::PasswordFile,
    postgres::Postgres,
    scram::{self, ScramSource, ScramUsers},
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
    /// Users of the control store.
    pub(crate) control: Arc<ControlUsers>,
}

impl Shared {
    /// `view`: what the node knows of the users of the control store.
    pub(crate) fn new(
        runtime: &Handle,
        hash_threads: usize,
        view: Arc<View>,
    ) -> Result<Self, OpenError> {
        let hashes = HashThreads::new(hash_threads);
        let control = ControlUsers::new(view, hashes.clone())
            .map_err(|reason| OpenError(format!("users of the control store: {reason}")))?;
        Ok(Self {
            runtime: runtime.clone(),
            hashes,
            key_sets: Arc::default(),
            control: Arc::new(control),
        })
    }
}

/// All authenticators.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    members: Vec<Member>,
    /// These are asked in exchanges only.
    scram: Vec<ScramSource>,
    /// Users of the control store, if one of the authenticators asks for them.
    control: Option<Arc<ControlUsers>>,
    /// No chain is configured: the control store counts once it has users.
    is_default: bool,
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
        if config.chain.is_empty() {
            chain.is_default = true;
            let control = AuthenticatorConfig {
                kind: AuthenticatorKind::Control,
                ..AuthenticatorConfig::default()
            };
            chain.add_next(0, &control, shared)?;
        }
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
                self.scram.push(ScramSource::File(ScramUsers::open(file)?));
                return Ok(());
            }
            AuthenticatorKind::Control => {
                let users = Arc::clone(&shared.control);
                self.scram.push(ScramSource::Control(Arc::clone(&users)));
                self.control = Some(Arc::clone(&users));
                Box::new(Control::new(name, users))
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

    /// Whether nobody judges credentials now: there are no authenticators, and no users in the control store.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.control {
            Some(control) if self.is_default => control.is_unused(),
            _ => self.members.is_empty() && self.scram.is_empty(),
        }
    }

    /// What comes with a login of a user of the control store now.
    pub(crate) fn identity_of(&self, username: &str) -> Option<Identity> {
        self.control.as_ref()?.identity_of(username)
    }

    /// What is known now of a user that a client has logged in as.
    pub(crate) fn user_now(&self, source: Source, username: &str) -> UserNow {
        let has_user = match source {
            Source::Other => true,
            Source::PasswordFile => {
                let mut members = self.members.iter();
                members.any(|member| member.authenticator.has_user(username))
            }
            Source::ScramFile => self.scram.iter().any(|file| file.has_user(username)),
            Source::Control { since } => {
                let control = self.control.as_ref();
                return control.map_or(UserNow::Gone, |users| users.user_now(username, since));
            }
        };
        if has_user {
            UserNow::Same
        } else {
            UserNow::Gone
        }
    }

    /// Begins an enhanced authentication of a client with this identifier.
    pub(crate) fn begin_exchange(
        &self,
        client_id: &str,
        method: &str,
        data: &[u8],
    ) -> Option<Step> {
        if self.is_default && self.is_empty() {
            return None;
        }
        scram::begin(&self.scram, client_id, method, data)
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

#[cfg(test)]
mod tests;
