//! What rules say about a client.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::page::Missing;

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
    /// Rules in the language of rule files, judged in the place of the file of the asked node: what they would say if they
    /// were saved. What came with the login of a connected client counts before them. The whole body has 64 KiB at most.
    #[serde(default)]
    pub rules: Option<String>,
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
    /// The line of the rule file or of the rules for everybody, or the number among the rules of the login, from 1; `null`: no rule.
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
    /// A rule of the control store for everybody.
    List,
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

/// Whose rules are asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclSubject {
    /// The client. Without `user` and `address`, those of its connection count, else the user of its session.
    pub client_id: String,
    /// The user that it has authenticated as. With `user` or `address`, nothing else is known of the client.
    #[serde(default)]
    pub user: Option<String>,
    /// The IP address that it connects from.
    #[serde(default)]
    pub address: Option<String>,
    /// Rules in the language of rule files, listed in the place of those of the file. The whole body has 64 KiB at most.
    #[serde(default)]
    pub rules: Option<String>,
}

/// A rule of the control store for everybody, or of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AclRule {
    /// `list` or `file`.
    pub by: DecidedBy,
    /// Its line there, from 1.
    pub line: u64,
    /// The rule as a rule file has it, with single blanks between its words.
    pub text: String,
}

/// The rules of the file that concern a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AclRules {
    /// The client.
    pub client_id: String,
    /// The user that the rules were chosen by; `null`: the client has none, or none is known.
    pub user: Option<String>,
    /// The address that the rules were chosen by; `null`: none is known, and rules that name an address are not listed.
    pub address: Option<String>,
    /// By what the user is known.
    pub known_by: KnownBy,
    /// Whether its login lets the client do everything, whatever rules say.
    pub superuser: bool,
    /// The first 500 rules of the asked node whose conditions hold for the client, in the order in which they count. Those that came
    /// with the login of the client are not among them: they count before these.
    pub rules: Vec<AclRule>,
    /// Whether there are more than these.
    pub more: bool,
    /// `allow` or `deny`: what happens when no rule matches (`authorization.noMatch`).
    pub no_match: String,
    /// Nodes that have not answered who the client is.
    pub partial: Vec<Missing>,
}
