//! The records, and what is counted of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::control::{
    ApiKey, Bounds, Expect, Group, KeyId, KeysById, PeopleByName, Person, Put, Reason, Revision,
    RuleList, Stored, Target, User,
};
use hashing::HashMap;

/// All records.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) users: BTreeMap<Box<str>, Arc<Stored<User>>>,
    pub(super) groups: BTreeMap<Box<str>, Arc<Stored<Group>>>,
    pub(super) rules: Arc<Stored<RuleList>>,
    pub(super) people: PeopleByName,
    pub(super) keys: KeysById,
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
    Person(Box<str>, Option<Arc<Stored<Person>>>),
    Key(KeyId, Option<Arc<Stored<ApiKey>>>),
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counted {
    lines: usize,
    bytes: usize,
    /// People and keys that can change everything, for good.
    administrators: usize,
}

impl Records {
    /// The record of a target.
    pub(super) fn get(&self, target: &Target) -> Record {
        match target {
            Target::User(name) => Record::User(name.clone(), self.users.get(name).cloned()),
            Target::Group(name) => Record::Group(name.clone(), self.groups.get(name).cloned()),
            Target::Rules => Record::Rules(Arc::clone(&self.rules)),
            Target::Person(name) => Record::Person(name.clone(), self.people.get(name).cloned()),
            Target::Key(id) => Record::Key(*id, self.keys.get(id).cloned()),
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
            Put::Person(name, person) => {
                let before = self.people.get(name);
                meets(expect, before.map(|of| of.revision))?;
                let after = person.as_deref().map(|person| {
                    let mut record = person.clone();
                    record.logins_since = match before {
                        Some(before) if !person.ends_logins(&before.record) => {
                            before.record.logins_since
                        }
                        _ => revision,
                    };
                    record
                });
                let after = follow(before, after, revision);
                Ok(Record::Person(name.clone(), after))
            }
            Put::Key(id, key) => {
                let before = self.keys.get(id);
                meets(expect, before.map(|of| of.revision))?;
                let after = follow(before, key.as_deref().cloned(), revision);
                Ok(Record::Key(*id, after))
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
            Record::Person(name, Some(_)) if !self.people.contains_key(name) => {
                is_more("people", self.people.len(), bounds.people)?;
            }
            Record::Key(id, Some(_)) if !self.keys.contains_key(id) => {
                is_more("keys", self.keys.len(), bounds.keys)?;
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
            administrators: self.counted.administrators - less.administrators + more.administrators,
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
            Record::Person(name, Some(person)) => {
                self.people.insert(name, person);
            }
            Record::Person(name, None) => {
                self.people.remove(&name);
            }
            Record::Key(id, Some(key)) => {
                self.keys.insert(id, key);
            }
            Record::Key(id, None) => {
                self.keys.remove(&id);
            }
        }
    }

    /// People and keys that can change everything, and do not end.
    pub(super) fn administrators(&self) -> usize {
        self.counted.administrators
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
            Self::Person(name, _) => Target::Person(name.clone()),
            Self::Key(id, _) => Target::Key(*id),
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
            Self::Person(_, person) => person.is_some(),
            Self::Key(_, key) => key.is_some(),
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
            ..Counted::default()
        },
        Record::Group(name, Some(group)) => Counted {
            lines: group.record.rules.len(),
            bytes: group.record.bytes(name),
            ..Counted::default()
        },
        Record::Rules(rules) => Counted {
            lines: rules.record.0.len(),
            bytes: rules.record.bytes(),
            ..Counted::default()
        },
        Record::Person(name, Some(person)) => Counted {
            bytes: person.record.bytes(name),
            administrators: usize::from(person.record.administers()),
            ..Counted::default()
        },
        Record::Key(_, Some(key)) => Counted {
            bytes: key.record.bytes(),
            administrators: usize::from(key.record.administers()),
            ..Counted::default()
        },
        Record::User(_, None)
        | Record::Group(_, None)
        | Record::Person(_, None)
        | Record::Key(_, None) => Counted::default(),
    }
}
