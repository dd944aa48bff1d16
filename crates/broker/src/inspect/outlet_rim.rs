//! What the outlets of this node need of it.

use std::sync::Arc;
use std::time::Duration;

use admin::api::{EventKind, NewMessage};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store_state::api::Store as _;

use super::state::Inspect;
use super::{events, messages, publishing};
use crate::outlets::{EventNumber, OwnEvents, Place, Rim};

/// How long stores may take to keep or say something.
const BUDGET: Duration = Duration::from_secs(5);

/// More filters than an outlet can have.
const MOST_FILTERS: usize = 1_000;

/// The node, as its outlets see it.
pub(crate) struct OutletRim(pub(crate) Arc<Inspect>);

impl Rim for OutletRim {
    fn place(&self, client_id: &str) -> Place {
        let store = self.0.node.store();
        let shard = store.inbox_shard(store.inbox_slot(client_id));
        match store.inbox_leader(shard) {
            Some(leader) if leader == store.node() => Place::Here,
            Some(leader) => Place::At(NodeId(leader)),
            None => Place::Nowhere,
        }
    }

    fn filters(&self, client_id: &str) -> Vec<String> {
        let inspect = self.0.node.store().inspect();
        let stored = inspect.subscriptions(client_id, "", MOST_FILTERS).found();
        let stored = stored.into_iter().flatten();
        stored
            .map(|subscription| subscription.filter.into())
            .collect()
    }

    fn is_retained(&self, topic: String) -> BoxFuture<'_, Result<bool, Problem>> {
        let message = messages::retained_message(&self.0, topic, BUDGET);
        let is_there = message.map(|message| match message {
            Ok(_) => Ok(true),
            Err(problem) if problem.kind == Kind::NotFound => Ok(false),
            Err(problem) => Err(problem),
        });
        is_there.boxed()
    }

    fn publish(&self, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<(), Problem>> {
        publishing::publish_internal(&self.0.node, messages, BUDGET).boxed()
    }

    fn events(&self, kinds: &[EventKind], from: EventNumber) -> OwnEvents {
        events::own_events(&self.0.node.rim.events, &self.0.own(), kinds, from)
    }

    fn next_event(&self) -> EventNumber {
        EventNumber(self.0.node.rim.events.next())
    }
}
