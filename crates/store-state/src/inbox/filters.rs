//! Which filters this shard has subscriptions with: what the rest of the broker has to know to send a
//! message here.
//!
//! Invariant: the outlet is told exactly when one of the two answers for a filter changes: whether any
//! session has it, and whether any such is detached.
//!
//! When a shard is split, each half counts its subscriptions anew, in parts. Until it has counted all, an answer is yes
//! if it was before the split, and the outlet may be told an answer that it knows; then it is told of the filters whose
//! answers are others, in parts too. So what the outlet knows has all that is true at any time.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use hashing::HashBuilder;

use super::InboxOutlet;

/// Subscriptions by filter, shared ones not among them.
#[derive(Debug, Default)]
pub(super) struct Filters {
    counts: Counts,
    /// Those of before a split, oldest first, while the outlet may know their answers.
    bases: Vec<Arc<Counts>>,
    /// Those that no half needs any more, and this one has yet to free.
    retired: Vec<Counts>,
    /// Some subscriptions are in `bases` only.
    counting: bool,
    /// The next place to be compared of the first base, or to be freed if there is none.
    place: usize,
}

/// Subscriptions by filter.
#[derive(Debug, Default)]
struct Counts {
    table: HashTable<(Box<str>, Count)>,
    hasher: HashBuilder,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    detached: u32,
}

/// Whether any session has a filter, and whether any such is detached.
type Answers = (bool, bool);

impl Count {
    const fn answers(self) -> Answers {
        (self.all > 0, self.detached > 0)
    }
}

impl Counts {
    fn answers(&self, filter: &str) -> Answers {
        let hash = self.hasher.hash_one(filter);
        let found = self.table.find(hash, |(of, _)| **of == *filter);
        found.map_or((false, false), |(_, count)| count.answers())
    }

    fn has(&self, filter: &str) -> bool {
        self.answers(filter).0
    }

    /// Changes a count. The answers before and after.
    fn change(&mut self, filter: &str, change: impl FnOnce(&mut Count)) -> (Answers, Answers) {
        let hash = self.hasher.hash_one(filter);
        let hash_of = |(of, _): &(Box<str>, Count)| self.hasher.hash_one(&**of);
        let is_it = |(of, _): &(Box<str>, Count)| **of == *filter;
        let mut entry = match self.table.entry(hash, is_it, hash_of) {
            Entry::Occupied(known) => known,
            Entry::Vacant(place) => place.insert((filter.into(), Count::default())),
        };
        let (_, count) = entry.get_mut();
        let before = count.answers();
        change(count);
        let after = count.answers();
        if !after.0 {
            entry.remove();
        }
        (before, after)
    }
}

const fn either(one: Answers, other: Answers) -> Answers {
    (one.0 || other.0, one.1 || other.1)
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

    /// A session of the tables, or of before a split, has it.
    pub(super) fn load(&mut self, filter: &str, detached: bool) {
        self.counts.change(filter, |count| {
            count.all += 1;
            count.detached += u32::from(detached);
        });
    }

    /// Tells of all filters, in no order.
    pub(super) fn tell(&self, outlet: &mut dyn InboxOutlet) {
        for (known, base) in self.bases().enumerate() {
            for (filter, _) in &base.table {
                if !self.bases().take(known).any(|other| other.has(filter)) {
                    let (any, detached) = self.answers(filter, self.counts.answers(filter));
                    outlet.filter(filter, any, detached);
                }
            }
        }
        for (filter, count) in &self.counts.table {
            if !self.bases().any(|base| base.has(filter)) {
                let (any, detached) = count.answers();
                outlet.filter(filter, any, detached);
            }
        }
    }

    /// The same for the other half of a shard that is split. Neither has counted anything.
    pub(super) fn split_off(&mut self) -> Self {
        self.bases.push(Arc::new(std::mem::take(&mut self.counts)));
        self.counting = true;
        self.place = 0;
        Self {
            counts: Counts::default(),
            bases: self.bases.clone(),
            retired: Vec::new(),
            counting: true,
            place: 0,
        }
    }

    /// All subscriptions are counted: tells of filters whose answers are not those of before the split, and looks at
    /// about so many. True: there are no more.
    pub(super) fn narrow_part(&mut self, filters: usize, outlet: &mut dyn InboxOutlet) -> bool {
        self.counting = false;
        let mut left = filters;
        while left > 0
            && let Some(base) = self.bases.first()
        {
            let end = base
                .table
                .num_buckets()
                .min(self.place.saturating_add(left));
            left -= end - self.place;
            let places = std::mem::replace(&mut self.place, end)..end;
            for (filter, count) in places.filter_map(|place| base.table.get_bucket(place)) {
                let answers = self.counts.answers(filter);
                if answers != count.answers() {
                    outlet.filter(filter, answers.0, answers.1);
                }
            }
            if end == base.table.num_buckets() {
                // The half that is done last frees it.
                self.retired.extend(Arc::into_inner(self.bases.remove(0)));
                self.place = 0;
            }
        }
        self.bases.is_empty() && self.free_part(left)
    }

    /// Frees about so many filters. True: there are none left.
    fn free_part(&mut self, mut filters: usize) -> bool {
        while let Some(Counts { table, .. }) = self.retired.last_mut() {
            let end = table.num_buckets().min(self.place.saturating_add(filters));
            filters -= end - self.place;
            for place in std::mem::replace(&mut self.place, end)..end {
                if let Ok(filter) = table.get_bucket_entry(place) {
                    filter.remove();
                }
            }
            if end < table.num_buckets() {
                return false;
            }
            self.retired.pop();
            self.place = 0;
        }
        true
    }

    /// Those that answers depend on.
    fn bases(&self) -> impl Iterator<Item = &Counts> {
        let bases = self.bases.iter().filter(|_| self.counting);
        bases.map(|base| &**base)
    }

    /// The answers for a filter; `own`: those of `counts`.
    fn answers(&self, filter: &str, own: Answers) -> Answers {
        self.bases()
            .map(|base| base.answers(filter))
            .fold(own, either)
    }

    fn change(&mut self, filter: &str, all: i32, detached: i32, outlet: &mut dyn InboxOutlet) {
        let (before, after) = self.counts.change(filter, |count| {
            count.all = count.all.saturating_add_signed(all);
            count.detached = count.detached.saturating_add_signed(detached);
        });
        if after != before {
            let (any, detached) = self.answers(filter, after);
            outlet.filter(filter, any, detached);
        }
    }
}
