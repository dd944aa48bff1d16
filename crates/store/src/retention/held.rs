//! What all queues hold that a node keeps.

use std::collections::BTreeMap;

use mqtt_session::ClassId;
use parking_lot::Mutex;
use store_state::api::ShardNumber;
use tokio::time::Instant;

use crate::retention::found::{self, ClassQueues, QueuedBytes};

/// What the replicas of this node have found in their queues.
#[derive(Debug, Default)]
pub(crate) struct HeldQueues {
    shards: Mutex<BTreeMap<ShardNumber, ShardQueues>>,
}

/// What the queues of one shard hold.
#[derive(Clone, Debug)]
pub(crate) struct ShardQueues {
    pub(crate) classes: Vec<ClassQueues>,
    /// This node leads the shard.
    pub(crate) is_led: bool,
    /// When they were looked at.
    pub(crate) looked_at: Instant,
}

/// Bytes that queues have, by what is limited.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeldBytes {
    pub(crate) node: QueuedBytes,
    pub(crate) classes: Vec<(ClassId, QueuedBytes)>,
}

/// A shard that is looked at: when it is not any more, nothing is held of it.
pub(super) struct Looked<'a> {
    pub(super) held: &'a HeldQueues,
    pub(super) shard: ShardNumber,
}

impl Drop for Looked<'_> {
    fn drop(&mut self) {
        self.held.remove(self.shard);
    }
}

impl HeldQueues {
    /// What a shard holds by now.
    pub(crate) fn put(&self, shard: ShardNumber, queues: ShardQueues) {
        self.shards.lock().insert(shard, queues);
    }

    /// There is no replica of a shard here that can be used.
    pub(crate) fn remove(&self, shard: ShardNumber) {
        self.shards.lock().remove(&shard);
    }

    /// What a shard held when it was looked at last.
    pub(crate) fn of(&self, shard: ShardNumber) -> Vec<ClassQueues> {
        let shards = self.shards.lock();
        shards
            .get(&shard)
            .map_or_else(Vec::new, |of| of.classes.clone())
    }

    /// Bytes of all replicas that are kept here. `None`: one of them was not looked at since this time.
    pub(crate) fn bytes_since(&self, time: Instant) -> Option<HeldBytes> {
        let mut held = HeldBytes::default();
        let shards = self.shards.lock();
        if shards.values().any(|shard| shard.looked_at < time) {
            return None;
        }
        for of in shards.values().flat_map(|shard| &shard.classes) {
            held.node.0 += of.bytes.0;
            match held
                .classes
                .iter_mut()
                .find(|(class, _)| *class == of.class)
            {
                Some((_, bytes)) => bytes.0 += of.bytes.0,
                None => held.classes.push((of.class, of.bytes)),
            }
        }
        Some(held)
    }

    /// What the shards hold that this node leads, by class.
    pub(crate) fn led(&self) -> Vec<ClassQueues> {
        let shards = self.shards.lock();
        let led = shards.values().filter(|shard| shard.is_led);
        found::sum(led.flat_map(|shard| &shard.classes))
    }
}
