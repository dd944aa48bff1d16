//! What the store would say to a change, as far as the view of this node tells.
//!
//! Deliberately absent: bounds of all lines and bytes together, which only the store counts.

use control::{Bounds, Change, Expect, Means, Put, Reason, Revision, RuleList};
use control_view::View;

use crate::api::Would;

/// Whether the store would make a change that somebody asks for who has shown this.
pub(super) fn judge(view: &View, means: Means, change: &Change) -> Result<(), Reason> {
    let groups = view.groups();
    let is_known = |names: &[Box<str>]| match names.iter().find(|name| !groups.contains_key(*name))
    {
        Some(missing) => Err(Reason::NoSuchGroup(missing.clone())),
        None => Ok(()),
    };
    let found = match &change.put {
        Put::User(name, _) => view.user(name).map(|user| user.revision),
        Put::Group(name, _) => groups.get(name).map(|group| group.revision),
        Put::Rules(_) => {
            let rules = view.rules();
            (rules.record != RuleList::default()).then_some(rules.revision)
        }
        Put::Person(name, _) => view.person(name).map(|person| person.revision),
        Put::Key(id, _) => view.key(*id).map(|key| key.revision),
    };
    meets(change.expect, found)?;
    if !means.is_of_files() && view.is_administered() && !stays_administered(view, &change.put) {
        return Err(Reason::LastAdministrator);
    }
    let bounds = Bounds::FIXED;
    match &change.put {
        Put::User(_, Some(user)) => {
            is_known(&user.groups)?;
            is_full(found, view.user_count(), bounds.users, "users")
        }
        Put::Group(_, Some(group)) => {
            is_known(&group.includes)?;
            is_full(found, groups.len(), bounds.groups, "groups")
        }
        Put::Group(name, None) => match uses(view, name) {
            0 => Ok(()),
            uses => Err(Reason::InUse(uses)),
        },
        Put::Person(_, Some(_)) => is_full(found, view.people().len(), bounds.people, "people"),
        Put::Key(_, Some(_)) => is_full(found, view.keys().len(), bounds.keys, "keys"),
        Put::User(_, None) | Put::Rules(_) | Put::Person(_, None) | Put::Key(_, None) => Ok(()),
    }
}

/// Whether somebody in the store could still change everything after a change.
fn stays_administered(view: &View, put: &Put) -> bool {
    let (people, keys) = (view.people(), view.keys());
    let (person, key, after) = match put {
        Put::Person(name, after) => {
            let after = after.as_ref().is_some_and(|after| after.administers());
            (Some(name), None, after)
        }
        Put::Key(id, after) => {
            let after = after.as_ref().is_some_and(|after| after.administers());
            (None, Some(id), after)
        }
        Put::User(..) | Put::Group(..) | Put::Rules(_) => return true,
    };
    let mut people = people.iter().filter(|(name, _)| Some(*name) != person);
    let mut keys = keys.iter().filter(|(id, _)| Some(*id) != key);
    after
        || people.any(|(_, person)| person.record.administers())
        || keys.any(|(_, key)| key.record.administers())
}

/// That there is a place for a record, which is there already if it has a revision.
fn is_full(found: Option<Revision>, has: usize, most: usize, of: &str) -> Result<(), Reason> {
    match found.is_none() && has >= most {
        true => Err(Reason::Full(of.into())),
        false => Ok(()),
    }
}

/// By how many users and groups a group is named.
fn uses(view: &View, name: &str) -> usize {
    let groups = view.groups();
    let including = groups
        .values()
        .filter(|group| group.record.includes.iter().any(|of| **of == *name));
    let mut uses = including.count();
    // Changes of the view wait for a visit, so it looks at some users at a time.
    const AT_ONCE: usize = 2_000;
    let mut after: Option<Box<str>> = None;
    loop {
        let (mut last, mut left) = (None, AT_ONCE);
        view.each_user(after.as_deref(), |user, stored| {
            uses += usize::from(stored.record.groups.iter().any(|of| **of == *name));
            last = Some(Box::from(user));
            left -= 1;
            left > 0
        });
        if left > 0 {
            return uses;
        }
        after = last;
    }
}

/// What a change would make of a record.
pub(super) fn would(view: &View, put: &Put) -> Would {
    let of = |before: Option<bool>, removes: bool| match before {
        _ if removes => Would::Remove,
        None => Would::Create,
        Some(true) => Would::Keep,
        Some(false) => Would::Replace,
    };
    match put {
        Put::User(name, user) => {
            let before = view.user(name);
            let same = before.map(|before| {
                user.as_deref().is_some_and(|user| {
                    let mut user = user.clone();
                    user.logins_since = before.record.logins_since;
                    user == before.record
                })
            });
            of(same, user.is_none())
        }
        Put::Group(name, group) => {
            let groups = view.groups();
            let same = groups
                .get(name)
                .map(|before| group.as_deref() == Some(&before.record));
            of(same, group.is_none())
        }
        Put::Rules(list) => {
            let rules = view.rules();
            let before = (rules.record != RuleList::default()).then(|| rules.record == *list);
            match before {
                None if *list == RuleList::default() => Would::Keep,
                before => of(before, false),
            }
        }
        Put::Person(name, person) => {
            let before = view.person(name);
            let same = before.map(|before| {
                person.as_deref().is_some_and(|person| {
                    let mut person = person.clone();
                    person.logins_since = before.record.logins_since;
                    person == before.record
                })
            });
            of(same, person.is_none())
        }
        Put::Key(id, key) => {
            let before = view.key(*id);
            let same = before.map(|before| key.as_deref() == Some(&before.record));
            of(same, key.is_none())
        }
    }
}

fn meets(expect: Expect, found: Option<Revision>) -> Result<(), Reason> {
    match (expect, found) {
        (Expect::Any, _) | (Expect::New, None) | (Expect::Known, Some(_)) => Ok(()),
        (Expect::New, Some(_)) => Err(Reason::Exists),
        (Expect::Known | Expect::Revision(_), None) => Err(Reason::Missing),
        (Expect::Revision(expected), Some(found)) if expected == found => Ok(()),
        (Expect::Revision(_), Some(found)) => Err(Reason::Revision(found)),
    }
}
