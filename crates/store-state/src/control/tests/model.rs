//! What the control store is to do, said in plain maps: an operation is tried on a copy.

use std::collections::BTreeMap;

use ::control::{
    ApiKey, Change, ChangeId, Expect, Group, KeyId, Means, Person, Put, RuleList, User,
};

#[derive(Clone, Default, Debug)]
pub(super) struct Model {
    pub(super) users: BTreeMap<String, (u64, User)>,
    pub(super) groups: BTreeMap<String, (u64, Group)>,
    pub(super) rules: (u64, RuleList),
    pub(super) people: BTreeMap<String, (u64, Person)>,
    pub(super) keys: BTreeMap<KeyId, (u64, ApiKey)>,
    pub(super) revision: u64,
    pub(super) audited: u64,
    ids: Vec<(ChangeId, u64)>,
}

impl Model {
    /// The revision that is answered; `None`: it is refused.
    pub(super) fn apply(&mut self, id: ChangeId, means: Means, changes: &[Change]) -> Option<u64> {
        let first = self.ids.len().saturating_sub(6);
        if let Some((_, revision)) = self.ids[first..].iter().find(|(known, _)| *known == id) {
            return Some(*revision);
        }
        if changes.len() > 4 {
            return None;
        }
        let mut after = self.clone();
        after.revision += 1;
        for change in changes {
            after.change(change)?;
        }
        let (had, has) = (self.has_administrator(), after.has_administrator());
        let is_first = means == Means::FirstCode;
        if had && (is_first || !has && means != Means::Token) {
            return None;
        }
        let users = differences(&self.users, &after.users);
        let groups = differences(&self.groups, &after.groups);
        let people = differences(&self.people, &after.people);
        let keys = differences(&self.keys, &after.keys);
        let entries = people + keys + users + groups + u64::from(self.rules != after.rules);
        if entries == 0 {
            return Some(self.revision);
        }
        after.audited += entries;
        after.ids.push((id, after.revision));
        *self = after;
        Some(self.revision)
    }

    fn has_administrator(&self) -> bool {
        self.people.values().any(|(_, person)| person.administers())
            || self.keys.values().any(|(_, key)| key.administers())
    }

    fn change(&mut self, Change { expect, put }: &Change) -> Option<()> {
        let revision = self.revision;
        match put {
            Put::User(name, user) => {
                let known = self.users.get(&**name);
                meets(*expect, known.map(|(at, _)| *at))?;
                let Some(user) = user else {
                    self.users.remove(&**name);
                    return Some(());
                };
                let mut user = (**user).clone();
                user.logins_since = match known {
                    Some((_, known)) if !user.ends_logins(known) => known.logins_since,
                    _ => ::control::Revision(revision),
                };
                let are_known = user
                    .groups
                    .iter()
                    .all(|name| self.groups.contains_key(&**name));
                let is_same = known.is_some_and(|(_, known)| *known == user);
                if !are_known || known.is_none() && self.users.len() >= 4 {
                    return None;
                }
                if !is_same {
                    self.users.insert(name.to_string(), (revision, user));
                }
            }
            Put::Group(name, group) => {
                let known = self.groups.get(&**name);
                meets(*expect, known.map(|(at, _)| *at))?;
                let Some(group) = group else {
                    let by_users = self.users.values().flat_map(|(_, user)| &user.groups);
                    let by_groups = self.groups.values().flat_map(|(_, group)| &group.includes);
                    if by_users.chain(by_groups).any(|named| named == name) {
                        return None;
                    }
                    self.groups.remove(&**name);
                    return Some(());
                };
                let are_known = group
                    .includes
                    .iter()
                    .all(|name| self.groups.contains_key(&**name));
                let is_same = known.is_some_and(|(_, known)| *known == **group);
                if !are_known || known.is_none() && self.groups.len() >= 3 {
                    return None;
                }
                if !is_same {
                    self.groups
                        .insert(name.to_string(), (revision, (**group).clone()));
                }
            }
            Put::Rules(list) => {
                let known = (self.rules.1 != RuleList::default()).then_some(self.rules.0);
                meets(*expect, known)?;
                if self.rules.1 != *list {
                    self.rules = (revision, list.clone());
                }
            }
            Put::Person(name, person) => {
                let known = self.people.get(&**name);
                meets(*expect, known.map(|(at, _)| *at))?;
                let Some(person) = person else {
                    self.people.remove(&**name);
                    return Some(());
                };
                let mut person = (**person).clone();
                person.logins_since = match known {
                    Some((_, known)) if !person.ends_logins(known) => known.logins_since,
                    _ => ::control::Revision(revision),
                };
                if known.is_none() && self.people.len() >= 3 {
                    return None;
                }
                if known.is_none_or(|(_, known)| *known != person) {
                    self.people.insert(name.to_string(), (revision, person));
                }
            }
            Put::Key(id, key) => {
                let known = self.keys.get(id);
                meets(*expect, known.map(|(at, _)| *at))?;
                let Some(key) = key else {
                    self.keys.remove(id);
                    return Some(());
                };
                if known.is_none() && self.keys.len() >= 3 {
                    return None;
                }
                if known.is_none_or(|(_, known)| *known != **key) {
                    self.keys.insert(*id, (revision, (**key).clone()));
                }
            }
        }
        let lines = self.users.values().map(|(_, user)| user.rules.len());
        let lines = lines.chain(self.groups.values().map(|(_, group)| group.rules.len()));
        let lines = lines.sum::<usize>() + self.rules.1.0.len();
        (lines <= 8).then_some(())
    }
}

fn differences<N: Ord, T: PartialEq>(before: &BTreeMap<N, T>, after: &BTreeMap<N, T>) -> u64 {
    let gone = before.keys().filter(|name| !after.contains_key(name));
    let new = after
        .iter()
        .filter(|(name, of)| before.get(*name) != Some(of));
    (gone.count() + new.count()) as u64
}

fn meets(expect: Expect, known: Option<u64>) -> Option<()> {
    let holds = match expect {
        Expect::Any => true,
        Expect::New => known.is_none(),
        Expect::Known => known.is_some(),
        Expect::Revision(revision) => known == Some(revision.0),
    };
    holds.then_some(())
}
