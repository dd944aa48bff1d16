//! What the store tells the broker: events for loops, and changes of routes.

use std::sync::Arc;

use control::{Changed, Records, Revision};
use mqtt_session::{ApplicationMessage, Timestamp};
use store::Listener;
use store_state::api::{Event, ShardNumber};
use store_state::inbox::{InboxDrop, StoredSubscription};
use store_state::retain::RetainedEnd;
use store_state::{Limits, Retention};

use crate::node::Node;
use broker_core::LoopMessage;
use broker_core::Reason;

/// The broker, as the store sees it.
pub(crate) struct StoreListener {
    node: Arc<Node>,
}

impl StoreListener {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn record(&self, client: &str, message: &ApplicationMessage, reason: Reason) {
        if let Some(drops) = self.node.drops.last() {
            drops.record(
                self.node.rim.clock.now_ms(),
                client,
                message.body.topic(),
                reason,
                message.qos,
                message.body.payload().len(),
            );
        }
    }
}

impl Listener for StoreListener {
    fn mail(&self, loop_index: usize, events: Vec<Event>) {
        self.node
            .rim
            .loops()
            .send(loop_index, LoopMessage::Store(events));
    }

    fn loops(&self) -> usize {
        self.node.rim.net.len()
    }

    fn filter(&self, shard: ShardNumber, filter: &str, any: bool, detached: bool) {
        self.node.routes.set_shard(shard, filter, any, detached);
    }

    fn member(
        &self,
        shard: ShardNumber,
        client: &str,
        filter: &str,
        subscription: Option<&StoredSubscription>,
    ) {
        let subscription = subscription.map(|s| (s.options, s.id));
        self.node
            .routes
            .set_member(shard, client, filter, subscription);
    }

    fn inbox_leader(&self, shard: ShardNumber, leader: Option<u64>, term: u64) {
        self.node.with_peers(|peers, node| {
            if leader == Some(peers.own()) {
                peers.lead(node, shard, term);
            } else {
                peers.resign(node, shard);
            }
        });
    }

    fn inbox_announced(&self, shard: ShardNumber) {
        self.node.inbox_announced(shard);
    }

    fn inbox_shards_changed(&self) {
        self.node.inbox_shards_changed();
    }

    fn filling(&self, client: &str, message: &ApplicationMessage) {
        let now = Timestamp(self.node.rim.clock.now_ms());
        let topic = message.body.topic_bytes();
        self.node.slow.handle_filling(topic, client, now);
    }

    fn dropped(&self, drop: &InboxDrop<'_>) {
        self.node.rim.removals.purges.handle_drop(drop);
        self.record(drop.client, drop.message, Reason::Session(drop.reason));
    }

    fn lost(&self, client: &str, message: &ApplicationMessage) {
        self.record(client, message, Reason::StoreFailed);
    }

    fn retained_ended(&self, end: RetainedEnd) {
        self.node.rim.removals.retained.count(end);
    }

    fn failed(&self, what: &str) {
        tracing::error!(
            what,
            "the store has failed; the broker stops, so that it acknowledges nothing that is not stored"
        );
        // Not an orderly end: that would write to the disk that has failed.
        std::process::exit(1);
    }

    fn control_loaded(&self, records: Records) {
        self.node.rim.control.load(records);
    }

    fn control_changed(&self, changed: &Changed) {
        self.node.rim.control.take(changed);
    }

    fn control_begun(&self) {
        self.node.rim.control.view.begun();
    }

    fn control_confirmed(&self, revision: Revision) {
        self.node.rim.control.view.confirmed(revision);
    }

    fn control_answered(&self, answer: Event) {
        self.node.rim.control.waiting.answered(answer);
    }

    fn now_ms(&self) -> u64 {
        self.node.cluster_now_ms()
    }

    fn clock_ms(&self) -> u64 {
        self.node.rim.clock.now_ms()
    }

    fn limits(&self) -> Limits {
        let limits = self.node.settings.read().store_limits.clone();
        self.node.rim.disk.limits(limits)
    }

    fn has_room_in_group(&self, group: &str) -> bool {
        self.node.routes.has_room_in_group(group)
    }

    fn retention(&self) -> Arc<Retention> {
        Arc::clone(&self.node.settings.read().retention)
    }
}
