//! Retained messages that subscriptions owe to sessions, until these have them queued.
//!
//! Invariants: a filter is owed from SUBSCRIBE until the last page is queued, the subscription is gone, or the
//! session; a page is queued once, in one step with the place of the next. Each filter has a row of its own,
//! so that a change costs what it changes, whatever else the session is owed.

use std::sync::Arc;

use hashing::HashMap;

use super::tables::{OWED, OWED_FILTER, OwedRow};
use super::{Owed, Progress};
use crate::insertion_map::InsertionMap;
use crate::touched::Touched;
use crate::{Changes, NameHash, row};

/// Places where the next page begins, by filter, in the order of the subscriptions.
type Filters = InsertionMap<Box<[u8]>>;

/// What is owed, by client.
#[derive(Debug)]
pub(super) struct OwedMessages {
    hash: NameHash,
    sessions: HashMap<Arc<str>, Filters>,
    touched: Touched<RowName>,
}

/// Which row it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RowName {
    /// That of a client's filter, by its number.
    Filter(Arc<str>, u64),
    /// The one that earlier versions wrote for all filters of a client. It is removed.
    All(Arc<str>),
}

impl OwedMessages {
    pub(super) fn new(hash: NameHash) -> Self {
        Self {
            hash,
            sessions: HashMap::default(),
            touched: Touched::new(),
        }
    }

    /// All retained messages that a filter selects; behind what is owed already.
    pub(super) fn owe(&mut self, client: &str, filter: &str) {
        self.cancel(client, filter);
        let client = self.client(client);
        let filters = self.sessions.entry(Arc::clone(&client)).or_default();
        let number = filters.next_number();
        self.touch(&client, number, filter.len());
        if let Some(filters) = self.sessions.get_mut(&client) {
            filters.push(filter, Box::default());
        }
    }

    pub(super) fn cancel(&mut self, client: &str, filter: &str) {
        let filters = self.sessions.get(client);
        if let Some(number) = filters.and_then(|filters| filters.number_of(filter)) {
            let client = self.client(client);
            self.touch(&client, number, 0);
            self.change(&client, |filters| drop(filters.remove(filter)));
        }
    }

    pub(super) fn end(&mut self, client: &str) {
        let Some(filters) = self.sessions.get(client) else {
            return;
        };
        let numbers: Vec<u64> = filters.numbers().collect();
        let client = self.client(client);
        for number in numbers {
            self.touch(&client, number, 0);
        }
        self.sessions.remove(&client);
    }

    pub(super) fn has(&self, client: &str) -> bool {
        self.sessions.contains_key(client)
    }

    /// In the order of the subscriptions.
    pub(super) fn of(&self, client: &str) -> Vec<Owed> {
        let filters = self.sessions.get(client).into_iter();
        filters
            .flat_map(Filters::iter)
            .map(|(filter, place)| owed(filter, place))
            .collect()
    }

    /// Whether all pages begin where those before ended.
    pub(super) fn goes_on(&self, client: &str, progress: &[Progress]) -> bool {
        let filters = self.sessions.get(client);
        progress.iter().all(|step| {
            let place = filters.and_then(|filters| filters.get(&step.filter));
            place == Some(&step.from)
        })
    }

    /// Pages are queued.
    pub(super) fn advance(&mut self, client: &str, progress: &[Progress]) {
        for Progress { filter, next, .. } in progress {
            let Some(next) = next else {
                self.cancel(client, filter);
                continue;
            };
            let filters = self.sessions.get(client);
            if let Some(number) = filters.and_then(|filters| filters.number_of(filter)) {
                let client = self.client(client);
                self.touch(&client, number, filter.len() + next.len());
                self.change(&client, |filters| {
                    if let Some(place) = filters.get_mut(filter) {
                        place.clone_from(next);
                    }
                });
            }
        }
    }

    fn change(&mut self, client: &str, change: impl FnOnce(&mut Filters)) {
        if let Some(filters) = self.sessions.get_mut(client) {
            change(filters);
            if filters.is_empty() {
                self.sessions.remove(client);
            }
        }
    }

    /// The row of a filter is about to change, to so many bytes.
    fn touch(&mut self, client: &Arc<str>, number: u64, bytes: usize) {
        let Self {
            hash,
            sessions,
            touched,
        } = self;
        let name = RowName::Filter(Arc::clone(client), number);
        touched.settle(&name, |name| written(*hash, sessions, name));
        let filters = sessions.get(client);
        let exists = filters.is_some_and(|filters| filters.entry(number).is_some());
        touched.touch(name, exists, client.len() + bytes);
    }

    fn client(&self, client: &str) -> Arc<str> {
        let known = self.sessions.get_key_value(client);
        known.map_or_else(|| client.into(), |(client, _)| Arc::clone(client))
    }

    pub(super) fn load(&mut self, client: &str, number: u64, Owed { filter, place }: Owed) {
        let client = self.client(client);
        let filters = self.sessions.entry(client).or_default();
        filters.insert(number, &filter, place);
    }

    /// What an earlier version wrote, to be written anew at the next checkpoint.
    pub(super) fn load_all(&mut self, client: &str, owed: OwedRow) {
        let client = self.client(client);
        self.touched
            .touch(RowName::All(Arc::clone(&client)), true, 0);
        for (number, owed) in (0..).zip(owed) {
            self.touch(&client, number, owed.filter.len() + owed.place.len());
            self.load(&client, number, owed);
        }
    }

    /// Begins a checkpoint of what is now.
    pub(super) fn begin(&mut self) {
        self.touched.begin();
    }

    /// Hands out about so many rows. True: those were the last.
    pub(super) fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool {
        let Self {
            hash,
            sessions,
            touched,
        } = self;
        touched.collect_part(rows, changes, |name| written(*hash, sessions, name))
    }

    pub(super) fn saved(&mut self) {
        self.touched.saved();
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }
}

fn owed(filter: &str, place: &[u8]) -> Owed {
    Owed {
        filter: filter.into(),
        place: place.into(),
    }
}

/// A row as it is now.
fn written(
    hash: NameHash,
    sessions: &HashMap<Arc<str>, Filters>,
    name: &RowName,
) -> (Vec<u8>, Option<Vec<u8>>) {
    match name {
        RowName::Filter(client, number) => {
            let filters = sessions.get(client);
            let entry = filters.and_then(|filters| filters.entry(*number));
            let value = entry.map(|(filter, place)| row::encode(&owed(filter, place)));
            let slot = hash.slot_of(client);
            (row::numbered_key(OWED_FILTER, slot, client, *number), value)
        }
        RowName::All(client) => (row::key(OWED, hash.slot_of(client), client), None),
    }
}
