//! What nodes ask each other for people, as JSON: a node of another version reads what it knows.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::api::{
    AclQuestion, Client, ClientRow, ClientState, Counts, Departure, DropRow, Gone, ListenerRow,
    NewSubscription, NodeHealth, Queue, Receiver, RecentDrop, Setting, ShardHolds, ShardName,
    SharedGroupRow, SubscriptionRow, Verdict,
};
use admin::cluster::{NodeId, StoreName};
use admin::{LoginSession, NodeCommand, SessionQuestion};
use peer_protocol::NodeAnswer;
use serde::{Deserialize, Serialize};

use super::events::{EventsPart, EventsQuestion};
use super::parts::{MessagesAnswer, MessagesQuestion};

/// What is left of a question's time when a node stops looking further.
pub(super) const LEFT: Duration = Duration::from_millis(100);

/// The longest answer, in bytes, without what a last item adds.
pub(super) const ANSWER_BYTES: usize = 512 * 1024;

/// A question to a node. What it does not know it answers with [`Answer::NotKnown`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// How it is.
    Health,
    /// What the shards hold that it leads.
    Shards,
    /// Its listeners.
    Listeners,
    /// A part of the list of clients.
    Clients(ClientsQuestion),
    /// What it knows of a client.
    Client { client_id: String },
    /// What waits for these clients, of those whose inbox shards it leads.
    Queues { client_ids: Vec<String> },
    /// End a client.
    End { client_id: String, session: bool },
    /// Change a subscription of a client.
    ChangeSubscription(ChangeQuestion),
    /// The subscriptions of a client behind a filter.
    SubscriptionsOf {
        client_id: String,
        after: String,
        limit: u16,
    },
    /// A part of the list of shared groups.
    SharedGroups { after: String, limit: u16 },
    /// Who here would get a message.
    Match {
        topic: String,
        qos: u8,
        publisher: Option<String>,
        limit: u16,
    },
    /// Dropped messages, the latest first.
    Drops(DropsQuestion),
    /// How many messages it has dropped, by reason.
    DropTotals,
    /// What it is configured with, of the options whose names begin so.
    Settings { prefix: String },
    /// Counts.
    Stats,
    /// What it has counted since then, or in the last hour.
    History { since_ms: Option<UnixMs> },
    /// What a shard has cost on it in the last hour.
    ShardHistory {
        shard: ShardName,
        since_ms: Option<UnixMs>,
    },
    /// What has happened on it.
    Events(EventsQuestion),
    /// Messages that wait or are kept.
    Messages(MessagesQuestion),
    /// A session of somebody who has logged in there.
    ApiSession(SessionQuestion),
    /// Whether a client may do something.
    Acl(AclQuestion),
    /// A change of the node itself.
    Change(NodeCommand),
    /// A question of a later version.
    #[serde(other)]
    Unknown,
}

/// Which clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClientsQuestion {
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: u16,
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) node: Option<NodeId>,
    #[serde(default)]
    pub(super) state: Option<ClientState>,
    #[serde(default)]
    pub(super) durable: Option<bool>,
}

/// Which drops.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct DropsQuestion {
    pub(super) limit: u16,
    /// Only those before this place.
    #[serde(default)]
    pub(super) before: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) client: Option<String>,
    #[serde(default)]
    pub(super) topic: Option<String>,
    #[serde(default)]
    pub(super) since_ms: Option<u64>,
}

/// What a node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Health(Box<NodeHealth>),
    Shards(Vec<LedShard>),
    Listeners(Vec<ListenerRow>),
    Clients(ClientsPart),
    Client(Box<ClientPart>),
    Queues(BTreeMap<String, u64>),
    End(Ending),
    ChangeSubscription(ChangePart),
    SubscriptionsOf(Option<Part<SubscriptionRow>>),
    SharedGroups(Part<SharedGroupRow>),
    Match(MatchPart),
    Drops(Vec<PlacedDrop>),
    DropTotals(BTreeMap<String, u64>),
    Settings(Vec<SettingPart>),
    Stats(Box<Counts>),
    History(HistoryPart),
    Events(EventsPart),
    Messages(MessagesAnswer),
    ApiSession(Option<LoginSession>),
    Acl(AclPart),
    /// The change has begun, or why not.
    Change(NodeAnswer),
    /// It answers others.
    Busy,
    /// It could not answer.
    Failed,
    /// It does not know the question.
    #[serde(other)]
    NotKnown,
}

/// A moment, in ms of Unix time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct UnixMs(pub(super) u64);

/// Samples of a node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct HistoryPart {
    /// When the last one ended, in ms of Unix time.
    pub(super) end_ms: Option<UnixMs>,
    /// Values by name.
    pub(super) series: BTreeMap<String, Vec<Option<f64>>>,
}

/// A part of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Part<T> {
    pub(super) rows: Vec<T>,
    /// Others follow.
    pub(super) more: bool,
}

impl<T: Serialize> Part<T> {
    /// The first `limit` rows, or as many as fit into an answer; one at least.
    pub(super) fn new(rows: impl Iterator<Item = T>, limit: usize) -> Self {
        Self::within(rows, limit, ANSWER_BYTES)
    }

    fn within(rows: impl Iterator<Item = T>, limit: usize, bytes: usize) -> Self {
        let mut part = Self {
            rows: Vec::new(),
            more: false,
        };
        let mut taken = 0;
        for row in rows {
            if part.rows.len() >= limit || taken >= bytes {
                part.more = true;
                break;
            }
            taken += size(&row);
            part.rows.push(row);
        }
        part
    }
}

/// The first rows, about as many as fit beside others.
pub(super) fn few<T: Serialize>(rows: impl Iterator<Item = T>) -> Vec<T> {
    Part::within(rows, usize::MAX, FEW_BYTES).rows
}

/// The first names, about as many as fit into a question.
pub(super) fn short(names: impl Iterator<Item = String>) -> Vec<String> {
    Part::within(names, usize::MAX, QUESTION_BYTES).rows
}

/// Bytes of names in a question, without what a last one adds: a question has 512 KiB.
const QUESTION_BYTES: usize = 100 * 1024;

/// Bytes of an answer that one of several things in it takes at most, without what a last row adds.
const FEW_BYTES: usize = 16 * 1024;

/// Bytes of a row. Clients choose how long names are, and characters that JSON escapes.
pub(super) fn size(row: &impl Serialize) -> usize {
    serde_json::to_vec(row).map_or(0, |json| json.len())
}

/// A part of the list of clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClientsPart {
    /// In the order of identifiers.
    pub(super) rows: Vec<ClientRow>,
    /// The last identifier that was looked at, if there may be more behind it.
    pub(super) last: Option<String>,
    pub(super) scanned: u64,
    /// The first and the last slot of each range of the session store that the rows speak for.
    pub(super) covered: Vec<(u16, u16)>,
}

/// What a node knows of a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClientPart {
    /// It has its connection, or a session in memory.
    pub(super) here: Option<Box<Client>>,
    /// It leads the session shard.
    pub(super) leads_record: bool,
    /// The record there.
    pub(super) record: Option<RecordPart>,
    /// It leads the inbox shard.
    pub(super) leads_inbox: bool,
    /// The inbox there.
    pub(super) inbox: Option<InboxPart>,
    pub(super) drops: Vec<RecentDrop>,
    #[serde(default)]
    pub(super) departure: Option<Departure>,
    /// Publishers that are paused because its queue is full.
    pub(super) pauses: Vec<String>,
    /// Subscribers because of which it is paused.
    pub(super) paused_by: Vec<String>,
}

/// A record of the session store.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RecordPart {
    /// The node that has the connection.
    pub(super) node: Option<NodeId>,
    pub(super) user: Option<String>,
    /// When it connected, or left, in ms of Unix time.
    pub(super) since_ms: u64,
    /// Seconds; `u32::MAX`: without end.
    pub(super) expiry_s: u32,
    pub(super) epoch: u64,
    pub(super) durable: bool,
}

/// An inbox.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct InboxPart {
    pub(super) shard: u16,
    pub(super) queue: Queue,
    pub(super) subscriptions: u64,
    /// Some of them.
    pub(super) first: Vec<SubscriptionRow>,
    /// The name of its client's class, if the node has it.
    #[serde(default)]
    pub(super) class: Option<String>,
}

/// What became of a client that was to be ended.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ending {
    /// What was ended here.
    pub(super) gone: Option<Gone>,
    /// The client has a session in a shard that this node leads.
    pub(super) has_record: bool,
}

/// What is to become of one subscription of a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct ChangeQuestion {
    pub(super) client_id: String,
    /// Its session is known, with its user, by whose rules it is judged while it is away.
    pub(super) knows_session: bool,
    pub(super) user: Option<String>,
    pub(super) change: AskedChange,
}

/// That it is made, or removed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AskedChange {
    Subscribe(NewSubscription),
    Unsubscribe { filter: String },
}

/// What a node did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChangePart {
    /// It has neither the connection, nor the inbox of an absent client.
    NotHere,
    /// The client is connecting or leaving, or waits for an answer of its own.
    Busy,
    /// The inbox was asked, and has not done it in time: it still may.
    MayCome,
    /// SUBACK or UNSUBACK would have this reason code.
    Answered { code: u8, is_away: bool },
}

/// What a shard holds that the node leads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct LedShard {
    pub(super) store: StoreName,
    pub(super) shard: u64,
    pub(super) content: ShardHolds,
    pub(super) decision: Option<admin::cluster::SplitStatus>,
    /// `None`: the node does not know it yet, or is of an earlier version.
    #[serde(default)]
    pub(super) load: Option<admin::cluster::LoadStatus>,
}

/// Who of a node would get a message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct MatchPart {
    pub(super) receivers: Vec<Receiver>,
    /// All of them, with those that are not listed.
    pub(super) counts: admin::api::MatchCounts,
    /// Whether all were looked at.
    pub(super) counted_all: bool,
    /// Of receivers that are connected and whose queues are in the stores: how many messages may wait there.
    #[serde(default)]
    pub(super) limits: BTreeMap<String, QueueLimit>,
}

/// How many messages may wait for a client, and whether a further one makes room by dropping the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct QueueLimit(pub(super) u64, pub(super) bool);

/// An option that a node runs with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SettingPart {
    pub(super) key: String,
    pub(super) live: bool,
    pub(super) setting: Setting,
}

/// What a node says of a client's rights.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct AclPart {
    /// The client is connected here, as this user.
    pub(super) connected: Option<(Verdict, Option<String>)>,
    /// Its session is of this user, who was judged by the rules of the node.
    pub(super) stored: Option<(Verdict, Option<String>)>,
    /// As the question says, by the rules of the node.
    pub(super) asked: Option<(Verdict, Option<String>)>,
}

/// A drop and its place among all of its node, for the order of pages.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct PlacedDrop {
    pub(super) row: DropRow,
    pub(super) place: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_at_its_limit_or_when_an_answer_is_full() {
        let rows = |count: usize, len: usize| (0..count).map(move |_| "\u{1}".repeat(len));
        for (count, len, limit, expected, more) in [
            (0, 1, 5, 0, false),
            (5, 1, 5, 5, false),
            (6, 1, 5, 5, true),
            // Each is six times as long as JSON.
            (500, 60_000, 500, 2, true),
            (1, 600_000, 5, 1, false),
        ] {
            let part = Part::new(rows(count, len), limit);
            assert_eq!(
                (part.rows.len(), part.more),
                (expected, more),
                "{count} {len}"
            );
        }
        assert_eq!(few(rows(20, 60_000)).len(), 1);
        assert_eq!(few(rows(20, 10)).len(), 20);
    }
}
