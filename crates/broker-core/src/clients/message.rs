//! What a loop is sent, by the process and by other loops.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use authentication_api::{DatabaseUser, Verdict};
use mqtt_session::{ApplicationMessage, Delivery};
use net_api::ConnectionId;

use crate::backpressure::held::Holder;
use crate::connect::login_stage::Login;
use crate::inspect::{End, Inspection};
use crate::key::SessionKey;
use crate::peers::PeerEvent;
use crate::publish::operator::PublishForOperator;
use crate::publish::retained_order::{Owned, ToOwner};
use crate::retained::grace::UnderWay;
use crate::routes::MatchSet;
use crate::settings::Settings;
use crate::shared::offer::Offer;
use crate::subscribe::asked::ChangeSubscription;

/// What the other loops, and other threads, send a loop.
#[derive(Debug)]
pub enum LoopMessage {
    /// From another loop, or itself.
    Loop(FromLoop),
    /// Because of another node.
    Peer(PeerEvent),
    /// The chain of authenticators has judged the client of a connection.
    Verdict(ConnectionId, Verdict),
    /// Events of the store.
    Store(Vec<store_state::api::Event>),
    /// People ask something about its clients.
    Inspect(Inspection),
    /// An operator ends a client.
    End(End),
    /// An operator changes a subscription of a client.
    ChangeSubscription(ChangeSubscription),
    /// An operator publishes something.
    Publish(PublishForOperator),
    /// There are new bans: clients that they concern are to be disconnected.
    Bans,
    /// The configuration has been read again.
    Reload(Arc<Settings>, Done),
    /// For each permit one client is disconnected and told of another node.
    SendAway {
        /// Who goes, and whether others are let in.
        why: SendAway,
        /// How many clients all loops together may disconnect.
        permits: Arc<AtomicUsize>,
        /// Host and port of another node's TCP listener.
        elsewhere: Option<String>,
        /// Dropped when it is done.
        done: Done,
    },
    /// The node has more clients than its share, or not any more.
    Spread(Option<Arc<Advice>>),
    /// The node is drained no more: clients are let in again.
    EndDrain(Done),
    /// Shutdown, first step: nobody is let in any more.
    LetNobodyIn(Done),
    /// Shutdown, second step: the wills of all connected clients are due.
    PublishWills(Done),
    /// Shutdown, third step: all connections are closed.
    Disconnect(Done),
}

/// Why clients are sent to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendAway {
    /// The node is drained, or stops: nobody is let in any more.
    Drain,
    /// The node has more than its share: of those that came before this time, in µs of the node's clock, who lose nothing.
    Rebalance {
        /// The time.
        before_us: u64,
    },
}

/// Of those that connect, thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thousandths(pub u16);

/// Who is sent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SentOn {
    /// Clients of MQTT 5.0 that are told another node, which they can reach.
    Told,
    /// All: the others are refused, and find another node by themselves, or come back.
    All,
}

/// What a node does that has more clients than its share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Host and port of the listener without TLS and WebSocket of a node that has fewer.
    pub elsewhere: Option<String>,
    /// How many of those that connect are sent on. More than 500 are 500.
    pub share: Thousandths,
    /// Who.
    pub whom: SentOn,
}

/// What loops send each other.
#[derive(Debug)]
pub struct FromLoop(pub(crate) BetweenLoops);

/// What is in [`FromLoop`].
#[derive(Debug)]
pub(crate) enum BetweenLoops {
    /// Messages for some of the targets of a match, all of this loop.
    Deliver(Together),
    /// A publication to a topic that this loop owns.
    ToOwner(Box<ToOwner>),
    /// The owner of its topic has handled a publication of this loop.
    Handled(Owned),
    /// A delivery for one session, chosen by a shared group.
    DeliverTo(SessionKey, Delivery),
    /// A user was looked up again.
    LookedUp(Arc<DatabaseUser>, Verdict),
    /// A message of a shared group that members of the sending loop may not receive.
    Offer(Box<Offer>),
    /// A queue of a subscriber is full: do not read this publisher / go on.
    Hold(SessionKey, Option<Box<Holder>>),
    Release(SessionKey),
    /// Comes with a connection that another loop handed over: who its client is, and when its CONNECT came.
    Entering(Login),
    /// At the end of a turn: what is for other nodes is to be sent.
    FlushPeers,
}

/// Messages that go to the same receivers, one after the other.
#[derive(Debug)]
pub(crate) struct Together {
    pub(crate) first: Arc<ApplicationMessage>,
    pub(crate) others: Vec<Arc<ApplicationMessage>>,
    pub(crate) set: Arc<MatchSet>,
    /// The receivers, among the targets of the match.
    pub(crate) range: Range<usize>,
    /// Of a RETAIN message, which goes alone.
    pub(crate) retaining: Option<UnderWay>,
}

impl Together {
    /// How many go together at most.
    const MOST: usize = 16;

    /// Adds a message to what was sent last, if both go to the same receivers, and neither has RETAIN.
    pub(crate) fn add(
        last: &mut LoopMessage,
        message: &mut Option<Arc<ApplicationMessage>>,
        set: &Arc<MatchSet>,
        range: &Range<usize>,
    ) -> bool {
        match last {
            LoopMessage::Loop(FromLoop(BetweenLoops::Deliver(together)))
                if Arc::ptr_eq(&together.set, set) && together.range == *range =>
            {
                let added = message.take_if(|message| together.takes(message));
                let is_added = added.is_some();
                if is_added && together.others.is_empty() {
                    together.others.reserve_exact(Self::MOST - 1);
                }
                together.others.extend(added);
                is_added
            }
            _ => false,
        }
    }

    fn takes(&self, message: &ApplicationMessage) -> bool {
        self.retaining.is_none() && !message.retain && self.others.len() + 1 < Self::MOST
    }
}

impl From<BetweenLoops> for LoopMessage {
    fn from(mail: BetweenLoops) -> Self {
        Self::Loop(FromLoop(mail))
    }
}

impl From<PeerEvent> for LoopMessage {
    fn from(event: PeerEvent) -> Self {
        Self::Peer(event)
    }
}

/// Tells that a step is done by being dropped, with all its clones.
pub type Done = Arc<dyn Any + Send + Sync>;

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;
    use crate::routes::{MatchCache, Routes};

    fn message(retain: bool) -> Option<Arc<ApplicationMessage>> {
        Some(Arc::new(ApplicationMessage {
            body: MessageBody::new("t", b"1"),
            qos: QoS::AtMostOnce,
            retain,
            publisher: 1,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }))
    }

    #[test]
    fn messages_for_the_same_receivers_go_together_up_to_a_limit_and_in_order() {
        let routes = Routes::with_seed(1);
        let [set, other] =
            ["t", "u"].map(|topic| MatchCache::default().find(topic.as_bytes(), &routes));
        let first = message(false).unwrap();
        let mut last = LoopMessage::from(BetweenLoops::Deliver(Together {
            first: Arc::clone(&first),
            others: Vec::new(),
            set: Arc::clone(&set),
            range: 0..1,
            retaining: None,
        }));
        let mut sent = vec![first];
        for (mut stays, set, range) in [
            (message(true), &set, 0..1),
            (message(false), &other, 0..1),
            (message(false), &set, 0..2),
        ] {
            assert!(!Together::add(&mut last, &mut stays, set, &range));
            assert!(stays.is_some());
        }
        while sent.len() < Together::MOST {
            let mut next = message(false);
            sent.extend(next.clone());
            assert!(Together::add(&mut last, &mut next, &set, &(0..1)));
            assert!(next.is_none());
        }
        assert!(!Together::add(
            &mut last,
            &mut message(false),
            &set,
            &(0..1)
        ));
        let LoopMessage::Loop(FromLoop(BetweenLoops::Deliver(together))) = last else {
            unreachable!("nothing else was made")
        };
        let got = [&together.first].into_iter().chain(&together.others);
        assert!(got.zip(&sent).all(|(got, sent)| Arc::ptr_eq(got, sent)));
        assert_eq!(together.others.len() + 1, sent.len());
        let mut end = LoopMessage::from(BetweenLoops::FlushPeers);
        assert!(!Together::add(&mut end, &mut message(false), &set, &(0..1)));
    }
}
