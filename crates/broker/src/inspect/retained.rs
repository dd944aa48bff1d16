//! Retained messages of clients, which the retain store has. Those below `$SYS` are each node's own, and in no list.

use admin::api::Encoding;
use inspection::merge::Merged;
use inspection::{
    ANSWER_BYTES, At, Held, Message, PlaceRange, RetainedLevelRow, RetainedPart, RetainedRow,
    UserProperty, few, size,
};
use mqtt_session::{ApplicationMessage, Timestamp};
use serde::Serialize;
use store::{Cursor, InTopicOrder, RetainedFound, RetainedRows};
use tokio::time::Instant;

use super::state::LEFT;
use super::wire::ToWire as _;
use crate::node::Node;

/// Looks at shards for one answer: some 8 ms of CPU. A filter that few topics match has pages with few rows, or none.
const LOOKS: usize = 16;

/// The largest payload that an answer has, in bytes.
const PAYLOAD: usize = 128 * 1024;

/// A row of such a list.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Listed<T>(pub(super) T);

impl InTopicOrder for Listed<RetainedRow> {
    fn topic(&self) -> &str {
        &self.0.topic
    }

    fn behind(&self) -> Cursor {
        Cursor::behind(&self.0.topic)
    }

    fn join(&mut self, _: &Self) {
        // While a shard is split, both halves may have it for a moment.
    }
}

impl InTopicOrder for Listed<RetainedLevelRow> {
    fn topic(&self) -> &str {
        &self.0.topic
    }

    fn behind(&self) -> Cursor {
        Cursor::behind_all_below(&self.0.topic)
    }

    fn join(&mut self, other: &Self) {
        self.0.has_message |= other.0.has_message;
        self.0.has_more_below |= other.0.has_more_below;
    }
}

/// A place as text.
fn text(place: &Cursor) -> String {
    // Places are made of topics and of bytes that are ASCII.
    String::from_utf8_lossy(place.as_bytes()).into_owned()
}

fn place(text: &str) -> Cursor {
    Cursor::from_bytes(text.as_bytes())
}

/// The messages of the shards that this node leads.
pub(super) fn messages(
    node: &Node,
    filter: &str,
    range: &PlaceRange,
    deadline: Instant,
) -> RetainedPart<RetainedRow> {
    let now = Timestamp(node.cluster_now_ms());
    collect(range, deadline, |after, limit| {
        let found = node.store().inspect().retained(filter, after, limit, now);
        RetainedRows {
            rows: found.rows.iter().map(|found| Listed(row(found))).collect(),
            next: found.next,
            covered: found.covered,
        }
    })
}

/// The levels in the shards that this node leads.
pub(super) fn levels(
    node: &Node,
    below: Option<&str>,
    range: &PlaceRange,
    deadline: Instant,
) -> RetainedPart<RetainedLevelRow> {
    let now = Timestamp(node.cluster_now_ms());
    collect(range, deadline, |after, limit| {
        let found = node
            .store()
            .inspect()
            .retained_levels(below, after, limit, now);
        let rows = found.rows.into_iter().map(|level| {
            Listed(RetainedLevelRow {
                topic: level.topic.into(),
                has_message: level.has_message,
                has_more_below: level.has_more_below,
            })
        });
        RetainedRows {
            rows: rows.collect(),
            next: found.next,
            covered: found.covered,
        }
    })
}

/// Looks until there are enough rows, or no time is left.
fn collect<T: Serialize>(
    range: &PlaceRange,
    deadline: Instant,
    look: impl Fn(Option<&Cursor>, usize) -> RetainedRows<Listed<T>>,
) -> RetainedPart<T>
where
    Listed<T>: InTopicOrder,
{
    let limit = usize::from(range.limit.0);
    let mut after = range.after.as_deref().map(place);
    let mut part = RetainedPart {
        rows: Vec::new(),
        next: None,
        covered: Vec::new(),
    };
    let mut bytes = 0;
    for look_number in 1.. {
        let found = look(after.as_ref(), limit - part.rows.len());
        part.covered = found
            .covered
            .iter()
            .map(|range| (range.first, range.last))
            .collect();
        after = found.next;
        for row in found.rows {
            bytes += size(&row);
            let behind = row.behind();
            part.rows.push(row.0);
            if part.rows.len() >= limit || bytes >= ANSWER_BYTES {
                after = Some(behind);
                break;
            }
        }
        let is_late = deadline.saturating_duration_since(Instant::now()) < LEFT;
        let is_full = part.rows.len() >= limit || bytes >= ANSWER_BYTES;
        if after.is_none() || is_full || is_late || look_number == LOOKS {
            break;
        }
    }
    part.next = after.as_ref().map(text);
    part
}

/// One page of what all nodes have found.
pub(super) fn merged<T>(parts: Vec<RetainedPart<T>>, limit: usize) -> Merged<T>
where
    Listed<T>: InTopicOrder,
{
    let scanned = parts.iter().map(|part| part.rows.len() as u64).sum();
    let nexts = parts.iter().filter_map(|part| part.next.as_deref());
    let next = nexts.map(place).min();
    let rows = parts.into_iter().flat_map(|part| part.rows);
    let all = RetainedRows {
        rows: rows.map(Listed).collect(),
        next,
        covered: Vec::new(),
    };
    let all = all.merged(limit);
    Merged {
        items: all.rows.into_iter().map(|Listed(row)| row).collect(),
        last: all.next.as_ref().map(text),
        scanned,
    }
}

fn row(RetainedFound { message, since }: &RetainedFound) -> RetainedRow {
    RetainedRow {
        topic: message.body.topic().to_owned(),
        qos: message.qos.as_u8(),
        payload_bytes: message.body.payload().len() as u64,
        expires_at: message.expires_at.map(|at| At::unix_ms(at.0)),
        retained_at: since.map(|since| At::unix_ms(since.0)),
    }
}

/// The message of a topic, in full.
pub(super) fn message(node: &Node, topic: &str) -> Held<Box<Message>> {
    let now = Timestamp(node.cluster_now_ms());
    match node.store().inspect().retained_message(topic, now) {
        store::Look::Elsewhere => Held::Elsewhere,
        store::Look::Absent => Held::Absent,
        store::Look::Found(found) => Held::Found(Box::new(in_full(&found))),
    }
}

fn in_full(message: &ApplicationMessage) -> Message {
    let payload = message.body.payload();
    let is_short = payload.len() <= PAYLOAD;
    let (encoding, text) = Encoding::write(if is_short { payload } else { b"" });
    let properties = message.body.properties();
    let user = properties.user_properties.iter();
    let user = user.map(|(name, value)| UserProperty {
        name: name.to_owned(),
        value: value.to_owned(),
    });
    Message {
        topic: message.body.topic().to_owned(),
        qos: message.qos.as_u8(),
        payload: is_short.then_some(text),
        encoding: encoding.to_wire(),
        payload_bytes: payload.len() as u64,
        expires_at: message.expires_at.map(|at| At::unix_ms(at.0)),
        payload_is_utf8: properties.payload_format_indicator == Some(true),
        content_type: properties.content_type.map(str::to_owned),
        response_topic: properties.response_topic.map(str::to_owned),
        correlation_data: properties.correlation_data.map(Encoding::base64),
        user_properties: few(user),
    }
}
