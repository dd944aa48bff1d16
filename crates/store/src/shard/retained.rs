//! Questions for retained messages.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use serde::{Deserialize, Serialize};
use store_state::CorrelationId;
use store_state::api::{Retained, RetainedPage, RetainedPlace, ShardNumber};
use store_state::retain::PageBudget;
use topic_router::Cursor;

/// A page, and where the shard goes on with the next one.
pub(crate) type Page = (Vec<Arc<ApplicationMessage>>, Option<Cursor>);

/// What a shard is asked for.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) correlation_id: CorrelationId,
    pub(crate) wanted: Wanted,
}

/// Pages of retained messages, one for each selection; all are of one shard.
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
    pub(crate) filter: Box<str>,
    pub(crate) place: RetainedPlace,
    /// The last shard that can have messages of the filter.
    pub(crate) last_shard: ShardNumber,
}

/// Bytes of messages on the pages that another node may be sent at once; the last message may exceed them.
const PAGE_BYTES: usize = 256 * 1024;

/// What the thread of a shard does at once to find messages: a quarter of a millisecond.
const PAGE_WORK: usize = 4096;

impl Wanted {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    /// The pages of the first selections, as many as the budget is enough for, but one at least. `None`: the shard
    /// has no retained messages to look for.
    pub(crate) fn pages(
        &self,
        mut find: impl FnMut(&Selection, &mut PageBudget) -> Option<Page>,
    ) -> Option<Vec<RetainedPage>> {
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
            let (messages, cursor) = find(selection, &mut budget)?;
            pages.push(RetainedPage {
                messages: messages.into_iter().map(Retained).collect(),
                next: selection.next(cursor),
            });
        }
        Some(pages)
    }
}

impl Selection {
    /// Where to go on when the shard has said where it goes on.
    pub(crate) fn next(&self, cursor: Option<Cursor>) -> Option<RetainedPlace> {
        let shard = self.place.shard();
        match cursor {
            Some(cursor) => Some(RetainedPlace::at(shard, &cursor)),
            None => (shard < self.last_shard).then(|| RetainedPlace::first_of(shard + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;

    #[test]
    fn pages_are_given_as_far_as_the_budget_goes_and_one_in_any_case() {
        let message = |payload: &[u8]| {
            Arc::new(ApplicationMessage {
                body: MessageBody::new("t", payload),
                qos: QoS::AtMostOnce,
                retain: true,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
            })
        };
        let selection = Selection {
            filter: "t".into(),
            place: RetainedPlace::first_of(0),
            last_shard: 0,
        };
        let mut wanted = Wanted {
            selections: vec![selection; 5],
            limit: 3,
            now_ms: 0,
        };
        let one = |_: &Selection, budget: &mut PageBudget| {
            budget.messages = budget.messages.saturating_sub(1);
            Some((vec![message(b"x")], None))
        };
        assert_eq!(wanted.pages(one).unwrap().len(), 3);
        wanted.limit = 0;
        let pages = wanted.pages(one).unwrap();
        assert_eq!((pages.len(), pages[0].messages.len()), (1, 1));
        assert!(wanted.pages(|_, _| None).is_none());
    }
}
