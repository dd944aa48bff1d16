//! Questions for retained messages.
//!
//! What a filter selects is given shard by shard, in the order of the slots, and by topics within a shard, in pages. A shard
//! that is split meanwhile has both halves go on behind the same cursor: the order of the topics is that of all possible ones.
//!
//! Invariant: a topic that is there from the first page to the last is given once, whenever shards are split, and however late
//! a node hears of that. So a page has no messages but those of the slots that it was asked for, and says up to which slot
//! the shard has gone; what it has not gone through is asked for behind the cursor that the question had.
//!
//! Deliberately absent: the pages of one shard (`store_state::retain`); the way of a question to its shard (`shards.rs`).

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use serde::{Deserialize, Serialize};
use store_state::api::{
    LastSlot, Retained, RetainedPage, RetainedPart, RetainedParts, RetainedPlace, ShardNumber,
};
use store_state::retain::PageBudget;
use store_state::{CorrelationId, NameHash, SlotRange};
use topic_router::Cursor;

use crate::storage::map::ShardMap;

/// A page, and where the shard goes on with the next one.
pub(crate) type Page = (Vec<Arc<ApplicationMessage>>, Option<Cursor>);

/// A page, and where the next one begins, in whichever shard; `None`: it was the last.
pub(crate) type PageOfAll = (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>);

/// Why a shard has no page for a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPage {
    /// It is asked for slots behind its last one, which this is.
    SplitOff(LastSlot),
    /// It is asked for slots before its first one, or keeps no retained messages.
    Misrouted,
}

/// What a shard is asked for.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) correlation_id: CorrelationId,
    pub(crate) wanted: Wanted,
}

/// Pages of retained messages, one for each selection; all are of one shard, as far as is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) selections: Vec<Selection>,
    /// Messages at most, of all pages.
    pub(crate) limit: u32,
    /// Unix time in ms.
    pub(crate) now_ms: u64,
}

/// What a filter selects, from a place on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Selection {
    filter: Box<str>,
    place: RetainedPlace,
    /// The last base shard that can have messages of the filter; for nodes of a version that goes by it.
    last_shard: ShardNumber,
}

/// Bytes of messages on the pages that another node may be sent at once; the last message may exceed them.
const PAGE_BYTES: usize = 256 * 1024;

/// What the thread of a shard does at once to find messages: a quarter of a millisecond.
///
/// Limit: retained topics that a shard looks at for another node at once | {}, {broker-core::backlog::PAGE} messages
/// or {PAGE_BYTES} | the next page goes on
const PAGE_WORK: usize = 4096;

impl Wanted {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    /// The first slot that is asked for; `None`: nothing is.
    pub(crate) fn first_slot(&self, base: ShardMap) -> Option<u16> {
        let first = self.selections.first();
        first.map(|selection| selection.first_slot(base))
    }

    /// The pages of the first selections that a shard with these slots can give, as many as the budget is enough for, but
    /// one at least. `find` looks for those of a filter from a cursor on.
    ///
    /// # Errors
    /// It cannot give the first one.
    pub(crate) fn pages(
        &self,
        base: ShardMap,
        own: SlotRange,
        mut find: impl FnMut(&str, Option<&Cursor>, &mut PageBudget) -> Option<Page>,
    ) -> Result<Vec<RetainedPage>, NoPage> {
        let mut budget = PageBudget {
            messages: self.limit as usize,
            bytes: PAGE_BYTES,
            work: PAGE_WORK,
        };
        let mut pages = Vec::new();
        for selection in &self.selections {
            if !pages.is_empty() && budget.is_spent() {
                break;
            }
            let find = |filter: &str, cursor: Option<&Cursor>| find(filter, cursor, &mut budget);
            match selection.page(base, own, find) {
                Ok((messages, next)) => pages.push(RetainedPage {
                    messages: messages.into_iter().map(Retained).collect(),
                    next,
                }),
                Err(no_page) if pages.is_empty() => return Err(no_page),
                // Whoever has asked asks for it again.
                Err(_) => break,
            }
        }
        Ok(pages)
    }
}

impl Selection {
    /// What a filter selects. `from`: where the last page said that the next one begins; `None`: all of it. `base`: the
    /// shards that the store began with.
    pub(crate) fn new(filter: &str, from: Option<RetainedPlace>, base: ShardMap) -> Self {
        let slots = slots_of(filter, base.hash());
        let all = || RetainedPlace::Base {
            shard: base.of_slot(slots.first),
            cursor: None,
        };
        Self {
            filter: filter.into(),
            place: from.unwrap_or_else(all),
            last_shard: base.of_slot(slots.last),
        }
    }

    /// The first slot that the next page is of.
    pub(crate) fn first_slot(&self, base: ShardMap) -> u16 {
        first_slot(&self.filter, Some(&self.place), base)
    }

    /// The next page, of a shard with these slots, and what is left behind it. `find` looks for messages of a filter from a
    /// cursor on.
    ///
    /// # Errors
    /// The shard does not have the first slot that is asked for, or no messages.
    pub(crate) fn page(
        &self,
        base: ShardMap,
        own: SlotRange,
        find: impl FnOnce(&str, Option<&Cursor>) -> Option<Page>,
    ) -> Result<PageOfAll, NoPage> {
        let slots = slots_of(&self.filter, base.hash());
        let mut left = parts(&self.place, slots, base);
        // A place that says nothing of this filter, which nodes of this cluster do not make: all of it.
        let (asked, cursor) = left.next().unwrap_or((slots, None));
        if own.last < asked.first {
            return Err(NoPage::SplitOff(LastSlot(own.last)));
        }
        if asked.first < own.first {
            return Err(NoPage::Misrouted);
        }
        let done = SlotRange {
            first: asked.first,
            last: asked.last.min(own.last),
        };
        let (mut messages, next) = find(&self.filter, cursor).ok_or(NoPage::Misrouted)?;
        if !done.covers(own) {
            let slot_of = |message: &ApplicationMessage| base.hash().slot_of(message.body.topic());
            messages.retain(|message| done.contains(slot_of(message)));
        }
        let goes_on = next.map(|next| RetainedPart {
            slots: done,
            cursor: Some(next),
        });
        let undone = (done.last < asked.last).then(|| RetainedPart {
            slots: SlotRange {
                first: done.last + 1,
                last: asked.last,
            },
            cursor: cursor.cloned(),
        });
        let left = left.map(|(slots, cursor)| RetainedPart {
            slots,
            cursor: cursor.cloned(),
        });
        let left = goes_on.into_iter().chain(undone).chain(left);
        Ok((
            messages,
            RetainedParts::new(left).map(|left| place_of(left, slots, base)),
        ))
    }
}

/// The first slot of the page of a filter that begins at a place; `None`: of its first one.
pub(crate) fn first_slot(filter: &str, place: Option<&RetainedPlace>, base: ShardMap) -> u16 {
    let slots = slots_of(filter, base.hash());
    let first = place.and_then(|place| parts(place, slots, base).next());
    first.map_or(slots.first, |(part, _)| part.first)
}

/// The slots of the topics that a filter can select.
fn slots_of(filter: &str, hash: NameHash) -> SlotRange {
    if filter.contains(['+', '#']) {
        return SlotRange::ALL;
    }
    let slot = hash.slot_of(filter);
    SlotRange {
        first: slot,
        last: slot,
    }
}

/// What a place leaves of the slots of a filter, in their order; nothing: the place says nothing of these.
fn parts(
    place: &RetainedPlace,
    slots: SlotRange,
    base: ShardMap,
) -> impl Iterator<Item = (SlotRange, Option<&Cursor>)> {
    let (of_base, listed) = match place {
        RetainedPlace::Parts(parts) => ([None, None], parts.as_slice()),
        RetainedPlace::Base { shard, cursor } => {
            let range = base.range_of(*shard);
            let behind = range.and_then(|range| range.last.checked_add(1));
            let behind = behind.map(|first| SlotRange {
                first,
                last: u16::MAX,
            });
            let range = range.map(|range| (range, cursor.as_ref()));
            ([range, behind.map(|behind| (behind, None))], &[][..])
        }
    };
    let listed = listed.iter().map(|part| (part.slots, part.cursor.as_ref()));
    let all = of_base.into_iter().flatten().chain(listed);
    all.filter_map(move |(part, cursor)| {
        let first = part.first.max(slots.first);
        let last = part.last.min(slots.last);
        (first <= last).then_some((SlotRange { first, last }, cursor))
    })
}

/// The place that leaves these parts of the slots of a filter: as earlier versions know it, if that can say so.
fn place_of(left: RetainedParts, slots: SlotRange, base: ShardMap) -> RetainedPlace {
    let [first, ..] = left.as_slice() else {
        return RetainedPlace::Parts(left);
    };
    let place = RetainedPlace::Base {
        shard: base.of_slot(first.slots.first),
        cursor: first.cursor.clone(),
    };
    let said = parts(&place, slots, base).map(|(slots, cursor)| RetainedPart {
        slots,
        cursor: cursor.cloned(),
    });
    if RetainedParts::new(said).as_ref() == Some(&left) {
        place
    } else {
        RetainedPlace::Parts(left)
    }
}

#[cfg(test)]
mod tests;
