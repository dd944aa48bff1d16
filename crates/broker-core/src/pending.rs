//! What a loop has asked the store and waits for.

use std::sync::Arc;

use mqtt_proto::{PacketId, ReasonCode};
use mqtt_session::ApplicationMessage;
use net_api::Key;
use store_state::api::{Failure, RetainedPage};
use store_state::inbox::{InboxReply, Item};
use store_state::retain::RetainReply;
use store_state::session::SessionReply;

use crate::backpressure::throttle::Receivers;
use crate::connect::taking::{Settling, Taking};
use crate::end::asked::Disconnect;
use crate::handover::asked::Asked as HandoverAsked;
use crate::inbox::asked::Asked as InboxAsked;
use crate::linger::asked::Asked as LingerAsked;
use crate::publish::once::Once;
use crate::publish::operator::Operator;
use crate::rejudge::asked::Revoke;
use crate::retained::asked::Asked as RetainedAsked;
use crate::subscribe::waiting::Asked as SubscribeAsked;
use crate::will::asked::Asked as WillAsked;

/// A question to the store, with what is needed to go on when the answer comes.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A client that connects: the session store is asked for the identifier.
    Claim(Key),
    /// A client that connects: the cluster's directory is asked for the identifier.
    Register(Key),
    /// A client that connects: other nodes are asked to close its older connections.
    TakeOver(Box<Taking>),
    /// Shards are to do all that they were asked before.
    Settle(Settling),
    /// A client that connects: its inbox is asked for.
    Attach { key: Key, epoch: u64 },
    /// A client that connects without a durable session: the one that was there is removed.
    Discard { key: Key, epoch: u64 },
    /// A message on its way to those who keep it.
    Publish(Box<Publication>),
    /// For SUBSCRIBE and UNSUBSCRIBE.
    Subscribe(SubscribeAsked),
    /// Subscriptions that a client may not have any more.
    Revoke(Revoke),
    /// For inboxes.
    Inbox(InboxAsked),
    /// For the replay of retained messages.
    Retained(RetainedAsked),
    /// For ends of connections.
    Disconnect(Disconnect),
    /// For wills.
    Will(WillAsked),
    /// A message for a member of a shared group.
    Member(Box<ToMember>),
    /// For sessions that linger.
    Linger(LingerAsked),
    /// For legacies.
    Handover(HandoverAsked),
}

/// A message on its way to the inbox of a member of a shared group.
#[derive(Debug)]
pub(crate) struct ToMember {
    pub(crate) item: Item,
    /// The publication that waits for it.
    pub(crate) publication: Option<Key>,
    /// What makes it happen once, if no publication waits.
    pub(crate) call: Option<u64>,
    /// What it is known by, whichever member gets it.
    pub(crate) once: Option<Once>,
}

/// What those who are to keep a message did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Storing {
    /// They keep it, as far as they have answered.
    Done,
    /// A shard has no room for it, and does not keep it.
    Refused,
    /// A shard has not answered in time: it may keep it.
    Unknown,
    /// A shard knows of a later connection of the publisher.
    Stale,
}

/// A message on its way to those who keep it.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Whose acknowledgement waits.
    pub(crate) from: Awaiting,
    /// Shards that have not answered.
    pub(crate) left: usize,
    /// The worst of what was answered, or that nobody matched so far.
    pub(crate) reason: ReasonCode,
    /// The worst of what shards did with it.
    pub(crate) storing: Storing,
    /// The retain store has no room for it.
    pub(crate) not_retained: bool,
    /// Who gets it, and which durable sessions among them are filling up.
    pub(crate) receivers: Receivers,
    /// It is not known whether anybody is to keep it, and that does not matter if this node is cut off.
    pub(crate) unsure: bool,
    pub(crate) message: Arc<ApplicationMessage>,
    pub(crate) once: Option<Once>,
    /// What makes it happen once, if it has no name.
    pub(crate) call: Option<u64>,
}

/// Whose acknowledgement waits for a publication.
#[derive(Clone, Debug)]
pub(crate) enum Awaiting {
    /// A client's.
    Client(Key, PacketId),
    /// Nobody's: a retained message of QoS 0 of a client, which is to be counted if it is not kept.
    Nobody(Key),
    /// An operator's.
    Operator(Operator),
    /// The session store's: a will.
    Will { client: Box<str>, epoch: u64 },
}

/// Any answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Session(SessionReply),
    Inbox(InboxReply),
    Retain(RetainReply),
    Passed,
    Retained(Vec<RetainedPage>),
    Failed(Failure),
}
