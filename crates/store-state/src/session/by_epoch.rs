//! What is owed to past connections of clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashing::HashMap;

use crate::partition;

/// Values by epoch and client.
#[derive(Debug)]
pub(super) struct ByEpoch<T> {
    /// In the order of epochs, which is the same on all replicas.
    values: BTreeMap<(u64, Arc<str>), T>,
    /// The epochs of each client, lowest first; at least one.
    clients: HashMap<Arc<str>, Vec<u64>>,
}

impl<T> ByEpoch<T> {
    pub(super) fn new() -> Self {
        Self {
            values: BTreeMap::new(),
            clients: HashMap::default(),
        }
    }

    /// Adds a value that is not there.
    pub(super) fn insert(&mut self, client: Arc<str>, epoch: u64, value: T) {
        let epochs = self.clients.entry(Arc::clone(&client)).or_default();
        epochs.insert(epochs.partition_point(|known| *known < epoch), epoch);
        let before = self.values.insert((epoch, client), value);
        debug_assert!(before.is_none(), "an epoch is given once");
    }

    /// Takes a value out, and with it the client's name as it is held here.
    pub(super) fn remove(&mut self, client: &str, epoch: u64) -> Option<(Arc<str>, T)> {
        let key = self.key(client, epoch)?;
        let value = self.values.remove(&key)?;
        let (_, client) = key;
        if let Some(epochs) = self.clients.get_mut(&client) {
            epochs.retain(|known| *known != epoch);
            if epochs.is_empty() {
                self.clients.remove(&client);
            }
        }
        Some((client, value))
    }

    pub(super) fn get(&self, client: &str, epoch: u64) -> Option<&T> {
        self.values.get(&self.key(client, epoch)?)
    }

    /// The lowest epoch that there is anything for of a client.
    pub(super) fn first_of(&self, client: &str) -> Option<u64> {
        self.clients.get(client)?.first().copied()
    }

    /// Whether there is anything for a client.
    pub(super) fn has(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }

    /// All clients, once each, in no order.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.clients.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64, &T)> {
        let values = self.values.iter();
        values.map(|((epoch, client), value)| (client, *epoch, value))
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Takes out what belongs to the child of a split.
    pub(super) fn split_off(&mut self, is_childs: impl Fn(&str) -> bool) -> Self {
        Self {
            values: partition::sorted_map(&mut self.values, |(_, client)| is_childs(client)),
            clients: partition::hash_map(&mut self.clients, |client| is_childs(client)),
        }
    }

    fn key(&self, client: &str, epoch: u64) -> Option<(u64, Arc<str>)> {
        let (client, _) = self.clients.get_key_value(client)?;
        Some((epoch, Arc::clone(client)))
    }
}
