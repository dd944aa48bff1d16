//! What a document changes of the records that are there.
//!
//! Invariant: the store takes the steps in their order. A record is named only by steps behind the one that adds it, and a group is
//! removed behind the steps after which nobody names it. The first steps add people and keys and make administrators, and the last ones
//! take something away from people and keys: if there is an administrator before and after all steps, there is one after each of them,
//! and the person or key that sends the steps in parts can do so until the last part.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::{Peekable, from_fn};
use std::slice::Iter;
use std::sync::Arc;

use control::{
    Bounds, Change, Expect, Group, Invalid, KeyId, Put, Records, RuleList, Stored, Target,
};

use crate::convert::{Reading, Wrong, rules, strings};
use crate::document::{Document, GroupEntry, UserEntry};
use crate::people::{KeyEntry, KeyIdEntry, PersonEntry};
use crate::section::Section;

/// Bytes of the records of one part. The store takes 2 MiB in one operation.
const PART_BYTES: usize = 1_536 * 1_024;

/// What becomes of records that a document does not name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// They stay.
    #[default]
    Merge,
    /// They are removed, if the document has the section that they belong in. Those of a section that is missing stay.
    Replace,
}

/// What a step makes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It is new.
    Create,
    /// It takes the place of another one.
    Change,
    /// It is removed.
    Remove,
}

/// A change of one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The change. It expects the revision of the record that the plan was made from.
    pub change: Change,
    /// What it makes of the record.
    pub what: What,
    /// A later step changes the record again: groups that include each other are added, and removed, with an empty list of includes
    /// in between.
    pub is_between: bool,
    /// Where the record stands in the document, as RFC 6901 writes it; empty: nowhere, because it is removed.
    pub at: String,
}

/// How many records a plan concerns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Those that are new.
    pub created: usize,
    /// Those that become different.
    pub changed: usize,
    /// Those that are removed.
    pub removed: usize,
    /// Those that are already as the document says.
    pub kept: usize,
}

/// What a document changes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// The changes, in an order that the store takes: people and keys that are new or become administrators, groups, users, rules,
    /// removed users, removed groups, other changes of people and keys, removed people and keys.
    pub steps: Vec<Step>,
    /// How many records it concerns.
    pub counts: Counts,
}

/// What `document` changes of `before`. `read`: what a hash is kept as.
///
/// `before` has all groups, people and keys and the rules, and each user that the document names. If `mode` is [`Mode::Replace`], or the
/// document removes groups, it has all users.
///
/// # Errors
/// The first record that cannot be as the document says: it stands twice, names a group that is not there afterwards, is a group that is
/// removed while others name it, or [`UserEntry::user`], [`GroupEntry::group`], [`PersonEntry::person`] or [`KeyEntry::key`] fails.
pub fn plan(
    before: &Records,
    document: &Document,
    mode: Mode,
    read: Reading<'_>,
) -> Result<Plan, Wrong> {
    let mut plan = Plan::default();
    let removed = Removed::of(before, document, mode)?;
    let later = plan.people_and_keys(before, document, read)?;
    let groups = plan.groups(before, document)?;
    let is_group = |name: &str| {
        let is_there = before.groups.contains_key(name) && !removed.groups.contains(name);
        is_there || groups.contains(name)
    };
    for (place, entry) in document.groups.iter().enumerate() {
        let at = || format!("/groups/{place}/includes");
        let record = || Target::Group(entry.name.as_str().into());
        known(&entry.includes, is_group, at, record)?;
    }
    for (place, entry) in document.users.iter().enumerate() {
        let at = || format!("/users/{place}/groups");
        let record = || Target::User(entry.name.as_str().into());
        known(&entry.groups, is_group, at, record)?;
    }
    let users = plan.users(before, document, read)?;
    if let Some(lines) = &document.rules {
        plan.rules(&before.rules, lines)?;
    }
    removed.are_unused(before, &users, &groups)?;
    plan.remove(before, &removed);
    for (expect, at, put) in later {
        plan.put(expect, What::Change, at, put);
    }
    plan.remove_people_and_keys(before, &removed);
    Ok(plan)
}

impl Plan {
    /// The steps as documents that are to be imported one after the other, with [`Mode::Merge`]. Each has 1,000 changes at most, with less
    /// than 1.5 MiB of texts, and no record twice.
    pub fn parts(&self) -> impl Iterator<Item = Document> + '_ {
        let mut left = self.steps.iter().peekable();
        from_fn(move || {
            left.peek()?;
            Some(part(&mut left))
        })
    }

    /// Adds the groups of the document: their names.
    fn groups<'a>(
        &mut self,
        before: &Records,
        document: &'a Document,
    ) -> Result<BTreeSet<&'a str>, Wrong> {
        let mut names = BTreeSet::new();
        let mut left = Vec::new();
        for (place, entry) in document.groups.iter().enumerate() {
            let at = format!("/groups/{place}");
            let record = || Target::Group(entry.name.as_str().into());
            if !names.insert(entry.name.as_str()) {
                return Err(twice(at, record()));
            }
            let group = entry.group().map_err(|error| wrong(&at, record(), error))?;
            match before.groups.get(entry.name.as_str()) {
                Some(stored) if stored.record == group => self.counts.kept += 1,
                stored => left.push((at, entry.name.as_str(), group, stored)),
            }
        }
        let new: BTreeSet<&str> = left
            .iter()
            .filter(|(.., stored)| stored.is_none())
            .map(|(_, name, ..)| *name)
            .collect();
        let mut added = BTreeSet::new();
        loop {
            let is_ready = |group: &Group| {
                let mut includes = group.includes.iter();
                includes.all(|name| !new.contains(&**name) || added.contains(&**name))
            };
            let (ready, later): (Vec<_>, Vec<_>) = left
                .into_iter()
                .partition(|(_, _, group, _)| is_ready(group));
            left = later;
            if ready.is_empty() {
                break;
            }
            for (at, name, group, stored) in ready {
                added.insert(name);
                self.put(expected(stored), what(stored), at, group_put(name, group));
            }
        }
        // They include each other, or those who do.
        for (at, name, group, stored) in &left {
            if stored.is_none() {
                let group = Group {
                    includes: Box::default(),
                    ..group.clone()
                };
                self.steps.push(Step {
                    is_between: true,
                    ..step(
                        Expect::New,
                        What::Create,
                        at.clone(),
                        group_put(name, group),
                    )
                });
            }
        }
        for (at, name, group, stored) in left {
            let expect = match stored {
                Some(_) => expected(stored),
                None => Expect::Known,
            };
            self.put(expect, what(stored), at, group_put(name, group));
        }
        Ok(names)
    }

    /// Adds the users of the document: their names.
    fn users<'a>(
        &mut self,
        before: &Records,
        document: &'a Document,
        read: Reading<'_>,
    ) -> Result<BTreeSet<&'a str>, Wrong> {
        let mut names = BTreeSet::new();
        for (place, entry) in document.users.iter().enumerate() {
            let at = format!("/users/{place}");
            let record = || Target::User(entry.name.as_str().into());
            if !names.insert(entry.name.as_str()) {
                return Err(twice(at, record()));
            }
            let stored = before.users.get(entry.name.as_str());
            let user = entry.user(stored.map(|stored| &stored.record), read);
            let user = user.map_err(|error| wrong(&at, record(), error))?;
            match stored {
                Some(stored) if stored.record == user => self.counts.kept += 1,
                stored => {
                    let put = Put::User(entry.name.as_str().into(), Some(Box::new(user)));
                    self.put(expected(stored), what(stored), at, put);
                }
            }
        }
        Ok(names)
    }

    /// Adds the people and keys of the document that are new or become administrators, and gives what changes the others.
    fn people_and_keys(
        &mut self,
        before: &Records,
        document: &Document,
        read: Reading<'_>,
    ) -> Result<Vec<(Expect, String, Put)>, Wrong> {
        let mut later = Vec::new();
        let mut names = BTreeSet::new();
        for (place, entry) in document.people.iter().enumerate() {
            let at = format!("/people/{place}");
            let record = || Target::Person(entry.name.as_str().into());
            if !names.insert(entry.name.as_str()) {
                return Err(twice(at, record()));
            }
            let stored = before.people.get(entry.name.as_str());
            let person = entry.person(stored.map(|stored| &stored.record), read);
            let person = person.map_err(|error| wrong(&at, record(), error))?;
            let now = person.administers();
            let put = |person| Put::Person(entry.name.as_str().into(), Some(Box::new(person)));
            match stored {
                Some(stored) if stored.record == person => self.counts.kept += 1,
                Some(before) if before.record.administers() || !now => {
                    later.push((expected(stored), at, put(person)));
                }
                stored => self.put(expected(stored), what(stored), at, put(person)),
            }
        }
        let mut ids = BTreeSet::new();
        for (place, entry) in document.keys.iter().enumerate() {
            let at = format!("/keys/{place}");
            let KeyIdEntry(id) = entry.id;
            if !ids.insert(id) {
                return Err(twice(at, Target::Key(id)));
            }
            let stored = before.keys.get(&id);
            let key = entry.key(stored.map(|stored| &stored.record));
            let key = key.map_err(|error| wrong(&at, Target::Key(id), error))?;
            let now = key.administers();
            let put = |key| Put::Key(id, Some(Box::new(key)));
            match stored {
                Some(stored) if stored.record == key => self.counts.kept += 1,
                Some(before) if before.record.administers() || !now => {
                    later.push((expected(stored), at, put(key)));
                }
                stored => self.put(expected(stored), what(stored), at, put(key)),
            }
        }
        Ok(later)
    }

    fn remove_people_and_keys(&mut self, before: &Records, removed: &Removed<'_>) {
        for name in &removed.people {
            let expect = expected(before.people.get(*name));
            let put = Put::Person((*name).into(), None);
            self.put(expect, What::Remove, String::new(), put);
        }
        for id in &removed.keys {
            let expect = expected(before.keys.get(id));
            self.put(expect, What::Remove, String::new(), Put::Key(*id, None));
        }
    }

    fn rules(&mut self, before: &Stored<RuleList>, lines: &[String]) -> Result<(), Wrong> {
        let list = rules(lines).map_err(|Invalid { what, .. }| Wrong {
            at: "/rules".to_owned(),
            record: Target::Rules,
            what,
        })?;
        if before.record == list {
            self.counts.kept += 1;
            return Ok(());
        }
        let stored = (before.record != RuleList::default()).then_some(before);
        let expect = stored.map_or(Expect::New, |stored| Expect::Revision(stored.revision));
        self.put(expect, what(stored), "/rules".to_owned(), Put::Rules(list));
        Ok(())
    }

    fn remove(&mut self, before: &Records, removed: &Removed<'_>) {
        for name in &removed.users {
            let expect = expected(before.users.get(*name));
            let put = Put::User((*name).into(), None);
            self.put(expect, What::Remove, String::new(), put);
        }
        let mut left = removed.groups.clone();
        loop {
            let includes = left.iter().filter_map(|name| before.groups.get(*name));
            let included: BTreeSet<&str> = includes
                .flat_map(|group| group.record.includes.iter().map(|name| &**name))
                .collect();
            let ready: Vec<&str> = left.difference(&included).copied().collect();
            if ready.is_empty() {
                break;
            }
            for name in ready {
                left.remove(name);
                let expect = expected(before.groups.get(name));
                let put = Put::Group(name.into(), None);
                self.put(expect, What::Remove, String::new(), put);
            }
        }
        // They include each other, or are included by those who do.
        for (name, group) in left
            .iter()
            .filter_map(|name| Some((*name, before.groups.get(*name)?)))
        {
            let record = Group {
                includes: Box::default(),
                ..group.record.clone()
            };
            let put = group_put(name, record);
            self.steps.push(Step {
                is_between: true,
                ..step(expected(Some(group)), What::Change, String::new(), put)
            });
        }
        for name in left {
            let put = Put::Group(name.into(), None);
            self.put(Expect::Known, What::Remove, String::new(), put);
        }
    }

    fn put(&mut self, expect: Expect, what: What, at: String, put: Put) {
        match what {
            What::Create => self.counts.created += 1,
            What::Change => self.counts.changed += 1,
            What::Remove => self.counts.removed += 1,
        }
        self.steps.push(step(expect, what, at, put));
    }
}

/// What is removed, and is there.
struct Removed<'a> {
    users: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
    people: BTreeSet<&'a str>,
    keys: BTreeSet<KeyId>,
}

impl<'a> Removed<'a> {
    fn of(before: &'a Records, document: &Document, mode: Mode) -> Result<Self, Wrong> {
        let remove = &document.remove;
        let users = put(&document.users, mode, |entry| entry.name.as_str());
        let users = names(&before.users, &users, &remove.users);
        let groups = put(&document.groups, mode, |entry| entry.name.as_str());
        let groups = names(&before.groups, &groups, &remove.groups);
        let people = put(&document.people, mode, |entry| entry.name.as_str());
        let people = names(&before.people, &people, &remove.people);
        let both = |list, name: &str, record| Wrong {
            at: format!("/remove/{list}"),
            record,
            what: format!("the document has {name:?}, and removes it"),
        };
        let keys = put(&document.keys, mode, |entry| entry.id);
        let mut named = BTreeSet::new();
        for KeyIdEntry(id) in &remove.keys {
            if keys.names.contains(&KeyIdEntry(*id)) {
                return Err(both("keys", &id.to_string(), Target::Key(*id)));
            }
            named.insert(*id);
        }
        let is_removed = |id: &KeyId| {
            named.contains(id) || keys.is_all && !keys.names.contains(&KeyIdEntry(*id))
        };
        Ok(Self {
            users: users
                .map_err(|name| both("users", &name, Target::User(name.as_str().into())))?,
            groups: groups
                .map_err(|name| both("groups", &name, Target::Group(name.as_str().into())))?,
            people: people
                .map_err(|name| both("people", &name, Target::Person(name.as_str().into())))?,
            keys: before.keys.keys().copied().filter(is_removed).collect(),
        })
    }

    /// Whether nobody names a removed group: of records that the document has, that is known.
    fn are_unused(
        &self,
        before: &Records,
        users: &BTreeSet<&str>,
        groups: &BTreeSet<&str>,
    ) -> Result<(), Wrong> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let stays = |name: &str, removed: &BTreeSet<&str>, put: &BTreeSet<&str>| {
            !removed.contains(name) && !put.contains(name)
        };
        let of_users = before
            .users
            .iter()
            .filter(|(name, _)| stays(name, &self.users, users))
            .flat_map(|(_, user)| &user.record.groups);
        let of_groups = before
            .groups
            .iter()
            .filter(|(name, _)| stays(name, &self.groups, groups))
            .flat_map(|(_, group)| &group.record.includes);
        let mut used = of_users
            .chain(of_groups)
            .filter(|name| self.groups.contains(&***name));
        match used.next() {
            None => Ok(()),
            Some(name) => Err(Wrong {
                at: "/remove/groups".to_owned(),
                record: Target::Group(name.clone()),
                what: "users or groups still name it".to_owned(),
            }),
        }
    }
}

/// The names of records that are removed.
///
/// # Errors
/// A name that the document has and removes.
fn names<'a, T>(
    before: &'a BTreeMap<Box<str>, T>,
    put: &Names<&str>,
    removed: &[String],
) -> Result<BTreeSet<&'a str>, String> {
    let mut both = removed.iter();
    if let Some(both) = both.find(|name| put.names.contains(name.as_str())) {
        return Err(both.clone());
    }
    Ok(match put.is_all {
        true => {
            let all = before.keys().map(|name| &**name);
            all.filter(|name| !put.names.contains(name)).collect()
        }
        false => {
            let named = removed.iter();
            let there = named.filter_map(|name| before.get_key_value(name.as_str()));
            there.map(|(name, _)| &**name).collect()
        }
    })
}

/// The names of a section.
struct Names<N> {
    names: BTreeSet<N>,
    /// There are to be no other records of its kind.
    is_all: bool,
}

fn put<'a, T, N: Ord>(
    section: &'a Section<T>,
    mode: Mode,
    name: impl FnMut(&'a T) -> N,
) -> Names<N> {
    Names {
        names: section.iter().map(name).collect(),
        is_all: mode == Mode::Replace && !section.is_missing(),
    }
}

fn known(
    names: &[String],
    is_group: impl Fn(&str) -> bool,
    at: impl Fn() -> String,
    record: impl Fn() -> Target,
) -> Result<(), Wrong> {
    match names.iter().find(|name| !is_group(name)) {
        None => Ok(()),
        Some(missing) => Err(Wrong {
            at: at(),
            record: record(),
            what: format!("there is no group {missing:?}"),
        }),
    }
}

fn wrong(at: &str, record: Target, Invalid { field, what }: Invalid) -> Wrong {
    // What is wrong with the whole record has its kind as the field.
    let field = match &*field {
        "verifiers" => "hashes",
        field => field,
    };
    Wrong {
        at: match field {
            "user" | "group" | "person" | "key" => at.to_owned(),
            field => format!("{at}/{field}"),
        },
        record,
        what: format!("`{field}`: {what}"),
    }
}

fn twice(at: String, record: Target) -> Wrong {
    let what = "it stands twice in the document".to_owned();
    Wrong { at, record, what }
}

fn step(expect: Expect, what: What, at: String, put: Put) -> Step {
    Step {
        change: Change { expect, put },
        what,
        is_between: false,
        at,
    }
}

fn group_put(name: &str, group: Group) -> Put {
    Put::Group(name.into(), Some(Box::new(group)))
}

fn expected<T>(stored: Option<&Arc<Stored<T>>>) -> Expect {
    stored.map_or(Expect::New, |stored| Expect::Revision(stored.revision))
}

fn what<T>(stored: Option<T>) -> What {
    stored.map_or(What::Create, |_| What::Change)
}

/// The next part, of one step at least.
fn part(left: &mut Peekable<Iter<'_, Step>>) -> Document {
    let mut document = Document::default();
    let mut targets = BTreeSet::new();
    let mut bytes = 0;
    while let Some(step) = left.next_if(|step| {
        let fits =
            bytes + step.change.bytes() < PART_BYTES && targets.len() < Bounds::FIXED.changes;
        targets.is_empty() || fits && !targets.contains(&step.change.target())
    }) {
        bytes += step.change.bytes();
        targets.insert(step.change.target());
        match &step.change.put {
            Put::User(name, Some(user)) => {
                document.users.push(UserEntry::of(name, user, true));
            }
            Put::Group(name, Some(group)) => document.groups.push(GroupEntry::of(name, group)),
            Put::Rules(list) => document.rules = Some(strings(&list.0)),
            Put::User(name, None) => document.remove.users.push(name.to_string()),
            Put::Group(name, None) => document.remove.groups.push(name.to_string()),
            Put::Person(name, Some(person)) => {
                document.people.push(PersonEntry::of(name, person, true));
            }
            Put::Key(id, Some(key)) => document.keys.push(KeyEntry::of(*id, key, true)),
            Put::Person(name, None) => document.remove.people.push(name.to_string()),
            Put::Key(id, None) => document.remove.keys.push(KeyIdEntry(*id)),
        }
    }
    document
}

#[cfg(test)]
pub(crate) mod tests;
