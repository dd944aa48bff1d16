//! A state machine, as openraft wants it.
//!
//! A snapshot here is nothing but a position: the tables hold everything up to it, so that the log may be
//! purged. Deliberately absent: its contents, which only another replica would want.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{EntryOf, SnapshotMetaOf};
use openraft::{EmptyNode, OptionalSend, RaftSnapshotBuilder, SnapshotMeta};
use parking_lot::Mutex;

use crate::mark::Mark;
use crate::types::{CommittedLeaderId, LogId, Payload, StoredMembership, Types};
use crate::{Command, StateMachine};

pub(crate) type Snapshot = openraft::Snapshot<CommittedLeaderId, u64, EmptyNode, ()>;

pub(crate) struct Machine<C: Command> {
    /// The lock is never taken: openraft wants a machine that could be shared, and does not share it.
    machine: Mutex<Box<dyn StateMachine<C>>>,
    positions: Arc<Positions>,
}

/// How far a group's state machine is, for all to see.
pub(crate) struct Positions {
    /// What it has applied.
    pub(crate) applied: Mutex<Mark>,
    /// What its tables hold.
    pub(crate) checkpoint: Mutex<Mark>,
}

impl<C: Command> Machine<C> {
    pub(crate) fn new(machine: impl StateMachine<C>, durable: Mark) -> (Self, Arc<Positions>) {
        let positions = Arc::new(Positions {
            applied: Mutex::new(durable.clone()),
            checkpoint: Mutex::new(durable),
        });
        let machine = Self {
            machine: Mutex::new(Box::new(machine)),
            positions: positions.clone(),
        };
        (machine, positions)
    }

    fn apply_entry(&mut self, entry: &EntryOf<Types<C>>) {
        let mut applied = self.positions.applied.lock();
        applied.log_id = Some(entry.log_id);
        match &entry.payload {
            Payload::Blank => {}
            Payload::Normal(command) => {
                drop(applied);
                self.machine.get_mut().apply(entry.log_id.index, command);
            }
            Payload::Membership(membership) => {
                let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
                applied.membership = Arc::new(stored);
            }
        }
    }

    fn flush(&mut self) {
        let applied = self.positions.applied.lock().clone();
        self.machine.get_mut().flush(&applied);
    }
}

impl<C: Command> RaftStateMachine<Types<C>> for Machine<C> {
    type SnapshotData = ();
    type SnapshotBuilder = Checkpoint;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.positions.applied.lock();
        Ok((applied.log_id, (*applied.membership).clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types<C>>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            self.apply_entry(&entry);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        self.flush();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Checkpoint {
        Checkpoint(self.positions.checkpoint.lock().clone())
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMetaOf<Types<C>>,
        _snapshot: (),
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let checkpoint = Checkpoint(self.positions.checkpoint.lock().clone());
        Ok(checkpoint.0.log_id.is_some().then(|| checkpoint.snapshot()))
    }
}

/// What the tables held when openraft asked.
pub(crate) struct Checkpoint(Mark);

impl Checkpoint {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            meta: SnapshotMeta {
                last_log_id: self.0.log_id,
                last_membership: (*self.0.membership).clone(),
            },
            snapshot: (),
        }
    }
}

impl<C: Command> RaftSnapshotBuilder<Types<C>> for Checkpoint {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(self.snapshot())
    }
}
