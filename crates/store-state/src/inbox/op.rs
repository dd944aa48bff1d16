//! What an inbox shard can be asked, what it answers, and what it tells beside the answer.

use std::sync::Arc;

use mqtt_proto::{QoS, RetainHandling, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, ClassId, DropReason, PacketIdSet, SubscriptionIdSet};
use serde::{Deserialize, Serialize};

use super::inbox::is_shared;
use super::name::{ClientName, SessionName};
use crate::{Level, wire};

/// A request to an inbox shard. `epoch`: what the session store gave the client's connection; a request
/// with a lower one than the inbox has seen is answered with [`InboxReply::Stale`] and changes nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum InboxOp {
    /// A node runs from now on; what an earlier process of it had attached is detached.
    NodeUp {
        /// The node.
        node: u64,
        /// Higher at each start.
        incarnation: u64,
    },
    /// A client has connected. Makes the inbox if there is none.
    Attach {
        /// The client.
        client: Box<str>,
        /// Of this connection.
        epoch: u64,
        /// The node that the client is connected to.
        node: u64,
        /// The node's incarnation.
        node_incarnation: u64,
        /// Whether a session that exists goes on. If not, it is discarded with all it has.
        resume: bool,
    },
    /// A client has disconnected; its session goes on.
    Detach {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// The highest sequence that may have been sent.
        sent: u64,
    },
    /// The session has ended.
    Remove {
        /// The session.
        session: SessionName,
        /// The epoch of the session's last connection; an inbox with a higher one stays.
        epoch: u64,
    },
    /// Adds or replaces subscriptions.
    Subscribe {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// In the order of the SUBSCRIBE.
        subscriptions: Vec<StoredSubscription>,
    },
    /// Removes subscriptions.
    Unsubscribe {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// As they were given at SUBSCRIBE.
        filters: Vec<Box<str>>,
    },
    /// A message for all sessions of this shard whose subscriptions match.
    Publish {
        /// The message.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
        /// [`publisher_hash`](super::publisher_hash) of the publisher, for No Local; 0: the broker.
        publisher: u64,
        /// Makes it happen once.
        origin: Option<Origin>,
    },
    /// A message of a shared group for the session that was chosen.
    Deliver {
        /// The session.
        session: SessionName,
        /// In order.
        items: Vec<Item>,
        /// Makes it happen once.
        origin: Option<Origin>,
    },
    /// The client is done with these messages.
    Acknowledge {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// The highest sequence that may have been sent.
        sent: u64,
        /// What it is done with.
        done: Done,
    },
    /// The client has received a QoS 2 message: PUBREL is owed from now on, and the message is let go.
    Receipt {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// Of the message.
        sequence: u64,
    },
    /// A publisher has released a QoS 2 message: its origin is forgotten.
    Release {
        /// The origin; every shard is asked that may know it.
        origin: Origin,
    },
    /// A publisher's session has ended: its origins are forgotten. Those of the broker are from now on
    /// as released ones.
    Forget {
        /// The publisher.
        client: ClientName,
        /// Origins of this and older incarnations are forgotten.
        incarnation: u64,
    },
    /// Retained messages for a session, as far as `Subscribe` made them owed. Those of a page that was given
    /// before change nothing.
    Replay {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// In order.
        items: Vec<Item>,
        /// Of which filters they are.
        progress: Vec<Progress>,
    },
    /// Other members of shared groups have these messages of a legacy, and the next ones are asked for.
    HandOver {
        /// Whose session has ended, or is away.
        client: ClientName,
        /// The number of the legacy.
        inbox: u64,
        /// What others have; it is let go.
        done: Done,
    },
    /// As `Publish`, without an origin; said again it changes nothing.
    PublishOnce {
        /// Makes it happen once.
        call: Call,
        /// The message.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
        /// As in `Publish`.
        publisher: u64,
    },
    /// As `Deliver`, without an origin; said again it changes nothing.
    DeliverOnce {
        /// Makes it happen once.
        call: Call,
        /// The session.
        session: SessionName,
        /// In order.
        items: Vec<Item>,
    },
    /// A client has disconnected; its session goes on, and the inbox stays attached to the node, which gets the
    /// session's messages of QoS 0 still and hands them over by `DeliverLate`. Ends with `Detach` or another
    /// connection.
    Linger {
        /// The session.
        session: SessionName,
        /// Of the connection.
        epoch: u64,
        /// The highest sequence that may have been sent.
        sent: u64,
    },
    /// A client has connected again to the node that its last connection was to, which knows its subscriptions. As
    /// `Attach` of a session that goes on; if the inbox lingers since that connection, the answer leaves out what
    /// the node knows.
    AttachAgain {
        /// The client.
        client: Box<str>,
        /// Of this connection.
        epoch: u64,
        /// The node that the client is connected to.
        node: u64,
        /// The node's incarnation.
        node_incarnation: u64,
        /// Of the last connection.
        last: u64,
        /// The node knows which retained messages the subscriptions owe. If not, and they do, it is told everything.
        knows_owed: bool,
    },
    /// A message for a session that is not connected, from the node that its inbox is or was attached to. Changes
    /// nothing unless the inbox lingers since this connection.
    DeliverLate {
        /// The session.
        session: SessionName,
        /// Of the connection that has ended.
        epoch: u64,
        /// The message is also for an inbox that was detached since: its shard has not got it by `Publish`.
        detached: bool,
        /// The message.
        item: Item,
    },
    /// As `Publish`, unless a later connection of the publisher has released something: then it is answered with
    /// [`InboxReply::Fenced`] and changes nothing.
    PublishFenced {
        /// The message.
        #[serde(with = "wire::message")]
        message: Arc<ApplicationMessage>,
        /// As in `Publish`.
        publisher: u64,
        /// Makes it happen once.
        origin: Origin,
        /// Of the publisher's connection.
        epoch: u64,
    },
    /// As `Deliver`, under the same condition.
    DeliverFenced {
        /// The session.
        session: SessionName,
        /// In order.
        items: Vec<Item>,
        /// Makes it happen once.
        origin: Origin,
        /// Of the publisher's connection.
        epoch: u64,
    },
    /// As `Release`, under the same condition. What earlier connections of the publisher have sent comes too late
    /// from now on.
    ReleaseFenced {
        /// The origin; every shard is asked that may know it, and by the first release of a connection every shard.
        origin: Origin,
        /// Of the publisher's connection.
        epoch: u64,
    },
    /// As [`Self::Attach`], of a client of a class: the limits of its queue are those of the class from now on. With the other
    /// ways of attaching they are those of the default class.
    AttachAs {
        /// The client.
        client: Box<str>,
        /// Of this connection.
        epoch: u64,
        /// The node that the client is connected to.
        node: u64,
        /// The node's incarnation.
        node_incarnation: u64,
        /// Whether a session that exists goes on. If not, it is discarded with all it has.
        resume: bool,
        /// As of [`Self::AttachAgain`]: the epoch of a connection since which the node knows the subscriptions, and whether it
        /// knows what they owe.
        last: Option<(u64, bool)>,
        /// The class.
        #[serde(with = "wire::class")]
        class: ClassId,
    },
    /// Messages of a queue are not kept any longer: those of some sequences are dropped that cannot have been sent. Of a
    /// session whose client is connected, it is not known what was sent since the last acknowledgement: what has QoS 2 and
    /// may have a packet identifier that the client holds stays. Whoever proposes it says by the sequences how many are dropped at
    /// most.
    ///
    /// By [`RetentionLimit::Away`] nothing is dropped: see there.
    Trim {
        /// The session.
        session: SessionName,
        /// The first sequence that may go.
        from: u64,
        /// The first sequence that stays.
        below: u64,
        /// Why.
        limit: RetentionLimit,
    },
}

/// What queued messages are dropped by, or leave their queue, although that is not full.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RetentionLimit {
    /// How long messages of a class are kept.
    Age,
    /// How many bytes the queues of a class, or of a node, may have.
    Bytes,
    /// None: an operator empties the queue.
    Purge,
    /// How long a member of a shared group may be away: its messages of the group, but those of QoS 2, become a legacy with a
    /// number of its own. Everything else stays with the session. [`InboxReply::Stale`], and nothing changes, if a node has the
    /// session or another connection came. Only logs of levels that [leave to groups](Level::leaves_to_groups) have it.
    Away {
        /// Of the session's last connection.
        epoch: u64,
        /// The subscription of the group, as in SUBSCRIBE.
        group: Box<str>,
    },
}

impl RetentionLimit {
    /// As what is dropped is counted; `None`: nothing is.
    #[must_use]
    pub const fn reason(&self) -> Option<DropReason> {
        match self {
            Self::Age => Some(DropReason::RetentionAge),
            Self::Bytes => Some(DropReason::RetentionBytes),
            Self::Purge => Some(DropReason::Purged),
            Self::Away { .. } => None,
        }
    }

    /// Whether logs of a level have it.
    #[must_use]
    pub fn is_of(&self, level: Level) -> bool {
        match self {
            Self::Age | Self::Bytes | Self::Purge => level >= Level::SPLITS,
            Self::Away { .. } => level.leaves_to_groups(),
        }
    }
}

/// A loop of a node that asks for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Caller {
    /// The node.
    pub node: u64,
    /// Its loop.
    pub loop_index: u16,
    /// The node's incarnation when it was started.
    pub incarnation: u64,
}

/// What tells requests of a loop apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The loop.
    pub caller: Caller,
    /// No two requests of the loop have the same.
    pub number: u64,
    /// The lowest number that the loop waits for; below it nothing is carried out any more.
    pub oldest: u64,
}

impl InboxOp {
    /// The client and the epoch of a connection that this makes an inbox for, or attaches to the one that is there.
    #[must_use]
    pub fn attaches(&self) -> Option<(&str, u64)> {
        match self {
            Self::Attach { client, epoch, .. }
            | Self::AttachAgain { client, epoch, .. }
            | Self::AttachAs { client, epoch, .. } => Some((client, *epoch)),
            _ => None,
        }
    }

    /// Whether only logs from [`Level::SPLITS`] on have it.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        matches!(self, Self::AttachAs { .. } | Self::Trim { .. })
            || matches!(self.session(), Some(SessionName::Inbox(_)))
    }

    /// The operation as logs can have it that know of no classes and drop nothing that is queued; `None`: they cannot.
    pub(super) fn without_class(self) -> Option<Self> {
        match self {
            Self::AttachAs {
                client,
                epoch,
                node,
                node_incarnation,
                resume: true,
                last: Some((last, knows_owed)),
                ..
            } => Some(Self::AttachAgain {
                client,
                epoch,
                node,
                node_incarnation,
                last,
                knows_owed,
            }),
            Self::AttachAs {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
                ..
            } => Some(Self::Attach {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
            }),
            Self::Trim { .. } => None,
            other => Some(other),
        }
    }

    /// The session that this is for, if it is for one that is there.
    pub(super) fn session_mut(&mut self) -> Option<&mut SessionName> {
        match self {
            Self::Detach { session, .. }
            | Self::Remove { session, .. }
            | Self::Subscribe { session, .. }
            | Self::Unsubscribe { session, .. }
            | Self::Deliver { session, .. }
            | Self::Acknowledge { session, .. }
            | Self::Receipt { session, .. }
            | Self::Replay { session, .. }
            | Self::DeliverOnce { session, .. }
            | Self::DeliverFenced { session, .. }
            | Self::Linger { session, .. }
            | Self::DeliverLate { session, .. }
            | Self::Trim { session, .. } => Some(session),
            Self::NodeUp { .. }
            | Self::Attach { .. }
            | Self::AttachAgain { .. }
            | Self::AttachAs { .. }
            | Self::HandOver { .. }
            | Self::Publish { .. }
            | Self::PublishOnce { .. }
            | Self::PublishFenced { .. }
            | Self::Release { .. }
            | Self::ReleaseFenced { .. }
            | Self::Forget { .. } => None,
        }
    }

    /// The session that this is for, if it is for one that is there.
    #[must_use]
    pub fn session(&self) -> Option<&SessionName> {
        match self {
            Self::Detach { session, .. }
            | Self::Remove { session, .. }
            | Self::Subscribe { session, .. }
            | Self::Unsubscribe { session, .. }
            | Self::Deliver { session, .. }
            | Self::Acknowledge { session, .. }
            | Self::Receipt { session, .. }
            | Self::Replay { session, .. }
            | Self::DeliverOnce { session, .. }
            | Self::DeliverFenced { session, .. }
            | Self::Linger { session, .. }
            | Self::DeliverLate { session, .. }
            | Self::Trim { session, .. } => Some(session),
            Self::NodeUp { .. }
            | Self::Attach { .. }
            | Self::AttachAgain { .. }
            | Self::AttachAs { .. }
            | Self::HandOver { .. }
            | Self::Publish { .. }
            | Self::PublishOnce { .. }
            | Self::PublishFenced { .. }
            | Self::Release { .. }
            | Self::ReleaseFenced { .. }
            | Self::Forget { .. } => None,
        }
    }
}

/// Retained messages that a subscription owes a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owed {
    /// The filter of the subscription.
    pub filter: Box<str>,
    /// Where the next page begins, in the retain store's words; empty: with the first message.
    pub place: Box<[u8]>,
}

/// A page of retained messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The filter of the subscription.
    pub filter: Box<str>,
    /// Where the page begins, as [`Owed::place`].
    pub from: Box<[u8]>,
    /// Where the next one begins; `None`: it was the last.
    pub next: Option<Box<[u8]>>,
}

/// Sequences that a client is done with: single ones, in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done(pub Vec<u64>);

/// What makes a publication one that happens once: it is not queued again under the same origin until
/// that is released. The sessions that match and each shared group are told apart: `Publish`, and
/// `Deliver` by the first item's `group`, do not stand in each other's way.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The publisher.
    pub client: ClientName,
    /// The publisher's session, by the epoch it began with; a higher one makes older origins void, but
    /// those of the broker.
    pub incarnation: u64,
    /// The packet identifier; 0: the broker publishes it, a will or a message of a legacy.
    pub packet_id: u16,
}

impl Origin {
    /// Whether it is that of a will or of a message of a legacy: no client publishes it again.
    #[must_use]
    pub fn is_of_broker(&self) -> bool {
        self.packet_id == 0
    }
}

/// A subscription as the store keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredSubscription {
    /// The filter as the client wrote it, a `$share/…` prefix included.
    pub filter: Box<str>,
    /// The options as granted.
    #[serde(with = "wire::options")]
    pub options: SubscriptionOptions,
    /// The Subscription Identifier; 0: none.
    pub id: u32,
}

impl StoredSubscription {
    /// Whether it brings the session retained messages. `new`: the session did not have it before. Not in a
    /// shared group [MQTT-4.8.2-1]; [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11].
    #[must_use]
    pub fn wants_retained(&self, new: bool) -> bool {
        let wants = match self.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => new,
            RetainHandling::DoNotSend => false,
        };
        wants && !is_shared(&self.filter)
    }
}

/// A message for one session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The message.
    #[serde(with = "wire::message")]
    pub message: Arc<ApplicationMessage>,
    /// The QoS to deliver with.
    #[serde(with = "wire::qos")]
    pub qos: QoS,
    /// The RETAIN flag on the wire.
    pub retain: bool,
    /// Identifiers of the subscriptions that matched.
    #[serde(with = "wire::subscription_ids")]
    pub subscription_ids: SubscriptionIdSet,
    /// The filter, with its `$share/…` prefix, of the shared subscription that it was chosen by.
    pub group: Option<Box<str>>,
}

/// What is queued under a sequence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Queued {
    /// A message.
    Message(Item),
    /// The client has the message; PUBREL is owed.
    Released,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InboxReply {
    /// Done; nothing to say.
    Done,
    /// The epoch is not the inbox's any more, or there is no such inbox.
    Stale,
    /// To `Attach`.
    Attached(Box<Attached>),
    /// To `Subscribe`: for each, whether the session did not have it before.
    Subscribed(Vec<bool>),
    /// To `Unsubscribe`: for each, whether the session had it.
    Unsubscribed(Vec<bool>),
    /// To `Publish`, `Deliver` and their like: how many sessions have it (at least 1 if it came before), and how many
    /// were full and refuse it under [`mqtt_session::QueueFull::Refuse`]. An origin is remembered all the
    /// same: whoever refuses the publisher releases it.
    Published {
        /// Sessions that matched.
        matched: u32,
        /// Of these, those that refuse it.
        refused: u32,
        /// Of these, those that are connected and whose queues are three quarters full: the publisher
        /// should be slowed down.
        pressing: u32,
    },
    /// To `HandOver`: messages of the legacy by their sequences, ascending, at most 128, and none after
    /// those that make 256 KiB. Empty: nothing is left, and the legacy is gone.
    LeftBehind(Vec<(u64, Item)>),
    /// To `AttachAgain`, if the inbox lingers since the last connection: without the subscriptions, and without
    /// what they owe.
    AttachedAgain(Box<Attached>),
    /// To `PublishFenced`, `DeliverFenced` and `ReleaseFenced`: a later connection of the publisher has released
    /// something. Nothing is changed.
    Fenced,
}

impl InboxReply {
    /// The answer of two shards to one request, given those of each: a publication counts the sessions of both, and what is
    /// over in one is over.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Published {
                    matched,
                    refused,
                    pressing,
                },
                Self::Published {
                    matched: more,
                    refused: more_refused,
                    pressing: more_pressing,
                },
            ) => Self::Published {
                matched: matched.saturating_add(more),
                refused: refused.saturating_add(more_refused),
                pressing: pressing.saturating_add(more_pressing),
            },
            (Self::Fenced, _) | (_, Self::Fenced) => Self::Fenced,
            (Self::Done, answer) | (answer, _) => answer,
        }
    }
}

/// What a client that has connected finds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// Whether the inbox was there before, and goes on.
    pub present: bool,
    /// The inbox's number in this shard.
    pub inbox: u64,
    /// The epoch that the session began with.
    pub incarnation: u64,
    /// Its subscriptions, sorted by filter.
    pub subscriptions: Vec<StoredSubscription>,
    /// Identifiers of QoS 2 publications of this client that are not released.
    #[serde(with = "wire::packet_ids")]
    pub received: PacketIdSet,
    /// The lowest sequence that is queued, or the next one to be given.
    pub first: u64,
    /// What is queued below this may have been sent before: one more than the highest sequence that may
    /// have been.
    pub sent: u64,
    /// Retained messages that its subscriptions owe it.
    pub owed: Vec<Owed>,
}

/// A message that a session will not get.
#[derive(Clone, Debug)]
pub struct InboxDrop<'a> {
    /// The session.
    pub client: &'a str,
    /// The message.
    pub message: &'a Arc<ApplicationMessage>,
    /// Why.
    pub reason: DropReason,
}

/// Who is told what an operation brings about.
pub trait InboxOutlet {
    /// A message was queued for a session that is attached, under the next sequence.
    fn queued(&mut self, inbox: u64, sequence: u64, item: &Item);

    /// An inbox was attached, and its node has no routes of it yet; or it is detached. In between, what is not queued for it
    /// because its node gets it directly may not get there.
    fn awaited(&mut self, _inbox: u64, _is_awaited: bool) {}

    /// A message of QoS 0 was not queued for an attached session: its node gets it directly, if who publishes it knows that.
    fn passed_over(&mut self, _inbox: u64, _client: &str, _item: &Item) {}

    /// A message was put in the queue of a session of this slot, and takes so many bytes, as these are accounted.
    fn stored(&mut self, _slot: u16, _bytes: u32) {}

    /// A message was dropped (P7).
    fn dropped(&mut self, drop: InboxDrop<'_>);

    /// A message was given to a session whose client is connected, and whose queue is three quarters full.
    fn filling(&mut self, _client: &str, _message: &Arc<ApplicationMessage>) {}

    /// Whether any session of this shard subscribes to this filter, and whether any such is detached.
    /// Told at each change of the two; not for shared subscriptions.
    fn filter(&mut self, filter: &str, any: bool, detached: bool);

    /// A session has joined a shared group (or changed its options), or left it (`None`).
    fn member(&mut self, client: &str, filter: &str, subscription: Option<&StoredSubscription>);

    /// A session has ended, or is away, and has left a legacy: messages of shared groups that others of these groups are to
    /// have. `inbox`: its number, that of the ended session's inbox or one of its own. Legacies of one session are told in the
    /// order of their messages. Others get them by [`InboxOp::HandOver`].
    fn left_behind(&mut self, client: &str, inbox: u64);
}
