//! What rules say about a client.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is asked about a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclQuestion {
    /// The client. If it is connected, and neither user nor address is given, what came with its login counts too.
    pub client_id: String,
    /// `publish`, `retain`, `subscribe` or `receive`.
    pub action: String,
    /// The topic; for `subscribe` the topic filter.
    pub topic: String,
    /// The user that it has authenticated as; without it: the one of its session, or nobody.
    #[serde(default)]
    pub user: Option<String>,
    /// The address that it connects from.
    #[serde(default)]
    pub address: Option<String>,
}

/// By what the user of a client is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// It is connected: what came with its login counts too.
    Connection,
    /// It has a session and is away.
    Session,
    /// The question names the user or the address.
    Question,
    /// It is neither connected nor has it a session: it was judged as a client without a user, and may be judged otherwise when it
    /// logs in.
    Nothing,
}

/// Whether a client may do something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// Whether it may.
    pub may: bool,
    /// What decides.
    pub by: DecidedBy,
    /// The line of the rule file, or the number among the rules of the login, from 1; `null`: no rule.
    pub line: Option<u64>,
}

/// What decides about a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Its login made it one that may do everything.
    Superuser,
    /// A rule that came with its login.
    Login,
    /// A rule of the file.
    File,
    /// `authorization.noMatch`: no rule says anything.
    NoMatch,
}

/// What rules say about a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AclAnswer {
    /// The client.
    pub client_id: String,
    /// The user that was judged by; `null`: the client was judged as one without a user.
    pub user: Option<String>,
    /// By what the user is known.
    pub known_by: KnownBy,
    /// Whether the client is connected, and was judged as it is.
    pub connected: bool,
    /// What was decided.
    #[serde(flatten)]
    pub verdict: Verdict,
}
