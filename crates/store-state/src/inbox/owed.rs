//! Retained messages that subscriptions owe to sessions, until these have them queued.
//!
//! Invariants: a filter is owed from SUBSCRIBE until the last page is queued, the subscription is gone, or the
//! session; a page is queued once, in one step with the place of the next. Each filter has a row of its own,
//! so that a change costs what it changes, whatever else the session is owed, and however long its identifier is.

use std::sync::Arc;

use hashing::HashMap;

use super::name::{InboxId, Naming, Slot};
use super::tables::{FilterNumber, OwedRow, PENDING_OF_CLIENT, PendingKey};
use super::{Owed, Progress};
use crate::insertion_map::InsertionMap;
use crate::touched::Touched;
use crate::{Changes, row};

/// Places where the next page begins, by filter, in the order of the subscriptions.
type Filters = InsertionMap<Box<[u8]>>;

/// What is owed, by the number of the inbox.
#[derive(Debug)]
pub(super) struct OwedMessages {
    naming: Naming,
    sessions: HashMap<u64, Filters>,
    clients: Clients,
    touched: Touched<RowName>,
}

/// The clients of sessions that are owed something, while rows are by client. Empty at levels that have rows by inbox.
#[derive(Debug, Default)]
struct Clients {
    by_number: HashMap<u64, Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl Clients {
    fn insert(&mut self, inbox: u64, client: &str) {
        let client: Arc<str> = client.into();
        self.by_number.insert(inbox, Arc::clone(&client));
        self.numbers.insert(client, inbox);
    }

    fn remove(&mut self, inbox: u64) {
        if let Some(client) = self.by_number.remove(&inbox) {
            self.numbers.remove(&client);
        }
    }
}

/// Which row it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RowName {
    /// That of a filter of an inbox.
    Filter(PendingKey),
    /// That of a filter of a client, as levels before wrote it.
    OfClient(Slot, Arc<str>, FilterNumber),
    /// One of an earlier version, by its key. It is removed.
    Superseded(Box<[u8]>),
}

impl OwedMessages {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            sessions: HashMap::default(),
            clients: Clients::default(),
            touched: Touched::new(),
        }
    }

    /// All retained messages that a filter selects; behind what is owed already.
    pub(super) fn owe(&mut self, inbox: InboxId, client: &str, filter: &str) {
        self.cancel(inbox, filter);
        self.note_client(inbox, client);
        let filters = self.sessions.entry(inbox.number.0).or_default();
        let number = FilterNumber(filters.next_number());
        self.touch(inbox, number, filter.len());
        if let Some(filters) = self.sessions.get_mut(&inbox.number.0) {
            filters.push(filter, Box::default());
        }
    }

    pub(super) fn cancel(&mut self, inbox: InboxId, filter: &str) {
        let filters = self.sessions.get(&inbox.number.0);
        if let Some(number) = filters.and_then(|filters| filters.number_of(filter)) {
            self.touch(inbox, FilterNumber(number), 0);
            self.change(inbox, |filters| drop(filters.remove(filter)));
        }
    }

    pub(super) fn end(&mut self, inbox: InboxId) {
        let filters = self.sessions.get(&inbox.number.0).into_iter();
        let numbers: Vec<u64> = filters.flat_map(Filters::numbers).collect();
        for number in numbers {
            self.touch(inbox, FilterNumber(number), 0);
        }
        self.remove(inbox);
    }

    fn remove(&mut self, inbox: InboxId) {
        self.sessions.remove(&inbox.number.0);
        self.clients.remove(inbox.number.0);
    }

    /// Its rows are by client, if the level says so.
    fn note_client(&mut self, inbox: InboxId, client: &str) {
        if !self.naming.level.owes_by_number() {
            self.clients.insert(inbox.number.0, client);
        }
    }

    /// Rows are as the level says from now on: all of them are written anew at the next checkpoint.
    pub(super) fn raise(&mut self, naming: Naming, inbox_of: impl Fn(u64) -> Option<InboxId>) {
        self.naming = naming;
        if !naming.level.owes_by_number() {
            return;
        }
        for (number, client) in std::mem::take(&mut self.clients).by_number {
            let inbox = inbox_of(number).expect("who is owed something has an inbox");
            let filters = self.sessions.get(&number).into_iter();
            for filter in filters.flat_map(Filters::numbers).map(FilterNumber) {
                let superseded = RowName::OfClient(inbox.slot, Arc::clone(&client), filter);
                self.touched.touch(superseded, true, 0);
                let row = RowName::Filter(PendingKey { inbox, filter });
                self.touched.touch(row, false, 0);
            }
        }
    }

    /// Whether an inbox of this number is owed anything.
    pub(super) fn has(&self, inbox: u64) -> bool {
        self.sessions.contains_key(&inbox)
    }

    /// In the order of the subscriptions.
    pub(super) fn of(&self, inbox: u64) -> Vec<Owed> {
        let filters = self.sessions.get(&inbox).into_iter();
        filters
            .flat_map(Filters::iter)
            .map(|(filter, place)| owed(filter, place))
            .collect()
    }

    /// Whether all pages begin where those before ended.
    pub(super) fn goes_on(&self, inbox: InboxId, progress: &[Progress]) -> bool {
        let filters = self.sessions.get(&inbox.number.0);
        progress.iter().all(|step| {
            let place = filters.and_then(|filters| filters.get(&step.filter));
            place == Some(&step.from)
        })
    }

    /// Pages are queued.
    pub(super) fn advance(&mut self, inbox: InboxId, progress: &[Progress]) {
        for Progress { filter, next, .. } in progress {
            let Some(next) = next else {
                self.cancel(inbox, filter);
                continue;
            };
            let filters = self.sessions.get(&inbox.number.0);
            if let Some(number) = filters.and_then(|filters| filters.number_of(filter)) {
                self.touch(inbox, FilterNumber(number), filter.len() + next.len());
                self.change(inbox, |filters| {
                    if let Some(place) = filters.get_mut(filter) {
                        place.clone_from(next);
                    }
                });
            }
        }
    }

    fn change(&mut self, inbox: InboxId, change: impl FnOnce(&mut Filters)) {
        if let Some(filters) = self.sessions.get_mut(&inbox.number.0) {
            change(filters);
            if filters.is_empty() {
                self.remove(inbox);
            }
        }
    }

    /// The row of a filter is about to change, to so many bytes.
    fn touch(&mut self, inbox: InboxId, filter: FilterNumber, bytes: usize) {
        let Self {
            sessions,
            clients,
            touched,
            ..
        } = self;
        let key = PendingKey { inbox, filter };
        let name = match clients.by_number.get(&inbox.number.0) {
            Some(client) => RowName::OfClient(inbox.slot, Arc::clone(client), filter),
            None => RowName::Filter(key),
        };
        touched.settle(&name, |name| written(sessions, clients, name));
        let filters = sessions.get(&inbox.number.0);
        let exists = filters.is_some_and(|filters| filters.entry(filter.0).is_some());
        touched.touch(name, exists, size_of::<PendingKey>() + bytes);
    }

    pub(super) fn load(&mut self, key: PendingKey, Owed { filter, place }: Owed) {
        let filters = self.sessions.entry(key.inbox.number.0).or_default();
        filters.insert(key.filter.0, &filter, place);
    }

    /// A row of a client's filter: it goes on, or is written anew at the next checkpoint if rows are by inbox.
    pub(super) fn load_of_client(
        &mut self,
        key: &[u8],
        (client, inbox): (&str, Option<InboxId>),
        filter: FilterNumber,
        owed: Owed,
    ) {
        match inbox {
            Some(inbox) if !self.naming.level.owes_by_number() => {
                self.note_client(inbox, client);
                self.load(PendingKey { inbox, filter }, owed);
            }
            _ => self.load_superseded(key, (client, inbox), filter, vec![owed]),
        }
    }

    /// A row of an earlier version, which had all filters of a client, or one: it is written anew at the next
    /// checkpoint. `inbox`: the client's; `first`: the number of the first filter.
    pub(super) fn load_superseded(
        &mut self,
        key: &[u8],
        (client, inbox): (&str, Option<InboxId>),
        first: FilterNumber,
        owed: OwedRow,
    ) {
        self.touched.touch(RowName::Superseded(key.into()), true, 0);
        let Some(inbox) = inbox else {
            return;
        };
        self.note_client(inbox, client);
        for (filter, owed) in (first.0..).map(FilterNumber).zip(owed) {
            self.touch(inbox, filter, owed.filter.len() + owed.place.len());
            self.load(PendingKey { inbox, filter }, owed);
        }
    }

    /// Takes out what inboxes are owed whose slots are from `at` on; `moves` says which of them those are.
    pub(super) fn split_off(&mut self, at: u16, moves: impl Fn(u64) -> bool) -> Self {
        let sessions = self.sessions.extract_if(|inbox, _| moves(*inbox));
        Self {
            naming: self.naming,
            sessions: sessions.collect(),
            // No shard is split while rows are by client.
            clients: Clients::default(),
            touched: self.touched.split_off(|row| match row {
                RowName::Filter(key) => key.inbox.slot.0 >= at,
                RowName::OfClient(slot, ..) => slot.0 >= at,
                RowName::Superseded(key) => row::slot(key).is_some_and(|slot| slot >= at),
            }),
        }
    }

    /// Begins a checkpoint of what is now.
    pub(super) fn begin(&mut self) {
        self.touched.begin();
    }

    /// Hands out about so many rows. True: those were the last.
    pub(super) fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool {
        let Self {
            sessions,
            clients,
            touched,
            ..
        } = self;
        touched.collect_part(rows, changes, |name| written(sessions, clients, name))
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
    sessions: &HashMap<u64, Filters>,
    clients: &Clients,
    name: &RowName,
) -> (Vec<u8>, Option<Vec<u8>>) {
    let value = |inbox: u64, filter: FilterNumber| {
        let filters = sessions.get(&inbox);
        let entry = filters.and_then(|filters| filters.entry(filter.0));
        entry.map(|(filter, place)| row::encode(&owed(filter, place)))
    };
    match name {
        RowName::Filter(key) => (key.to_bytes(), value(key.inbox.number.0, key.filter)),
        RowName::OfClient(slot, client, filter) => {
            let key = row::numbered_key(PENDING_OF_CLIENT, slot.0, client, filter.0);
            let inbox = clients.numbers.get(client);
            (key, inbox.and_then(|inbox| value(*inbox, *filter)))
        }
        RowName::Superseded(key) => (key.to_vec(), None),
    }
}
