//! What a node knows of users, groups and rules: a copy of all records that its threads read, kept up to date by its replica
//! of the control store.
//!
//! Purpose: [`View`] says what the records are, and how far that can be believed.
//!
//! Invariants: the view never goes back while it exists, whatever the replica is loaded from; it holds what an operation has
//! made whole or not at all.
//!
//! Deliberately absent: the records (`control`), who fills the view (`store`), what is made of the records.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::{
    ApiKey, Changed, GroupsByName, KeyId, KeysById, PeopleByName, Person, Records, Revision,
    RuleList, Stored, User,
};
use parking_lot::RwLock;

/// How far the view of a node can be believed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Standing {
    /// Nothing was ever changed, as far as the node knows: there are no records.
    #[default]
    Unused,
    /// There are records, and this process has not heard yet whether its copy is the last one: who was removed in the meantime
    /// must not be let in by it.
    Unconfirmed,
    /// The copy was up to date at least once in this process.
    Confirmed,
}

/// The records as this node has them. Reading takes a lock that changes hold for some microseconds.
#[derive(Default, Debug)]
pub struct View {
    inner: RwLock<Inner>,
    is_refused: AtomicBool,
    /// Files of the node say who may do what, and nothing of the store counts.
    is_off: bool,
}

#[derive(Default, Debug)]
struct Inner {
    /// There are records, as far as the node knows.
    has_begun: bool,
    /// With the changes up to this one the copy can be believed.
    needs: Option<Revision>,
    records: Records,
}

impl Inner {
    fn standing(&self) -> Standing {
        match self.needs {
            Some(needs) if self.records.revision >= needs => Standing::Confirmed,
            _ if self.has_begun => Standing::Unconfirmed,
            _ => Standing::Unused,
        }
    }
}

impl View {
    /// A view that stays empty, whatever the store has: the node goes by its files only.
    #[must_use]
    pub fn off() -> Self {
        Self {
            is_off: true,
            ..Self::default()
        }
    }

    /// Whether the node goes by its files only.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// How far it can be believed.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.inner.read().standing()
    }

    /// Whether nobody may log in by it, because it may be out of date: what [`View::refuse`] was told last, else false.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Nobody may log in by it from now on, or again (`false`).
    pub fn refuse(&self, is_refused: bool) {
        self.is_refused.store(is_refused, Ordering::Relaxed);
    }

    /// The last operation that it has.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.inner.read().records.revision
    }

    /// A copy of all records. Allocates for each name.
    #[must_use]
    pub fn records(&self) -> Records {
        self.inner.read().records.clone()
    }

    /// A user; `None`: there is none of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<Arc<Stored<User>>> {
        self.inner.read().records.users.get(name).cloned()
    }

    /// How many users there are.
    #[must_use]
    pub fn user_count(&self) -> usize {
        self.inner.read().records.users.len()
    }

    /// Visits users in the order of their names, from the one behind `after` on, until `visit` says false. Changes wait: visit
    /// some thousand at most in one call.
    pub fn each_user(
        &self,
        after: Option<&str>,
        mut visit: impl FnMut(&str, &Arc<Stored<User>>) -> bool,
    ) {
        let inner = self.inner.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut users = inner
            .records
            .users
            .range::<str, _>((from, Bound::Unbounded));
        while users.next().is_some_and(|(name, user)| visit(name, user)) {}
    }

    /// All groups.
    #[must_use]
    pub fn groups(&self) -> Arc<GroupsByName> {
        Arc::clone(&self.inner.read().records.groups)
    }

    /// The rules that hold for everybody.
    #[must_use]
    pub fn rules(&self) -> Arc<Stored<RuleList>> {
        Arc::clone(&self.inner.read().records.rules)
    }

    /// A person; `None`: there is none of this name.
    #[must_use]
    pub fn person(&self, name: &str) -> Option<Arc<Stored<Person>>> {
        self.inner.read().records.people.get(name).cloned()
    }

    /// All people.
    #[must_use]
    pub fn people(&self) -> Arc<PeopleByName> {
        Arc::clone(&self.inner.read().records.people)
    }

    /// A key; `None`: there is none of this identifier.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<Arc<Stored<ApiKey>>> {
        self.inner.read().records.keys.get(&id).cloned()
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> Arc<KeysById> {
        Arc::clone(&self.inner.read().records.keys)
    }

    /// Whether a person or a key in the store can change everything, and does not end. Looks at all of them.
    #[must_use]
    pub fn is_administered(&self) -> bool {
        let (people, keys) = (self.people(), self.keys());
        people.values().any(|person| person.record.administers())
            || keys.values().any(|key| key.record.administers())
    }

    /// There are records in this cluster.
    pub fn begun(&self) {
        self.inner.write().has_begun = !self.is_off;
    }

    /// With all changes up to this one the copy has whatever was changed before the process began.
    pub fn confirmed(&self, revision: Revision) {
        let mut inner = self.inner.write();
        if !self.is_off {
            inner.has_begun = true;
            // The first answer is enough.
            inner.needs.get_or_insert(revision);
        }
    }

    /// The replica was loaded. Takes over what it has, unless the view has more. True: it was taken over.
    pub fn loaded(&self, records: Records) -> bool {
        let mut inner = self.inner.write();
        inner.has_begun = !self.is_off;
        let is_newer = !self.is_off && records.revision > inner.records.revision;
        if is_newer {
            let before = std::mem::replace(&mut inner.records, records);
            drop(inner);
            // A quarter of a million users are freed without the lock.
            drop(before);
        }
        is_newer
    }

    /// An operation has changed something. True: the view did not have it.
    pub fn changed(&self, changed: &Changed) -> bool {
        let mut inner = self.inner.write();
        inner.has_begun = !self.is_off;
        let records = &mut inner.records;
        if self.is_off || changed.revision <= records.revision {
            return false;
        }
        records.revision = changed.revision;
        put(&mut records.users, &changed.users);
        if !changed.groups.is_empty() {
            put(Arc::make_mut(&mut records.groups), &changed.groups);
        }
        if let Some(rules) = &changed.rules {
            records.rules = Arc::clone(rules);
        }
        if !changed.people.is_empty() {
            put(Arc::make_mut(&mut records.people), &changed.people);
        }
        if !changed.keys.is_empty() {
            put(Arc::make_mut(&mut records.keys), &changed.keys);
        }
        true
    }
}

fn put<N: Ord + Clone, T>(
    records: &mut BTreeMap<N, Arc<Stored<T>>>,
    changed: &[(N, Option<Arc<Stored<T>>>)],
) {
    for (name, record) in changed {
        match record {
            Some(record) => records.insert(name.clone(), Arc::clone(record)),
            None => records.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(revision: u64, line: &str) -> Option<Arc<Stored<RuleList>>> {
        let record = RuleList([line.into()].into());
        let revision = Revision(revision);
        Some(Arc::new(Stored { revision, record }))
    }

    fn changed(revision: u64) -> Changed {
        Changed {
            revision: Revision(revision),
            rules: rules(revision, "allow publish"),
            ..Changed::default()
        }
    }

    #[test]
    fn a_view_that_is_off_stays_empty() {
        let view = View::off();
        view.begun();
        view.confirmed(Revision(4));
        let revision = Revision(3);
        assert!(!view.changed(&changed(3)));
        assert!(!view.loaded(Records {
            revision,
            ..Records::default()
        }));
        assert_eq!(
            (view.standing(), view.revision()),
            (Standing::Unused, Revision(0))
        );
    }

    #[test]
    fn a_view_never_goes_back() {
        let view = View::default();
        assert_eq!(view.standing(), Standing::Unused);
        assert!(view.changed(&changed(3)));
        assert_eq!(view.standing(), Standing::Unconfirmed);
        view.confirmed(Revision(4));
        assert_eq!(view.standing(), Standing::Unconfirmed);
        let records = |revision| Records {
            revision: Revision(revision),
            ..Records::default()
        };
        assert!(!view.loaded(records(2)));
        assert!(!view.changed(&changed(3)));
        assert_eq!(view.rules().revision, Revision(3));
        assert!(view.loaded(records(4)));
        assert_eq!(view.rules().revision, Revision(0));
        view.begun();
        assert_eq!(view.standing(), Standing::Confirmed);
    }
}
