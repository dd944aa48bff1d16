//! Who may do what: roles, keys, and requests without a key.

mod authorize;
mod first;
mod gate;
mod keys;
mod sessions;
mod standing;
mod stored;

pub use authorize::{Anonymous, Caller, Rights, Who};
pub(crate) use authorize::{Needed, Target, Untold, address, authorize, check_host, refuse};
pub(crate) use gate::{COOKIE, Gate};
pub use keys::{Added, Key, KeyFile, KeyFileError, KeyId, Keys, Token};
pub(crate) use keys::{MadeKey, make_key};
pub use sessions::{LoginSession, People, Sessions, TokenHash};
pub use standing::{PersonStanding, Source};
pub(crate) use stored::unix_ms;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a key may do; each may what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything but payloads.
    Viewer,
    /// Also act on clients, sessions, bans and leaders.
    Operator,
    /// Also change the cluster.
    Administrator,
}

impl Role {
    /// All, from the least.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Administrator];

    /// As in JSON and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<control::Role> for Role {
    fn from(role: control::Role) -> Self {
        match role {
            control::Role::Viewer => Self::Viewer,
            control::Role::Operator => Self::Operator,
            control::Role::Administrator => Self::Administrator,
        }
    }
}

impl From<Role> for control::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Administrator => Self::Administrator,
        }
    }
}

/// Text that names no role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchRole;

impl fmt::Display for NoSuchRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the roles are viewer, operator and administrator")
    }
}

impl std::error::Error for NoSuchRole {}

impl FromStr for Role {
    type Err = NoSuchRole;

    fn from_str(text: &str) -> Result<Self, NoSuchRole> {
        let mut all = Self::ALL.into_iter();
        all.find(|role| role.name() == text).ok_or(NoSuchRole)
    }
}
