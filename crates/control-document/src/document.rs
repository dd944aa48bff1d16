//! The document: what it says of each record, as text that people read and keep.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::people::{KeyEntry, KeyIdEntry, PersonEntry};
use crate::section::Section;

/// What a document says that it is. A later form has another number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Format {
    /// The first form.
    #[default]
    #[serde(rename = "heraldmq/control/v1")]
    V1,
}

/// Records of the control store, all of them or some. Lists are in the order of names where the broker writes them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// What it is.
    pub format: Format,
    /// The groups, before those who name them.
    #[serde(default, skip_serializing_if = "Section::is_missing")]
    pub groups: Section<GroupEntry>,
    /// The users.
    #[serde(default, skip_serializing_if = "Section::is_missing")]
    pub users: Section<UserEntry>,
    /// The rules that hold for everybody, a line each; `None`: the document says nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<String>>,
    /// The people who log in at the HTTP port.
    #[serde(default, skip_serializing_if = "Section::is_missing")]
    pub people: Section<PersonEntry>,
    /// The keys of the HTTP API.
    #[serde(default, skip_serializing_if = "Section::is_missing")]
    pub keys: Section<KeyEntry>,
    /// What is removed. A name that there is none of changes nothing.
    #[serde(default, skip_serializing_if = "Removals::is_empty")]
    pub remove: Removals,
}

/// Names of records that are removed.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removals {
    /// Users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Groups, which nobody names any more after the users are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// People.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<String>,
    /// Keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyIdEntry>,
}

impl Removals {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_no_users = self.users.is_empty() && self.groups.is_empty();
        has_no_users && self.people.is_empty() && self.keys.is_empty()
    }
}

/// A group.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// Its name.
    pub name: String,
    /// Its place among the groups of a user: the largest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Lines of the rule language without WHO.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Groups whose rules follow its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<String>,
    /// The class of clients of its users that have none of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A user of MQTT clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// The MQTT user name.
    pub name: String,
    /// Whether clients can log in as it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: bool,
    /// Hashes of passwords and keys of SCRAM, each as behind the colon of a password file. None here nor in `secrets`: one that is
    /// there already keeps what it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<String>,
    /// SHA-256 of random secrets, 64 hexadecimal digits each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The groups that it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Rules of its own, without WHO.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The client identifiers that it may connect with, as a pattern; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ids: Option<String>,
    /// The class of its clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether its clients may do everything.
    #[serde(default, skip_serializing_if = "is_default")]
    pub superuser: bool,
    /// When it ends, as RFC 3339; `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Default for UserEntry {
    fn default() -> Self {
        Self {
            name: String::new(),
            enabled: true,
            hashes: Vec::new(),
            secrets: Vec::new(),
            groups: Vec::new(),
            rules: Vec::new(),
            client_ids: None,
            class: None,
            superuser: false,
            ends_at: None,
            note: String::new(),
        }
    }
}

impl fmt::Debug for UserEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserEntry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn is_yes(value: &bool) -> bool {
    *value
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
