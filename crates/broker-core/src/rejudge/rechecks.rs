//! Users of databases that have clients in a loop: when each is looked up again.
//!
//! Invariants: one user is looked up at a time, however many clients it has. The users of a loop are looked up one after
//! the other, spread over the interval.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use authentication_api::DatabaseUser;
use mqtt_session::Timestamp;
use net_api::Key;

/// How often the loop looks whether a user is due, at least, in ms: users that come meanwhile shorten the time.
const LOOK_MS: u64 = 1_000;

/// The users of a loop, and how far it is with them.
#[derive(Debug, Default)]
pub(super) struct Rechecks {
    users: BTreeMap<Arc<DatabaseUser>, BTreeSet<Key>>,
    clients: HashMap<Key, Arc<DatabaseUser>>,
    /// The user that was looked up last.
    last: Option<Arc<DatabaseUser>>,
    /// When.
    last_at: Timestamp,
    /// A timer is armed, or an answer is to come.
    is_running: bool,
}

impl Rechecks {
    /// A client has logged in, as a user of a database or not.
    pub(super) fn replace(&mut self, client: Key, user: Option<Arc<DatabaseUser>>) {
        self.remove(client);
        if let Some(user) = user {
            self.clients.insert(client, Arc::clone(&user));
            self.users.entry(user).or_default().insert(client);
        }
    }

    /// A client is gone.
    pub(super) fn remove(&mut self, client: Key) {
        if let Some(user) = self.clients.remove(&client)
            && let Some(clients) = self.users.get_mut(&user)
        {
            clients.remove(&client);
            if clients.is_empty() {
                self.users.remove(&user);
            }
        }
    }

    /// Begins to look users up. `every`: each so often; `None`: never. True: a timer is to be armed, for [`LOOK_MS`] at most.
    pub(super) fn begin(&mut self, now_ms: u64, every: Option<Duration>) -> bool {
        let begins = !self.is_running && every.is_some() && !self.users.is_empty();
        if begins {
            self.is_running = true;
            self.last_at = Timestamp(now_ms);
        }
        begins
    }

    /// The timer has fired, or an answer has come: the user to look up now, or when to look again, in ms; neither: the
    /// timer is not to be armed any more.
    pub(super) fn next(&mut self, now_ms: u64, every: Option<Duration>) -> Next {
        let Some(every) = every.filter(|_| !self.users.is_empty()) else {
            self.is_running = false;
            return Next::Nobody;
        };
        let users = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
        let pause = u64::try_from((every / users).as_millis()).unwrap_or(u64::MAX);
        let due_ms = self.last_at.0.saturating_add(pause);
        if now_ms < due_ms {
            return Next::At(due_ms.min(now_ms + LOOK_MS));
        }
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self
            .users
            .range::<Arc<DatabaseUser>, _>((after, Bound::Unbounded));
        let next = behind.next().or_else(|| self.users.first_key_value());
        let user = next.map(|(user, _)| Arc::clone(user));
        self.last.clone_from(&user);
        self.last_at = Timestamp(now_ms);
        user.map_or(Next::Nobody, Next::User)
    }

    /// The clients of a user.
    pub(super) fn clients_of(&self, user: &Arc<DatabaseUser>) -> Vec<Key> {
        let clients = self.users.get(user);
        clients.map_or_else(Vec::new, |clients| clients.iter().copied().collect())
    }
}

/// What is to be done next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing.
    Nobody,
    /// To look again at this time.
    At(u64),
    /// To look up this user.
    User(Arc<DatabaseUser>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> Key {
        Key {
            slot,
            generation: 0,
        }
    }

    fn every(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    fn user(name: &str) -> Arc<DatabaseUser> {
        Arc::new(DatabaseUser {
            username: Some(name.into()),
            client_id: None,
            address: None,
        })
    }

    #[test]
    fn users_take_turns_however_many_clients_they_have() {
        let mut rechecks = Rechecks::default();
        assert!(!rechecks.begin(0, every(3)));
        for (slot, name) in (0..).zip(["b", "a", "b", "c", "b"]) {
            rechecks.replace(key(slot), Some(user(name)));
        }
        assert!(!rechecks.begin(0, None));
        assert!(rechecks.begin(0, every(3)));
        assert!(!rechecks.begin(0, every(3)));
        assert_eq!(rechecks.next(500, every(3)), Next::At(1_000));
        for (now_ms, name) in [(1_000, "a"), (2_000, "b"), (3_500, "c"), (4_500, "a")] {
            assert_eq!(rechecks.next(now_ms, every(3)), Next::User(user(name)));
        }
        assert_eq!(rechecks.clients_of(&user("b")), [key(0), key(2), key(4)]);
        // It never looks later than in a second, for there may be more users by then.
        assert_eq!(rechecks.next(5_000, every(1_000)), Next::At(6_000));
    }

    #[test]
    fn it_ends_when_nobody_is_left_and_begins_anew() {
        let mut rechecks = Rechecks::default();
        rechecks.replace(key(1), Some(user("a")));
        assert!(rechecks.begin(0, every(1)));
        // It logs in anew, as another user.
        rechecks.replace(key(1), Some(user("b")));
        assert_eq!(rechecks.next(1_000, every(1)), Next::User(user("b")));
        rechecks.remove(key(1));
        assert_eq!(rechecks.clients_of(&user("b")), []);
        assert_eq!(rechecks.next(2_000, every(1)), Next::Nobody);
        rechecks.replace(key(2), Some(user("a")));
        assert!(rechecks.begin(9_000, every(1)));
        assert_eq!(rechecks.next(9_000, None), Next::Nobody);
        assert!(rechecks.begin(9_000, every(1)));
    }
}
