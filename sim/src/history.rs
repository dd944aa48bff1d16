//! What clients asked for and were told, as far as the promises judge it.

use std::collections::{BTreeMap, VecDeque};

use mqtt_proto::QoS;
use mqtt_session::DropReason;

/// A message that a client publishes, or its will; its number is its payload.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// `None`: it is a will.
    pub(crate) publisher: Option<usize>,
    /// The connection that it was first sent by.
    pub(crate) connection: Option<ConnectionNumber>,
    pub(crate) topic: String,
    pub(crate) qos: QoS,
    /// Its publisher has a session that outlives connections: what it sends again is known to be the same.
    pub(crate) is_of_session: bool,
    /// It was sent on a further connection: a copy may still be on its way from an earlier one.
    pub(crate) is_sent_again: bool,
    pub(crate) begun: u64,
    pub(crate) acknowledged: Option<u64>,
    /// Without a session, it may have been accepted by a node that has heard no majority since its start: subscribers
    /// elsewhere do not get it (P10).
    pub(crate) is_for_own_node: bool,
    /// The broker has refused it.
    pub(crate) is_refused: bool,
}

/// What a client did with its will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WillFate {
    /// CONNACK was not seen, or not the end of the connection after DISCONNECT: anything may have become of it.
    Unknown,
    /// The connection is open: it must not be published.
    Connected,
    /// The connection ended in order after DISCONNECT: it must not be published.
    Discarded,
    /// The connection ended without: it must be published.
    Due,
}

/// Counts connections of all clients: later ones have higher numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ConnectionNumber(pub(crate) u64);

/// A will: its topic says whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Will {
    pub(crate) topic: String,
    /// The connection that it was left with.
    pub(crate) connection: ConnectionNumber,
    /// When CONNECT was sent.
    pub(crate) begun: u64,
    pub(crate) fate: WillFate,
}

/// A message as a client was given it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Counts what the client was given.
    pub(crate) place: u64,
    /// How often, in the sessions that the client knew to be the same.
    pub(crate) times: u32,
    /// The client has ended the session in which it was given, before the message was released: if the broker has not heard of
    /// that, it gives the message again, and the client cannot know it.
    pub(crate) may_come_again: bool,
}

/// How many of the latest requests to open inboxes again are remembered of a shard at a node.
pub(crate) const REOPENED: usize = 20;

/// A retained message that a client was given because it had subscribed.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// When SUBSCRIBE was sent.
    pub(crate) asked: u64,
    /// When the message came.
    pub(crate) given: u64,
    pub(crate) topic: String,
    pub(crate) number: u64,
}

/// A subscription of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscribed {
    /// When SUBACK came.
    pub(crate) since: u64,
}

#[derive(Default)]
pub(crate) struct History {
    /// By number.
    pub(crate) published: BTreeMap<u64, Published>,
    pub(crate) wills: BTreeMap<u64, Will>,
    /// By number: of messages to the topic of their client's wills, the connection that they were sent by first.
    pub(crate) presences: BTreeMap<u64, ConnectionNumber>,
    /// By durable client and filter.
    pub(crate) subscribed: BTreeMap<usize, BTreeMap<String, Subscribed>>,
    /// By durable client and message.
    pub(crate) given: BTreeMap<(usize, u64), Given>,
    /// By durable client and message: when the queue of the client's session let it go, and why.
    pub(crate) trimmed: BTreeMap<(usize, u64), (u64, DropReason)>,
    /// How many sessions members of the shared group have ended.
    pub(crate) ended_members: usize,
    /// Retained messages as a new client found them at the end, by topic.
    pub(crate) retained: Option<BTreeMap<String, u64>>,
    /// Retained messages as a client found them meanwhile.
    pub(crate) looks: Vec<Look>,
    /// When the store last asked the broker to open the inboxes of a shard again, by node and shard.
    pub(crate) reopened: BTreeMap<(u64, u16), VecDeque<u64>>,
    /// What was seen to be wrong when it happened.
    pub(crate) wrong: Vec<String>,
    places: u64,
}

impl History {
    pub(crate) fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    pub(crate) fn reopened(&mut self, node: u64, shard: u16, now: u64) {
        let times = self.reopened.entry((node, shard)).or_default();
        times.push_back(now);
        if times.len() > REOPENED {
            times.pop_front();
        }
    }

    pub(crate) fn give(&mut self, client: usize, number: u64) {
        self.places += 1;
        let place = self.places;
        let given = self.given.entry((client, number)).or_insert(Given {
            place,
            times: 0,
            may_come_again: false,
        });
        if !std::mem::take(&mut given.may_come_again) {
            given.times += 1;
        }
    }

    /// A message is not kept for a client any longer.
    pub(crate) fn trim(&mut self, client: usize, number: u64, reason: DropReason, now: u64) {
        let first = self.trimmed.entry((client, number));
        first.or_insert((now, reason));
    }

    /// A client ends its session without having been told that these messages are released.
    pub(crate) fn is_left_unreleased(&mut self, client: usize, numbers: &[u64]) {
        for number in numbers {
            if let Some(given) = self.given.get_mut(&(client, *number)) {
                given.may_come_again = true;
            }
        }
    }

    pub(crate) fn has_fate(&mut self, will: Option<u64>, fate: WillFate) {
        if let Some(will) = will.and_then(|will| self.wills.get_mut(&will)) {
            will.fate = fate;
        }
    }

    /// Clients that had subscribed by a filter that matches a topic before a time.
    pub(crate) fn subscribers<'a>(
        &'a self,
        filter_matches: impl Fn(&str) -> bool + 'a,
        before: u64,
    ) -> impl Iterator<Item = usize> + 'a {
        self.subscribed
            .iter()
            .filter(move |(_, filters)| {
                let mut filters = filters.iter();
                filters.any(|(filter, s)| s.since <= before && filter_matches(filter))
            })
            .map(|(client, _)| *client)
    }
}

/// Whether a filter without a group matches a topic name.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}
