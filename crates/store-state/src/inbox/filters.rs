//! Which filters this shard has subscriptions with: what the rest of the broker has to know to send a
//! message here.
//!
//! Invariant: the outlet is told exactly when one of the two answers for a filter changes: whether any
//! session has it, and whether any such is detached.

use hashbrown::hash_map::EntryRef;
use hashing::HashMap;

use super::InboxOutlet;

/// Subscriptions by filter, shared ones not among them.
#[derive(Debug, Default)]
pub(super) struct Filters {
    counts: HashMap<Box<str>, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    detached: u32,
}

impl Count {
    const fn answers(self) -> (bool, bool) {
        (self.all > 0, self.detached > 0)
    }
}

impl Filters {
    /// A session has subscribed.
    pub(super) fn add(&mut self, filter: &str, detached: bool, outlet: &mut dyn InboxOutlet) {
        self.change(filter, 1, i32::from(detached), outlet);
    }

    /// A session has it no more.
    pub(super) fn remove(&mut self, filter: &str, detached: bool, outlet: &mut dyn InboxOutlet) {
        self.change(filter, -1, -i32::from(detached), outlet);
    }

    /// A session that has it was attached.
    pub(super) fn attach(&mut self, filter: &str, outlet: &mut dyn InboxOutlet) {
        self.change(filter, 0, -1, outlet);
    }

    /// A session that has it was detached.
    pub(super) fn detach(&mut self, filter: &str, outlet: &mut dyn InboxOutlet) {
        self.change(filter, 0, 1, outlet);
    }

    /// A session of the tables has it.
    pub(super) fn load(&mut self, filter: &str, detached: bool) {
        let count = self.count(filter);
        count.all += 1;
        count.detached += u32::from(detached);
    }

    /// Tells of all filters, in no order.
    pub(super) fn tell(&self, outlet: &mut dyn InboxOutlet) {
        for (filter, count) in &self.counts {
            let (any, detached) = count.answers();
            outlet.filter(filter, any, detached);
        }
    }

    fn count(&mut self, filter: &str) -> &mut Count {
        match self.counts.entry_ref(filter) {
            EntryRef::Occupied(known) => known.into_mut(),
            EntryRef::Vacant(place) => place.insert_with_key(filter.into(), Count::default()),
        }
    }

    fn change(&mut self, filter: &str, all: i32, detached: i32, outlet: &mut dyn InboxOutlet) {
        let count = self.count(filter);
        let before = count.answers();
        count.all = count.all.saturating_add_signed(all);
        count.detached = count.detached.saturating_add_signed(detached);
        let after = count.answers();
        if !after.0 {
            self.counts.remove(filter);
        }
        if after != before {
            outlet.filter(filter, after.0, after.1);
        }
    }
}
