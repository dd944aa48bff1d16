//! The order of retained messages of one topic: what is retained last is delivered last, whoever publishes it.
//!
//! Each topic has an owner among the loops of this node. Whichever loop a RETAIN message is published in, the owner
//! gives it to the connected sessions of this node, and asks the inbox shards and the retain shard to keep it, all of
//! it in one turn. So they all get the RETAIN messages of a topic in the order in which the owner handles them. The loop
//! of the publisher does the rest: it finds the receivers, waits for the shards, and acknowledges.
//!
//! A publisher's messages to one topic keep their order [MQTT-4.6.0-5]: while messages of a loop are on their way to
//! the owner of their topic, what its clients publish to that topic next goes the same way, with RETAIN or without.
//!
//! Invariant: a publication is sent to the owner, and the owner's answer is sent, behind all else that their loops
//! send in the turn ([`Behind`](net_api::Behind)). So no loop gets what was published or delivered
//! directly before that later, and nothing that is published directly after the answer sooner.
//!
//! Deliberately absent: an order between nodes. Messages to other nodes, and to members of shared groups, leave the loop
//! of the publisher at once, in the order of that publisher.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashing::HashMap;
use mqtt_session::ApplicationMessage;
use store_state::CorrelationId;
use store_state::api::{ShardRef, Store};
use store_state::inbox::{InboxOp, Origin};
use store_state::retain::{ConnectionNumber, Writer};

use crate::publish::calls::Calls;
use crate::retained::grace::UnderWay;
use crate::routes::MatchSet;

/// Topics of the same hash have the same owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct TopicHash(u64);

/// A topic, and the loop that owns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owned {
    topic: TopicHash,
    pub(crate) by: usize,
}

impl Owned {
    /// All loops of a node agree.
    fn find(topic: &[u8], loops: usize) -> Self {
        let hash = FixedState::default().hash_one(topic);
        Self {
            topic: TopicHash(hash),
            by: (hash % loops.max(1) as u64) as usize,
        }
    }
}

/// What a loop has sent to owners of topics.
#[derive(Debug, Default)]
pub(crate) struct RetainedOrder {
    /// By topic, how many publications are on their way to its owner.
    under_way: HashMap<TopicHash, usize>,
}

impl RetainedOrder {
    /// A message of a client of this loop is published. `retains`: the retain store is to keep it. Returns the owner
    /// that it is to be sent to; `None`: this loop handles it.
    pub(crate) fn handle_publication(
        &mut self,
        topic: &[u8],
        retains: bool,
        own: usize,
        loops: usize,
    ) -> Option<Owned> {
        if loops < 2 || (!retains && self.under_way.is_empty()) {
            return None;
        }
        let owned = Owned::find(topic, loops);
        let goes_there = retains || self.under_way.contains_key(&owned.topic);
        if owned.by == own || !goes_there {
            return None;
        }
        *self.under_way.entry(owned.topic).or_default() += 1;
        Some(owned)
    }

    /// An owner has handled a publication.
    pub(crate) fn handle_handled(&mut self, Owned { topic, .. }: Owned) {
        if let Some(count) = self.under_way.get_mut(&topic) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&topic);
            }
        }
    }
}

/// A publication on its way to the owner of its topic.
#[derive(Debug)]
pub(crate) struct ToOwner {
    pub(crate) owned: Owned,
    /// The loop of the publisher.
    pub(crate) from: usize,
    pub(crate) message: Arc<ApplicationMessage>,
    pub(crate) set: Arc<MatchSet>,
    /// Connected sessions are to get it.
    pub(crate) delivers: bool,
    /// What it is known by if the broker publishes it.
    pub(crate) of_broker: Option<Origin>,
    /// What is asked of shards.
    pub(crate) asks: Asks,
    /// Of a RETAIN message, until the retain store was asked to keep it.
    pub(crate) _retaining: Option<UnderWay>,
}

/// What shards are asked about a publication.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// What the answers are for. They go to the loop of the publisher.
    pub(crate) correlation_id: CorrelationId,
    /// The retain shard is to keep the message.
    pub(crate) retain: Option<RetainedBy>,
    pub(crate) inboxes: Vec<(ShardRef, InboxOp)>,
    /// The loop that asks the inbox shards is to number its requests, because nobody waits for them.
    pub(crate) needs_numbers: bool,
}

impl Asks {
    pub(crate) fn ask(
        self,
        store: &impl Store,
        calls: &mut Calls,
        message: &Arc<ApplicationMessage>,
    ) {
        if let Some(by) = &self.retain {
            store.retain(self.correlation_id, Arc::clone(message), by.writer());
        }
        for (shard, op) in self.inboxes {
            let op = match self.needs_numbers {
                true => calls.once(op),
                false => op,
            };
            store.inboxes(shard, self.correlation_id, op);
        }
    }
}

/// A [`Writer`] on its way to another loop.
#[derive(Debug)]
pub(crate) enum RetainedBy {
    Anybody,
    Will(Origin),
    Client(Box<str>, ConnectionNumber),
}

impl RetainedBy {
    fn writer(&self) -> Writer<'_> {
        match self {
            Self::Anybody => Writer::Anybody,
            Self::Will(origin) => Writer::Will(origin.clone()),
            Self::Client(publisher, connection) => Writer::Client {
                publisher,
                connection: *connection,
            },
        }
    }
}

impl From<Writer<'_>> for RetainedBy {
    fn from(writer: Writer<'_>) -> Self {
        match writer {
            Writer::Anybody => Self::Anybody,
            Writer::Will(origin) => Self::Will(origin),
            Writer::Client {
                publisher,
                connection,
            } => Self::Client(publisher.into(), connection),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPS: usize = 4;

    /// A topic that this loop does not own.
    fn foreign(own: usize) -> String {
        let mut topics = (0..).map(|n| format!("t/{n}"));
        let is_foreign = |topic: &String| Owned::find(topic.as_bytes(), LOOPS).by != own;
        topics.find(is_foreign).unwrap()
    }

    #[test]
    fn a_message_that_is_not_retained_follows_one_that_is_until_that_is_handled() {
        let mut order = RetainedOrder::default();
        let topic = foreign(0);
        let publish = |order: &mut RetainedOrder, topic: &str, retains| {
            order.handle_publication(topic.as_bytes(), retains, 0, LOOPS)
        };
        assert_eq!(publish(&mut order, &topic, false), None);
        let first = publish(&mut order, &topic, true).unwrap();
        assert_eq!(publish(&mut order, "another", false), None);
        assert_eq!(publish(&mut order, &topic, false), Some(first));
        order.handle_handled(first);
        assert_eq!(publish(&mut order, &topic, false), Some(first));
        order.handle_handled(first);
        order.handle_handled(first);
        assert_eq!(publish(&mut order, &topic, false), None);
        assert!(order.under_way.is_empty());
    }

    #[test]
    fn loops_agree_on_the_owner_which_handles_its_topics_itself() {
        let topic = foreign(0);
        let publish = |own, loops| {
            let mut order = RetainedOrder::default();
            order.handle_publication(topic.as_bytes(), true, own, loops)
        };
        let owner = publish(0, LOOPS).unwrap().by;
        for own in 0..LOOPS {
            let expected = (own != owner).then_some(owner);
            assert_eq!(publish(own, LOOPS).map(|owned| owned.by), expected);
        }
        assert_eq!(publish(0, 1), None);
    }
}
