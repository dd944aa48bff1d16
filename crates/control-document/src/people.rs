//! Entries of people and keys, from and to records of the store.

use std::fmt;

use control::{ApiKey, Hash, Invalid, KeyId, KeySecret, Person, Revision, Role, Verifier};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::convert::{Reading, Whose, bytes, hexadecimal, invalid, time, written};
use crate::document::{is_default, is_yes, yes};

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleEntry {
    /// Read.
    Viewer,
    /// Also act on clients, messages, bans and leaders.
    Operator,
    /// Also change the cluster, and who may do what.
    Administrator,
}

/// The identifier of a key, eight hexadecimal digits in a document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyIdEntry(pub KeyId);

/// Somebody who logs in at the HTTP port with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonEntry {
    /// The name.
    pub name: String,
    /// What the person may do.
    pub role: RoleEntry,
    /// Whether the person may read the audit, whatever the role.
    #[serde(default, skip_serializing_if = "is_default")]
    pub audits: bool,
    /// Whether the person can log in.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: bool,
    /// Whether the person has to choose another password before anything else.
    #[serde(default, skip_serializing_if = "is_default")]
    pub must_change: bool,
    /// The hash of the password, as behind the colon of a password file. `None`: a person who is there already keeps the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A key of the HTTP API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Which.
    pub id: KeyIdEntry,
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: RoleEntry,
    /// Whether it may read the audit, whatever the role.
    #[serde(default, skip_serializing_if = "is_default")]
    pub audits: bool,
    /// When it was made, as RFC 3339.
    pub created_at: String,
    /// From when on it is refused, as RFC 3339; `None`: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// The secret that was made last, and the one before. None: a key that is there already keeps those that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<KeySecretEntry>,
}

/// A secret of a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySecretEntry {
    /// SHA-256 of its text, 64 hexadecimal digits.
    pub sha256: String,
    /// From when on it is refused, as RFC 3339; `None`: as long as the key is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
}

impl PersonEntry {
    /// The entry of a person.
    #[must_use]
    pub fn of(name: &str, person: &Person, with_secrets: bool) -> Self {
        let hash = person.hash.as_deref().filter(|_| with_secrets);
        Self {
            name: name.to_owned(),
            role: person.role.into(),
            audits: person.audits,
            enabled: person.enabled,
            must_change: person.must_change,
            hash: hash.map(str::to_owned),
            note: person.note.to_string(),
        }
    }

    /// The record of the entry. `before`: the person who is there, whose hash stays if the entry has none.
    ///
    /// # Errors
    /// Which field is wrong, and why: the hash cannot be read or is none of a password, a new person has none, or the person holds
    /// more than a person may.
    pub fn person(&self, before: Option<&Person>, read: Reading<'_>) -> Result<Person, Invalid> {
        let known = before.map(|before| &before.hash);
        let hash = match (self.hash.as_deref(), known) {
            (None, Some(known)) => known.clone(),
            (None, None) => return Err(invalid("hash", "a new person needs `hash`")),
            // What an earlier import has read needs no second look.
            (Some(hash), Some(Some(known))) if hash == &**known => Some(known.clone()),
            (Some(hash), _) => match read(Whose::Person, hash) {
                Ok(Verifier::Hash(hash)) => Some(hash),
                Ok(Verifier::Scram(_) | Verifier::Secret(_)) => {
                    return Err(invalid("hash", "a hash of a password is expected"));
                }
                Err(why) => return Err(invalid("hash", &why)),
            },
        };
        let person = Person {
            role: self.role.into(),
            audits: self.audits,
            enabled: self.enabled,
            hash,
            must_change: self.must_change,
            note: self.note.as_str().into(),
            logins_since: before.map_or(Revision(0), |before| before.logins_since),
        };
        person.check(&self.name)?;
        Ok(person)
    }
}

impl KeyEntry {
    /// The entry of a key.
    #[must_use]
    pub fn of(id: KeyId, key: &ApiKey, with_secrets: bool) -> Self {
        let secrets = key.secrets.iter().filter(|_| with_secrets);
        let secret = |secret: &KeySecret| {
            let Hash(bytes) = &secret.sha256;
            KeySecretEntry {
                sha256: hexadecimal(bytes),
                ends_at: secret.ends_ms.map(written),
            }
        };
        Self {
            id: KeyIdEntry(id),
            name: key.name.to_string(),
            role: key.role.into(),
            audits: key.audits,
            created_at: written(key.created_ms),
            ends_at: key.ends_ms.map(written),
            secrets: secrets.map(secret).collect(),
        }
    }

    /// The record of the entry. `before`: the key that is there, whose secrets stay if the entry has none.
    ///
    /// # Errors
    /// Which field is wrong, and why: a time or a SHA-256 cannot be read, a new key has no secret, or the key holds more than a key
    /// may.
    pub fn key(&self, before: Option<&ApiKey>) -> Result<ApiKey, Invalid> {
        let secret = |entry: &KeySecretEntry| {
            let accepted =
                "each `sha256` is to be 64 hexadecimal digits, the SHA-256 of the secret";
            let hash = bytes(&entry.sha256).ok_or_else(|| invalid("secrets", accepted))?;
            let ends_at = entry.ends_at.as_deref();
            Ok(KeySecret {
                sha256: Hash(hash),
                ends_ms: ends_at.map(|text| time("secrets", text)).transpose()?,
            })
        };
        let secrets = match (self.secrets.is_empty(), before) {
            (false, _) => self.secrets.iter().map(secret).collect::<Result<_, _>>()?,
            (true, Some(before)) => before.secrets.clone(),
            (true, None) => return Err(invalid("secrets", "a new key needs `secrets`")),
        };
        let ends_at = self.ends_at.as_deref();
        let key = ApiKey {
            name: self.name.as_str().into(),
            role: self.role.into(),
            audits: self.audits,
            created_ms: time("created_at", &self.created_at)?,
            ends_ms: ends_at.map(|text| time("ends_at", text)).transpose()?,
            secrets,
        };
        key.check()?;
        Ok(key)
    }
}

impl From<Role> for RoleEntry {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Administrator => Self::Administrator,
        }
    }
}

impl From<RoleEntry> for Role {
    fn from(role: RoleEntry) -> Self {
        match role {
            RoleEntry::Viewer => Self::Viewer,
            RoleEntry::Operator => Self::Operator,
            RoleEntry::Administrator => Self::Administrator,
        }
    }
}

impl Serialize for KeyIdEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyIdEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_written = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_written.then(|| u32::from_str_radix(&text, 16).ok());
        let number = number.flatten();
        let number = number.ok_or_else(|| {
            D::Error::custom("the identifier of a key is to be 8 hexadecimal digits")
        })?;
        Ok(Self(KeyId(number)))
    }
}

impl fmt::Debug for PersonEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersonEntry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEntry")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeySecretEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySecretEntry").finish_non_exhaustive()
    }
}
