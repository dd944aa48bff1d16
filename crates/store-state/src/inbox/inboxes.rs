//! All inboxes of a shard, by number and by client; and legacies: inboxes of sessions that have ended.
//!
//! Invariant: a client has one inbox at most, beside legacies. An inbox stands in an allocation of its own,
//! so that the tables that find it can grow without moving it, and without room for inboxes that do not
//! exist.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashing::{HashBuilder, HashMap};

use super::inbox::Inbox;
use super::name::{InboxId, Naming, SessionName};

#[derive(Debug)]
pub(super) struct Inboxes {
    naming: Naming,
    by_number: HashMap<u64, Box<Inbox>>,
    /// Numbers, found by client.
    by_client: HashTable<u64>,
    hasher: HashBuilder,
    /// Those of clients whose identifiers are long, by their names.
    long: HashMap<Box<str>, u64>,
    /// By number. No client is found here.
    pub(super) legacies: BTreeMap<u64, Box<Inbox>>,
}

impl Inboxes {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            by_number: HashMap::default(),
            by_client: HashTable::default(),
            hasher: HashBuilder::default(),
            long: HashMap::default(),
            legacies: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The number of a client's inbox, by its identifier or its name.
    pub(super) fn number_of(&self, client: &str) -> Option<u64> {
        if let Some(number) = self.long.get(client) {
            return Some(*number);
        }
        let is_it = |number: &u64| {
            self.by_number
                .get(number)
                .is_some_and(|inbox| *inbox.client == *client)
        };
        let hash = self.hasher.hash_one(client);
        self.by_client.find(hash, is_it).copied()
    }

    /// Whether the session of a client has begun with the connection of this epoch.
    pub(super) fn has_begun(&self, client: &str, epoch: u64) -> bool {
        let inbox = self.number_of(client).and_then(|number| self.get(number));
        inbox.is_some_and(|inbox| inbox.incarnation == epoch)
    }

    /// The inbox of a client, by its identifier or its name.
    pub(super) fn id_of(&self, client: &str) -> Option<InboxId> {
        Some(self.get(self.number_of(client)?)?.id())
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

    /// The inbox that a request is for.
    pub(super) fn named(&mut self, name: &SessionName) -> Option<&mut Inbox> {
        match name {
            SessionName::Inbox(id) => {
                let inbox = self.get_mut(id.number.0);
                inbox.filter(|inbox| inbox.queue.slot() == id.slot.0)
            }
            SessionName::Client(name) => self.get_mut(self.number_of(name.as_str())?),
        }
    }

    /// The inbox that a request is for, if a connection with this epoch may still change it.
    pub(super) fn current(&mut self, name: &SessionName, epoch: u64) -> Option<&mut Inbox> {
        self.named(name).filter(|inbox| epoch >= inbox.epoch)
    }

    /// What the client of a session is called, however a request names the session. Empty: there is no such inbox.
    pub(super) fn name_of<'a>(&'a mut self, session: &'a SessionName) -> Cow<'a, str> {
        let naming = self.naming;
        let client = match session {
            SessionName::Client(name) => name.as_str(),
            SessionName::Inbox(_) => match self.named(session) {
                Some(inbox) => &inbox.client,
                None => "",
            },
        };
        naming.name_of(client)
    }

    /// Clients are named so from now on.
    pub(super) fn rename(&mut self, naming: Naming) {
        self.naming = naming;
        let long = self.by_number.iter();
        let long = long.filter(|(_, inbox)| naming.is_long(&inbox.client));
        self.long = long
            .map(|(number, inbox)| (naming.name_of(&inbox.client).into(), *number))
            .collect();
    }

    /// Adds an inbox whose number and client are new.
    pub(super) fn insert(&mut self, inbox: Inbox) {
        let (number, hash) = (inbox.number, self.hasher.hash_one(&*inbox.client));
        if self.naming.is_long(&inbox.client) {
            let name = self.naming.name_of(&inbox.client);
            self.long.insert(name.into(), number);
        }
        self.by_number.insert(number, Box::new(inbox));
        let hash_of = |number: &u64| {
            let inbox = self.by_number.get(number);
            inbox.map_or(0, |inbox| self.hasher.hash_one(&*inbox.client))
        };
        self.by_client.insert_unique(hash, number, hash_of);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Inbox>> {
        let inbox = self.by_number.remove(&number)?;
        if self.naming.is_long(&inbox.client) {
            self.long.remove(&*self.naming.name_of(&inbox.client));
        }
        let hash = self.hasher.hash_one(&*inbox.client);
        if let Ok(found) = self.by_client.find_entry(hash, |&of| of == number) {
            found.remove();
        }
        Some(inbox)
    }

    /// Takes out the inboxes and legacies of the slots from `at` on. `moved` is told of each.
    pub(super) fn split_off(&mut self, at: u16, mut moved: impl FnMut(&Inbox)) -> Self {
        let mut upper = Self::new(self.naming);
        let moves = |inbox: &Inbox| inbox.queue.slot() >= at;
        let inboxes = self.by_number.extract_if(|_, inbox| moves(inbox));
        // The map has room for all from the beginning: to grow it would move what is in it.
        let inboxes: Vec<_> = inboxes.inspect(|(_, inbox)| moved(inbox)).collect();
        upper.by_number.extend(inboxes);
        for (number, legacy) in self.legacies.extract_if(.., |_, legacy| moves(legacy)) {
            moved(&legacy);
            upper.legacies.insert(number, legacy);
        }
        self.by_client
            .retain(|number| !upper.by_number.contains_key(number));
        let hash_of = |number: &u64| {
            let inbox = upper.by_number.get(number);
            inbox.map_or(0, |inbox| upper.hasher.hash_one(&*inbox.client))
        };
        upper.by_client.reserve(upper.by_number.len(), hash_of);
        for (number, inbox) in &upper.by_number {
            let hash = upper.hasher.hash_one(&*inbox.client);
            upper.by_client.insert_unique(hash, *number, hash_of);
        }
        let long = self
            .long
            .extract_if(|_, number| upper.by_number.contains_key(number));
        upper.long = long.collect();
        upper
    }

    /// Whether there is an inbox or a legacy of this number.
    pub(super) fn has(&self, number: u64) -> bool {
        self.by_number.contains_key(&number) || self.legacies.contains_key(&number)
    }

    /// The numbers of all inboxes, legacies apart; in no order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.by_number.keys().copied().collect()
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Inbox> {
        self.by_number.values().map(|inbox| &**inbox)
    }
}
