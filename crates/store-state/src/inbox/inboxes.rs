//! All inboxes of a shard, by number and by client; and legacies: inboxes of sessions that have ended.
//!
//! Invariant: a client has one inbox at most, beside legacies. An inbox stands in an allocation of its own,
//! so that the tables that find it can grow without moving it, and without room for inboxes that do not
//! exist.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashing::{HashBuilder, HashMap};

use super::inbox::Inbox;

#[derive(Debug, Default)]
pub(super) struct Inboxes {
    by_number: HashMap<u64, Box<Inbox>>,
    /// Numbers, found by client.
    by_client: HashTable<u64>,
    hasher: HashBuilder,
    /// By number. No client is found here.
    pub(super) legacies: BTreeMap<u64, Box<Inbox>>,
}

impl Inboxes {
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn number_of(&self, client: &str) -> Option<u64> {
        let is_it = |number: &u64| {
            self.by_number
                .get(number)
                .is_some_and(|inbox| *inbox.client == *client)
        };
        let hash = self.hasher.hash_one(client);
        self.by_client.find(hash, is_it).copied()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Inbox> {
        self.by_number.get(&number).map(|inbox| &**inbox)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Inbox> {
        self.by_number.get_mut(&number).map(|inbox| &mut **inbox)
    }

    /// An inbox or a legacy.
    pub(super) fn any_mut(&mut self, number: u64) -> Option<&mut Inbox> {
        let inbox = self.by_number.get_mut(&number);
        let found = inbox.or_else(|| self.legacies.get_mut(&number));
        found.map(|inbox| &mut **inbox)
    }

    pub(super) fn of_client(&mut self, client: &str) -> Option<&mut Inbox> {
        self.get_mut(self.number_of(client)?)
    }

    /// The inbox of a client, if a request of a connection with this epoch may still change it.
    pub(super) fn current(&mut self, client: &str, epoch: u64) -> Option<&mut Inbox> {
        self.of_client(client).filter(|inbox| epoch >= inbox.epoch)
    }

    /// Adds an inbox whose number and client are new.
    pub(super) fn insert(&mut self, inbox: Inbox) {
        let (number, hash) = (inbox.number, self.hasher.hash_one(&*inbox.client));
        self.by_number.insert(number, Box::new(inbox));
        let hash_of = |number: &u64| {
            let inbox = self.by_number.get(number);
            inbox.map_or(0, |inbox| self.hasher.hash_one(&*inbox.client))
        };
        self.by_client.insert_unique(hash, number, hash_of);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Inbox>> {
        let inbox = self.by_number.remove(&number)?;
        let hash = self.hasher.hash_one(&*inbox.client);
        if let Ok(found) = self.by_client.find_entry(hash, |&of| of == number) {
            found.remove();
        }
        Some(inbox)
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Inbox> {
        self.by_number.values().map(|inbox| &**inbox)
    }
}
