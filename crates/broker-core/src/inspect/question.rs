//! Questions about the clients of a loop, and their answers, as plain data.

use std::fmt;

use authorization::Action;
use mqtt_session::{ClassId, HeldBack, WillTarget};

use crate::backpressure::held_time;
use crate::key::SessionKey;
use crate::rights::access::Verdict;
use crate::traffic::{TrafficAnswer, TrafficQuestion};

/// Sessions of one inspection at most.
pub const INSPECTED: usize = 128;

/// Subscriptions of an answer at most.
pub const SUBSCRIPTIONS: usize = 512;

/// What a loop is asked about its clients.
pub struct Inspection {
    /// What is asked.
    pub question: Question,
    /// Takes what the loop says. Called on the loop's thread: it must not wait.
    pub answer: Box<dyn FnOnce(Answer) + Send>,
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question.fmt(f)
    }
}

/// A question. Sessions are those of the asked loop; others are not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// Rows of these sessions, [`INSPECTED`] at most.
    Summaries(Vec<SessionKey>),
    /// Rows of the clients that were held for most of the last minute, [`INSPECTED`] at most, in that order.
    LongestHeld(usize),
    /// One session in full.
    Detail(SessionKey),
    /// Subscriptions of a session behind a filter, in their order.
    Subscriptions {
        /// Whose.
        session: SessionKey,
        /// The filter as it was given at SUBSCRIBE; empty: from the first on.
        after: Box<str>,
        /// How many, [`SUBSCRIPTIONS`] at most.
        limit: usize,
    },
    /// What the rules say about a client's action.
    Verdict {
        /// Whose.
        session: SessionKey,
        /// What it would do.
        action: Action,
        /// The topic; for [`Action::Subscribe`] the filter, without `$share/…/`.
        topic: Box<str>,
    },
    /// Which subscriptions of these sessions match a topic, [`INSPECTED`] sessions at most.
    Matching {
        /// Whose.
        sessions: Vec<SessionKey>,
        /// The topic.
        topic: Box<str>,
    },
    /// Who is busy, or what a client does that is watched.
    Traffic(TrafficQuestion),
    /// What clients take of the memory, [`MEMORY_SLICE`](super::MEMORY_SLICE) places of the table at most, from this one on.
    Memory(u32),
}

/// What a loop says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To [`Question::LongestHeld`].
    LongestHeld(Vec<ClientSummary>),
    /// To [`Question::Summaries`], of those that are there.
    Summaries(Vec<(SessionKey, ClientSummary)>),
    /// To [`Question::Detail`]; `None`: it is not there.
    Detail(Option<Box<ClientDetail>>),
    /// To [`Question::Subscriptions`]; `None`: the session is not there.
    Subscriptions(Option<Vec<SubscriptionDetail>>),
    /// To [`Question::Matching`], of those that are there.
    Matching(Vec<MatchingSession>),
    /// To [`Question::Verdict`], with the user; `None`: the session is not there, or not connected.
    Verdict(Option<(Verdict, Option<String>)>),
    /// To [`Question::Traffic`].
    Traffic(TrafficAnswer),
    /// To [`Question::Memory`].
    Memory(Box<LoopMemory>),
}

/// A session with those of its subscriptions that match a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchingSession {
    /// What a list says of it.
    pub summary: ClientSummary,
    /// The subscriptions, also the shared ones.
    pub subscriptions: Vec<SubscriptionDetail>,
    /// Whether it may receive messages of the topic.
    pub may_receive: Verdict,
}

/// The end of a client that an operator asks for.
pub struct End {
    /// The session, of the asked loop.
    pub session: SessionKey,
    /// Whose it was when the question was asked: the slot may have another one since.
    pub client_id: Box<str>,
    /// Whether the session ends with the connection.
    pub ends_session: bool,
    /// Takes whether there was a connection, and where it came from. Called on the loop's thread: it must not wait.
    pub answer: Box<dyn FnOnce(Ended) + Send>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End")
            .field("session", &self.session)
            .field("ends_session", &self.ends_session)
            .finish_non_exhaustive()
    }
}

/// What was ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// A connection.
    pub disconnected: bool,
    /// The session, because it was to end with its connection.
    pub session_ended: bool,
    /// Where the connection came from.
    pub address: Option<String>,
}

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Its CONNECT is not answered.
    Connecting,
    /// It is connected.
    Connected,
    /// Its connection ends.
    Closing,
    /// It has no connection.
    Away,
}

impl Life {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Closing, Self::Away];
}

/// A session in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSummary {
    /// The client identifier.
    pub client_id: String,
    /// The user that it has authenticated as.
    pub user: Option<String>,
    /// Where it is in its life.
    pub life: Life,
    /// When its CONNECT came, in ms of Unix time.
    pub connected_ms: u64,
    /// Where its connection comes from.
    pub address: Option<String>,
    /// Whether it is in the stores.
    pub durable: bool,
    /// Messages that wait in this loop.
    pub queued: u64,
    /// Deliveries that are not acknowledged.
    pub in_flight: u64,
    /// The most that may wait.
    pub queue_limit: u64,
    /// Its class.
    pub class: ClassId,
    /// How it is held, or was within the last minute.
    pub held: Option<held_time::Held>,
}

/// A session in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientDetail {
    /// What a list says.
    pub summary: ClientSummary,
    /// Its connection.
    pub connection: Option<ConnectionDetail>,
    /// The session expiry interval in seconds.
    pub expiry_s: u32,
    /// Its epoch in the session store, if that knows it.
    pub epoch: Option<u64>,
    /// The inbox shard that has it.
    pub shard: Option<u16>,
    /// What holds back QoS 1 and 2 messages that wait in this loop.
    pub waits_for: Option<HeldBack>,
    /// Bytes of all deliveries held, waiting and in flight.
    pub queue_bytes: u64,
    /// The most of them.
    pub queue_bytes_limit: u64,
    /// What happens at the limits.
    pub queue_full: String,
    /// How many subscriptions it has.
    pub subscription_count: u64,
    /// The first of them, 20 at most.
    pub subscriptions: Vec<SubscriptionDetail>,
    /// Its will.
    pub will: Option<WillTarget>,
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionDetail {
    /// Where it comes from.
    pub address: String,
    /// The kind of its listener.
    pub listener: Option<&'static str>,
    /// The version of MQTT.
    pub version: &'static str,
    /// Keep Alive in seconds; 0: none.
    pub keep_alive_s: u16,
    /// The most deliveries in flight.
    pub window: u16,
    /// The longest packet that the client takes; `None`: any.
    pub maximum_packet_bytes: Option<u32>,
    /// It does not take what is written.
    pub write_blocked: bool,
}

/// A subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionDetail {
    /// As it was given at SUBSCRIBE.
    pub filter: String,
    /// The granted QoS.
    pub qos: u8,
    /// Whether what the client publishes itself is left out.
    pub no_local: bool,
    /// Whether RETAIN is kept as it was published.
    pub retain_as_published: bool,
    /// The Subscription Identifier.
    pub identifier: Option<u32>,
}

/// Places of the table of clients that one answer looks at.
pub const MEMORY_SLICE: u32 = 512;

/// A number of things, and what they take together in bytes, as asked of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// How many.
    pub count: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

impl Held {
    /// One more, of so many bytes.
    pub fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Others of the same kind.
    pub fn add_all(&mut self, others: Self) {
        self.count += others.count;
        self.bytes = self.bytes.saturating_add(others.bytes);
    }
}

/// What some of the clients of a loop take.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoopMemory {
    /// Clients with their sessions and subscriptions, by [`Life`].
    pub clients: [Held; Life::ALL.len()],
    /// Free places of their table.
    pub free: Held,
    /// Deliveries that wait or are in flight. A message that several have counts in each.
    pub queued: Held,
    /// Entries of the index of client identifiers, estimated.
    pub identifiers: Held,
    /// The match cache: with the first slice, else nothing.
    pub cache: Held,
    /// Where the next slice begins; `None`: that was the last one.
    pub next: Option<u32>,
}
