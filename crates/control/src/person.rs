//! People and keys: who uses the HTTP API.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limit::{self, Invalid};
use crate::number::Revision;
use crate::user::{Hash, UnixMs};

/// What somebody may do; each role may what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Read.
    Viewer,
    /// Also act on clients, messages, bans and leaders.
    Operator,
    /// Also change the cluster, and who may do what.
    Administrator,
}

/// Somebody who logs in at the HTTP port with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// What the person may do.
    pub role: Role,
    /// Whether the person may read the audit, whatever the role.
    pub audits: bool,
    /// Whether the person can log in.
    pub enabled: bool,
    /// The hash of the password; `None`: the person cannot log in.
    pub hash: Option<Box<str>>,
    /// The person has to choose another password before anything else.
    pub must_change: bool,
    /// For people.
    pub note: Box<str>,
    /// Logins before this revision do not count any more. The store sets it, whatever it is in a change.
    pub logins_since: Revision,
}

/// Which key it is: the eight hexadecimal digits in its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KeyId(pub u32);

/// A key of the HTTP API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiKey {
    /// What people call it.
    pub name: Box<str>,
    /// What it may do.
    pub role: Role,
    /// Whether it may read the audit, whatever the role.
    pub audits: bool,
    /// When it was made.
    pub created_ms: UnixMs,
    /// From when on it is refused; `None`: it stays.
    pub ends_ms: Option<UnixMs>,
    /// The secrets that are good for it: the last one that was made, and the one before while that still counts.
    pub secrets: Box<[KeySecret]>,
}

/// A secret of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeySecret {
    /// SHA-256 of its text.
    pub sha256: Hash,
    /// From when on it is refused; `None`: as long as the key is good.
    pub ends_ms: Option<UnixMs>,
}

impl Person {
    /// Whether it can be kept under a name.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self, name: &str) -> Result<(), Invalid> {
        limit::name("name", name, limit::PERSON_NAME)?;
        if let Some(hash) = &self.hash {
            limit::name("hash", hash, limit::HASH)?;
        }
        limit::at_most("note", self.note.len(), limit::TEXT)
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self, name: &str) -> usize {
        let hash = self.hash.as_ref().map_or(0, |hash| hash.len());
        name.len() + hash + self.note.len()
    }

    /// Whether those who have logged in before have to do so again, now that it takes the place of another record. A role counts
    /// at once without that.
    #[must_use]
    pub fn ends_logins(&self, before: &Self) -> bool {
        before.hash != self.hash || before.enabled && !self.enabled
    }

    /// Whether the person can log in and change everything.
    #[must_use]
    pub fn administers(&self) -> bool {
        self.role == Role::Administrator && self.enabled && self.hash.is_some()
    }
}

impl ApiKey {
    /// Whether it can be kept.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self) -> Result<(), Invalid> {
        limit::name("name", &self.name, limit::KEY_NAME)?;
        limit::at_most("secrets", self.secrets.len(), limit::KEY_SECRETS)
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.name.len() + self.secrets.len() * size_of::<KeySecret>()
    }

    /// Whether it changes everything, and does not end.
    #[must_use]
    pub fn administers(&self) -> bool {
        let lasts = |secret: &KeySecret| secret.ends_ms.is_none();
        self.role == Role::Administrator && self.ends_ms.is_none() && self.secrets.iter().any(lasts)
    }

    /// Whether it is refused from now on because of its end.
    #[must_use]
    pub fn has_ended(&self, now: UnixMs) -> bool {
        self.ends_ms.is_some_and(|ends| ends <= now)
    }
}

impl Role {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person")
            .field("role", &self.role)
            .field("audits", &self.audits)
            .field("enabled", &self.enabled)
            .field("has_hash", &self.hash.is_some())
            .field("must_change", &self.must_change)
            .field("note", &self.note)
            .field("logins_since", &self.logins_since)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_can_come_back() {
        let person = Person {
            role: Role::Administrator,
            audits: false,
            enabled: true,
            hash: Some("$argon2id$x".into()),
            must_change: false,
            note: "".into(),
            logins_since: Revision(1),
        };
        assert!(person.administers() && !format!("{person:?}").contains("argon2id"));
        let other = |change: fn(&mut Person)| {
            let mut other = person.clone();
            change(&mut other);
            other
        };
        assert!(!other(|of| of.role = Role::Operator).administers());
        assert!(!other(|of| of.enabled = false).administers());
        assert!(!other(|of| of.hash = None).administers());
        assert!(other(|of| of.enabled = false).ends_logins(&person));
        assert!(other(|of| of.hash = None).ends_logins(&person));
        assert!(!other(|of| of.role = Role::Viewer).ends_logins(&person));
    }

    #[test]
    fn a_key_that_ends_administers_nothing_for_good() {
        let secret = |ends_ms| KeySecret {
            sha256: Hash([1; 32]),
            ends_ms,
        };
        let key = |ends_ms, secrets: &[KeySecret]| ApiKey {
            name: "ci".into(),
            role: Role::Administrator,
            audits: false,
            created_ms: UnixMs(1),
            ends_ms,
            secrets: secrets.into(),
        };
        let end = Some(UnixMs(5));
        assert!(key(None, &[secret(None), secret(end)]).administers());
        assert!(!key(end, &[secret(None)]).administers());
        assert!(!key(None, &[secret(end)]).administers());
        assert!(key(end, &[]).has_ended(UnixMs(5)) && !key(end, &[]).has_ended(UnixMs(4)));
        assert!(key(None, &[secret(None); 3]).check().is_err());
        assert_eq!(KeyId(0xAB).to_string(), "000000ab");
    }
}
