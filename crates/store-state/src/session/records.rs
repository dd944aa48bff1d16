//! The records of all clients, in the order of their deadlines as well.
//!
//! Invariant: deadlines, counts and names are those of the records. A record is changed by taking it out and
//! putting it back; its name stays among the names meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hashing::HashMap;

use super::record::{Owner, Record};
use crate::partition;

/// When something is due, the epoch of the record, and whose it is.
type Deadline = (u64, u64, Arc<str>);

/// All records. The name of a client is held once.
#[derive(Debug, Default)]
pub(super) struct Records {
    by_client: HashMap<Arc<str>, Record>,
    /// The clients in order, for those who look through them page by page; with [`Self::taken`].
    names: BTreeSet<Arc<str>>,
    /// The client whose record was taken out last, and not put back so far: a change costs no search in the names.
    taken: Option<Arc<str>>,
    /// Soonest first; at the same time in the order of epochs, which is the same on all replicas, and
    /// quicker to compare than names: after the end of a node very many are due at the same time.
    deadlines: BTreeSet<Deadline>,
    connected: usize,
    wills: usize,
    away: Away,
}

impl Records {
    pub(super) fn get(&self, client: &str) -> Option<&Record> {
        self.by_client.get(client)
    }

    pub(super) fn take(&mut self, client: &str) -> Option<(Arc<str>, Record)> {
        let (client, record) = self.by_client.remove_entry(client)?;
        self.connected -= usize::from(record.owner.is_some());
        self.wills -= usize::from(record.will.is_some());
        self.away.take(&record);
        if let Some(at) = record.deadline() {
            self.deadlines
                .remove(&(at, record.epoch, Arc::clone(&client)));
        }
        self.forget_taken();
        self.taken = Some(Arc::clone(&client));
        Some((client, record))
    }

    /// The record that was taken out last is gone for good.
    fn forget_taken(&mut self) {
        if let Some(gone) = self.taken.take() {
            self.names.remove(&gone);
        }
    }

    /// Adds the record of a client that has none.
    pub(super) fn put(&mut self, client: Arc<str>, record: Record) {
        self.connected += usize::from(record.owner.is_some());
        self.wills += usize::from(record.will.is_some());
        self.away.put(&record);
        if let Some(at) = record.deadline() {
            self.deadlines
                .insert((at, record.epoch, Arc::clone(&client)));
        }
        match &self.taken {
            Some(taken) if *taken == client => self.taken = None,
            _ => {
                self.names.insert(Arc::clone(&client));
            }
        }
        self.by_client.insert(client, record);
    }

    /// The records behind `after` whose clients' identifiers begin with `prefix`, in the order of their bytes.
    pub(super) fn page(
        &self,
        after: Option<&str>,
        prefix: &str,
    ) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let names = self.names.range::<str, _>((start, Bound::Unbounded));
        let names = names.take_while(move |client| client.starts_with(prefix));
        // That of a record that was taken out has none.
        names.filter_map(|client| Some((client, self.by_client.get(client)?)))
    }

    /// The soonest deadline, and whose it is.
    pub(super) fn first_deadline(&self) -> Option<(u64, &Arc<str>)> {
        let (at, _, client) = self.deadlines.first()?;
        Some((*at, client))
    }

    /// Clients that an earlier process of a node has connected, in the order of their epochs. Looks at
    /// all records.
    pub(super) fn left_by(&self, node: u64, before: u64) -> Vec<Arc<str>> {
        let left = |owner: Owner| owner.node == node && owner.incarnation < before;
        let records = self.by_client.iter();
        let mut left: Vec<_> = records
            .filter(|(_, record)| record.owner.is_some_and(left))
            .map(|(client, record)| (record.epoch, client))
            .collect();
        left.sort_unstable();
        left.into_iter()
            .map(|(_, client)| Arc::clone(client))
            .collect()
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        self.by_client.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// Those that have a connection.
    pub(super) fn connected(&self) -> usize {
        self.connected
    }

    /// Those without a connection since before a time in ms of Unix time, to the hour. In proportion to the hours.
    pub(super) fn away_before(&self, at_ms: u64) -> usize {
        self.away.before(at_ms)
    }

    /// Those that have a will.
    pub(super) fn wills(&self) -> usize {
        self.wills
    }

    /// Takes out those that belong to the child of a split. In proportion to all of them.
    pub(super) fn split_off(&mut self, is_childs: impl Fn(&str) -> bool) -> Self {
        self.forget_taken();
        let mut child = Self {
            by_client: partition::hash_map(&mut self.by_client, |client| is_childs(client)),
            deadlines: partition::set(&mut self.deadlines, |(.., client)| is_childs(client)),
            names: partition::set(&mut self.names, |client| is_childs(client)),
            ..Self::default()
        };
        for record in child.by_client.values() {
            child.connected += usize::from(record.owner.is_some());
            child.wills += usize::from(record.will.is_some());
            child.away.put(record);
            self.away.take(record);
        }
        self.connected -= child.connected;
        self.wills -= child.wills;
        child
    }
}

/// How many clients have been away since when, by the hour of Unix time.
#[derive(Debug, Default)]
struct Away(BTreeMap<u64, usize>);

impl Away {
    const HOUR_MS: u64 = 3_600_000;

    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut away = Self::default();
        for record in records {
            away.put(record);
        }
        away
    }

    fn hour(record: &Record) -> Option<u64> {
        record
            .owner
            .is_none()
            .then_some(record.since / Self::HOUR_MS)
    }

    fn put(&mut self, record: &Record) {
        if let Some(hour) = Self::hour(record) {
            *self.0.entry(hour).or_default() += 1;
        }
    }

    fn take(&mut self, record: &Record) {
        if let Some(hour) = Self::hour(record)
            && let Some(count) = self.0.get_mut(&hour)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&hour);
            }
        }
    }

    fn before(&self, at_ms: u64) -> usize {
        self.0.range(..at_ms / Self::HOUR_MS).map(|(_, n)| n).sum()
    }
}

impl From<HashMap<Arc<str>, Record>> for Records {
    /// For many records: their deadlines are sorted once.
    fn from(by_client: HashMap<Arc<str>, Record>) -> Self {
        let count = |which: fn(&Record) -> bool| by_client.values().filter(|r| which(r)).count();
        Self {
            connected: count(|record| record.owner.is_some()),
            wills: count(|record| record.will.is_some()),
            away: Away::of(by_client.values()),
            deadlines: by_client
                .iter()
                .filter_map(|(client, record)| {
                    Some((record.deadline()?, record.epoch, Arc::clone(client)))
                })
                .collect(),
            names: by_client.keys().cloned().collect(),
            taken: None,
            by_client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_listed_in_order_whatever_becomes_of_them() {
        let mut records = Records::default();
        let owner = Some(Owner {
            node: 1,
            incarnation: 1,
        });
        let listed = |records: &Records, after, prefix: &str| {
            let page = records.page(after, prefix);
            page.map(|(client, _)| client.to_string())
                .collect::<Vec<_>>()
        };
        for client in ["c", "a", "b/1", "b", "ü", ""] {
            records.put(client.into(), record(1, owner));
        }
        assert_eq!(listed(&records, None, ""), ["", "a", "b", "b/1", "c", "ü"]);
        assert_eq!(listed(&records, Some("b"), ""), ["b/1", "c", "ü"]);
        assert_eq!(listed(&records, Some("aa"), "b"), ["b", "b/1"]);
        assert_eq!(listed(&records, Some("c"), "b"), [""; 0]);
        // Changed, gone, and gone while others change.
        let (client, changed) = records.take("b").unwrap();
        assert_eq!(listed(&records, None, "b"), ["b/1"]);
        records.put(client, changed);
        assert_eq!(listed(&records, None, "b"), ["b", "b/1"]);
        let _ = records.take("a").unwrap();
        let (one, first) = records.take("b").unwrap();
        let (other, second) = records.take("c").unwrap();
        records.put(one, first);
        records.put(other, second);
        assert_eq!(listed(&records, None, ""), ["", "b", "b/1", "c", "ü"]);
        let _ = records.take("").unwrap();
        let child = records.split_off(|client| client > "b");
        assert_eq!(listed(&records, None, ""), ["b"]);
        assert_eq!(listed(&child, None, ""), ["b/1", "c", "ü"]);
        assert_eq!(records.names.len(), 1);
        let again = Records::from(child.by_client);
        assert_eq!(listed(&again, None, ""), ["b/1", "c", "ü"]);
    }

    fn record(since: u64, owner: Option<Owner>) -> Record {
        Record {
            epoch: 1,
            incarnation: 1,
            owner,
            since,
            expiry: 60,
            inbox: true,
            user: None,
            will: None,
        }
    }

    #[test]
    fn who_is_away_is_counted_by_the_hour() {
        const HOUR: u64 = Away::HOUR_MS;
        let owner = Owner {
            node: 1,
            incarnation: 1,
        };
        let all = [
            ("a", record(5 * HOUR + 9, None)),
            ("b", record(6 * HOUR, None)),
            ("c", record(HOUR, Some(owner))),
        ];
        let mut records = Records::default();
        for (client, record) in all {
            records.put(client.into(), record);
        }
        let away = |records: &Records, hour| records.away_before(hour * HOUR);
        let counts = [5, 6, 7].map(|hour| away(&records, hour));
        assert_eq!(counts, [0, 1, 2]);
        records.take("a");
        assert_eq!(away(&records, 7), 1);
        let loaded = Records::from(std::mem::take(&mut records.by_client));
        assert_eq!(away(&loaded, 7), 1);
    }
}
