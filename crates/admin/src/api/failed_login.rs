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

/// Logins of an address and a user name that a node has refused for the same cause.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusedLoginsRow {
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// The address; of IPv6 the /64 network that it is in. `null`: a Unix socket.
    pub address: Option<String>,
    /// The first 128 bytes of the user name, which nobody has confirmed; `null`: no user name was given.
    pub user: Option<String>,
    /// The first 128 bytes of the client identifier that was given last; `null`: none is known.
    pub client_id: Option<String>,
    /// The kind of the listener that was connected to last; `null`: the HTTP API.
    pub listener: Option<String>,
    /// The name of the cause: `unknown_user`, `wrong_password`, `banned` and so on. Later versions have more.
    pub cause: String,
    /// The cause as a sentence, with the option that changes it.
    pub explanation: String,
    /// The first 128 bytes of what exactly was wrong last, for causes that have more than one form.
    pub detail: Option<String>,
    /// How often, since the node remembers the row.
    pub count: u64,
    /// When the first one was refused.
    pub first: At,
    /// When the last one was.
    pub last: At,
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
