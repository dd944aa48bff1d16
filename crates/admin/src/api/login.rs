//! Logging in with a user name and a password.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::rights::Role;

/// Who wants to log in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// A person of the control store or of `http.userFile`.
    pub user: String,
    /// The password.
    pub password: String,
}

/// Whose a request is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// Who has logged in.
    pub user: Option<String>,
    /// The name of the key that the request shows.
    pub key: Option<String>,
    /// What it may do.
    pub role: Role,
    /// Whether it may read the audit, whatever the role.
    #[serde(default)]
    pub audits: bool,
    /// Another password has to be chosen before anything else: `POST /own-password`.
    #[serde(default)]
    pub must_change: bool,
    /// What requests of this session that are no `GET` show as `X-CSRF-Token`.
    pub csrf_token: Option<String>,
    /// When the session ends, whatever is done.
    pub ends_at: Option<At>,
}
