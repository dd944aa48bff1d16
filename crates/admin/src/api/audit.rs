//! The audit: who has changed what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, At, RevisionNumber};

/// A field that has another value than before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditField {
    /// Its name.
    pub name: String,
    /// What it was; `null`: there was no record. Of passwords and secrets, never more than what kind they are.
    pub before: Option<String>,
    /// What it is; `null`: there is no record.
    pub after: Option<String>,
}

/// An entry of the audit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditRow {
    /// Its number, counted from 0 for the life of the cluster.
    pub number: Amount,
    /// When.
    pub at: At,
    /// Who: the name of a person or a key.
    pub actor: String,
    /// How that was shown: `key`, `person`, `token`, `import`, `file_key`, `file_person`, `first_code` or `node`.
    pub means: String,
    /// From where; `null`: not over a network.
    pub address: Option<String>,
    /// The node that was asked.
    pub node: String,
    /// What, such as `user.add` or `nodes.drain`.
    pub action: String,
    /// To what; empty: the action says it.
    pub target: String,
    /// What is different.
    pub fields: Vec<AuditField>,
    /// The revision of users, groups and rules with it.
    pub revision: RevisionNumber,
    /// SHA-256 of the hash of the entry before and of the bytes of this one, 64 hexadecimal digits.
    pub hash: String,
}

/// How far the audit is, as the asked node has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// The number of the first entry that is kept.
    pub first: Amount,
    /// The number of the next entry to come.
    pub next: Amount,
    /// The hash of the last entry, 64 hexadecimal digits. Whoever writes it down elsewhere can tell later whether an entry up to it was changed.
    pub head: String,
}
