//! How the control store's rows are laid out.
//!
//! No row has a slot: the store has one shard, which is never split.

use std::ops::ControlFlow;

use ::control::{ChainHash, Count, EntryNumber, Incarnation, KeyId, Node, Revision, Target};
use serde::{Deserialize, Serialize};

use crate::{LoadError, Table, row};

/// The key of the row that says that there are tables; its value is [`Counters`].
pub(super) const MACHINE: &[u8] = b"M";
/// The kind of users' rows.
pub(super) const USER: u8 = b'U';
/// The kind of groups' rows.
pub(super) const GROUP: u8 = b'G';
/// The kind of the row of the rules that hold for everybody.
pub(super) const RULES: u8 = b'R';
/// The kind of rows of operations that are recognised.
pub(super) const ID: u8 = b'I';
/// The kind of audited changes' rows.
pub(super) const AUDIT: u8 = b'A';

/// The kind of people's rows.
pub(super) const PERSON: u8 = b'P';
/// The kind of keys' rows.
pub(super) const KEY: u8 = b'K';
/// The kind of rows that say which notes of a node are in the audit.
pub(super) const NOTED: u8 = b'N';

/// Where the tenant's number stands in the keys of users and groups; there is only the first.
const TENANT: [u8; 4] = [0; 4];

/// What no other row has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Counters {
    pub(super) revision: Revision,
    pub(super) audit: Chain,
}

impl Counters {
    /// Whether a machine can have had these.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let Chain { first, next, .. } = self.audit;
        let can_go_on = self.revision.0 < u64::MAX && next.0 < u64::MAX && first <= next;
        match can_go_on {
            true => Ok(()),
            false => Err(row::damaged(MACHINE, "its numbers cannot be")),
        }
    }
}

/// Bytes of entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct EntryBytes(pub(super) u64);

/// How far the audit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Chain {
    /// The first entry that is kept.
    pub(super) first: EntryNumber,
    /// The next one.
    pub(super) next: EntryNumber,
    /// Of those that are kept.
    pub(super) bytes: EntryBytes,
    /// The hash of the last one.
    pub(super) head: ChainHash,
}

/// A row of the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Row {
    Counters,
    Record(Target),
    Id(Revision),
    Audit(EntryNumber),
    Noted(Node),
}

/// The last notes of a node that are in the audit: its process, and the how-many-th of that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Noted(pub(super) Incarnation, pub(super) Count);

impl Row {
    pub(super) fn key(&self) -> Vec<u8> {
        let named = |kind: u8, name: &str| [&[kind][..], &TENANT, name.as_bytes()].concat();
        let numbered = |kind: u8, number: u64| [&[kind][..], &number.to_be_bytes()].concat();
        match self {
            Self::Counters => MACHINE.to_vec(),
            Self::Record(Target::User(name)) => named(USER, name),
            Self::Record(Target::Group(name)) => named(GROUP, name),
            Self::Record(Target::Rules) => vec![RULES],
            Self::Record(Target::Person(name)) => [&[PERSON][..], name.as_bytes()].concat(),
            Self::Record(Target::Key(KeyId(id))) => [&[KEY][..], &id.to_be_bytes()].concat(),
            Self::Noted(Node(node)) => numbered(NOTED, *node),
            Self::Id(Revision(number)) => numbered(ID, *number),
            Self::Audit(EntryNumber(number)) => numbered(AUDIT, *number),
        }
    }
}

/// The name in the key of a user's or a group's row.
pub(super) fn name(key: &[u8]) -> Result<Box<str>, LoadError> {
    let name = key.get(1..).and_then(|rest| rest.strip_prefix(&TENANT));
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let damaged = || row::damaged(key, "the key has no name of the first tenant");
    name.map(Box::from).ok_or_else(damaged)
}

/// The name in the key of a person's row.
pub(super) fn person(key: &[u8]) -> Result<Box<str>, LoadError> {
    let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok());
    let damaged = || row::damaged(key, "the key has no name");
    name.map(Box::from).ok_or_else(damaged)
}

/// The identifier in the key of a key's row.
pub(super) fn key_id(key: &[u8]) -> Result<KeyId, LoadError> {
    let id = key.get(1..).and_then(|rest| rest.try_into().ok());
    let damaged = || row::damaged(key, "the key has no identifier");
    id.map(|id| KeyId(u32::from_be_bytes(id)))
        .ok_or_else(damaged)
}

/// The number in the key of a numbered row.
pub(super) fn number(key: &[u8]) -> Result<u64, LoadError> {
    let number = key.get(1..).and_then(|rest| rest.try_into().ok());
    let damaged = || row::damaged(key, "the key has no number");
    number.map(u64::from_be_bytes).ok_or_else(damaged)
}

/// Visits all rows of a kind.
pub(super) fn each(
    table: &dyn Table,
    kind: u8,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let mut result = Ok(());
    table.range(&[kind], &[kind + 1], &mut |key, value| {
        result = visit(key, value);
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    result
}
