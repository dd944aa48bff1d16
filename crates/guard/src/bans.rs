//! All bans: exact names by hash, addresses by each prefix length that is in use.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use config::Network;

use crate::ban::{Ban, Subject};

/// The most bans there can be.
const MOST: usize = 100_000;

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
        let ban = Ban {
            id: self.last_id + 1,
            subject,
            reason,
            created_ms: now_ms,
            expires_ms,
        };
        self.insert(ban.clone())?;
        Ok(ban)
    }

    /// Takes a ban back. `None`: there is none with this number.
    pub fn remove(&mut self, id: u64) -> Option<Ban> {
        let ban = self.by_id.remove(&id)?;
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
            self.remove(id);
        }
    }

    /// Those that count now, in the order of their numbers.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = &Ban> {
        self.by_id.values().filter(move |ban| ban.counts(now_ms))
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

    fn insert(&mut self, ban: Ban) -> Result<(), TooMany> {
        let earlier = match &ban.subject {
            Subject::Client(name) => self.clients.get(name),
            Subject::User(name) => self.users.get(name),
            Subject::Address(network) => self.addresses.get(network),
        };
        if let Some(&earlier) = earlier {
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
        self.last_id = self.last_id.max(ban.id);
        self.by_id.insert(ban.id, ban);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
