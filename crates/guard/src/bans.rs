//! All bans: exact names by hash, addresses by each prefix length that is in use.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;

use config::Network;

use crate::ban::{Ban, Subject};
use crate::changes::{Change, Changes, Lifted, PARTS, Version, part_of};

/// The most bans there can be.
///
/// Limit: bans | {} | HTTP 409; those of other nodes are left out, and the log says so
const MOST: usize = 100_000;

/// In a cluster, the number of a ban is the time when it was made, in µs; those below are of a node that was alone.
const FIRST_SHARED_ID: u64 = 1 << 40;

/// Of the µs of such a number only the ms are those of the time; the rest tells nodes apart.
const IDS_OF_MS: u64 = 1_000;

/// The bans of a node. A subject has one at most.
#[derive(Clone, Default, Debug)]
pub struct Bans {
    last_id: u64,
    by_id: BTreeMap<u64, Ban>,
    clients: HashMap<Box<str>, u64>,
    users: HashMap<Box<str>, u64>,
    addresses: HashMap<Network, u64>,
    /// How many bans of addresses there are by family (IPv4 or not) and prefix length.
    prefixes: BTreeMap<(bool, u8), usize>,
    /// What other nodes are told.
    changes: Changes,
    /// The node, if others have the same bans.
    node: Option<u64>,
}

/// There are as many bans as there can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl Bans {
    /// Those of a list, for example of a file. Of several for one subject the last counts.
    ///
    /// # Errors
    /// They are too many.
    pub fn new(list: impl IntoIterator<Item = Ban>) -> Result<Self, TooMany> {
        let mut bans = Self::default();
        for ban in list {
            bans.insert(ban)?;
        }
        Ok(bans)
    }

    /// Adds a ban, in place of an earlier one for the same subject.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(
        &mut self,
        subject: Subject,
        reason: String,
        now_ms: u64,
        expires_ms: Option<u64>,
    ) -> Result<Ban, TooMany> {
        // Later than what is known, whatever the clock of the node that it comes from says.
        let known = self.version(&subject);
        let created_ms = known.map_or(now_ms, |(at_ms, _)| now_ms.max(at_ms.saturating_add(1)));
        let ban = Ban {
            id: self.next_id(created_ms),
            subject,
            reason,
            created_ms,
            expires_ms,
        };
        self.insert(ban.clone())?;
        Ok(ban)
    }

    /// Takes a ban back. `None`: there is none with this number.
    pub fn lift(&mut self, id: u64, now_ms: u64) -> Option<Ban> {
        let ban = self.remove(id)?;
        let at_ms = now_ms.max(ban.created_ms.saturating_add(1));
        self.changes.lift(ban.subject.clone(), (at_ms, id));
        Some(ban)
    }

    /// Others have the same bans: from now on numbers are unique among the nodes. Bans that were made before get
    /// such numbers.
    pub fn share(&mut self, node: u64) {
        self.node = Some(node);
        let before: Vec<u64> = self
            .by_id
            .range(..FIRST_SHARED_ID)
            .map(|it| *it.0)
            .collect();
        for id in before {
            if let Some(mut ban) = self.remove(id) {
                ban.id = self.next_id(ban.created_ms);
                // There is room: one was just removed.
                let _ = self.insert(ban);
            }
        }
    }

    /// Takes in what another node, or the file, says. False: it was known, or is out of date.
    ///
    /// # Errors
    /// There are too many.
    pub fn merge(&mut self, change: Change, now_ms: u64) -> Result<bool, TooMany> {
        let version = change.version();
        if self.version(change.subject()) >= Some(version) {
            return Ok(false);
        }
        match change {
            Change::Banned(mut ban) if ban.counts(now_ms) => {
                let is_of_another = |id| {
                    let there = self.by_id.get(&id);
                    there.is_some_and(|there| there.subject != ban.subject)
                };
                let mut id = ban.id;
                while is_of_another(id) {
                    id = id.wrapping_add(1);
                }
                ban.id = id;
                self.insert(ban)?;
            }
            ended => {
                let subject = ended.subject().clone();
                if let Some(id) = self.id_of(&subject) {
                    self.remove(id);
                }
                self.changes.lift(subject, version);
            }
        }
        Ok(true)
    }

    /// All that is known of the parts for which `wanted` holds, with the part of each.
    pub fn changes(&self, wanted: impl Fn(usize) -> bool) -> impl Iterator<Item = (usize, Change)> {
        let bans = self.by_id.values().cloned().map(Change::Banned);
        let all = bans.chain(self.lifted().map(Change::Lifted));
        all.map(|change| (part_of(change.subject()), change))
            .filter(move |(part, _)| wanted(*part))
    }

    /// That a subject's ban was lifted or has ended, if it is remembered.
    #[must_use]
    pub fn lifted_of(&self, subject: &Subject) -> Option<Lifted> {
        let version = self.changes.version(subject)?;
        let subject = subject.clone();
        Some(Lifted { subject, version })
    }

    /// Those that were lifted or have ended.
    pub fn lifted(&self) -> impl Iterator<Item = Lifted> {
        self.changes.lifted()
    }

    /// A hash of all that is known, in parts: the same for the same bans.
    #[must_use]
    pub fn digest(&self) -> &[u64; PARTS] {
        self.changes.digest()
    }

    /// Takes a ban out as if it had never been. `None`: there is none with this number.
    fn remove(&mut self, id: u64) -> Option<Ban> {
        let ban = self.by_id.remove(&id)?;
        self.changes.toggle(&ban.subject, ban.version());
        match &ban.subject {
            Subject::Client(name) => {
                self.clients.remove(name);
            }
            Subject::User(name) => {
                self.users.remove(name);
            }
            Subject::Address(network) => {
                self.addresses.remove(network);
                let length = (network.is_ipv4(), network.prefix());
                if let Some(count) = self.prefixes.get_mut(&length) {
                    *count -= 1;
                    if *count == 0 {
                        self.prefixes.remove(&length);
                    }
                }
            }
        }
        Some(ban)
    }

    /// Forgets those that have ended.
    pub fn remove_ended(&mut self, now_ms: u64) {
        let ended = self.by_id.values().filter(|ban| !ban.counts(now_ms));
        for id in ended.map(|ban| ban.id).collect::<Vec<_>>() {
            if let Some(ban) = self.remove(id) {
                let version = ban.version();
                self.changes.lift(ban.subject, version);
            }
        }
    }

    /// Those that count now, in the order of their numbers.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = &Ban> {
        self.iter_after(None, now_ms)
    }

    /// Those with numbers above this one that count now, in the order of their numbers.
    pub fn iter_after(&self, id: Option<u64>, now_ms: u64) -> impl Iterator<Item = &Ban> {
        let first = id.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_id.range((first, Bound::Unbounded));
        behind
            .map(|(_, ban)| ban)
            .filter(move |ban| ban.counts(now_ms))
    }

    /// A ban that concerns the address, the user name or the client identifier.
    #[must_use]
    pub fn find(
        &self,
        ip: Option<IpAddr>,
        username: Option<&str>,
        client_id: &str,
        now_ms: u64,
    ) -> Option<&Ban> {
        let counting = |id: &u64| self.by_id.get(id).filter(|ban| ban.counts(now_ms));
        let client = self.clients.get(client_id).and_then(counting);
        let user = || self.users.get(username?).and_then(counting);
        let address = || self.find_address(ip?, now_ms);
        client.or_else(user).or_else(address)
    }

    /// A ban that concerns the address.
    #[must_use]
    pub fn find_address(&self, ip: IpAddr, now_ms: u64) -> Option<&Ban> {
        let is_ipv4 = ip.to_canonical().is_ipv4();
        let lengths = self.prefixes.range((is_ipv4, 0)..=(is_ipv4, u8::MAX));
        lengths
            .filter_map(|(&(_, prefix), _)| self.addresses.get(&Network::around(ip, prefix)))
            .filter_map(|id| self.by_id.get(id))
            .find(|ban| ban.counts(now_ms))
    }

    fn id_of(&self, subject: &Subject) -> Option<u64> {
        match subject {
            Subject::Client(name) => self.clients.get(name),
            Subject::User(name) => self.users.get(name),
            Subject::Address(network) => self.addresses.get(network),
        }
        .copied()
    }

    fn version(&self, subject: &Subject) -> Option<Version> {
        let ban = self.id_of(subject).and_then(|id| self.by_id.get(&id));
        ban.map(Ban::version)
            .or_else(|| self.changes.version(subject))
    }

    fn next_id(&self, created_ms: u64) -> u64 {
        let Some(node) = self.node else {
            return self.last_id + 1;
        };
        let mut id = created_ms
            .saturating_mul(IDS_OF_MS)
            .saturating_add(node % IDS_OF_MS);
        while self.by_id.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        id
    }

    fn insert(&mut self, ban: Ban) -> Result<(), TooMany> {
        if let Some(earlier) = self.id_of(&ban.subject) {
            self.remove(earlier);
        }
        // A file that people have written may have a number twice.
        self.remove(ban.id);
        if self.by_id.len() >= MOST {
            return Err(TooMany);
        }
        match &ban.subject {
            Subject::Client(name) => {
                self.clients.insert(name.clone(), ban.id);
            }
            Subject::User(name) => {
                self.users.insert(name.clone(), ban.id);
            }
            Subject::Address(network) => {
                self.addresses.insert(*network, ban.id);
                let length = (network.is_ipv4(), network.prefix());
                *self.prefixes.entry(length).or_default() += 1;
            }
        }
        self.changes.forget(&ban.subject);
        self.changes.toggle(&ban.subject, ban.version());
        self.last_id = self.last_id.max(ban.id);
        self.by_id.insert(ban.id, ban);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
