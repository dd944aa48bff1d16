//! Requests to the retain store, and questions for retained messages.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::api::{RetainMark, RetainedPlace, ShardNumber};
use store_state::retain::{PageBudget, RetainOp, Writer};
use store_state::{CorrelationId, SlotRange};

use crate::api::store::Store;
use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;
use crate::shard::request::weigh;
use crate::shard::retained::{Page, PageRequest, Selection, Wanted, first_slot};
use crate::shard::work::Work;

impl Store {
    /// Gives the retain store a message. On a full disk a will waits: no client would publish it again.
    pub fn retain(
        &self,
        correlation_id: CorrelationId,
        message: Arc<ApplicationMessage>,
        writer: Writer<'_>,
    ) {
        let op = RetainOp::set(message, writer, self.retain.shards.hash());
        self.retain.ask(correlation_id, op);
    }
    /// Whether everything that was given to the retain store is applied, or waits for space on the disk:
    /// then nobody should wait for it.
    #[must_use]
    pub fn is_retain_idle(&self) -> bool {
        self.is_full()
            || self
                .retain
                .shards
                .load()
                .iter()
                .all(|shard| shard.is_idle())
    }

    /// What has been given to the retain store here until now.
    #[must_use]
    pub fn retain_mark(&self) -> RetainMark {
        let shards = self.retain.shards.load();
        let given = |shard: &Arc<Shard<_>>| (shard.number, shard.given());
        RetainMark(shards.iter().map(given).collect())
    }

    /// Whether all that was given to the retain store here by then is applied, or refused.
    #[must_use]
    pub fn has_reached(&self, mark: &RetainMark) -> bool {
        let known = self.retain.shards.load();
        let mut shards = known.iter();
        shards.all(|shard| {
            let mut marks = mark.0.iter();
            match marks.find(|(number, _)| *number == shard.number) {
                Some((_, given)) => shard.has_finished(*given),
                // It was split off since: what was given to the other one before it may have come here.
                None => shard.has_finished_first(),
            }
        })
    }

    /// A page of the retained messages that a filter selects, which takes its part of `budget`, and where the
    /// next one begins. `from`: where the last one said; `None`: the first. A page may hold no message, and yet
    /// not be the last. Only if this node is alone, and so has all there is. `None`: the shard has just been split off another
    /// one; the page is to be asked for.
    #[must_use]
    pub fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>)> {
        let shards = &self.retain.shards;
        let base = shards.base();
        let selection = Selection::new(filter, from, base);
        let shard = shards.get(shards.of_slot(selection.first_slot(base)))?;
        let page = shard.look_within(|machine, own| {
            selection.page(base, own, |filter, cursor| {
                Kind::retained(machine, filter, cursor, budget, now)
            })
        });
        match page {
            Some(page) => page.ok(),
            // What it holds cannot be used: there is what the other shards hold.
            None if shard.is_first() => {
                let own = SlotRange {
                    first: base.first_slot(shard.number),
                    last: shards.last_of(shard.number).0,
                };
                let nothing = selection.page(base, own, |_, _| Some(Page::default()));
                nothing.ok()
            }
            None => None,
        }
    }

    /// The shard that has the next page of what a filter selects. `from`: where the last page said; `None`: the
    /// first.
    #[must_use]
    pub fn retained_shard(&self, filter: &str, from: Option<&RetainedPlace>) -> ShardNumber {
        let shards = &self.retain.shards;
        shards.of_slot(first_slot(filter, from, shards.base()))
    }

    /// Asks a shard for such pages, of `limit` messages together at most: [`Event::Retained`](store_state::api::Event::Retained)
    /// brings those of the first filters, of one at least. They have what was acknowledged before, by whichever node, and what was
    /// given to the retain store here before, and hold 256 KiB and one message at most. `wanted`: filters of which
    /// the shard has the next page, and where that begins.
    pub fn ask_retained<'a>(
        &self,
        correlation_id: CorrelationId,
        shard: ShardNumber,
        wanted: impl IntoIterator<Item = (&'a str, Option<RetainedPlace>)>,
        limit: usize,
        now: Timestamp,
    ) {
        let base = self.retain.shards.base();
        let selections = wanted
            .into_iter()
            .map(|(filter, from)| Selection::new(filter, from, base));
        let wanted = Wanted {
            selections: selections.collect(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            now_ms: now.0,
        };
        let bytes = weigh(&wanted);
        self.retain.put(
            shard,
            Work::Page(PageRequest {
                correlation_id,
                wanted,
            }),
            bytes,
        );
    }
}
