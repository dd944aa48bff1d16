//! The records, and what is counted of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::control::{Bounds, Expect, Group, Put, Reason, Revision, RuleList, Stored, Target, User};
use hashing::HashMap;

/// All records.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) users: BTreeMap<Box<str>, Arc<Stored<User>>>,
    pub(super) groups: BTreeMap<Box<str>, Arc<Stored<Group>>>,
    pub(super) rules: Arc<Stored<RuleList>>,
    /// By how many users and groups each group is named.
    named: HashMap<Box<str>, usize>,
    counted: Counted,
}

/// A record as it was, or is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    User(Box<str>, Option<Arc<Stored<User>>>),
    Group(Box<str>, Option<Arc<Stored<Group>>>),
    Rules(Arc<Stored<RuleList>>),
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counted {
    lines: usize,
    bytes: usize,
}

impl Records {
    /// The record of a target.
    pub(super) fn get(&self, target: &Target) -> Record {
        match target {
            Target::User(name) => Record::User(name.clone(), self.users.get(name).cloned()),
            Target::Group(name) => Record::Group(name.clone(), self.groups.get(name).cloned()),
            Target::Rules => Record::Rules(Arc::clone(&self.rules)),
        }
    }

    /// What a change makes of a record at a revision, if what it expects is so.
    pub(super) fn made(
        &self,
        expect: Expect,
        put: &Put,
        revision: Revision,
    ) -> Result<Record, Reason> {
        match put {
            Put::User(name, user) => {
                let before = self.users.get(name);
                meets(expect, before.map(|of| of.revision))?;
                let after = user.as_deref().map(|user| {
                    let since = match before {
                        Some(before) if !user.ends_logins(&before.record) => {
                            before.record.logins_since
                        }
                        _ => revision,
                    };
                    let mut record = user.clone();
                    record.logins_since = since;
                    record
                });
                let after = follow(before, after, revision);
                Ok(Record::User(name.clone(), after))
            }
            Put::Group(name, group) => {
                let before = self.groups.get(name);
                meets(expect, before.map(|of| of.revision))?;
                let after = follow(before, group.as_deref().cloned(), revision);
                Ok(Record::Group(name.clone(), after))
            }
            Put::Rules(list) => {
                let is_new = self.rules.record == RuleList::default();
                meets(expect, (!is_new).then_some(self.rules.revision))?;
                if self.rules.record == *list {
                    return Ok(Record::Rules(Arc::clone(&self.rules)));
                }
                let record = list.clone();
                Ok(Record::Rules(Arc::new(Stored { revision, record })))
            }
        }
    }

    /// Whether a record may take its place.
    pub(super) fn admits(&self, record: &Record, bounds: &Bounds) -> Result<(), Reason> {
        let named: &[Box<str>] = match record {
            Record::User(_, Some(user)) => &user.record.groups,
            Record::Group(_, Some(group)) => &group.record.includes,
            _ => &[],
        };
        if let Some(missing) = named.iter().find(|name| !self.groups.contains_key(*name)) {
            return Err(Reason::NoSuchGroup(missing.clone()));
        }
        let is_more = |of: &'static str, has: usize, most: usize| match has < most {
            true => Ok(()),
            false => Err(Reason::Full(of.into())),
        };
        match record {
            Record::User(name, Some(_)) if !self.users.contains_key(name) => {
                is_more("users", self.users.len(), bounds.users)?;
            }
            Record::Group(name, Some(_)) if !self.groups.contains_key(name) => {
                is_more("groups", self.groups.len(), bounds.groups)?;
            }
            Record::Group(name, None) => {
                let uses = self.named.get(name).copied().unwrap_or_default();
                if uses > 0 {
                    return Err(Reason::InUse(uses));
                }
            }
            _ => {}
        }
        let (before, after) = (counted(&self.get(&record.target())), counted(record));
        // What takes no more than before is kept in any case.
        let lines = self.counted.lines - before.lines + after.lines;
        if after.lines > before.lines && lines > bounds.lines {
            return Err(Reason::Full("lines of rules".into()));
        }
        let bytes = self.counted.bytes - before.bytes + after.bytes;
        if after.bytes > before.bytes && bytes > bounds.bytes {
            return Err(Reason::Full("bytes".into()));
        }
        Ok(())
    }

    /// Puts a record in its place.
    pub(super) fn put(&mut self, record: Record) {
        let before = self.get(&record.target());
        let (less, more) = (counted(&before), counted(&record));
        self.counted = Counted {
            lines: self.counted.lines - less.lines + more.lines,
            bytes: self.counted.bytes - less.bytes + more.bytes,
        };
        for name in before.names() {
            let uses = self.named.get_mut(name).expect("what is named is counted");
            *uses -= 1;
            if *uses == 0 {
                self.named.remove(name);
            }
        }
        for name in record.names() {
            *self.named.entry(name.clone()).or_default() += 1;
        }
        match record {
            Record::User(name, Some(user)) => {
                self.users.insert(name, user);
            }
            Record::User(name, None) => {
                self.users.remove(&name);
            }
            Record::Group(name, Some(group)) => {
                self.groups.insert(name, group);
            }
            Record::Group(name, None) => {
                self.groups.remove(&name);
            }
            Record::Rules(rules) => self.rules = rules,
        }
    }

    /// Bytes of all texts, as limits count them.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes
    }
}

impl Record {
    pub(super) fn target(&self) -> Target {
        match self {
            Self::User(name, _) => Target::User(name.clone()),
            Self::Group(name, _) => Target::Group(name.clone()),
            Self::Rules(_) => Target::Rules,
        }
    }

    /// The groups that it names.
    fn names(&self) -> &[Box<str>] {
        match self {
            Self::User(_, Some(user)) => &user.record.groups,
            Self::Group(_, Some(group)) => &group.record.includes,
            _ => &[],
        }
    }

    /// Whether there is a row of it.
    pub(super) fn exists(&self) -> bool {
        match self {
            Self::User(_, user) => user.is_some(),
            Self::Group(_, group) => group.is_some(),
            Self::Rules(rules) => rules.revision != Revision(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        counted(self).bytes
    }
}

/// What stands in the place of a record: itself if the new one is the same.
fn follow<T: PartialEq>(
    before: Option<&Arc<Stored<T>>>,
    after: Option<T>,
    revision: Revision,
) -> Option<Arc<Stored<T>>> {
    match (before, after) {
        (Some(before), Some(after)) if before.record == after => Some(Arc::clone(before)),
        (_, after) => after.map(|record| Arc::new(Stored { revision, record })),
    }
}

/// Whether a record that was changed last by this operation, or is not there, is what a change expects.
fn meets(expect: Expect, found: Option<Revision>) -> Result<(), Reason> {
    match (expect, found) {
        (Expect::Any, _) | (Expect::New, None) | (Expect::Known, Some(_)) => Ok(()),
        (Expect::New, Some(_)) => Err(Reason::Exists),
        (Expect::Known | Expect::Revision(_), None) => Err(Reason::Missing),
        (Expect::Revision(expected), Some(found)) if expected == found => Ok(()),
        (Expect::Revision(_), Some(found)) => Err(Reason::Revision(found)),
    }
}

fn counted(record: &Record) -> Counted {
    match record {
        Record::User(name, Some(user)) => Counted {
            lines: user.record.rules.len(),
            bytes: user.record.bytes(name),
        },
        Record::Group(name, Some(group)) => Counted {
            lines: group.record.rules.len(),
            bytes: group.record.bytes(name),
        },
        Record::Rules(rules) => Counted {
            lines: rules.record.0.len(),
            bytes: rules.record.bytes(),
        },
        Record::User(_, None) | Record::Group(_, None) => Counted::default(),
    }
}
