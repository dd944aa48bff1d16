//! What a change is, and why it is refused.

use serde::{Deserialize, Serialize};

use crate::by::By;
use crate::group::{Group, RuleList};
use crate::limit::{Bounds, Invalid};
use crate::note::{self, AuditNote};
use crate::number::Revision;
use crate::person::{ApiKey, KeyId, Person};
use crate::user::User;

/// What must be true of a record for a change of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Expect {
    /// Nothing.
    Any,
    /// There is none.
    New,
    /// There is one.
    Known,
    /// It was changed last by this operation.
    Revision(Revision),
}

/// One record that is put in the place of what was there, or removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// What must be true of the record before.
    pub expect: Expect,
    /// Which record, and what it is from now on.
    pub put: Put,
}

/// A record and its name; `None`: it is removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Put {
    /// A user.
    User(Box<str>, Option<Box<User>>),
    /// A group.
    Group(Box<str>, Option<Box<Group>>),
    /// The rules that hold for everybody; an empty list is as none.
    Rules(RuleList),
    /// A person.
    Person(Box<str>, Option<Box<Person>>),
    /// A key.
    Key(KeyId, Option<Box<ApiKey>>),
}

/// Which record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Target {
    /// A user.
    User(Box<str>),
    /// A group.
    Group(Box<str>),
    /// The rules that hold for everybody.
    Rules,
    /// A person.
    Person(Box<str>),
    /// A key.
    Key(KeyId),
}

/// Why an operation has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// The change that cannot be made, counted from 0.
    pub which: usize,
    /// Why.
    pub why: Reason,
}

/// Why a change cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// There is such a record.
    Exists,
    /// There is no such record.
    Missing,
    /// The record is of this revision.
    Revision(Revision),
    /// It would be more than there may be of this.
    Full(Box<str>),
    /// There is no such group.
    NoSuchGroup(Box<str>),
    /// The group has users, or is included in others: so many.
    InUse(usize),
    /// The record says something that cannot be kept.
    Invalid(Invalid),
    /// Nobody in the store could change anything then, and who asks is not known by a file.
    LastAdministrator,
    /// Somebody in the store can change everything already: a code makes the first one only.
    NotFirst,
}

impl Change {
    /// Whether it can be kept, whatever is there.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self) -> Result<(), Invalid> {
        match &self.put {
            Put::User(name, Some(user)) => user.check(name),
            Put::Group(name, Some(group)) => group.check(name),
            Put::Rules(list) => list.check(),
            Put::Person(name, Some(person)) => person.check(name),
            Put::Key(_, Some(key)) => key.check(),
            Put::User(_, None) | Put::Group(_, None) | Put::Person(_, None) | Put::Key(_, None) => {
                Ok(())
            }
        }
    }

    /// Whether programs know it that know no people and keys in the store.
    #[must_use]
    pub fn is_before_people(&self) -> bool {
        match &self.put {
            Put::User(..) | Put::Group(..) | Put::Rules(_) => true,
            Put::Person(..) | Put::Key(..) => false,
        }
    }

    /// Bytes of the texts of its record.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.put {
            Put::User(name, Some(user)) => user.bytes(name),
            Put::Group(name, Some(group)) => group.bytes(name),
            Put::Rules(list) => list.bytes(),
            Put::Person(name, Some(person)) => person.bytes(name),
            Put::Key(_, Some(key)) => key.bytes(),
            Put::User(name, None) | Put::Group(name, None) | Put::Person(name, None) => name.len(),
            Put::Key(_, None) => size_of::<KeyId>(),
        }
    }

    /// Which record it is of.
    #[must_use]
    pub fn target(&self) -> Target {
        match &self.put {
            Put::User(name, _) => Target::User(name.clone()),
            Put::Group(name, _) => Target::Group(name.clone()),
            Put::Rules(_) => Target::Rules,
            Put::Person(name, _) => Target::Person(name.clone()),
            Put::Key(id, _) => Target::Key(*id),
        }
    }
}

/// Whether an operation can be looked at: its changes are neither too many nor beyond what records may hold.
///
/// # Errors
/// Which change is wrong, and why.
pub fn check(by: &By, changes: &[Change], bounds: &Bounds) -> Result<(), Refused> {
    let refused = |which, why| Err(Refused { which, why });
    if let Err(invalid) = by.check() {
        return refused(0, Reason::Invalid(invalid));
    }
    if changes.len() > bounds.changes {
        return refused(
            bounds.changes,
            Reason::Full("changes in one operation".into()),
        );
    }
    let mut bytes = 0;
    for (which, change) in changes.iter().enumerate() {
        if let Err(invalid) = change.check() {
            return refused(which, Reason::Invalid(invalid));
        }
        bytes += change.bytes();
        if bytes > bounds.operation_bytes {
            return refused(which, Reason::Full("bytes in one operation".into()));
        }
    }
    Ok(())
}

/// Whether notes can be kept: neither too many nor too long.
///
/// # Errors
/// Which of them is wrong, and why.
pub fn check_notes(notes: &[AuditNote], bounds: &Bounds) -> Result<(), Refused> {
    let refused = |which, why| Err(Refused { which, why });
    if notes.len() > note::MOST {
        return refused(note::MOST, Reason::Full("notes in one operation".into()));
    }
    let mut bytes = 0;
    for (which, note) in notes.iter().enumerate() {
        if let Err(invalid) = note.check() {
            return refused(which, Reason::Invalid(invalid));
        }
        bytes += note.bytes();
        if bytes > bounds.operation_bytes {
            return refused(which, Reason::Full("bytes in one operation".into()));
        }
    }
    Ok(())
}
