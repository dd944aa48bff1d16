//! People and keys of the HTTP API.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{At, RevisionNumber};
use crate::rights::Role;

/// What knows a person or a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KnownIn {
    /// A file of the asked node, which the API does not change.
    File,
    /// The control store.
    Store,
}

/// Somebody who logs in at the HTTP port with a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PersonRow {
    /// The name.
    pub name: String,
    /// What knows the person. Of one name, the file counts.
    pub source: KnownIn,
    /// The change that has made the record what it is: 1841 is the ETag `"r1841"`. 0 for people of a file.
    pub revision: RevisionNumber,
    /// What the person may do.
    pub role: Role,
    /// Whether the person may read the audit, whatever the role.
    pub audits: bool,
    /// Whether the person can log in.
    pub enabled: bool,
    /// Whether there is a password.
    pub has_password: bool,
    /// The person has to choose another password before anything else.
    pub must_change: bool,
    /// A note for people.
    pub note: String,
}

/// A person as it is from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PersonMade {
    /// The person.
    #[serde(flatten)]
    pub person: PersonRow,
    /// The password that was generated. It is in this answer and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A person that is asked for. At most one of `password`, `generate` and `hash`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewPerson {
    /// The name, 1 to 128 bytes. With `PUT` the path says it.
    pub name: Option<String>,
    /// What the person may do; viewer without it.
    pub role: Option<Role>,
    /// The person may read the audit, whatever the role.
    pub audits: bool,
    /// Whether the person can log in; true without it.
    pub enabled: Option<bool>,
    /// A password, at least 12 characters.
    pub password: Option<String>,
    /// Make a random password, which the answer shows once.
    pub generate: bool,
    /// A hash as in password files: argon2id or bcrypt.
    pub hash: Option<String>,
    /// The person has to choose another password at the first login. Without it: true if the body has a password or has one generated, else as it
    /// was.
    pub must_change: Option<bool>,
    /// A note for people, 256 bytes at most.
    pub note: String,
}

impl fmt::Debug for NewPerson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewPerson")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Another password of one's own.
#[derive(Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnPassword {
    /// The password that counts now.
    pub old: String,
    /// The one that is to count, at least 12 characters, and another one.
    pub new: String,
}

impl fmt::Debug for OwnPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnPassword")
    }
}

/// How somebody can come in at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoginMethods {
    /// With a name and a password: somebody has them.
    pub password: bool,
    /// With the code that the log of the node shows: nobody can change anything yet, and whoever has the code becomes the first administrator.
    pub first: bool,
}

/// Who wants to be the first administrator.
#[derive(Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstAdministrator {
    /// The code that the log of the asked node shows at its start.
    pub code: String,
    /// The name that the person is to have, 1 to 128 bytes.
    pub user: String,
    /// The password, at least 12 characters.
    pub password: String,
}

impl fmt::Debug for FirstAdministrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstAdministrator")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A key of the HTTP API. Secrets are never shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyRow {
    /// The eight hexadecimal digits behind `hmq_` in its text.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What knows the key. Of one identifier, the file counts.
    pub source: KnownIn,
    /// The change that has made the record what it is; 0 for keys of a file.
    pub revision: RevisionNumber,
    /// What it may do.
    pub role: Role,
    /// Whether it may read the audit, whatever the role.
    pub audits: bool,
    /// When it was made.
    pub created_at: At,
    /// From when on it is refused; `null`: it stays.
    pub ends_at: Option<At>,
    /// Until when the secret before the last rotation counts; `null`: there is none.
    pub old_secret_ends_at: Option<At>,
}

/// A key as it is from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyMade {
    /// The key.
    #[serde(flatten)]
    pub key: KeyRow,
    /// What requests show behind `Authorization: Bearer`. It is in this answer and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A key that is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewKey {
    /// What people call it, 1 to 128 bytes.
    pub name: String,
    /// What it may do; viewer without it.
    pub role: Option<Role>,
    /// It may read the audit, whatever the role.
    pub audits: bool,
    /// From when on it is refused, such as 2026-11-24T10:12:03Z; without it, it stays.
    pub ends_at: Option<String>,
}

/// How a key gets another secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rotation {
    /// For how many seconds the secret of before still counts, 30 days at most; an hour without it, and 0 if it is known to others.
    pub overlap_s: Option<u32>,
}
