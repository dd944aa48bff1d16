//! Bans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;

/// Somebody who is not let in: exactly one of `client`, `user` and `address` is not `null`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ban {
    /// Its number, unique in the cluster.
    pub id: u64,
    /// A client identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// A user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// An address, or a network such as 192.0.2.0/24.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Why, in the operator's words.
    pub reason: String,
    /// When it was made.
    pub created: At,
    /// When it ends; `null`: when it is removed.
    pub expires: Option<At>,
}

/// A ban that is asked for: exactly one of `client`, `user` and `address`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBan {
    /// A client identifier.
    pub client: Option<String>,
    /// A user.
    pub user: Option<String>,
    /// An address, or a network such as 192.0.2.0/24.
    pub address: Option<String>,
    /// Why, for those who read the list; at most 1,024 bytes.
    #[serde(default)]
    pub reason: String,
    /// For how long; without it until the ban is removed.
    pub seconds: Option<u64>,
}
