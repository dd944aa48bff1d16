//! Shares of users in what this node has room for: topic filters of sessions, and patterns of wildcards.
//!
//! A session counts for its user while its client is connected here, and afterwards, as long as it may go on: it is
//! *absent*. The bytes of an absent session that has few do not count, so that those of many devices take no memory here.
//! Its patterns count, until its time is over or no filter has them any more.
//!
//! | State of a session | Input | Next |
//! |---|---|---|
//! | none, or absent | its client comes, with subscriptions | connected |
//! | connected | subscriptions change | connected |
//! | connected | its client goes, the session goes on | absent if it has much, else none |
//! | connected | its client goes, the session ends | none |
//! | absent | the session ends, or its time is over | none |
//!
//! Invariant: what a user has is the sum of what its connected sessions and those that are absent have. A session that
//! goes on at another node counts here until its time is over, and at most once.
//!
//! An anonymous client has no user, and so no share.
//!
//! Deliberately absent: the limits of the node as a whole, and those of a session.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_map::EntryRef;
use hashing::HashMap;
use mqtt_session::{NEVER_EXPIRES, Pattern, Session, Timestamp, pattern_of};

/// Absent sessions that are remembered. Those beyond it do not count for their users.
///
/// Limit: absent sessions of which it is known how many bytes of filters they have | {}, with {LITTLE:bytes} or more
/// each | further ones do not count for their users
const ABSENT: usize = 1_000_000;

/// Bytes of absent sessions with fewer do not count.
const LITTLE: usize = 256;

/// How often it is looked whose time is over, in ms: that looks at all absent sessions.
const PRUNE_MS: u64 = 10_000;

/// What sessions have: bytes of topic filters, and patterns of wildcards.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) bytes: usize,
    /// Each once.
    pub(crate) patterns: Vec<Pattern>,
}

impl Holding {
    /// What a session has.
    pub(crate) fn of(session: &Session) -> Self {
        let (bytes, patterns) = session.filters();
        Self {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            patterns: patterns.cloned().collect(),
        }
    }
}

/// What a user may have at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) bytes: usize,
    pub(crate) patterns: usize,
}

/// What is left of a user's share while the filters of one packet are admitted.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: usize,
    patterns: usize,
    /// Patterns that are not counted again.
    known: Vec<Pattern>,
}

impl Room {
    /// Whether there is room for one more filter; then it is taken. `counted`: whether the user has sessions with a
    /// pattern already.
    pub(crate) fn take(&mut self, filter: &str, counted: impl FnOnce(&Pattern) -> bool) -> bool {
        let pattern = pattern_of(filter).filter(|pattern| !self.known.contains(pattern));
        let is_new = pattern.as_ref().is_some_and(|pattern| !counted(pattern));
        let bytes = self.bytes.checked_sub(filter.len());
        let patterns = self.patterns.checked_sub(usize::from(is_new));
        let (has_room, left) = match (bytes, patterns) {
            (Some(bytes), Some(patterns)) => (true, (bytes, patterns)),
            _ => (false, (self.bytes, self.patterns)),
        };
        (self.bytes, self.patterns) = left;
        if has_room {
            self.known.extend(pattern);
        }
        has_room
    }
}

/// What users have. All loops of a node share it.
#[derive(Debug, Default)]
pub(crate) struct Quotas(parking_lot::Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A name is held once, however many absent sessions its user has.
    users: HashMap<Arc<str>, User>,
    /// By client identifier, hashed.
    absent: HashMap<u64, Absent>,
    pruned: Timestamp,
}

#[derive(Debug, Default)]
struct User {
    bytes: usize,
    patterns: HashMap<Pattern, Use>,
}

/// Who has a pattern.
#[derive(Debug, Default)]
struct Use {
    /// Connected sessions.
    connected: usize,
    /// When the last of the absent ones ends.
    absent_until: Timestamp,
}

#[derive(Debug)]
struct Absent {
    user: Arc<str>,
    bytes: usize,
    until: Timestamp,
}

impl User {
    fn take_bytes(&mut self, bytes: usize) {
        debug_assert!(self.bytes >= bytes, "what is taken was added");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A connected session has a pattern no more.
    fn take_pattern(&mut self, pattern: &Pattern) {
        if let Some(of) = self.patterns.get_mut(pattern) {
            debug_assert!(of.connected > 0, "what is taken was added");
            of.connected = of.connected.saturating_sub(1);
            if of.connected == 0 && of.absent_until == Timestamp(0) {
                self.patterns.remove(pattern);
            }
        }
    }
}

impl Quotas {
    /// What is left of a user's share. `is_used`: whether any filter has a pattern.
    pub(crate) fn room(
        &self,
        user: &str,
        share: Share,
        now: Timestamp,
        is_used: impl Fn(&Pattern) -> bool,
    ) -> Room {
        let mut state = self.0.lock();
        let mut room = state.room(user, share);
        if room.bytes == 0 || room.patterns == 0 {
            state.prune(now, is_used);
            room = state.room(user, share);
        }
        room
    }

    /// Whether sessions of a user have a pattern.
    pub(crate) fn has_pattern(&self, user: &str, pattern: &Pattern) -> bool {
        let state = self.0.lock();
        let user = state.users.get(user);
        user.is_some_and(|user| user.patterns.contains_key(pattern))
    }

    /// The subscriptions of a connected session have changed.
    pub(crate) fn handle_change(&self, user: Option<&str>, before: &Holding, after: &Holding) {
        if before != after
            && let Some(user) = user
        {
            self.change(user, before, after);
        }
    }

    /// The client of a session has come, and has what the session has.
    pub(crate) fn handle_connected(&self, user: Option<&str>, session: &Session) {
        let holding = Holding::of(session);
        self.connect(session.client_id(), user, &holding);
    }

    /// The client of a session has gone. `goes_on`: the session may.
    pub(crate) fn handle_gone(
        &self,
        user: Option<&str>,
        session: &Session,
        goes_on: bool,
        now: Timestamp,
    ) {
        let holding = Holding::of(session);
        if holding != Holding::default()
            && let Some(user) = user
        {
            let until = match session.session_expiry() {
                NEVER_EXPIRES => Timestamp(u64::MAX),
                seconds => now.add_secs(seconds),
            };
            let until = goes_on.then_some(until);
            self.go(session.client_id(), user, &holding, until);
        }
    }

    /// A session has ended whose client was not connected.
    pub(crate) fn handle_ended(&self, client_id: &str) {
        self.0.lock().end(client_id);
    }

    fn change(&self, user: &str, before: &Holding, after: &Holding) {
        let mut state = self.0.lock();
        state.add(user, after);
        state.take(user, before);
    }

    fn connect(&self, client: &str, user: Option<&str>, holding: &Holding) {
        let mut state = self.0.lock();
        if let Some(user) = user {
            state.add(user, holding);
        }
        state.end(client);
    }

    fn go(&self, client: &str, name: &str, holding: &Holding, until: Option<Timestamp>) {
        let mut state = self.0.lock();
        if let Some(until) = until {
            let user = state.user(name);
            for pattern in &holding.patterns {
                let of = user.patterns.entry_ref(pattern).or_default();
                of.absent_until = of.absent_until.max(until);
            }
            if holding.bytes >= LITTLE && state.absent.len() < ABSENT {
                state.user(name).bytes += holding.bytes;
                let absent = Absent {
                    user: state.name_of(name),
                    bytes: holding.bytes,
                    until,
                };
                state.end(client);
                let client = state.hash(client);
                state.absent.insert(client, absent);
            }
        }
        state.take(name, holding);
    }
}

impl State {
    fn room(&self, user: &str, share: Share) -> Room {
        let (bytes, patterns) = self
            .users
            .get(user)
            .map_or((0, 0), |user| (user.bytes, user.patterns.len()));
        Room {
            bytes: share.bytes.saturating_sub(bytes),
            patterns: share.patterns.saturating_sub(patterns),
            known: Vec::new(),
        }
    }

    fn name_of(&self, name: &str) -> Arc<str> {
        let known = self.users.get_key_value(name);
        known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    fn user(&mut self, name: &str) -> &mut User {
        match self.users.entry_ref(name) {
            EntryRef::Occupied(of) => of.into_mut(),
            EntryRef::Vacant(of) => of
                .insert_entry_with_key(name.into(), User::default())
                .into_mut(),
        }
    }

    fn add(&mut self, name: &str, holding: &Holding) {
        if *holding != Holding::default() {
            let user = self.user(name);
            user.bytes += holding.bytes;
            for pattern in &holding.patterns {
                user.patterns.entry_ref(pattern).or_default().connected += 1;
            }
        }
    }

    /// What a connected session had.
    fn take(&mut self, name: &str, holding: &Holding) {
        if *holding != Holding::default() {
            let user = self.user(name);
            user.take_bytes(holding.bytes);
            for pattern in &holding.patterns {
                user.take_pattern(pattern);
            }
            self.forget_if_empty(name);
        }
    }

    /// By a seed of this process: nobody can choose identifiers that stand for each other.
    fn hash(&self, client: &str) -> u64 {
        self.users.hasher().hash_one(client)
    }

    fn end(&mut self, client: &str) {
        if let Some(absent) = self.absent.remove(&self.hash(client)) {
            self.user(&absent.user).take_bytes(absent.bytes);
            self.forget_if_empty(&absent.user);
        }
    }

    fn forget_if_empty(&mut self, name: &str) {
        let is_empty = |user: &User| user.bytes == 0 && user.patterns.is_empty();
        if self.users.get(name).is_some_and(is_empty) {
            self.users.remove(name);
        }
    }

    fn prune(&mut self, now: Timestamp, is_used: impl Fn(&Pattern) -> bool) {
        if now >= self.pruned.add_millis(PRUNE_MS) {
            self.pruned = now;
            let over = self.absent.extract_if(|_, absent| absent.until <= now);
            for (_, absent) in over.collect::<Vec<_>>() {
                self.user(&absent.user).take_bytes(absent.bytes);
            }
            self.users.retain(|_, user| {
                user.patterns.retain(|pattern, of| {
                    of.connected > 0 || (of.absent_until > now && is_used(pattern))
                });
                user.bytes > 0 || !user.patterns.is_empty()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Share = Share {
        bytes: 10_000,
        patterns: 3,
    };

    fn holding(bytes: usize, filters: &[&str]) -> Holding {
        Holding {
            bytes,
            patterns: filters.iter().filter_map(|f| pattern_of(f)).collect(),
        }
    }

    fn room(quotas: &Quotas, now_ms: u64) -> (usize, usize) {
        let room = quotas.room("u", SHARE, Timestamp(now_ms), |_| true);
        (room.bytes, room.patterns)
    }

    #[test]
    fn bytes_of_an_absent_session_count_until_it_ends_or_comes_back() {
        let quotas = Quotas::default();
        let has = holding(4_000, &[]);
        quotas.connect("c", Some("u"), &Holding::default());
        quotas.change("u", &Holding::default(), &has);
        assert_eq!(room(&quotas, 0), (6_000, 3));
        for _ in 0..2 {
            quotas.go("c", "u", &has, Some(Timestamp(5_000)));
            assert_eq!(room(&quotas, 0), (6_000, 3));
            quotas.connect("c", Some("u"), &has);
            assert_eq!(room(&quotas, 0), (6_000, 3));
        }
        quotas.go("c", "u", &has, Some(Timestamp(5_000)));
        quotas.0.lock().end("c");
        assert_eq!(room(&quotas, 0), (10_000, 3));
        let state = quotas.0.lock();
        assert!(state.users.is_empty() && state.absent.is_empty());
    }

    #[test]
    fn of_a_session_that_ends_nothing_counts_and_of_a_little_one_no_bytes() {
        let quotas = Quotas::default();
        let has = holding(4_000, &["+/a"]);
        quotas.connect("c", Some("u"), &has);
        assert_eq!(room(&quotas, 0), (6_000, 2));
        quotas.go("c", "u", &has, None);
        assert_eq!(room(&quotas, 0), (10_000, 3));
        let little = holding(99, &["+/a"]);
        quotas.connect("c", Some("u"), &little);
        quotas.go("c", "u", &little, Some(Timestamp(9)));
        assert_eq!(room(&quotas, 0), (10_000, 2));
    }

    #[test]
    fn whose_time_is_over_is_forgotten_when_there_is_no_room() {
        let quotas = Quotas::default();
        let all = holding(10_000, &["+"]);
        quotas.connect("c", Some("u"), &all);
        quotas.go("c", "u", &all, Some(Timestamp(20_000)));
        assert_eq!(room(&quotas, 19_999), (0, 2));
        assert_eq!(room(&quotas, 29_998), (0, 2), "it was looked at just now");
        assert_eq!(room(&quotas, 29_999), (10_000, 3));
        assert!(quotas.0.lock().users.is_empty());
    }

    #[test]
    fn patterns_of_absent_sessions_count_while_a_filter_has_them() {
        let quotas = Quotas::default();
        let all = holding(1, &["+", "a/+", "+/+"]);
        quotas.connect("c", Some("u"), &all);
        quotas.go("c", "u", &all, Some(Timestamp(u64::MAX)));
        let used = pattern_of("a/+").unwrap();
        let room = |now_ms| {
            let room = quotas.room("u", SHARE, Timestamp(now_ms), |pattern| *pattern == used);
            room.patterns
        };
        assert_eq!((room(0), room(PRUNE_MS)), (0, 2));
    }

    #[test]
    fn a_pattern_takes_room_once() {
        let quotas = Quotas::default();
        quotas.connect("c", Some("u"), &holding(1, &["+"]));
        let mut room = quotas.room("u", SHARE, Timestamp(0), |_| true);
        let mut take = |filter: &str| room.take(filter, |pattern| quotas.has_pattern("u", pattern));
        let taken = ["+", "a/+", "b/+", "+/a/+", "a", "a/b/+", "c/+"].map(&mut take);
        assert_eq!(taken, [true, true, true, true, true, false, true]);
        assert!(!take(&"x".repeat(10_000)));
    }
}
