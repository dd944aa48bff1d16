//! The machine: all messages in memory, net changes to the tables.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use serde::{Deserialize, Serialize};
use topic_router::{Cursor, RetainedIndex};

use super::look::{RetainedAmount, RetainedView};
use super::recent::{FENCE, Known, WILL};
use super::{
    PageBudget, RetainOp, RetainOutlet, RetainReply, RetainedAt, RetainedEnd, RetainedSince,
};
use crate::inbox::Origin;
use crate::survey::{ensure, ensure_slot};
use crate::touched::Touched;
use crate::{
    Changes, Header, Level, Limits, LoadError, Machine, NameHash, Slots, Survey, Table, TableError,
};
use crate::{row, wire};

/// Accounted for each message beside its bytes.
pub(super) const OVERHEAD: u64 = 128;

/// Messages that one part of [`RetainOp::Expire`] removes at most: well under a millisecond.
const AT_ONCE: usize = 256;

/// The key of the row that says that there are tables.
const MACHINE: &[u8] = b"M";
/// The kind of the messages' rows.
pub(super) const MESSAGE: u8 = b'R';

/// A message, and since when it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) message: Arc<ApplicationMessage>,
    pub(super) since: RetainedSince,
}

/// The retained messages of one shard. Beside the replies only their ends are told: who is refused is told so.
#[derive(Debug)]
pub struct RetainMachine {
    pub(super) hash: NameHash,
    pub(super) level: Level,
    pub(super) index: RetainedIndex<Kept>,
    /// Accounted for all of them.
    pub(super) bytes: u64,
    /// Of those that expire, soonest first.
    pub(super) expiries: BTreeSet<(Timestamp, Box<str>)>,
    pub(super) touched: Touched<Box<str>>,
    pub(super) known: Known,
    /// The time of the first [`RetainOp::Remove`]: messages whose time is not known count from then on.
    pub(super) aged_from: Option<RetainedSince>,
    /// The tables have no row of the machine, or an earlier one.
    pub(super) own_row_is_due: bool,
}

impl Machine for RetainMachine {
    type Op = RetainOp;
    type Reply = RetainReply;
    type Outlet = dyn RetainOutlet;

    fn load(slots: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        let mut machine = Self {
            hash: slots.hash,
            level: slots.level,
            index: RetainedIndex::new(),
            bytes: 0,
            expiries: BTreeSet::new(),
            touched: Touched::new(),
            known: Known::new(slots.hash),
            aged_from: None,
            own_row_is_due: true,
        };
        let Some(value) = table.get(MACHINE)? else {
            return Ok(machine);
        };
        machine.aged_from = own_row(MACHINE, &value)?;
        machine.own_row_is_due = false;
        machine.known = Known::load(slots.hash, slots.range, table)?;
        row::each(table, MESSAGE, slots.range, |key, value| {
            let (Written(message), since) = row::decode_with(key, value)?;
            machine.keep(&message, since.unwrap_or_default());
            Ok(())
        })?;
        Ok(machine)
    }

    fn raise(&mut self, level: Level) {
        self.level = level;
    }

    fn is_lowered(level: Level) -> bool {
        !level.ages_retained()
    }

    fn lowered(&self, op: RetainOp, level: Level) -> Option<RetainOp> {
        (level.ages_retained() || !matches!(op, RetainOp::Remove { .. })).then_some(op)
    }

    fn slot(op: &RetainOp, hash: NameHash) -> Option<u16> {
        match op {
            RetainOp::Set { message }
            | RetainOp::SetWill { message, .. }
            | RetainOp::SetFrom { message, .. } => Some(hash.slot_of(message.body.topic())),
            RetainOp::Expire | RetainOp::Remove { .. } => None,
        }
    }

    fn apply_part(
        &mut self,
        header: &Header,
        op: &RetainOp,
        _table: &dyn Table,
        outlet: &mut (dyn RetainOutlet + 'static),
    ) -> Result<Option<RetainReply>, TableError> {
        let now = Timestamp(header.now_ms);
        Ok(match op {
            RetainOp::Set { message } => Some(self.set(message, &header.limits, now)),
            RetainOp::SetWill { message, origin } => {
                Some(self.set_will(message, origin, &header.limits, now))
            }
            RetainOp::SetFrom {
                message,
                publisher,
                connection,
            } => {
                let topic = message.body.topic();
                if self
                    .known
                    .raise_fence(topic, *publisher, *connection, now.0)
                {
                    Some(self.set(message, &header.limits, now))
                } else {
                    Some(RetainReply::Fenced)
                }
            }
            RetainOp::Expire => self.expire(now, outlet).then_some(RetainReply::Done),
            RetainOp::Remove { messages, end } => {
                if self.aged_from.is_none() {
                    self.aged_from = Some(RetainedSince(now.0));
                    self.own_row_is_due = true;
                }
                for RetainedAt { topic, since } in messages {
                    let kept = self.index.get(topic);
                    if kept.is_some_and(|kept| kept.since == *since) {
                        self.remove(topic);
                        outlet.removed(*end);
                    }
                }
                Some(RetainReply::Done)
            }
        })
    }

    fn unsaved_bytes(&self) -> usize {
        self.touched.bytes() + self.known.unsaved_bytes()
    }

    /// All at once: what is touched between two checkpoints are single messages.
    fn collect_part(&mut self, _rows: usize, changes: &mut Changes) -> bool {
        if std::mem::take(&mut self.own_row_is_due) {
            let own = match &self.aged_from {
                Some(aged_from) => row::encode(&((), aged_from)),
                None => row::encode(&()),
            };
            changes.put(MACHINE.to_vec(), own);
        }
        self.touched.collect(changes, |topic| {
            let value = self.index.get(topic).map(Kept::to_row);
            (row::key(MESSAGE, self.hash.slot_of(topic), topic), value)
        });
        self.known.collect(changes);
        true
    }

    fn saved_part(&mut self, _rows: usize) -> bool {
        self.touched.saved();
        self.known.saved();
        true
    }

    fn survey(slots: Slots, table: &dyn Table) -> Survey {
        let mut survey = Survey::default();
        survey.machine(table, |key, value| own_row(key, value).map(drop));
        survey.each(table, MESSAGE, "retained messages", |key, value| {
            let topic = row::name(key)?;
            let (Written(message), _) = row::decode_with::<_, RetainedSince>(key, value)?;
            ensure_slot(key, topic, slots)?;
            let is_kept = message.body.topic() == topic && !message.body.payload().is_empty();
            ensure(is_kept, key, "its message is of another topic, or empty")
        });
        Known::survey(slots, table, &mut survey);
        survey.finish(table, vec![MESSAGE, WILL, FENCE]);
        survey
    }
}

impl RetainMachine {
    /// Messages whose topics match `filter` and that have not expired, from where the last page ended
    /// (`after`; `None`: from the first), until `budget` is spent; and where the next page begins (`None`:
    /// there is none). A page may hold no message, and yet not be the last: it looks at one topic at least.
    #[must_use]
    pub fn page(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<Cursor>) {
        let mut page = Vec::new();
        let PageBudget {
            messages,
            bytes,
            work,
        } = budget;
        let next = self
            .index
            .page(filter, after, work, |_, Kept { message, .. }| {
                if message.is_expired(now) {
                    return ControlFlow::Continue(());
                }
                page.push(Arc::clone(message));
                *messages = messages.saturating_sub(1);
                *bytes = bytes.saturating_sub(message.body.heap_len());
                if *messages == 0 || *bytes == 0 {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        (page, next)
    }

    /// The message of a topic, unless it has expired.
    #[must_use]
    pub fn get(&self, topic: &str, now: Timestamp) -> Option<&Arc<ApplicationMessage>> {
        let kept = self.index.get(topic);
        kept.map(|kept| &kept.message)
            .filter(|message| !message.is_expired(now))
    }

    /// Goes on with a look at all messages, or begins one (`after`: `None`), in the order of their topics: `tell` gets each
    /// that is read, until it breaks or `work` is used up ([`RetainedIndex::walk`]). Says where to go on; `None`: those
    /// were the last.
    pub fn look(
        &self,
        after: Option<&Cursor>,
        work: &mut usize,
        mut tell: impl FnMut(RetainedView<'_>) -> ControlFlow<()>,
    ) -> Option<Cursor> {
        self.index.walk(after, work, |topic, kept| {
            let is_aged = kept.since != RetainedSince::default();
            tell(RetainedView {
                topic,
                since: kept.since,
                counts_from: Some(kept.since).filter(|_| is_aged).or(self.aged_from),
                bytes: RetainedAmount(cost(&kept.message)),
            })
        })
    }

    /// Since when the message of a topic is retained, if it is known.
    #[must_use]
    pub fn retained_since(&self, topic: &str) -> Option<RetainedSince> {
        let since = self.index.get(topic).map(|kept| kept.since);
        since.filter(|since| *since != RetainedSince::default())
    }

    /// Messages, and bytes accounted for them, both as [`Limits`] counts them.
    #[must_use]
    pub fn size(&self) -> (u64, u64) {
        (self.index.len() as u64, self.bytes)
    }

    /// When [`RetainOp::Expire`] will remove something next, Unix time in ms.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.expiries.first().map(|(at, _)| at.0)
    }

    /// How many wills are known, so that they are kept once: of the last hour, and at most 65,536.
    #[must_use]
    pub fn wills(&self) -> usize {
        self.known.wills()
    }

    /// How many publishers' connections are known, so that what earlier ones have sent comes too late: of the last
    /// minute, and at most 65,536.
    #[must_use]
    pub fn fences(&self) -> usize {
        self.known.fences()
    }

    fn set_will(
        &mut self,
        message: &Arc<ApplicationMessage>,
        origin: &Origin,
        limits: &Limits,
        now: Timestamp,
    ) -> RetainReply {
        let topic = message.body.topic();
        if self.known.has_will(topic, origin) {
            return RetainReply::Done;
        }
        let reply = self.set(message, limits, now);
        if reply == RetainReply::Done {
            self.known.keep_will(topic, origin, now.0);
        }
        reply
    }

    fn set(
        &mut self,
        message: &Arc<ApplicationMessage>,
        limits: &Limits,
        now: Timestamp,
    ) -> RetainReply {
        let topic = message.body.topic();
        // [MQTT-3.3.1-6] [MQTT-3.3.1-7] an empty payload removes, and is itself not kept; of a message
        // that has expired already the same remains.
        if message.body.payload().is_empty() || message.is_expired(now) {
            self.remove(topic);
            return RetainReply::Done;
        }
        if !self.has_room(message, limits) {
            return RetainReply::Full;
        }
        // [MQTT-3.3.1-5] in the place of what the topic had
        let since = match self.level.ages_retained() {
            true => RetainedSince(now.0),
            false => RetainedSince::default(),
        };
        let replaced = self.keep(message, since);
        self.touched
            .touch(topic.into(), replaced, cost(message) as usize);
        RetainReply::Done
    }

    /// Whether the limits leave room. They may have been lowered: what takes no more room than the
    /// message it replaces is kept in any case.
    fn has_room(&self, message: &Arc<ApplicationMessage>, limits: &Limits) -> bool {
        let replaced = self.index.get(message.body.topic());
        let replaced = replaced.map(|kept| cost(&kept.message));
        let bytes = self.bytes - replaced.unwrap_or(0) + cost(message);
        let messages = self.index.len() as u64 + 1;
        (replaced.is_some() || messages <= limits.retained_messages)
            && (bytes <= self.bytes || bytes <= limits.retained_bytes)
    }

    /// False: some messages that have expired are left.
    fn expire(&mut self, now: Timestamp, outlet: &mut dyn RetainOutlet) -> bool {
        for _ in 0..AT_ONCE {
            let Some((_, topic)) = self.expiries.first().filter(|(at, _)| *at <= now) else {
                return true;
            };
            let topic = topic.clone();
            self.remove(&topic);
            outlet.removed(RetainedEnd::Expiry);
        }
        false
    }

    fn remove(&mut self, topic: &str) {
        if let Some(kept) = self.index.remove(topic) {
            self.uncount(&kept.message);
            self.touched.touch(topic.into(), true, 0);
        }
    }

    /// Adds a message; says whether it replaces one.
    fn keep(&mut self, message: &Arc<ApplicationMessage>, since: RetainedSince) -> bool {
        let topic = message.body.topic();
        let kept = Kept {
            message: Arc::clone(message),
            since,
        };
        let replaced = self.index.insert(topic, kept);
        if let Some(replaced) = &replaced {
            self.uncount(&replaced.message);
        }
        self.bytes += cost(message);
        if let Some(at) = message.expires_at {
            self.expiries.insert((at, topic.into()));
        }
        replaced.is_some()
    }

    /// A message is not in the index any more.
    fn uncount(&mut self, message: &Arc<ApplicationMessage>) {
        self.bytes -= cost(message);
        if let Some(at) = message.expires_at {
            self.expiries.remove(&(at, message.body.topic().into()));
        }
    }
}

impl Kept {
    /// As levels that keep no ages write it, if there is none.
    fn to_row(&self) -> Vec<u8> {
        let written = Written(Arc::clone(&self.message));
        match self.since {
            RetainedSince(0) => row::encode(&written),
            since => row::encode(&(written, since)),
        }
    }
}

/// The machine's own row: since when it keeps ages, if it does.
fn own_row(key: &[u8], value: &[u8]) -> Result<Option<RetainedSince>, LoadError> {
    let ((), aged_from) = row::decode_with(key, value)?;
    Ok(aged_from)
}

/// A message as it stands in a row.
#[derive(Serialize, Deserialize)]
struct Written(#[serde(with = "wire::message")] Arc<ApplicationMessage>);

/// What limits count for a message.
pub(super) fn cost(message: &Arc<ApplicationMessage>) -> u64 {
    message.body.heap_len() as u64 + OVERHEAD
}

/// The topics of which a machine has a retained message; in no order.
pub fn topics(machine: &RetainMachine) -> impl Iterator<Item = &str> {
    let all = machine.index.values();
    all.map(|kept| kept.message.body.topic())
}
