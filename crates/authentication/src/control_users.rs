//! Users of the control store, judged by the node's view of it.
//!
//! Invariants: nobody is let in by a view that was never up to date in this process. A login is judged by one record: a user
//! that has changed while its password was checked, or its exchange was under way, is judged anew or refused. What a client
//! is told, and how long that takes, is the same for users that exist and users that do not.
//!
//! Deliberately absent: the records and who changes them (`control`), and clients that are connected already (the broker asks
//! [`ControlUsers::user_now`]).

mod remembered;
mod rule_sets;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use authentication_api::{Credentials, Denial, Identity, Secret, Source, UserNow};
use authorization::Pattern;
use aws_lc_rs::{constant_time, digest};
use control::{Hash, Revision, Stored, UnixMs, User, Verifier};
use control_view::{Standing, View};

use crate::authenticator::{Asked, Authenticator, Opinion};
use crate::failure_log::FailureLog;
use crate::hash_threads::HashThreads;
use crate::password_hash::{PasswordHash, WeakHashes};
use crate::scram_keys::{Mechanism, ScramKeys};

use remembered::Remembered;
use rule_sets::RuleSets;

/// How often a user is looked up again that changes whenever its password has been checked.
const TRIES: usize = 3;

/// Users that are looked at for a model of made-up keys.
const MODELS: usize = 16;

const UNCONFIRMED: &str =
    "the node has not heard yet whether its copy of the control store is up to date";

const REFUSED: &str = "the node's copy of the control store may be out of date, and control.refuseStaleAfterSeconds has passed";

/// What judges users of the control store; one for each process, whatever chains are configured.
#[derive(Debug)]
pub(crate) struct ControlUsers {
    view: Arc<View>,
    remembered: Remembered,
    rules: RuleSets,
    hashes: HashThreads,
    /// Where no user is a model of made-up keys.
    models: [ScramKeys; 2],
    /// Of exchanges, and of users who are looked up again. Those of passwords are written by the chain.
    failures: FailureLog,
}

/// What a user has for an exchange of SCRAM.
pub(crate) struct Found {
    pub(crate) keys: ScramKeys,
    /// The operation that has changed the user last.
    pub(crate) revision: Revision,
}

impl ControlUsers {
    /// # Errors
    /// The operating system gives no random numbers.
    pub(crate) fn new(view: Arc<View>, hashes: HashThreads) -> Result<Self, String> {
        let [first, second] = Mechanism::ALL.map(ScramKeys::random);
        let no_random = |_| "the operating system gives no random numbers".to_owned();
        Ok(Self {
            view,
            remembered: Remembered::new()?,
            rules: RuleSets::default(),
            hashes,
            models: [first.map_err(no_random)?, second.map_err(no_random)?],
            failures: FailureLog::default(),
        })
    }

    /// Whether the cluster has no users of the control store, as far as the node knows.
    pub(crate) fn is_unused(&self) -> bool {
        match self.view.standing() {
            Standing::Unused => true,
            Standing::Unconfirmed => false,
            Standing::Confirmed => self.view.user_count() == 0,
        }
    }

    /// Why rules of a user who has logged in, or of its groups, cannot be read; `None`: they can, as far as that was tried.
    pub(crate) fn unreadable_rules(&self) -> Option<String> {
        self.rules.unreadable(&self.view)
    }

    /// Whether there may be users, by a view that can be believed. An error: why it cannot be.
    fn counts(&self) -> Result<bool, &'static str> {
        match self.view.standing() {
            Standing::Unused => Ok(false),
            Standing::Unconfirmed => Err(UNCONFIRMED),
            Standing::Confirmed if self.view.is_refused() => Err(REFUSED),
            Standing::Confirmed => Ok(true),
        }
    }

    /// The keys of a user for a mechanism; `None`: it is unknown, or has none.
    pub(crate) fn scram_keys(
        &self,
        name: &str,
        mechanism: Mechanism,
    ) -> Result<Option<Found>, Denial> {
        match self.counts() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(reason) => return Err(self.unavailable(reason)),
        }
        let found = self.view.user(name).map(|user| {
            let keys = keys_of(&user.record, mechanism)?;
            let revision = user.revision;
            Ok(keys.map(|keys| Found { keys, revision }))
        });
        let found = found.transpose().map(Option::flatten);
        found.map_err(|reason: String| self.unavailable(&reason))
    }

    /// Keys that no password fits, which look like those of the users whose names come next: so they are the same on all
    /// nodes, and cost the client as much.
    pub(crate) fn made_up_keys(&self, name: &str, mechanism: Mechanism) -> ScramKeys {
        let mut model = None;
        let mut left = MODELS;
        let mut look_at = |_: &str, user: &Arc<Stored<User>>| {
            model = keys_of(&user.record, mechanism).ok().flatten();
            left -= 1;
            model.is_none() && left > 0
        };
        self.view.each_user(Some(name), &mut look_at);
        if model.is_none() {
            left = MODELS;
            self.view.each_user(None, |_, user| {
                model = keys_of(&user.record, mechanism).ok().flatten();
                left -= 1;
                model.is_none() && left > 0
            });
        }
        let [first, second] = &self.models;
        let fallback = match first.mechanism == mechanism {
            true => first,
            false => second,
        };
        model.as_ref().unwrap_or(fallback).made_up(name)
    }

    /// A user has proven that it knows the password that the record of this revision is about.
    pub(crate) fn proven(
        &self,
        name: &str,
        revision: Revision,
        client_id: &str,
    ) -> Result<Box<Identity>, Denial> {
        let since = self.view.revision();
        let user = self.view.user(name).ok_or(Denial::UnknownUser)?;
        if user.revision != revision {
            return Err(match user.record.enabled {
                true => Denial::Denied,
                false => Denial::Disabled,
            });
        }
        match self.judge(name, &user, since, client_id) {
            Opinion::Allow(identity) => Ok(identity),
            Opinion::Deny(denial) => Err(denial),
            Opinion::Ignore => Err(Denial::UnknownUser),
            Opinion::Failed(reason) => Err(self.unavailable(&reason)),
        }
    }

    /// What is known now of a user that a client has logged in as, when the view had `since`. Waits for nobody.
    pub(crate) fn user_now(&self, name: &str, since: Revision) -> UserNow {
        let now = self.view.revision();
        if now == since {
            return UserNow::Same;
        }
        let Some(user) = self.view.user(name) else {
            return UserNow::Gone;
        };
        if !may_log_in(&user.record) || user.record.logins_since > since {
            return UserNow::Gone;
        }
        match self.identity(name, &user, now) {
            Ok(identity) => UserNow::Identity(Box::new(identity)),
            Err(reason) => {
                self.unavailable(&reason);
                UserNow::Same
            }
        }
    }

    /// What comes with a login of a user now; `None`: there is no such user, it may not log in, or its rules cannot be read.
    pub(crate) fn identity_of(&self, name: &str) -> Option<Identity> {
        let now = self.view.revision();
        let user = self.view.user(name)?;
        let identity = may_log_in(&user.record).then(|| self.identity(name, &user, now));
        identity?.ok()
    }

    /// What a client is that shows a user name and a password.
    async fn opinion(&self, credentials: &Credentials) -> Opinion {
        let (Some(name), Some(password)) = (&credentials.username, &credentials.password) else {
            return Opinion::Ignore;
        };
        match self.counts() {
            Ok(true) => {}
            Ok(false) => return Opinion::Ignore,
            Err(reason) => return Opinion::Failed(reason.to_owned()),
        }
        for _ in 0..TRIES {
            let Some(user) = self.view.user(name) else {
                return self.take_as_long(name, password).await;
            };
            match self.fits(name, &user, password).await {
                Ok(true) => {}
                Ok(false) => return Opinion::Deny(Denial::WrongPassword),
                Err(reason) => return Opinion::Failed(reason),
            }
            let since = self.view.revision();
            let now = self.view.user(name);
            if now.is_some_and(|now| now.revision == user.revision) {
                return self.judge(name, &user, since, &credentials.client_id);
            }
        }
        Opinion::Failed("a user was changed again and again while its password was checked".into())
    }

    /// Whether a client that has proven to be a user may be let in.
    fn judge(&self, name: &str, user: &Stored<User>, since: Revision, client_id: &str) -> Opinion {
        let record = &user.record;
        if !record.enabled {
            return Opinion::Deny(Denial::Disabled);
        }
        if has_ended(record) {
            return Opinion::Deny(Denial::Ended);
        }
        let pattern = record.client_ids.as_deref().map(Pattern::new);
        if pattern.is_some_and(|pattern| !pattern.matches(client_id)) {
            return Opinion::Deny(Denial::ClientId);
        }
        match self.identity(name, user, since) {
            Ok(identity) => Opinion::Allow(Box::new(identity)),
            Err(reason) => Opinion::Failed(reason),
        }
    }

    /// What comes with a login of a user.
    fn identity(
        &self,
        name: &str,
        user: &Stored<User>,
        since: Revision,
    ) -> Result<Identity, String> {
        let set = self.rules.of_user(name, user, self.view.groups());
        let record = &user.record;
        Ok(Identity {
            username: Some(name.into()),
            is_superuser: record.superuser,
            rules: set.rules.clone()?,
            expires_at: record.ends_ms.map(|UnixMs(ends_ms)| ends_ms / 1_000),
            class: record.class.as_ref().or(set.class.as_ref()).cloned(),
            source: Source::Control { since },
            database: None,
        })
    }

    /// Whether a password is that of a user.
    async fn fits(
        &self,
        name: &str,
        user: &Arc<Stored<User>>,
        password: &Secret,
    ) -> Result<bool, String> {
        let verifiers = &user.record.verifiers;
        if is_secret(verifiers, password) {
            return Ok(true);
        }
        if verifiers
            .iter()
            .all(|one| matches!(one, Verifier::Secret(_)))
        {
            return Ok(false);
        }
        let fingerprint = self.remembered.fingerprint(name, user.revision, password);
        if self.remembered.has(&fingerprint, Instant::now()) {
            return Ok(true);
        }
        let fits = self.hash(user, password).await?;
        if fits {
            self.remembered.add(fingerprint, Instant::now());
        }
        Ok(fits)
    }

    /// Compares a password with the slow hashes of a user.
    async fn hash(&self, user: &Arc<Stored<User>>, password: &Secret) -> Result<bool, String> {
        let (user, password) = (Arc::clone(user), Secret::new(password.bytes()));
        let compare = move || fits_hash(&user.record.verifiers, &password);
        match self.hashes.run(compare).await {
            Ok(fits) => fits,
            Err(error) => Err(format!("a password could not be checked: {error}")),
        }
    }

    /// A name is unknown: nobody shall see by the time. The user whose name comes next stands for it, always the same one.
    async fn take_as_long(&self, name: &str, password: &Secret) -> Opinion {
        let mut decoy = None;
        for after in [Some(name), None] {
            if decoy.is_none() {
                self.view.each_user(after, |_, user| {
                    decoy = Some(Arc::clone(user));
                    false
                });
            }
        }
        if let Some(decoy) = decoy {
            let verifiers = &decoy.record.verifiers;
            let is_slow = verifiers
                .iter()
                .any(|one| !matches!(one, Verifier::Secret(_)));
            if !is_secret(verifiers, password) && is_slow {
                // Whatever it says.
                let _ = self.hash(&decoy, password).await;
            }
        }
        Opinion::Ignore
    }

    /// Says why somebody cannot be judged.
    fn unavailable(&self, reason: &str) -> Denial {
        if let Some(failures) = self.failures.count(Instant::now()) {
            tracing::warn!(
                failures,
                "users of the control store cannot be judged: {reason}"
            );
        }
        Denial::Unavailable
    }
}

/// Asks the view of the control store.
#[derive(Debug)]
pub(crate) struct Control {
    name: String,
    users: Arc<ControlUsers>,
}

impl Control {
    pub(crate) fn new(name: String, users: Arc<ControlUsers>) -> Self {
        Self { name, users }
    }
}

impl Authenticator for Control {
    fn name(&self) -> &str {
        &self.name
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(self.users.opinion(credentials))
    }
}

/// Whether a password is one of the secrets.
fn is_secret(verifiers: &[Verifier], password: &Secret) -> bool {
    let mut secrets = verifiers.iter().filter_map(|verifier| match verifier {
        Verifier::Secret(Hash(hash)) => Some(hash),
        Verifier::Hash(_) | Verifier::Scram(_) => None,
    });
    secrets.any(|hash| {
        let shown = digest::digest(&digest::SHA256, password.bytes());
        constant_time::verify_slices_are_equal(shown.as_ref(), hash).is_ok()
    })
}

/// Whether a password fits one of the slow hashes. Takes milliseconds.
fn fits_hash(verifiers: &[Verifier], password: &Secret) -> Result<bool, String> {
    let mut unreadable = None;
    let texts = verifiers.iter().filter_map(|verifier| match verifier {
        Verifier::Hash(text) | Verifier::Scram(text) => Some(text),
        Verifier::Secret(_) => None,
    });
    for text in texts {
        // What is in the store was accepted when it was put there.
        match PasswordHash::parse_with(text, WeakHashes::Accept) {
            Ok(hash) if hash.fits(password.bytes()) => return Ok(true),
            Ok(_) => {}
            Err(error) => unreadable = Some(error),
        }
    }
    match unreadable {
        Some(error) => Err(format!("a user of the control store has {error}")),
        None => Ok(false),
    }
}

/// The keys of a user for a mechanism.
fn keys_of(user: &User, mechanism: Mechanism) -> Result<Option<ScramKeys>, String> {
    for verifier in &user.verifiers {
        let text = match verifier {
            Verifier::Scram(text) => text,
            Verifier::Hash(text) if text.starts_with("$scram-") => text,
            Verifier::Hash(_) | Verifier::Secret(_) => continue,
        };
        let hash = PasswordHash::parse(text)
            .map_err(|error| format!("a user of the control store has {error}"))?;
        let keys = hash.scram_keys();
        if let Some(keys) = keys.filter(|keys| keys.mechanism == mechanism) {
            return Ok(Some(keys.clone()));
        }
    }
    Ok(None)
}

fn may_log_in(record: &User) -> bool {
    record.enabled && !has_ended(record)
}

fn has_ended(user: &User) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis());
    user.ends_ms
        .is_some_and(|UnixMs(ends_ms)| u128::from(ends_ms) <= now_ms)
}

#[cfg(test)]
mod tests;
