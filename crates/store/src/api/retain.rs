//! Requests to the retain store, and questions for retained messages.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::CorrelationId;
use store_state::api::{RetainMark, RetainedPlace, ShardNumber, ShardRef};
use store_state::retain::{PageBudget, RetainOp, Writer};

use crate::api::store::Store;
use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;
use crate::shard::request::weigh;
use crate::shard::retained::{PageRequest, Selection, Wanted};
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

    /// Has [`Event::Passed`](store_state::api::Event::Passed) sent by each of these retain shards when everything is applied
    /// that was given to it before.
    pub fn retain_barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId) {
        self.retain.barrier(shards, correlation_id);
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
    /// not be the last. Only if this node is alone, and so has all there is.
    #[must_use]
    pub fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>) {
        let selection = self.selection(filter, from);
        let page = self.retain.get(selection.place.shard()).and_then(|shard| {
            shard
                .look(|machine| machine.retained(&selection, budget, now))
                .flatten()
        });
        let (messages, cursor) = page.unwrap_or_default();
        (messages, selection.next(cursor))
    }

    /// The shard that has the next page of what a filter selects. `from`: where the last page said; `None`: the
    /// first.
    #[must_use]
    pub fn retained_shard(&self, filter: &str, from: Option<&RetainedPlace>) -> ShardNumber {
        match from {
            Some(place) => place.shard(),
            None => self.shards_of(filter).0,
        }
    }

    /// Asks a shard for such pages, of `limit` messages together at most: [`Event::Retained`](store_state::api::Event::Retained)
    /// brings those of the first filters. They have what was acknowledged before, by whichever node, and what was
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
        let selections = wanted
            .into_iter()
            .map(|(filter, from)| self.selection(filter, from));
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

    fn selection(&self, filter: &str, from: Option<RetainedPlace>) -> Selection {
        let (first, last_shard) = self.shards_of(filter);
        Selection {
            filter: filter.into(),
            place: from.unwrap_or_else(|| RetainedPlace::first_of(first)),
            last_shard,
        }
    }

    /// The first and the last shard that can have retained messages of a filter.
    fn shards_of(&self, filter: &str) -> (ShardNumber, ShardNumber) {
        if filter.contains(['+', '#']) {
            (0, self.retain.shards.base().len() - 1)
        } else {
            let shard = self.retain.of(filter);
            (shard, shard)
        }
    }
}
