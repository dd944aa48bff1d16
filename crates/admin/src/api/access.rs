//! Users, groups and rules of the control store.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;

/// The number of a change of users, groups and rules: it grows with each, in the whole cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevisionNumber(pub u64);

/// A number of records, lines, clients or seconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct Amount(pub u64);

/// How a user proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// A password, of which there is a hash.
    Password,
    /// A password, of which there are the keys of SCRAM.
    Scram,
    /// A random secret of at least 256 bits.
    Secret,
}

/// A user that MQTT clients log in as. Hashes and secrets are never shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessUser {
    /// The MQTT user name.
    pub name: String,
    /// The change that has made the user what it is: 1841 is the ETag `"r1841"`.
    pub revision: RevisionNumber,
    /// Whether clients can log in as it.
    pub enabled: bool,
    /// How clients prove that they are this user; any of these is enough.
    pub proofs: Vec<Proof>,
    /// The groups that it is in, in the order of their names.
    pub groups: Vec<String>,
    /// Rules of its own, which are judged before those of its groups: lines of the language of rule files without WHO.
    pub rules: Vec<String>,
    /// The client identifiers that it may connect with, in which `*` stands for any text; `null`: all.
    pub client_ids: Option<String>,
    /// The class of its clients; `null`: what else matches them decides.
    pub class: Option<String>,
    /// Whether its clients may do everything, whatever rules say.
    pub superuser: bool,
    /// When it ends; `null`: it does not.
    pub ends_at: Option<At>,
    /// A note for people.
    pub note: String,
}

/// A user as it is from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessUserMade {
    /// The user.
    #[serde(flatten)]
    pub user: AccessUser,
    /// The secret that was generated, 43 characters. It is in this answer and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A user that is asked for. At most one of `password`, `generate`, `hash` and `secret`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewAccessUser {
    /// The MQTT user name, 1 to 1,024 bytes. With `PUT` the path says it.
    pub name: Option<String>,
    /// A password, 1 to 65,535 bytes, which is kept as a hash by argon2id.
    pub password: Option<String>,
    /// Make a random secret of 256 bits, which the answer shows once.
    pub generate: bool,
    /// Hashes as in password files, one a line, 4 at most: argon2id, bcrypt, `$7$` of mosquitto_passwd, or the keys of SCRAM.
    pub hash: Option<String>,
    /// A random secret that the device has already: 43 to 1,024 characters of base64 or hexadecimal digits. It is kept as a plain SHA-256, so it
    /// must be random.
    pub secret: Option<String>,
    /// Names of groups, 64 at most, which exist.
    pub groups: Vec<String>,
    /// Rules of its own, 1,000 at most: lines of the language of rule files without WHO.
    pub rules: Vec<String>,
    /// The client identifiers that it may connect with, in which `*` stands for any text; without it all.
    pub client_ids: Option<String>,
    /// The class of its clients.
    pub class: Option<String>,
    /// Its clients may do everything, whatever rules say.
    pub superuser: bool,
    /// When it ends, such as 2026-11-24T10:12:03Z; without it, it does not.
    pub ends_at: Option<String>,
    /// Whether clients can log in as it; true without it.
    pub enabled: Option<bool>,
    /// A note for people, 256 bytes at most.
    pub note: String,
}

impl fmt::Debug for NewAccessUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAccessUser")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Another password of a user: exactly one of `password` and `generate`.
#[derive(Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewAccessPassword {
    /// The password, 1 to 65,535 bytes, which is kept as a hash by argon2id.
    pub password: Option<String>,
    /// Make a random secret of 256 bits, which the answer shows once.
    pub generate: bool,
}

impl fmt::Debug for NewAccessPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewAccessPassword")
    }
}

/// A group of users.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGroup {
    /// Its name.
    pub name: String,
    /// The change that has made the group what it is: 1841 is the ETag `"r1841"`.
    pub revision: RevisionNumber,
    /// Of the groups of a user, the one with the largest number is judged first.
    pub priority: i32,
    /// Lines of the language of rule files without WHO.
    pub rules: Vec<String>,
    /// Groups whose rules follow its own, in the order of their names. What these include does not count.
    pub includes: Vec<String>,
    /// The class of clients of its users that have none of their own.
    pub class: Option<String>,
    /// A note for people.
    pub note: String,
}

/// A group that is asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewAccessGroup {
    /// Its name, 1 to 64 bytes. With `PUT` the path says it.
    pub name: Option<String>,
    /// Of the groups of a user, the one with the largest number is judged first; 0 without it.
    pub priority: i32,
    /// Lines of the language of rule files without WHO, 1,000 at most.
    pub rules: Vec<String>,
    /// Groups whose rules follow its own, 64 at most.
    pub includes: Vec<String>,
    /// The class of clients of its users that have none of their own.
    pub class: Option<String>,
    /// A note for people, 256 bytes at most.
    pub note: String,
}

/// The rules that hold for everybody who is not judged by those of a user or a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessRules {
    /// The change that has made the list what it is: 1841 is the ETag `"r1841"`. 0: there was none.
    pub revision: RevisionNumber,
    /// Lines of the language of rule files, with comments and empty lines.
    pub lines: Vec<String>,
}

/// A list of rules that is to take the place of the one there is.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccessRules {
    /// Lines of the language of rule files, 10,000 at most, together 1 MiB.
    pub lines: Vec<String>,
}

/// What a change would do (`dry_run`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessEffects {
    /// What would become of the record.
    pub would: Would,
    /// How many connected clients of the cluster would be disconnected, by their user names; `null`: not known, because not all nodes have answered.
    pub clients_ended: Option<Amount>,
    /// True: there are more than `clients_ended`, which is 10,000 then. Missing if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// What a change would make of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Would {
    /// It is new.
    Create,
    /// It takes the place of another one.
    Replace,
    /// It is removed.
    Remove,
    /// It is already so.
    Keep,
}

/// What an import has made of records, or would make of them (`dry_run`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessImported {
    /// The last change of users, groups and rules that the asked node has: that of the import, unless nothing is different.
    pub revision: RevisionNumber,
    /// How many records are new.
    pub created: Amount,
    /// How many become different.
    pub changed: Amount,
    /// How many are removed.
    pub removed: Amount,
    /// How many of the document are already as it says.
    pub kept: Amount,
    /// With `dry_run`, each record that would be different, in the order in which they would change. Missing if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Vec<AccessPlanned>>,
}

/// A record that an import would change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessPlanned {
    /// What it is.
    pub kind: AccessKind,
    /// Its name, of a key its identifier; empty for the rules that hold for everybody.
    pub name: String,
    /// What would become of it.
    pub would: Would,
}

/// A kind of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// A user.
    User,
    /// A group of users.
    Group,
    /// The rules that hold for everybody.
    Rules,
    /// A person.
    Person,
    /// A key of the HTTP API.
    Key,
}

/// How far the copy of a node can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessStanding {
    /// Nothing was ever changed, as far as the node knows: there are no records.
    Unused,
    /// The node has not heard since its start whether its copy is the last one: nobody is let in by it.
    Unconfirmed,
    /// The copy was up to date at least once since the start of the node.
    Confirmed,
}

/// What a node knows of users, groups and rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessStatus {
    /// How far its copy can be believed.
    pub standing: AccessStanding,
    /// Whether the node goes by its files only (`control.mode: file`), so that nothing of the store counts there.
    #[serde(default)]
    pub files_only: bool,
    /// For how many seconds the node has not known whether its copy is current: 0 while it hears the leader of the store or leads it, and
    /// while nothing was ever changed.
    #[serde(default)]
    pub stale_s: Amount,
    /// The last change that it has.
    pub revision: RevisionNumber,
    /// How many users there are.
    pub users: Amount,
    /// How many groups there are.
    pub groups: Amount,
    /// How many lines the rules that hold for everybody have.
    pub lines: Amount,
}
