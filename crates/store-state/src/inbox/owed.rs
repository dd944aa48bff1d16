//! Retained messages that subscriptions owe to sessions, until these have them queued.
//!
//! Invariants: a filter is owed from SUBSCRIBE until the last page is queued, the subscription is gone, or the
//! session; a page is queued once, in one step with the place of the next.

use hashbrown::HashMap;

use super::tables::{OWED, OwedRow};
use super::{Owed, Progress};
use crate::touched::Touched;
use crate::{Changes, row};

/// What is owed, by client.
#[derive(Debug)]
pub(super) struct OwedMessages {
    sessions: HashMap<Box<str>, OwedRow>,
    touched: Touched<Box<str>>,
}

impl OwedMessages {
    pub(super) fn new() -> Self {
        Self {
            sessions: HashMap::new(),
            touched: Touched::new(),
        }
    }

    /// All retained messages that a filter selects.
    pub(super) fn owe(&mut self, client: &str, filter: &str) {
        let owed = Owed {
            filter: filter.into(),
            place: Box::default(),
        };
        self.change(client, |all| {
            all.retain(|known| *known.filter != *filter);
            all.push(owed);
        });
    }

    pub(super) fn cancel(&mut self, client: &str, filter: &str) {
        if self.of(client).iter().any(|owed| *owed.filter == *filter) {
            self.change(client, |all| all.retain(|owed| *owed.filter != *filter));
        }
    }

    pub(super) fn end(&mut self, client: &str) {
        if self.sessions.contains_key(client) {
            self.change(client, Vec::clear);
        }
    }

    /// In the order of the subscriptions.
    pub(super) fn of(&self, client: &str) -> &[Owed] {
        self.sessions.get(client).map_or(&[], |owed| owed)
    }

    /// Whether all pages begin where those before ended.
    pub(super) fn goes_on(&self, client: &str, progress: &[Progress]) -> bool {
        let owed = self.of(client);
        progress.iter().all(|step| {
            let is_it = |owed: &Owed| (&owed.filter, &owed.place) == (&step.filter, &step.from);
            owed.iter().any(is_it)
        })
    }

    /// Pages are queued.
    pub(super) fn advance(&mut self, client: &str, progress: &[Progress]) {
        self.change(client, |all| {
            for Progress { filter, next, .. } in progress {
                let Some(at) = all.iter().position(|owed| owed.filter == *filter) else {
                    continue;
                };
                match next {
                    Some(next) => all[at].place.clone_from(next),
                    None => drop(all.remove(at)),
                }
            }
        });
    }

    fn change(&mut self, client: &str, change: impl FnOnce(&mut OwedRow)) {
        let (existed, mut all) = match self.sessions.remove(client) {
            Some(all) => (true, all),
            None => (false, Vec::new()),
        };
        change(&mut all);
        let size = |owed: &Owed| owed.filter.len() + owed.place.len();
        let bytes = client.len() + all.iter().map(size).sum::<usize>();
        self.touched.touch(client.into(), existed, bytes);
        if !all.is_empty() {
            self.sessions.insert(client.into(), all);
        }
    }

    pub(super) fn load(&mut self, client: &str, owed: OwedRow) {
        self.sessions.insert(client.into(), owed);
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        let sessions = &self.sessions;
        self.touched.collect(changes, |client| {
            let value = sessions.get(client).map(row::encode);
            (row::key(OWED, client), value)
        });
    }

    pub(super) fn saved(&mut self) {
        self.touched.saved();
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }
}
