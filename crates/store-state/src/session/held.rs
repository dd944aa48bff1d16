//! Wills of connections that were taken over from another process, which has yet to say how they ended: the client may
//! have sent DISCONNECT on one, and so discarded its will, before it connected anew.
//!
//! Invariant: a will is held until its connection's end is recorded, its process has ended, or [`HELD_MS`] have passed;
//! at most [`MOST`] are held. Who then has not said that the will is discarded leaves it to be published.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StoredWill;
use super::by_epoch::ByEpoch;
use super::record::Owner;
use crate::partition;

/// How long a will is held, in ms: longer than a CONNECT waits for the node that had its client.
pub(super) const HELD_MS: u64 = 10_000;

/// How many wills a shard holds. Beyond that the one that has the least time left is published.
///
/// Limit: wills of connections that another node has taken over, until it is known whether they were discarded |
/// {HELD_MS}; {} a session shard | the one with the least time left is published
pub(super) const MOST: usize = 65_536;

/// A will, and who may say that it is discarded.
#[derive(Debug)]
pub(super) struct HeldWill {
    pub(super) will: Box<StoredWill>,
    /// The process that had the connection.
    pub(super) owner: Owner,
    /// When it is published, Unix time in ms.
    pub(super) until: u64,
}

/// Those of a shard.
#[derive(Debug)]
pub(super) struct HeldWills {
    wills: ByEpoch<HeldWill>,
    /// Soonest first; at the same time in the order of epochs.
    deadlines: BTreeSet<(u64, u64, Arc<str>)>,
}

impl HeldWills {
    pub(super) fn new() -> Self {
        Self {
            wills: ByEpoch::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Adds a will that is not there.
    pub(super) fn insert(&mut self, client: Arc<str>, epoch: u64, held: HeldWill) {
        self.deadlines
            .insert((held.until, epoch, Arc::clone(&client)));
        self.wills.insert(client, epoch, held);
    }

    pub(super) fn remove(&mut self, client: &str, epoch: u64) -> Option<(Arc<str>, HeldWill)> {
        let (client, held) = self.wills.remove(client, epoch)?;
        self.deadlines
            .remove(&(held.until, epoch, Arc::clone(&client)));
        Some((client, held))
    }

    pub(super) fn get(&self, client: &str, epoch: u64) -> Option<&HeldWill> {
        self.wills.get(client, epoch)
    }

    /// The lowest epoch of a client that has one.
    pub(super) fn first_of(&self, client: &str) -> Option<u64> {
        self.wills.first_of(client)
    }

    /// Whether there is any of a client.
    pub(super) fn has(&self, client: &str) -> bool {
        self.wills.has(client)
    }

    /// The soonest deadline, and of which client and epoch.
    pub(super) fn first_deadline(&self) -> Option<(u64, Arc<str>, u64)> {
        let (at, epoch, client) = self.deadlines.first()?;
        Some((*at, Arc::clone(client), *epoch))
    }

    /// The earlier processes of a node have ended: what is held for them is due at `at` at the latest. Looks at all, and
    /// calls `changed` for each of theirs, in the order of their epochs.
    pub(super) fn hasten(
        &mut self,
        process: Owner,
        at: u64,
        mut changed: impl FnMut(&Arc<str>, u64),
    ) {
        let Owner { node, incarnation } = process;
        let left = |of: Owner| of.node == node && of.incarnation < incarnation;
        let wills = self.wills.iter();
        let left: Vec<_> = wills
            .filter(|(.., held)| left(held.owner))
            .map(|(client, epoch, _)| (Arc::clone(client), epoch))
            .collect();
        for (client, epoch) in left {
            if let Some((client, held)) = self.remove(&client, epoch) {
                changed(&client, epoch);
                let until = held.until.min(at);
                self.insert(client, epoch, HeldWill { until, ..held });
            }
        }
    }

    /// All clients, once each, in no order.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.wills.clients()
    }

    /// In the order of epochs.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64, &HeldWill)> {
        self.wills.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.wills.len()
    }

    /// Takes out those that belong to the child of a split.
    pub(super) fn split_off(&mut self, is_childs: impl Fn(&str) -> bool) -> Self {
        Self {
            deadlines: partition::set(&mut self.deadlines, |(.., client)| is_childs(client)),
            wills: self.wills.split_off(is_childs),
        }
    }
}
