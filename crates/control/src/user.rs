//! MQTT users.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limit::{self, Invalid};
use crate::number::Revision;

/// Unix time in ms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct UnixMs(pub u64);

/// The SHA-256 of something that is not written down.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

/// A user that clients of MQTT log in as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// Whether anybody can log in as it.
    pub enabled: bool,
    /// How a client proves that it is this user: any of them does; with none, nobody can log in.
    pub verifiers: Box<[Verifier]>,
    /// The groups that it is in, in order.
    pub groups: Box<[Box<str>]>,
    /// Lines of the rule language without WHO, which come before those of its groups.
    pub rules: Box<[Box<str>]>,
    /// The client identifiers that it may connect with, as a pattern; `None`: any.
    pub client_ids: Option<Box<str>>,
    /// The class of its clients; `None`: what they match says it.
    pub class: Option<Box<str>>,
    /// Rules are not asked.
    pub superuser: bool,
    /// When it ends; `None`: it does not.
    pub ends_ms: Option<UnixMs>,
    /// For people.
    pub note: Box<str>,
    /// Logins before this revision do not count any more: since then it has another password, or it was disabled. The store
    /// sets it, whatever it is in a change.
    pub logins_since: Revision,
}

/// A way to prove who a client is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verifier {
    /// A password hash, as in a password file.
    Hash(Box<str>),
    /// The keys of SCRAM, as in a password file.
    Scram(Box<str>),
    /// A secret of at least 256 random bits, which needs no slow hash.
    Secret(Hash),
}

impl User {
    /// Whether it can be kept under a name.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self, name: &str) -> Result<(), Invalid> {
        limit::name("name", name, limit::USER_NAME)?;
        limit::at_most("verifiers", self.verifiers.len(), limit::VERIFIERS)?;
        for verifier in &self.verifiers {
            if let Verifier::Hash(text) | Verifier::Scram(text) = verifier {
                limit::name("verifiers", text, limit::HASH)?;
            }
        }
        limit::groups("groups", &self.groups)?;
        limit::lines(&self.rules, limit::LINES)?;
        for (field, text) in [("client_ids", &self.client_ids), ("class", &self.class)] {
            if let Some(text) = text {
                limit::name(field, text, limit::TEXT)?;
            }
        }
        limit::at_most("note", self.note.len(), limit::TEXT)?;
        limit::at_most("user", self.bytes(name), limit::RECORD)
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self, name: &str) -> usize {
        let verifiers = self.verifiers.iter().map(|verifier| match verifier {
            Verifier::Hash(text) | Verifier::Scram(text) => text.len(),
            Verifier::Secret(Hash(hash)) => hash.len(),
        });
        let texts = self.groups.iter().chain(&self.rules);
        let optional = [&self.client_ids, &self.class].into_iter().flatten();
        let texts = texts.chain(optional).chain([&self.note]);
        name.len() + verifiers.sum::<usize>() + texts.map(|text| text.len()).sum::<usize>()
    }

    /// Whether those who have logged in before have to do so again, now that it takes the place of another record.
    #[must_use]
    pub fn ends_logins(&self, before: &Self) -> bool {
        before.verifiers != self.verifiers
            || before.client_ids != self.client_ids
            || before.enabled && !self.enabled
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hash(_) => "Hash",
            Self::Scram(_) => "Scram",
            Self::Secret(_) => "Secret",
        })
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}
