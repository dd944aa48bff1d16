//! Every message that is dropped: a reason, a count, and a place in the list of recent drops (P7).
//! Subscriptions that rules deny stand in the list as well, with their filter for a topic.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use authorization::Action;
use guard::Quota;
use mqtt_proto::QoS;
use mqtt_session::{DropReason, Timestamp};
use net_api::Counter;

use crate::excerpt::excerpt;
use crate::session_drops::{Alarm, SessionDrops, Sessions, merged};

/// Longest part of a topic or client identifier that a record keeps, in bytes.
const KEPT: usize = 256;

/// Lines of the log in a second that say that a queue is full.
const ALARMS: u32 = 10;

/// Why a message was dropped, or why it never got in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Decided by a session.
    Session(DropReason),
    /// The retain shard of its topic has as many messages or bytes as it may; the message was delivered, not kept.
    RetainedLimit,
    /// A client published under `$SYS/` or `$hmq/`, which belong to the broker.
    ReservedTopic,
    /// A Mosquitto bridge published the state of its connection under `$SYS/`, or left a will that does.
    BridgeNotification,
    /// A shared group had no member left that could take the message.
    NoGroupMember,
    /// The store could not keep it; a publisher of QoS 1 or 2 was told so, or disconnected.
    StoreFailed,
    /// A node with subscribers could not be reached, or not by a message of this size.
    PeerUnreachable,
    /// Rules deny its publisher to publish it or to have it retained, or its receiver to get it.
    Denied(Action),
}

impl Reason {
    const OWN: [Self; 9] = [
        Self::RetainedLimit,
        Self::ReservedTopic,
        Self::BridgeNotification,
        Self::NoGroupMember,
        Self::StoreFailed,
        Self::PeerUnreachable,
        Self::Denied(Action::Publish),
        Self::Denied(Action::Retain),
        Self::Denied(Action::Receive),
    ];

    /// All reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        DropReason::ALL
            .into_iter()
            .map(Self::Session)
            .chain(Self::OWN)
    }

    /// The reason's name in metrics and in the list.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session(reason) => reason.as_str(),
            Self::RetainedLimit => "retained_limit",
            Self::ReservedTopic => "reserved_topic",
            Self::BridgeNotification => "bridge_notification",
            Self::NoGroupMember => "no_group_member",
            Self::StoreFailed => "store_failed",
            Self::PeerUnreachable => "peer_unreachable",
            Self::Denied(Action::Publish) => "publish_denied",
            Self::Denied(Action::Retain) => "retain_denied",
            Self::Denied(Action::Receive) => "receive_denied",
            Self::Denied(Action::Subscribe) => "subscribe_denied",
        }
    }

    /// Whether a message was dropped at the client that published it; otherwise at one that was to get it.
    pub fn is_of_publisher(self) -> bool {
        match self {
            Self::Session(_) | Self::Denied(Action::Receive | Action::Subscribe) => false,
            Self::RetainedLimit
            | Self::ReservedTopic
            | Self::BridgeNotification
            | Self::NoGroupMember
            | Self::StoreFailed
            | Self::PeerUnreachable
            | Self::Denied(Action::Publish | Action::Retain) => true,
        }
    }

    /// Its counter. `None`: no message was dropped.
    fn index(self) -> Option<usize> {
        let own = match self {
            Self::Session(reason) => return Some(reason as usize),
            Self::RetainedLimit => 0,
            Self::ReservedTopic => 1,
            Self::BridgeNotification => 2,
            Self::NoGroupMember => 3,
            Self::StoreFailed => 4,
            Self::PeerUnreachable => 5,
            Self::Denied(Action::Publish) => 6,
            Self::Denied(Action::Retain) => 7,
            Self::Denied(Action::Receive) => 8,
            Self::Denied(Action::Subscribe) => return None,
        };
        Some(DropReason::ALL.len() + own)
    }

    fn counter(self, counts: &[Counter]) -> Option<&Counter> {
        self.index().and_then(|index| counts.get(index))
    }
}

/// One dropped message.
#[derive(Clone, Debug)]
pub struct Drop {
    /// Unix time in ms.
    pub at_ms: u64,
    /// The session that did not get it, or whose publication it was.
    pub client_id: String,
    /// Its topic name.
    pub topic: String,
    /// As in logs and metrics.
    pub reason: &'static str,
    /// Quality of Service.
    pub qos: u8,
    /// Length of the payload.
    pub bytes: u64,
}

/// What [`Drops::since`] finds.
#[derive(Clone, Debug, Default)]
pub struct DropsSince {
    /// The oldest first.
    pub drops: Vec<Drop>,
    /// Their numbers. It begins behind the number that was asked for if drops are not in the list any more; its end is the number
    /// that the next one gets.
    pub numbers: Range<u64>,
}

/// The drops of one loop, whose turns have nobody to wait for here, or of the store, whose threads share
/// them.
#[derive(Debug)]
pub struct Drops {
    /// Read by anybody, added to under the lock of `recent`: a [`Counter`] has one writer at a time.
    counts: [Counter; DropReason::ALL.len() + Reason::OWN.len()],
    recent: parking_lot::Mutex<Recent>,
    alarms: Quota,
    limit: usize,
}

/// How many drops were recorded.
#[derive(Debug, Default)]
struct Recorded(u64);

#[derive(Debug, Default)]
struct Recent {
    list: VecDeque<Drop>,
    /// All that ever stood in it.
    recorded: Recorded,
    sessions: Sessions,
}

impl Drop {
    /// Whether it is of a client, of whose identifier only the beginning may be known.
    pub fn is_of(&self, client_id: &str) -> bool {
        self.client_id == kept(client_id)
    }
}

impl Drops {
    /// Remembers at most `limit` drops in its list.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Default::default(),
            recent: Default::default(),
            alarms: Quota::new(ALARMS),
            limit,
        })
    }

    /// Records a drop. Writes to the log if it is because the queue of a session is full: once an hour of each, and 10
    /// lines in a second.
    pub fn record(
        &self,
        at_ms: u64,
        client_id: &str,
        topic: &str,
        reason: Reason,
        qos: QoS,
        bytes: usize,
    ) {
        let mut recent = self.recent.lock();
        if let Some(count) = reason.counter(&self.counts) {
            count.add(1);
        }
        let alarm = recent
            .sessions
            .handle_drop(client_id, reason, Timestamp(at_ms));
        if let Some(Alarm(dropped)) = alarm
            && let Some(left_out) = self.alarms.take(at_ms)
        {
            tracing::warn!(
                client_id = &*excerpt(client_id),
                topic = &*excerpt(topic),
                dropped,
                left_out,
                "the queue of a session is full; messages are dropped for it (limits.session)"
            );
        }
        if self.limit == 0 {
            return;
        }
        recent.recorded.0 += 1;
        let recent = &mut recent.list;
        // A flood of drops must not cost allocations: the oldest record's strings are used again.
        let mut record = if recent.len() >= self.limit {
            recent.pop_front()
        } else {
            None
        }
        .unwrap_or_else(|| Drop {
            at_ms: 0,
            client_id: String::new(),
            topic: String::new(),
            reason: "",
            qos: 0,
            bytes: 0,
        });
        record.at_ms = at_ms;
        replace(&mut record.client_id, client_id);
        replace(&mut record.topic, topic);
        record.reason = reason.as_str();
        record.qos = qos as u8;
        record.bytes = bytes as u64;
        recent.push_back(record);
    }

    /// All drops since the start.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    /// Drops for one reason since the start.
    pub fn count(&self, reason: Reason) -> u64 {
        reason.counter(&self.counts).map_or(0, Counter::get)
    }

    /// The recent drops of several that are wanted, newest first. Those that are not wanted are not copied.
    pub fn recent(of: &[Arc<Self>], limit: usize, is_wanted: impl Fn(&Drop) -> bool) -> Vec<Drop> {
        let wanted_of = |drops: &Arc<Self>| -> Vec<Drop> {
            let recent = drops.recent.lock();
            let wanted = recent.list.iter().rev().filter(|drop| is_wanted(drop));
            wanted.cloned().collect()
        };
        let mut all: Vec<Drop> = of.iter().flat_map(wanted_of).collect();
        // Stable: of each the order is known even where the time is the same.
        all.sort_by_key(|drop| std::cmp::Reverse(drop.at_ms));
        all.truncate(limit);
        all
    }

    /// The drops in the list from a number on; the first one of a process has 0.
    pub fn since(&self, from: u64) -> DropsSince {
        let recent = self.recent.lock();
        let first = recent.recorded.0 - recent.list.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        DropsSince {
            drops: recent.list.iter().skip(skipped).cloned().collect(),
            numbers: first.max(from)..recent.recorded.0,
        }
    }

    /// What sessions have lost, of several: `limit` of them, newest losses first. Of each `Drops` at most 4,096 sessions
    /// are remembered.
    pub fn by_session(of: &[Arc<Self>], limit: usize) -> Vec<SessionDrops> {
        let each = of.iter().flat_map(|drops| {
            let recent = drops.recent.lock();
            recent.sessions.iter().cloned().collect::<Vec<_>>()
        });
        merged(each, limit)
    }
}

fn replace(of: &mut String, text: &str) {
    of.clear();
    of.push_str(kept(text));
}

/// As much of a name as is kept of it.
pub(crate) fn kept(name: &str) -> &str {
    let end = name.floor_char_boundary(KEPT);
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_where_the_list_forgets() {
        let drops = Drops::new(2);
        let reason = Reason::Session(DropReason::Expired);
        for n in 0..5u64 {
            drops.record(n, "client", &"ä".repeat(200), reason, QoS::AtLeastOnce, 3);
        }
        assert_eq!(drops.count(reason), 5);
        assert_eq!(drops.count(Reason::RetainedLimit), 0);
        let recent = Drops::recent(&[drops], 10, |_| true);
        assert_eq!(recent.iter().map(|d| d.at_ms).collect::<Vec<_>>(), [4, 3]);
        assert_eq!(recent[0].topic.len(), 256);
    }

    #[test]
    fn who_reads_on_from_a_number_has_each_drop_once_or_learns_how_many_are_gone() {
        let drops = Drops::new(3);
        let reason = Reason::Session(DropReason::Expired);
        let record = |count: u64| {
            for at_ms in 0..count {
                drops.record(at_ms, "a", "t", reason, QoS::AtMostOnce, 1);
            }
        };
        let seen = |from: u64| {
            let found = drops.since(from);
            (found.drops.len(), found.numbers)
        };
        assert_eq!(seen(0), (0, 0..0));
        record(2);
        assert_eq!(seen(0), (2, 0..2));
        assert_eq!(seen(2), (0, 2..2));
        record(2);
        assert_eq!(seen(2), (2, 2..4));
        record(7);
        assert_eq!(seen(4), (3, 8..11));
    }

    #[test]
    fn drops_of_several_threads_are_all_counted() {
        const EACH: u64 = 20_000;
        let drops = Drops::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..EACH {
                        drops.record(
                            n,
                            "client",
                            "topic",
                            Reason::StoreFailed,
                            QoS::AtLeastOnce,
                            3,
                        );
                    }
                });
            }
        });
        assert_eq!(drops.total(), 4 * EACH);
    }

    #[test]
    fn each_reason_has_a_counter_of_its_own() {
        let indices: Vec<_> = Reason::all().map(Reason::index).collect();
        assert_eq!(indices, (0..indices.len()).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn a_denied_subscription_is_listed_and_is_no_dropped_message() {
        let drops = Drops::new(2);
        let reason = Reason::Denied(Action::Subscribe);
        drops.record(1, "client", "a/#", reason, QoS::AtLeastOnce, 0);
        assert_eq!(drops.total(), 0);
        assert_eq!(
            Drops::recent(&[drops], 10, |_| true)[0].reason,
            "subscribe_denied"
        );
    }
}
