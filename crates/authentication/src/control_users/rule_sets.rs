//! The rules of users, made of their own lines and those of their groups, once for each set of groups.
//!
//! Invariants: what is kept is made of the groups as they are now: it is forgotten when one of them changes. A line that this
//! version cannot read makes the whole set unusable; no line is skipped.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use authorization::Rules;
use control::{Group, GroupsByName, Revision, Stored, User};
use control_view::View;
use parking_lot::Mutex;

/// Rules that are kept, of all sets: about 200 bytes each.
const MOST_RULES: usize = 250_000;

/// What users have that are in the same groups.
#[derive(Debug)]
pub(super) struct RuleSet {
    /// `None`: there are none. An error: why they cannot be made.
    pub(super) rules: Result<Option<Arc<Rules>>, String>,
    /// The class of the first group that has one.
    pub(super) class: Option<Box<str>>,
}

/// Sets that cannot be made and are remembered for people.
const MOST_UNREADABLE: usize = 16;

/// A limited number of sets.
#[derive(Debug, Default)]
pub(super) struct RuleSets(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    groups: Arc<GroupsByName>,
    sets: HashMap<Of, Arc<RuleSet>>,
    /// Rules of all sets, and one for each.
    rules: usize,
    /// Sets that cannot be made, and why: some of them.
    unreadable: Vec<(Of, String)>,
}

/// Whose rules they are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Of {
    /// Those of users without rules of their own who are in these groups.
    Groups(Box<[Box<str>]>),
    /// Those of one user, as of its last change.
    User(Box<str>, Revision),
}

impl RuleSets {
    /// What a user has, by the groups as they are now.
    pub(super) fn of_user(
        &self,
        name: &str,
        user: &Stored<User>,
        groups: Arc<GroupsByName>,
    ) -> Arc<RuleSet> {
        let record = &user.record;
        let of = match record.rules.is_empty() {
            true => Of::Groups(record.groups.clone()),
            false => Of::User(name.into(), user.revision),
        };
        if let Some(set) = self.0.lock().get(&of, &groups) {
            return set;
        }
        // Without the lock: it can take some ms.
        let set = Arc::new(RuleSet::of(record, &groups));
        self.0.lock().add(of, groups, Arc::clone(&set));
        set
    }

    /// Why one of the sets cannot be made; those of users and groups that have changed since do not count.
    pub(super) fn unreadable(&self, view: &View) -> Option<String> {
        let mut kept = self.0.lock();
        if !Arc::ptr_eq(&kept.groups, &view.groups()) {
            kept.unreadable.clear();
        }
        kept.unreadable.retain(|(of, _)| match of {
            Of::Groups(_) => true,
            Of::User(name, revision) => view
                .user(name)
                .is_some_and(|user| user.revision == *revision),
        });
        kept.unreadable.first().map(|(_, reason)| reason.clone())
    }
}

impl Kept {
    fn get(&self, of: &Of, groups: &Arc<GroupsByName>) -> Option<Arc<RuleSet>> {
        let is_current = Arc::ptr_eq(&self.groups, groups);
        self.sets.get(of).filter(|_| is_current).cloned()
    }

    fn add(&mut self, of: Of, groups: Arc<GroupsByName>, set: Arc<RuleSet>) {
        let rules = 1 + set.len();
        if !Arc::ptr_eq(&self.groups, &groups) || self.rules + rules > MOST_RULES {
            *self = Self {
                groups,
                ..Self::default()
            };
        }
        self.rules += rules;
        if let Err(reason) = &set.rules
            && self.unreadable.len() < MOST_UNREADABLE
        {
            self.unreadable.push((of.clone(), reason.clone()));
        }
        if let Some(before) = self.sets.insert(of, set) {
            self.rules -= 1 + before.len();
        }
    }
}

impl RuleSet {
    /// How many rules there are.
    fn len(&self) -> usize {
        let rules = self.rules.as_ref().ok().and_then(Option::as_ref);
        rules.map_or(0, |rules| rules.len())
    }

    fn of(user: &User, groups: &GroupsByName) -> Self {
        match Collected::of(user, groups) {
            Ok(collected) => Self {
                rules: collected.compiled(),
                class: collected.class.map(Box::from),
            },
            Err(reason) => Self {
                rules: Err(reason),
                class: None,
            },
        }
    }
}

/// Lines in the order in which they count, and where each comes from: a group, or the user.
#[derive(Default)]
struct Collected<'a> {
    lines: Vec<(Option<&'a str>, &'a str)>,
    class: Option<&'a str>,
    /// The groups whose lines are there: a second time they would decide nothing.
    seen: HashSet<&'a str>,
}

impl<'a> Collected<'a> {
    fn of(user: &'a User, groups: &'a GroupsByName) -> Result<Self, String> {
        let mut collected = Self::default();
        let own = user.rules.iter().map(|line| (None, &**line));
        collected.lines.extend(own);
        let find = |name: &'a str| {
            let group = groups.get(name).map(|group| &group.record);
            let group = group.ok_or_else(|| format!("there is no group {name:?}"))?;
            Ok::<(&str, &Group), String>((name, group))
        };
        let mut of_user = user
            .groups
            .iter()
            .map(|name| find(name))
            .collect::<Result<Vec<_>, _>>()?;
        of_user.sort_by_key(|(name, group)| (Reverse(group.priority), *name));
        for (name, group) in of_user {
            collected.add(name, group);
            for included in &group.includes {
                let (name, group) = find(included)?;
                collected.add(name, group);
            }
            collected.class = collected.class.or(group.class.as_deref());
        }
        Ok(collected)
    }

    fn add(&mut self, name: &'a str, group: &'a Group) {
        if self.seen.insert(name) {
            let lines = group.rules.iter().map(|line| (Some(name), &**line));
            self.lines.extend(lines);
        }
    }

    fn compiled(&self) -> Result<Option<Arc<Rules>>, String> {
        let lines = self.lines.iter().map(|(_, line)| *line);
        let rules = Rules::from_lines(lines).map_err(|mistakes| {
            let first = mistakes.first();
            let place = first.and_then(|first| self.lines.get(first.line as usize - 1));
            let reason = first.map_or("", |first| &first.reason);
            match place {
                Some((Some(group), line)) => {
                    format!("the rule {line:?} of the group {group:?} cannot be read: {reason}")
                }
                _ => format!("a rule of the user cannot be read: {reason}"),
            }
        })?;
        Ok((!rules.is_empty()).then(|| Arc::new(rules)))
    }
}
