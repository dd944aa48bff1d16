//! Records with the operation that has changed them, and what an operation has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::group::{Group, RuleList};
use crate::number::Revision;
use crate::person::{ApiKey, KeyId, Person};
use crate::user::User;

/// A record and the operation that has changed it last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored<T> {
    /// The operation.
    pub revision: Revision,
    /// The record.
    pub record: T,
}

impl Default for Stored<RuleList> {
    fn default() -> Self {
        Self {
            revision: Revision(0),
            record: RuleList::default(),
        }
    }
}

/// A record by its name, as it is from an operation on; `None`: it is there no more.
pub type Named<T> = (Box<str>, Option<Arc<Stored<T>>>);

/// What an operation has changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changed {
    /// The operation.
    pub revision: Revision,
    /// The users that are different, each once.
    pub users: Vec<Named<User>>,
    /// The groups that are different, each once.
    pub groups: Vec<Named<Group>>,
    /// The rules that hold for everybody, if they are different.
    pub rules: Option<Arc<Stored<RuleList>>>,
    /// The people that are different, each once.
    pub people: Vec<Named<Person>>,
    /// The keys that are different, each once.
    pub keys: Vec<(KeyId, Option<Arc<Stored<ApiKey>>>)>,
}

/// Users by name, in order.
pub type UsersByName = BTreeMap<Box<str>, Arc<Stored<User>>>;
/// Groups by name, in order.
pub type GroupsByName = BTreeMap<Box<str>, Arc<Stored<Group>>>;

/// People by name, in order.
pub type PeopleByName = BTreeMap<Box<str>, Arc<Stored<Person>>>;
/// Keys by identifier, in order.
pub type KeysById = BTreeMap<KeyId, Arc<Stored<ApiKey>>>;

/// All records as of an operation.
#[derive(Clone, Default, Debug)]
pub struct Records {
    /// The operation.
    pub revision: Revision,
    /// The users.
    pub users: UsersByName,
    /// The groups.
    pub groups: Arc<GroupsByName>,
    /// The rules that hold for everybody.
    pub rules: Arc<Stored<RuleList>>,
    /// The people.
    pub people: Arc<PeopleByName>,
    /// The keys.
    pub keys: Arc<KeysById>,
}
