//! The rows of the inbox tables.
//!
//! | Key | Value |
//! |---|---|
//! | `M` | the machine: what holds for all inboxes |
//! | `U` | calls that were carried out, of all loops |
//! | `I`, slot, client | an inbox, without its queue |
//! | `L`, slot, client, inbox | a legacy: the same of an inbox whose session has ended |
//! | `Q`, slot, inbox, sequence | a queued message, or a reference to a body |
//! | `B`, body | a message that several inboxes refer to |
//! | `C`, body | how many do |
//! | `N`, slot of the publisher, publisher, incarnation, upper byte | packet identifiers that it has not released |
//! | `K`, slot of the publisher, publisher, incarnation | what the broker published for it |
//! | `E`, slot of the publisher, publisher | its fence: which of its connections are over |
//! | `O`, slot of the publisher, publisher | its origins, all in one row; read, and not written any more |
//! | `R`, slot of the publisher, publisher | those that are released; read, and not written any more |
//! | `P`, slot, client | retained messages that its subscriptions owe it, as earlier versions wrote it |
//! | `F`, slot, client, number | a filter whose retained messages it is owed; read, and not written any more |
//! | `G`, slot, inbox, number | a filter whose retained messages an inbox is owed; numbers ascend in the order of the subscriptions |
//!
//! Invariant: numbers in keys are big-endian, so that a queue's rows stand in its order. What is written
//! here stands on disks: a change of it is a new format number.
//!
//! Deliberately absent: when a row is written.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::{ApplicationMessage, ClassId, SubscriptionIdSet, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::name::InboxId;
use super::queue::ages::Mark;
use super::weight::Weight;
use super::{Item, Owed, StoredSubscription};
use crate::survey::ensure;
use crate::{Level, LoadError, SlotRange, Table, TableError, row, wire};

pub(super) const MACHINE: &[u8] = b"M";
/// With the slot 0, as all keys have one.
pub(super) const CALLS: &[u8] = b"U\0\0";
pub(super) const INBOX: u8 = b'I';
pub(super) const LEGACY: u8 = b'L';
pub(super) const PAGE: u8 = b'N';
pub(super) const BROKERS: u8 = b'K';
pub(super) const FENCE: u8 = b'E';
pub(super) const ORIGINS: u8 = b'O';
pub(super) const RELEASED: u8 = b'R';
pub(super) const OWED: u8 = b'P';
pub(super) const PENDING_OF_CLIENT: u8 = b'F';
pub(super) const PENDING_FILTER: u8 = b'G';
pub(super) const QUEUE: u8 = b'Q';
pub(super) const BODY: u8 = b'B';
pub(super) const COUNT: u8 = b'C';

/// The place of a queued message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct QueueKey {
    pub(super) slot: u16,
    pub(super) inbox: u64,
    pub(super) sequence: u64,
}

impl QueueKey {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        of_inbox(QUEUE, self.slot, self.inbox, self.sequence)
    }

    /// The place in a key that [`QueueKey::to_bytes`] made.
    pub(super) fn from_bytes(key: &[u8]) -> Option<Self> {
        let (slot, inbox, sequence) = in_inbox(key)?;
        Some(Self {
            slot,
            inbox,
            sequence,
        })
    }
}

/// The keys of all queued messages of these slots: the first possible one, and the first behind them.
pub(super) fn queues_of(range: SlotRange) -> (Vec<u8>, Vec<u8>) {
    let first_of = |slot| of_inbox(QUEUE, slot, 0, 0);
    let end = range.last.checked_add(1).map(first_of);
    (first_of(range.first), end.unwrap_or(vec![QUEUE + 1]))
}

/// The place of a queued message, by the key of its row.
pub(super) fn queued_at(key: &[u8]) -> Result<QueueKey, TableError> {
    QueueKey::from_bytes(key)
        .ok_or_else(|| TableError("a key of a queue is of another length".into()))
}

/// The number of the body that the row of a queued message refers to; 0: none. Reads the beginning of the row only.
pub(super) fn body_of(key: &[u8], value: &[u8]) -> Result<u64, TableError> {
    let start = row::decode_first::<(u32, u64)>(key, value);
    let ((_, body), _) = start.map_err(in_table)?;
    Ok(body)
}

/// The place of a filter whose retained messages an inbox is owed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PendingKey {
    pub(super) inbox: InboxId,
    pub(super) filter: FilterNumber,
}

/// The number of a filter among those of its inbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FilterNumber(pub(super) u64);

impl PendingKey {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let InboxId { slot, number } = self.inbox;
        of_inbox(PENDING_FILTER, slot.0, number.0, self.filter.0)
    }

    /// The place in a key that [`PendingKey::to_bytes`] made.
    pub(super) fn from_bytes(key: &[u8]) -> Option<Self> {
        let (slot, number, filter) = in_inbox(key)?;
        let (inbox, filter) = (InboxId::new(slot, number), FilterNumber(filter));
        Some(Self { inbox, filter })
    }
}

/// The key of one of several rows of an inbox.
fn of_inbox(kind: u8, slot: u16, inbox: u64, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(19);
    key.push(kind);
    key.extend_from_slice(&slot.to_be_bytes());
    key.extend_from_slice(&inbox.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The slot, the inbox and the number in a key that [`of_inbox`] made.
fn in_inbox(key: &[u8]) -> Option<(u16, u64, u64)> {
    let (slot, rest) = key.get(1..)?.split_first_chunk()?;
    let (inbox, number) = rest.split_first_chunk()?;
    Some((
        u16::from_be_bytes(*slot),
        u64::from_be_bytes(*inbox),
        u64::from_be_bytes(number.try_into().ok()?),
    ))
}

/// The publisher, incarnation and upper byte in a key of a page of packet identifiers.
pub(super) fn page_in(key: &[u8]) -> Result<(&str, u64, u8), LoadError> {
    let Some((page, rest)) = key.split_last() else {
        return Err(row::damaged(key, "the key has no page"));
    };
    let (publisher, incarnation) = row::name_and_number(rest)?;
    Ok((publisher, incarnation, *page))
}

/// The sequence in a key of a queued message.
pub(super) fn sequence(key: &[u8]) -> u64 {
    key.last_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn body_key(body: u64) -> Vec<u8> {
    numbered(BODY, body)
}

pub(super) fn count_key(body: u64) -> Vec<u8> {
    numbered(COUNT, body)
}

/// The number in a key of a body or count.
pub(super) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// `M`. Behind it, if that is not 0: `recount_below` of the bodies.
#[derive(Serialize, Deserialize)]
pub(super) struct MachineRow {
    pub(super) next_inbox: u64,
    pub(super) next_body: u64,
    /// Each node's incarnation, by node.
    pub(super) nodes: Vec<(u64, u64)>,
    pub(super) range: SlotRange,
}

/// `I` and `L`. `S` and `R` are slices to write and vectors to read.
#[derive(Serialize, Deserialize)]
pub(super) struct InboxRow<S = Vec<StoredSubscription>, R = Vec<u64>> {
    pub(super) number: u64,
    pub(super) incarnation: u64,
    pub(super) epoch: u64,
    /// Node and its incarnation.
    pub(super) attached: Option<(u64, u64)>,
    pub(super) subscriptions: S,
    /// The next sequence.
    pub(super) next: u64,
    /// No message is queued below this.
    pub(super) head: u64,
    /// Messages queued.
    pub(super) alive: u32,
    /// Their accounted bytes.
    pub(super) bytes: u64,
    pub(super) sent: u64,
    pub(super) released: R,
    /// Rows of earlier versions end before this.
    #[serde(with = "rest")]
    pub(super) rest: Rest,
}

/// What replicas have alike in the value of a row. Not alike are, of an inbox, when its messages came ([`Mark`]), below which sequence
/// it is known to have no message, which depends on when checkpoints were written, and where it is attached: a row that says a
/// process that has ended counts as one that says none. Of the machine, how far a split is rebuilt.
#[must_use]
pub fn agreed<'a>(key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    let agreed = match key {
        [INBOX | LEGACY, ..] => row::decode::<InboxRow>(key, value).ok().map(|mut row| {
            row.attached = None;
            row.head = 1;
            row.rest.lingers = false;
            row.rest.marks.clear();
            row::encode(&row)
        }),
        MACHINE => row::decode_first::<MachineRow>(key, value)
            .ok()
            .map(|(row, _)| row::encode(&row)),
        _ => None,
    };
    // What cannot be read is compared as it is.
    agreed.map_or(Cow::Borrowed(value), Cow::Owned)
}

/// No queue is so long that sequences reach this: so what is added to one is a number, too.
const LAST_SEQUENCE: u64 = 1 << 62;

impl<S, R> InboxRow<S, R> {
    /// Checks the ends of its queue, on which everything counts that is done with it.
    pub(super) fn check_queue(&self, key: &[u8]) -> Result<(), LoadError> {
        ensure(
            1 <= self.head && self.head <= self.next && self.sent < self.next,
            key,
            "its queue ends before it begins, or before what was sent",
        )?;
        let is_number = self.next < LAST_SEQUENCE;
        ensure(
            is_number,
            key,
            "its queue has had more messages than there can be",
        )
    }
}

/// Visits the inboxes that the tables of a shard hold, without loading them: the client, and the highest epoch that was
/// attached. Inboxes that were made since the last checkpoint are not among them ([`InboxOp::attaches`](super::InboxOp::attaches) finds those in
/// the log), and some of these may have been removed since.
///
/// # Errors
/// A row is damaged, or the tables cannot be read; inboxes before it have been visited.
pub fn each_stored(
    range: SlotRange,
    table: &dyn Table,
    mut visit: impl FnMut(&str, u64),
) -> Result<(), LoadError> {
    row::each(table, INBOX, range, |key, value| {
        let inbox: InboxRow = row::decode(key, value)?;
        visit(row::name(key)?, inbox.epoch);
        Ok(())
    })
}

/// What the rows of a shard show of the level of the program that wrote them, of those that knew of no levels. `None`: nothing
/// that the two have in different ways. Reads the rows of the inboxes until one shows the later one, which counts.
///
/// # Errors
/// A row is damaged, or the tables cannot be read.
pub fn level_shown(table: &dyn Table) -> Result<Option<Level>, LoadError> {
    let has = |kind: u8| -> Result<bool, LoadError> {
        let mut found = false;
        table.range(&[kind], &[kind + 1], &mut |_, _| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    };
    if has(PENDING_FILTER)? {
        return Ok(Some(Level::SPLITS));
    }
    let mut shown = Ok(has(PENDING_OF_CLIENT)?.then_some(Level::UNGATED));
    table.range(&[INBOX], &[INBOX + 1], &mut |key, value| {
        let inbox: Result<InboxRow, LoadError> = row::decode(key, value);
        match inbox {
            Ok(inbox) if !inbox.rest.marks.is_empty() || inbox.rest.class != ClassId::DEFAULT => {
                shown = Ok(Some(Level::SPLITS));
            }
            Ok(inbox) => {
                if inbox.alive > 0 {
                    shown = Ok(Some(Level::UNGATED));
                }
                return ControlFlow::Continue(());
            }
            Err(error) => shown = Err(error),
        }
        ControlFlow::Break(())
    })?;
    shown
}

/// What stands at the end of an inbox's row, as far as it is not zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Rest {
    pub(super) lingers: bool,
    /// The beginning of time: not known.
    pub(super) away_since: Timestamp,
    /// Of its client.
    pub(super) class: ClassId,
    /// When what is queued came.
    pub(super) marks: Vec<Mark>,
}

/// Nothing, the flag, the flag and the time, or all, the marks behind their number.
mod rest {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serialize, Serializer};

    use super::{ClassId, Mark, Rest, Timestamp};
    use crate::inbox::queue::ages::WRITTEN;

    pub(in crate::inbox) fn serialize<S: Serializer>(
        rest: &Rest,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Rest {
            lingers,
            away_since: Timestamp(away_since),
            class: ClassId(class),
            marks,
        } = rest;
        match (lingers, away_since, class, &marks[..]) {
            (false, 0, 0, []) => serializer.serialize_unit(),
            (lingers, 0, 0, []) => lingers.serialize(serializer),
            (lingers, away_since, 0, []) => (lingers, away_since).serialize(serializer),
            all => all.serialize(serializer),
        }
    }

    pub(in crate::inbox) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Rest, D::Error> {
        deserializer.deserialize_tuple(4 + WRITTEN, Read)
    }

    struct Read;

    impl<'de> Visitor<'de> for Read {
        type Value = Rest;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the end of an inbox's row")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Rest, A::Error> {
            // The only thing that can fail is that the row ends here.
            let lingers = from.next_element().ok().flatten();
            let away_since = from.next_element().ok().flatten();
            let class: Option<u32> = from.next_element().ok().flatten();
            // These are there if the class is.
            let mut left = match class {
                Some(_) => from.next_element()?.unwrap_or(u64::MAX),
                None => 0,
            };
            let marks = std::iter::from_fn(|| {
                left = left.checked_sub(1)?;
                let mark: Result<Option<Mark>, _> = from.next_element();
                Some(mark.and_then(|mark| {
                    mark.ok_or_else(|| Error::custom("more times than a queue has"))
                }))
            });
            let marks = marks.collect::<Result<_, _>>()?;
            Ok(Rest {
                lingers: lingers.unwrap_or_default(),
                away_since: Timestamp(away_since.unwrap_or_default()),
                class: ClassId(class.unwrap_or_default()),
                marks,
            })
        }
    }
}

/// `Q`.
#[derive(Serialize, Deserialize)]
pub(super) struct QueueRow {
    /// Accounted bytes.
    bytes: u32,
    /// The number of the body; 0: the message is here.
    body: u64,
    own: Option<BodyRow>,
    #[serde(with = "wire::qos")]
    qos: QoS,
    retain: bool,
    #[serde(with = "wire::subscription_ids")]
    subscription_ids: SubscriptionIdSet,
    group: Option<Box<str>>,
}

impl QueueRow {
    pub(super) fn new(item: &Item, bytes: u32, body: u64) -> Self {
        Self {
            bytes,
            body,
            own: (body == 0).then(|| BodyRow(Arc::clone(&item.message))),
            qos: item.qos,
            retain: item.retain,
            subscription_ids: item.subscription_ids.clone(),
            group: item.group.clone(),
        }
    }

    /// Whether the message is in one place.
    pub(super) fn is_whole(&self) -> bool {
        (self.body == 0) == self.own.is_some()
    }

    pub(super) fn weight(&self) -> Weight {
        Weight {
            bytes: self.bytes,
            body: self.body,
        }
    }

    /// The message with what belongs to this inbox; `body` finds the body of a number.
    pub(super) fn into_item(
        self,
        body: impl FnOnce(u64) -> Result<Arc<ApplicationMessage>, TableError>,
    ) -> Result<Item, TableError> {
        Ok(Item {
            message: match self.own {
                Some(BodyRow(message)) => message,
                None => body(self.body)?,
            },
            qos: self.qos,
            retain: self.retain,
            subscription_ids: self.subscription_ids,
            group: self.group,
        })
    }
}

/// `B`.
#[derive(Serialize, Deserialize)]
pub(super) struct BodyRow(#[serde(with = "wire::message")] pub(super) Arc<ApplicationMessage>);

/// `C`.
pub(super) type CountRow = u32;

/// `N`, sorted: packet identifiers, and parts of their publications.
pub(super) type PageRow = Vec<(u16, u64)>;

/// `K`.
#[derive(Serialize, Deserialize)]
pub(super) struct BrokersRow {
    /// Sorted.
    pub(super) parts: Vec<u64>,
    /// When it was released, Unix time in ms; 0: it is not.
    pub(super) released_ms: u64,
}

/// `O`: incarnations, packet identifiers (0: the broker's), parts.
pub(super) type OriginsRow = Vec<(u64, u16, u64)>;

/// `R`: the incarnations, and when what the broker published for them was released, Unix time in ms.
pub(super) type ReleasedRow = Vec<(u64, u64)>;

/// `P`: each filter once.
pub(super) type OwedRow = Vec<Owed>;

/// A row that may be there.
pub(super) fn find<T: DeserializeOwned>(
    table: &dyn Table,
    key: &[u8],
) -> Result<Option<T>, TableError> {
    match table.get(key)? {
        Some(value) => decode(key, &value).map(Some),
        None => Ok(None),
    }
}

/// A row that something refers to.
pub(super) fn get<T: DeserializeOwned>(table: &dyn Table, key: &[u8]) -> Result<T, TableError> {
    find(table, key)?.ok_or_else(|| {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        TableError(format!("the record {digits} is missing"))
    })
}

/// A value, met while the machine runs.
pub(super) fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, TableError> {
    row::decode(key, value).map_err(in_table)
}

fn in_table(error: LoadError) -> TableError {
    match error {
        LoadError::Table(error) => error,
        other => TableError(other.to_string()),
    }
}
