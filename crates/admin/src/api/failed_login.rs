//! Who fails to log in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::NodeId;

/// An address whose logins have failed on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailedLoginsRow {
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// The address; of IPv6 the /64 network that it is in.
    pub address: String,
    /// Logins that were judged and denied, since the node remembers the address.
    pub denied: u64,
    /// Logins that were refused unjudged, since others of the user name or with the same credentials had failed there.
    pub refused: u64,
    /// When the last one failed.
    pub last: At,
    /// The user names that were tried last, those that failed most first: 16 at most.
    pub users: Vec<FailedUser>,
}

/// A user name that has failed at an address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailedUser {
    /// Its first 128 bytes; `null`: no user name was given.
    pub user: Option<String>,
    /// As of the address.
    pub denied: u64,
    /// As of the address.
    pub refused: u64,
    /// When the last one failed.
    pub last: At,
}
