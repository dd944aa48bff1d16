//! Requests to the control store, and how it begins.

use std::sync::Arc;
use std::time::Duration;

use consensus::Log;
use control::{ChainHash, EntryNumber, Recorded};
use store_state::api::{ShardNumber, StoreId};
use store_state::control::{ControlMachine, ControlOp};
use store_state::session::SessionMachine;
use store_state::{CorrelationId, Descriptor, Level};
use tokio::time::timeout;

use crate::api::listener::Listener;
use crate::api::shard_set::ShardSet;
use crate::kinds::command::Command;
use crate::kinds::group::group_of;
use crate::shard::begin::CONTROL_SHARD;
use crate::shard::request::{weigh, work};
use crate::storage::tables::Tables;

/// The shard of the session store whose log says that the control store begins: the one with the first slot.
const BEGINS: ShardNumber = 0;

/// Files of the tables of the control store that are kept open, at most: all records are in memory.
pub const CONTROL_OPEN_FILES: usize = 8;

/// How long the shard of the control store may take to be led once it has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the control store has begun, as a data folder says: it has a replica or had one, or the tables of its session shard say
/// so. Tables that cannot be read say nothing here: their shard tells of the damage.
pub(super) fn has_begun(log: &Log, session: &Tables) -> bool {
    let group = group_of::<ControlMachine>(CONTROL_SHARD);
    let says_so = || {
        let table = session.shard(u64::from(BEGINS)).ok()?;
        let descriptor = Descriptor::of_table(&table).ok()??;
        Some(descriptor.has_begun_control)
    };
    log.has_replica(group) || log.has_deleted(group) || says_so().unwrap_or_default()
}

/// Why the control store has not begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BeginError {
    /// Another node leads the first shard of the session store, or none that is known (`None`).
    NotLeader(Option<u64>),
    /// The shard is at this level, which does not allow it.
    Level(Level),
    /// Its voters are just changing, or no majority of them can be reached. It can be tried again.
    Unavailable(String),
}

/// A part of the audit, as this node's replica has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditPart {
    /// The entries that are kept: the first one, and the next one to come.
    pub kept: std::ops::Range<EntryNumber>,
    /// The hash of the last entry.
    pub head: ChainHash,
    /// The entries that were asked for, in order, without a gap.
    pub entries: Vec<(EntryNumber, Arc<Recorded>)>,
}

/// The control store of a node.
pub struct ControlStore {
    pub(super) session: Arc<ShardSet<SessionMachine>>,
    pub(super) control: Arc<ShardSet<ControlMachine>>,
    /// Whether the data folder said at the start that the store has begun.
    pub(super) had_begun: bool,
}

impl ControlStore {
    /// Gives the control store a request of a thread that is no event loop. The answer is told by
    /// [`Listener::control_answered`](crate::Listener::control_answered), under the token. Only if the store has begun: before, it
    /// waits until it does.
    pub fn ask(&self, token: u64, op: ControlOp) {
        let correlation_id = CorrelationId {
            peer: 0,
            loop_number: CorrelationId::THREADS,
            token,
        };
        let bytes = weigh(&op);
        let work = work(correlation_id, op, false);
        self.control.put(CONTROL_SHARD, work, bytes);
    }

    /// The level of the control store's shard, as this node's replica has it; before it has begun, that of the shard that begins it. `None`:
    /// neither is here.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        let control = self.control.get(CONTROL_SHARD);
        let control = control.and_then(|shard| shard.standing());
        let session = || self.session.get(BEGINS).and_then(|shard| shard.standing());
        control.or_else(session).map(|(level, _)| level)
    }

    /// Whether the control store has begun, as far as this node knows.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let shard = self.control.get(CONTROL_SHARD);
        shard.is_some_and(|shard| {
            shard.routing.group.borrow().is_some() || shard.routing.hint.borrow().leader != 0
        })
    }

    /// The first `limit` entries of the audit from a number on; from the first one that is kept, if that is later. Holds the lock of
    /// the shard for as long as the reading takes: ask for some hundred. `None`: this node has no replica that serves, or its tables
    /// cannot be read.
    #[must_use]
    pub fn audit(&self, from: EntryNumber, limit: usize) -> Option<AuditPart> {
        let shard = self.control.get(CONTROL_SHARD)?;
        shard.read_tables_by(|machine, table| {
            let kept = machine.audited();
            let mut number = from.max(kept.start);
            let mut entries = Vec::new();
            // Damaged tables may have a gap.
            while number < kept.end
                && entries.len() < limit
                && let Some(entry) = machine.audit(number, table)?
            {
                entries.push((number, entry));
                number = number.next();
            }
            let head = machine.audit_head();
            Ok(AuditPart {
                kept,
                head,
                entries,
            })
        })
    }

    /// The node that would have the control store begin, if it is known and can be reached.
    #[must_use]
    pub fn begun_by(&self) -> Option<u64> {
        self.session.leader(BEGINS)
    }

    /// The event loops have started. A node that hears no other one yet has no replica, and knows by its data folder that there
    /// are records.
    pub(super) fn tell(&self, listener: &dyn Listener) {
        if self.had_begun {
            listener.control_begun();
        }
    }

    /// Waits until a node that can be reached leads the shard of the control store, as far as this one knows.
    pub async fn until_led(&self) {
        self.control.is_led(CONTROL_SHARD).await;
    }

    /// Has the control store begin, if this node leads the first shard of the session store; does nothing if it has begun. Returns
    /// when the shard of the control store is led, or after five seconds.
    ///
    /// # Errors
    /// As [`BeginError`] says.
    pub async fn begin(&self) -> Result<(), BeginError> {
        let unavailable = |why: &dyn std::fmt::Display| BeginError::Unavailable(why.to_string());
        let not_leader = || BeginError::NotLeader(self.session.leader(BEGINS));
        let shard = self.session.get(BEGINS).ok_or_else(not_leader)?;
        let group = self.session.group(BEGINS);
        let group = group.filter(|_| shard.routing.is_here());
        let group = group.ok_or_else(not_leader)?;
        let has_begun = shard.descriptor().ok_or_else(not_leader)?.has_begun_control;
        if !has_begun {
            if let Some((level, _)) = shard.standing()
                && !level.begins_stores()
            {
                return Err(BeginError::Level(level));
            }
            let proposal = group.propose(Command::Begin(StoreId::Control)).await;
            // The proposal may wait until the replica is closed, which waits for all who use the group.
            drop(group);
            let proposal = proposal.map_err(|error| unavailable(&error))?;
            proposal.await.map_err(|error| unavailable(&error))?;
            let after = shard.descriptor().ok_or_else(not_leader)?;
            if !after.has_begun_control {
                return Err(unavailable(&"the voters of a shard are changing"));
            }
        }
        // An error: it has no leader yet, and has begun all the same.
        let _ = timeout(PATIENCE, self.control.is_led(CONTROL_SHARD)).await;
        Ok(())
    }
}
