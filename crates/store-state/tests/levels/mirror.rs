//! Operations as their bytes are, apart from the types of the crate: what was written once is written so for ever, whatever becomes of
//! these.

use serde::Serialize;

/// What a batch begins with: `now_ms`, the limits, and what follows the policy of a full queue.
#[derive(Serialize)]
pub(crate) struct Header {
    pub(crate) now_ms: u64,
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
    pub(crate) full: Full,
    pub qos0: u8,
    pub(crate) retained_messages: u64,
    pub(crate) retained_bytes: u64,
}

/// What happens when a queue is full: a byte, and seconds behind the byte 3 or 7.
#[derive(Clone, Copy)]
pub(crate) struct Full(pub(crate) u8, pub(crate) Option<u32>);

impl Serialize for Full {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            Some(secs) => (self.0, secs).serialize(to),
            None => self.0.serialize(to),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct Request<O> {
    pub(crate) until: u64,
    pub(crate) op: O,
}

/// A name of a session or of a client: bytes.
pub(crate) type Name = Bytes;

#[derive(Clone)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

#[derive(Clone, Serialize)]
pub(crate) struct Message {
    pub(crate) flags: u8,
    pub(crate) expires_at: u64,
    pub(crate) properties_len: u32,
    pub(crate) bytes: Bytes,
}

#[derive(Clone, Serialize)]
pub(crate) struct Item {
    pub(crate) message: Message,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: Vec<u32>,
    pub(crate) group: Option<Bytes>,
}

#[derive(Clone, Serialize)]
pub(crate) struct Origin {
    pub(crate) client: Name,
    pub(crate) incarnation: u64,
    pub(crate) packet_id: u16,
}

#[derive(Clone, Serialize)]
pub(crate) struct Call {
    pub(crate) node: u64,
    pub(crate) loop_index: u16,
    pub(crate) incarnation: u64,
    pub(crate) number: u64,
    pub(crate) oldest: u64,
}

#[derive(Clone, Serialize)]
pub(crate) struct Subscription {
    pub(crate) filter: Bytes,
    pub(crate) options: u8,
    pub(crate) id: u32,
}

#[derive(Clone, Serialize)]
pub(crate) struct Progress {
    pub(crate) filter: Bytes,
    pub(crate) from: Bytes,
    pub(crate) next: Option<Bytes>,
}

/// Why messages leave a queue, in the order of the numbers.
#[derive(Clone, Serialize)]
pub(crate) enum Limit {
    Age,
    Bytes,
    Purge,
    Away(u64, Bytes),
}

/// The operations of an inbox shard, in the order of their numbers.
#[derive(Clone, Serialize)]
pub(crate) enum Inbox {
    NodeUp(u64, u64),
    Attach(Name, u64, u64, u64, bool),
    Detach(Name, u64, u64),
    Remove(Name, u64),
    Subscribe(Name, u64, Vec<Subscription>),
    Unsubscribe(Name, u64, Vec<Bytes>),
    Publish(Message, u64, Option<Origin>),
    Deliver(Name, Vec<Item>, Option<Origin>),
    Acknowledge(Name, u64, u64, Vec<u64>),
    Receipt(Name, u64, u64),
    Release(Origin),
    Forget(Name, u64),
    Replay(Name, u64, Vec<Item>, Vec<Progress>),
    HandOver(Name, u64, Vec<u64>),
    PublishOnce(Call, Message, u64),
    DeliverOnce(Call, Name, Vec<Item>),
    Linger(Name, u64, u64),
    AttachAgain(Name, u64, u64, u64, u64, bool),
    DeliverLate(Name, u64, bool, Item),
    PublishFenced(Message, u64, Origin, u64),
    DeliverFenced(Name, Vec<Item>, Origin, u64),
    ReleaseFenced(Origin, u64),
    AttachAs(Name, u64, u64, u64, bool, Option<(u64, bool)>, u32),
    Trim(Name, u64, u64, Limit),
}

#[derive(Clone, Serialize)]
pub(crate) struct Claim {
    pub(crate) client: Bytes,
    pub(crate) node: u64,
    pub(crate) node_incarnation: u64,
    pub(crate) clean_start: bool,
    pub(crate) expiry: u32,
    pub(crate) will: Option<(Message, Option<u32>, u32)>,
    pub(crate) asked_ms: u64,
}

/// The request, the user, and 0 or 1: a session of another user refuses it, or is discarded.
pub(crate) type ClaimBy = (Claim, Option<Bytes>, u8);

/// The operations of a session shard, in the order of their numbers.
#[derive(Clone, Serialize)]
pub(crate) enum Session {
    NodeUp(u64, u64, u64),
    Claim(Claim),
    Disconnect(Bytes, u64, u32, u8),
    Fired(Bytes, u64),
    Gone(Bytes, u64),
    Due,
    ClaimAgain(Claim),
    WillDue(Bytes, u64),
    ClaimBy(ClaimBy),
    ClaimByAgain(ClaimBy),
    DiscardWill(Bytes, u64),
    ClaimHolding(ClaimBy),
    ClaimHoldingAgain(ClaimBy),
    FireAgain(Bytes, u64),
    End(Bytes, u64),
}

/// The operations of a retain shard, in the order of their numbers.
#[derive(Clone, Serialize)]
pub(crate) enum Retain {
    Set(Message),
    Expire,
    SetWill(Message, Origin),
    SetFrom(Message, u64, u64),
    /// Topics and times, and why.
    Remove(Vec<(Bytes, u64)>, u8),
}
