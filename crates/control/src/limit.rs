//! How much records may hold.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of a user name, which are those of MQTT user names that anybody uses, and more.
pub(crate) const USER_NAME: usize = 1_024;
/// Bytes of a group name.
pub(crate) const GROUP_NAME: usize = 64;
/// Groups of a user, and groups that a group includes.
pub(crate) const GROUPS: usize = 64;
/// Bytes of the name of a person.
pub(crate) const PERSON_NAME: usize = 128;
/// Bytes of the name of a key.
pub(crate) const KEY_NAME: usize = 128;
/// Secrets of a key: the last one, and the one before.
pub(crate) const KEY_SECRETS: usize = 2;
/// Lines of rules of a user or a group.
pub(crate) const LINES: usize = 1_000;
/// Bytes of a line.
pub(crate) const LINE: usize = 4_096;
/// Lines of the rules that hold for everybody.
pub(crate) const LIST_LINES: usize = 10_000;
/// Ways for a user to prove who it is.
pub(crate) const VERIFIERS: usize = 4;
/// Bytes of the text of a password hash.
pub(crate) const HASH: usize = 512;
/// Bytes of a note, a pattern, and the name of a class.
pub(crate) const TEXT: usize = 256;
/// Bytes of all texts of a record.
pub(crate) const RECORD: usize = 64 * 1_024;
/// Bytes of all lines of the rules that hold for everybody.
pub(crate) const LIST: usize = 1_024 * 1_024;

/// How many records there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Users.
    pub users: usize,
    /// Groups.
    pub groups: usize,
    /// People.
    pub people: usize,
    /// Keys.
    pub keys: usize,
    /// Lines of rules of all users and groups and of the list.
    pub lines: usize,
    /// Bytes of all records.
    pub bytes: usize,
    /// Changes in one operation.
    pub changes: usize,
    /// Bytes of all records in one operation.
    pub operation_bytes: usize,
    /// Audited changes that are kept.
    pub audited: usize,
    /// Operations that are recognised when they come again.
    pub ids: usize,
}

impl Bounds {
    /// Those of this version. They are part of what replicas agree on.
    pub const FIXED: Self = Self {
        users: 250_000,
        groups: 1_000,
        people: 1_000,
        keys: 10_000,
        lines: 100_000,
        bytes: 256 * 1_024 * 1_024,
        changes: 1_000,
        operation_bytes: 2 * 1_024 * 1_024,
        audited: 100_000,
        ids: 4_096,
    };
}

/// Why a record cannot be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invalid {
    /// The field.
    pub field: Box<str>,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl std::error::Error for Invalid {}

/// That a field has so many bytes or entries at most.
pub(crate) fn at_most(field: &str, found: usize, most: usize) -> Result<(), Invalid> {
    match found <= most {
        true => Ok(()),
        false => Err(Invalid {
            field: field.into(),
            what: format!("{found} is more than {most}"),
        }),
    }
}

/// That a text can be a name: it is not empty, not too long, and has no control characters.
pub(crate) fn name(field: &str, text: &str, most: usize) -> Result<(), Invalid> {
    at_most(field, text.len(), most)?;
    let what = match text {
        "" => "it is empty",
        text if text.contains(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    let what = what.to_owned();
    Err(Invalid {
        field: field.into(),
        what,
    })
}

/// That lines of rules are lines, and not too many.
pub(crate) fn lines(lines: &[Box<str>], most: usize) -> Result<(), Invalid> {
    let field = "rules";
    at_most(field, lines.len(), most)?;
    for line in lines {
        at_most(field, line.len(), LINE)?;
        if line.contains(['\n', '\r', '\0']) {
            let what = "a rule has more than one line".to_owned();
            return Err(Invalid {
                field: field.into(),
                what,
            });
        }
    }
    Ok(())
}

/// That names are names, sorted and different from each other, so that equal records are equal bytes.
pub(crate) fn groups(field: &str, groups: &[Box<str>]) -> Result<(), Invalid> {
    at_most(field, groups.len(), GROUPS)?;
    for group in groups {
        name(field, group, GROUP_NAME)?;
    }
    match groups.is_sorted_by(|a, b| a < b) {
        true => Ok(()),
        false => Err(Invalid {
            field: field.into(),
            what: "the names are not in order, or one stands twice".to_owned(),
        }),
    }
}
