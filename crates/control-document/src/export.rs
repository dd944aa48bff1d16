//! All records as a text, in parts.

use std::collections::btree_map::IntoIter;
use std::iter::Peekable;
use std::sync::Arc;

use control::{Group, GroupsByName, KeysById, PeopleByName, Records, RuleList, Stored, User};
use serde::Serialize;

use crate::convert;
use crate::document::{GroupEntry, UserEntry};
use crate::people::{KeyEntry, PersonEntry};
use crate::yaml::yaml;

/// Bytes that a part has at least, but for the last one of a list. One entry has some 64 KiB at most.
const PART: usize = 64 * 1_024;

/// The text of [`Document::of`](crate::Document::of) as YAML, in parts of some 64 KiB; those of the rules, of people and of
/// keys are one part each, the largest of them of some 5 MiB. It makes a part when it is asked for it, and gives up what it has written.
#[derive(Debug)]
pub struct Export {
    with_secrets: bool,
    at: At,
    groups: Arc<GroupsByName>,
    users: Peekable<IntoIter<Box<str>, Arc<Stored<User>>>>,
    rules: Arc<Stored<RuleList>>,
    /// `None`: the document says nothing of them, and nothing of keys.
    people: Option<(Arc<PeopleByName>, Arc<KeysById>)>,
}

#[derive(Debug)]
enum At {
    Head,
    /// So many groups are written.
    Groups(usize),
    /// So many users are written.
    Users(usize),
    Rules,
    People,
    Keys,
    End,
}

#[derive(Serialize)]
struct Head {
    format: crate::Format,
}

#[derive(Serialize)]
struct Rules {
    rules: Vec<String>,
}

impl Export {
    /// Of all these records.
    #[must_use]
    pub fn new(records: Records, with_secrets: bool) -> Self {
        let Records {
            users,
            groups,
            rules,
            people,
            keys,
            ..
        } = records;
        Self {
            with_secrets,
            at: At::Head,
            groups,
            users: users.into_iter().peekable(),
            rules,
            people: Some((people, keys)),
        }
    }

    /// The same without people and keys, as if the document said nothing of them.
    #[must_use]
    pub fn without_people(self) -> Self {
        Self {
            people: None,
            ..self
        }
    }

    fn people(&self) -> String {
        let Some((people, _)) = &self.people else {
            return String::new();
        };
        let entries = people.iter();
        let entries =
            entries.map(|(name, person)| PersonEntry::of(name, &person.record, self.with_secrets));
        list("people", entries)
    }

    fn keys(&self) -> String {
        let Some((_, keys)) = &self.people else {
            return String::new();
        };
        let entries = keys.iter();
        let entries = entries.map(|(id, key)| KeyEntry::of(*id, &key.record, self.with_secrets));
        list("keys", entries)
    }

    /// The next groups behind so many.
    fn groups(&mut self, written: usize) -> String {
        let mut text = String::new();
        let mut count = 0;
        for (name, group) in self.groups.iter().skip(written) {
            let group: &Group = &group.record;
            text.push_str(&item(
                "groups",
                written + count,
                &GroupEntry::of(name, group),
            ));
            count += 1;
            if text.len() >= PART {
                break;
            }
        }
        if self.groups.is_empty() {
            text = empty("groups");
        }
        self.at = match written + count < self.groups.len() {
            true => At::Groups(written + count),
            false => At::Users(0),
        };
        text
    }

    /// The next users; so many are written.
    fn users(&mut self, written: usize) -> String {
        let mut text = String::new();
        let mut count = 0;
        while text.len() < PART
            && let Some((name, user)) = self.users.next()
        {
            let entry = UserEntry::of(&name, &user.record, self.with_secrets);
            text.push_str(&item("users", written + count, &entry));
            count += 1;
        }
        if written + count == 0 {
            text = empty("users");
        }
        self.at = match self.users.peek() {
            Some(_) => At::Users(written + count),
            None => At::Rules,
        };
        text
    }
}

impl Iterator for Export {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        Some(match self.at {
            At::Head => {
                self.at = At::Groups(0);
                let format = crate::Format::V1;
                yaml(&Head { format })
            }
            At::Groups(written) => self.groups(written),
            At::Users(written) => self.users(written),
            At::Rules => {
                self.at = At::People;
                let rules = convert::strings(&self.rules.record.0);
                yaml(&Rules { rules })
            }
            At::People => {
                self.at = At::Keys;
                self.people()
            }
            At::Keys => {
                self.at = At::End;
                self.keys()
            }
            At::End => return None,
        })
    }
}

/// A list that has nothing, which is another thing than one that is missing.
fn empty(list: &str) -> String {
    format!("{list}: []\n")
}

fn list(name: &str, entries: impl ExactSizeIterator<Item = impl Serialize>) -> String {
    if entries.len() == 0 {
        return empty(name);
    }
    let entries = entries.enumerate();
    entries
        .map(|(place, entry)| item(name, place, &entry))
        .collect()
}

/// An entry of a list, behind the name of the list if it is the first one.
fn item(list: &str, place: usize, entry: &impl Serialize) -> String {
    let entry = yaml(&[entry]);
    match place {
        0 => format!("{list}:\n{entry}"),
        _ => entry,
    }
}
