//! The machine: all messages in memory, net changes to the tables.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use serde::{Deserialize, Serialize};
use topic_router::{Cursor, RetainedIndex};

use super::recent::{FENCE, Known, WILL};
use super::{PageBudget, RetainOp, RetainReply};
use crate::inbox::Origin;
use crate::survey::{ensure, ensure_slot};
use crate::touched::Touched;
use crate::{
    Changes, Header, Limits, LoadError, Machine, NameHash, Slots, Survey, Table, TableError,
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

/// The retained messages of one shard. Nothing is told beside the replies: who is refused is told so,
/// and a message whose time is over is what its publisher wanted gone.
#[derive(Debug)]
pub struct RetainMachine {
    pub(super) hash: NameHash,
    pub(super) index: RetainedIndex<Arc<ApplicationMessage>>,
    /// Accounted for all of them.
    pub(super) bytes: u64,
    /// Of those that expire, soonest first.
    pub(super) expiries: BTreeSet<(Timestamp, Box<str>)>,
    pub(super) touched: Touched<Box<str>>,
    pub(super) known: Known,
    /// There are no tables yet.
    pub(super) new: bool,
}

impl Machine for RetainMachine {
    type Op = RetainOp;
    type Reply = RetainReply;
    type Outlet = ();

    fn load(slots: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        let mut machine = Self {
            hash: slots.hash,
            index: RetainedIndex::new(),
            bytes: 0,
            expiries: BTreeSet::new(),
            touched: Touched::new(),
            known: Known::new(slots.hash),
            new: true,
        };
        let Some(value) = table.get(MACHINE)? else {
            return Ok(machine);
        };
        row::decode::<()>(MACHINE, &value)?;
        machine.new = false;
        machine.known = Known::load(slots.hash, slots.range, table)?;
        row::each(table, MESSAGE, slots.range, |key, value| {
            let Written(message) = row::decode(key, value)?;
            machine.keep(&message);
            Ok(())
        })?;
        Ok(machine)
    }

    fn slot(op: &RetainOp, hash: NameHash) -> Option<u16> {
        match op {
            RetainOp::Set { message }
            | RetainOp::SetWill { message, .. }
            | RetainOp::SetFrom { message, .. } => Some(hash.slot_of(message.body.topic())),
            RetainOp::Expire => None,
        }
    }

    fn apply_part(
        &mut self,
        header: &Header,
        op: &RetainOp,
        _table: &dyn Table,
        (): &mut (),
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
            RetainOp::Expire => self.expire(now).then_some(RetainReply::Done),
        })
    }

    fn unsaved_bytes(&self) -> usize {
        self.touched.bytes() + self.known.unsaved_bytes()
    }

    /// All at once: what is touched between two checkpoints are single messages.
    fn collect_part(&mut self, _rows: usize, changes: &mut Changes) -> bool {
        if std::mem::take(&mut self.new) {
            changes.put(MACHINE.to_vec(), row::encode(&()));
        }
        self.touched.collect(changes, |topic| {
            let message = self.index.get(topic);
            let value = message.map(|message| row::encode(&Written(Arc::clone(message))));
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
        survey.machine(table, row::decode::<()>);
        survey.each(table, MESSAGE, "retained messages", |key, value| {
            let topic = row::name(key)?;
            let Written(message) = row::decode(key, value)?;
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
        let next = self.index.page(filter, after, work, |_, message| {
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
        self.index
            .get(topic)
            .filter(|message| !message.is_expired(now))
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
        let replaced = self.keep(message);
        self.touched
            .touch(topic.into(), replaced, cost(message) as usize);
        RetainReply::Done
    }

    /// Whether the limits leave room. They may have been lowered: what takes no more room than the
    /// message it replaces is kept in any case.
    fn has_room(&self, message: &Arc<ApplicationMessage>, limits: &Limits) -> bool {
        let replaced = self.index.get(message.body.topic()).map(cost);
        let bytes = self.bytes - replaced.unwrap_or(0) + cost(message);
        let messages = self.index.len() as u64 + 1;
        (replaced.is_some() || messages <= limits.retained_messages)
            && (bytes <= self.bytes || bytes <= limits.retained_bytes)
    }

    /// False: some messages that have expired are left.
    fn expire(&mut self, now: Timestamp) -> bool {
        for _ in 0..AT_ONCE {
            let Some((_, topic)) = self.expiries.first().filter(|(at, _)| *at <= now) else {
                return true;
            };
            let topic = topic.clone();
            self.remove(&topic);
        }
        false
    }

    fn remove(&mut self, topic: &str) {
        if let Some(message) = self.index.remove(topic) {
            self.uncount(&message);
            self.touched.touch(topic.into(), true, 0);
        }
    }

    /// Adds a message; says whether it replaces one.
    fn keep(&mut self, message: &Arc<ApplicationMessage>) -> bool {
        let topic = message.body.topic();
        let replaced = self.index.insert(topic, Arc::clone(message));
        if let Some(replaced) = &replaced {
            self.uncount(replaced);
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

/// A message as it stands in a row.
#[derive(Serialize, Deserialize)]
struct Written(#[serde(with = "wire::message")] Arc<ApplicationMessage>);

/// What limits count for a message.
pub(super) fn cost(message: &Arc<ApplicationMessage>) -> u64 {
    message.body.heap_len() as u64 + OVERHEAD
}

/// The topics of which a machine has a retained message; in no order.
pub fn topics(machine: &RetainMachine) -> impl Iterator<Item = &str> {
    machine.index.values().map(|message| message.body.topic())
}
