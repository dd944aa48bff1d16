//! A state machine, as openraft wants it.
//!
//! A snapshot of this replica is nothing that is written: the tables hold everything up to a checkpoint,
//! so that the log may be purged, and are read when another replica needs what the log has no more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{EntryOf, SnapshotMetaOf};
use openraft::{EmptyNode, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::group_log::GroupLog;
use crate::mark::Mark;
use crate::snapshot::{Contents, Tables, blocking};
use crate::types::{CommittedLeaderId, LogId, Payload, StoredMembership, Types};
use crate::{Applied, Command, StateMachine};

/// How long entries are applied, one after the other, before others of the runtime have their turn:
/// heartbeats, votes, other groups.
const TURN: Duration = Duration::from_millis(2);

pub(crate) type Snapshot = openraft::Snapshot<CommittedLeaderId, u64, EmptyNode, Contents>;

pub(crate) struct Machine<C: Command> {
    /// The lock is never taken: openraft wants a machine that could be shared, and does not share it.
    machine: Mutex<Box<dyn StateMachine<C>>>,
    tables: Arc<dyn Tables>,
    log: GroupLog<C>,
    positions: Arc<Positions>,
}

/// How far a group's state machine is, for all to see.
pub(crate) struct Positions {
    /// What it has applied.
    pub(crate) applied: Mutex<Mark>,
    /// What its tables hold, as far as openraft is told: it purges the log behind that.
    pub(crate) checkpoint: Mutex<Mark>,
    /// The term of what it has applied last.
    pub(crate) term: watch::Sender<u64>,
    /// The group was shut down: nothing is applied any more.
    pub(crate) ended: watch::Sender<bool>,
}

impl Positions {
    /// Those of a machine whose tables reach to a mark.
    pub(crate) fn new(durable: Mark) -> Self {
        let term = durable.log_id.map_or(0, |id| id.leader_id.term);
        Self {
            applied: Mutex::new(durable.clone()),
            checkpoint: Mutex::new(durable),
            term: watch::Sender::new(term),
            ended: watch::Sender::new(false),
        }
    }

    fn set_term(&self, term: u64) {
        self.term.send_if_modified(|current| {
            let changes = *current != term;
            *current = term;
            changes
        });
    }
}

impl<C: Command> Machine<C> {
    pub(crate) fn new(machine: impl StateMachine<C>, log: GroupLog<C>) -> Self {
        Self {
            tables: machine.tables(),
            machine: Mutex::new(Box::new(machine)),
            positions: log.positions().clone(),
            log,
        }
    }

    async fn apply_entry(&mut self, entry: &EntryOf<Types<C>>) -> io::Result<()> {
        if let Payload::Normal(command) = &entry.payload {
            self.apply_command(entry.log_id.index, command).await?;
        }
        let mut applied = self.positions.applied.lock();
        applied.log_id = Some(entry.log_id);
        if let Payload::Membership(membership) = &entry.payload {
            let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
            applied.membership = Arc::new(stored);
        }
        Ok(())
    }

    async fn apply_command(&mut self, index: u64, command: &C) -> io::Result<()> {
        let before = self.positions.applied.lock().clone();
        let mut from = 0;
        loop {
            let applied = self.machine.get_mut().apply(index, &before, command, from);
            match applied {
                Applied::Done => return Ok(()),
                Applied::GoOn(next) => {
                    from = next;
                    self.log.hand_over();
                    tokio::task::yield_now().await;
                }
                Applied::Wait(until) => {
                    if from == 0 {
                        // What is waited for may need what was applied before.
                        self.flush();
                    }
                    self.wait(until).await?;
                }
            }
        }
    }

    /// # Errors
    /// The group was shut down meanwhile.
    async fn wait(&self, until: BoxFuture<'static, ()>) -> io::Result<()> {
        let mut ended = self.positions.ended.subscribe();
        tokio::select! {
            () = until => Ok(()),
            // The sender is in `positions`.
            _ = ended.wait_for(|ended| *ended) => Err(io::Error::other("the group has ended")),
        }
    }

    fn flush(&mut self) {
        let applied = self.positions.applied.lock().clone();
        self.machine.get_mut().flush(&applied);
        if let Some(last) = applied.log_id {
            self.positions.set_term(last.leader_id.term);
        }
    }
}

impl<C: Command> RaftStateMachine<Types<C>> for Machine<C> {
    type SnapshotData = Contents;
    type SnapshotBuilder = Checkpoint;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.positions.applied.lock();
        Ok((applied.log_id, (*applied.membership).clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types<C>>>> + Unpin + OptionalSend,
    {
        let mut turn = Instant::now();
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            self.log.wait_written(entry.log_id.index).await?;
            self.apply_entry(&entry).await?;
            if let Some(responder) = responder {
                responder.send(());
            }
            if turn.elapsed() >= TURN {
                // Nothing that is applied is held back, and the tables can be written.
                self.flush();
                self.log.hand_over();
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        self.flush();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Checkpoint {
        Checkpoint(self.positions.checkpoint.lock().clone())
    }

    /// A crash in here leaves either the old tables, or the new ones and a log that knows of them.
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types<C>>,
        contents: Contents,
    ) -> io::Result<()> {
        let Contents::Received(writer) = contents else {
            return Err(io::Error::other("a snapshot that was not received"));
        };
        let mark = Mark::of_snapshot(meta);
        if let Some(end) = &mark.log_id {
            self.log.expect_tables(end).await?;
        }
        let written = mark.clone();
        blocking(move || writer.finish(&written)).await?;
        *self.positions.checkpoint.lock() = mark.clone();
        *self.positions.applied.lock() = mark;
        self.flush();
        Ok(())
    }

    /// A seeded group has purged what its state stands for, and there may be no table yet: then there is a snapshot
    /// that nobody can read. openraft ends a leader that has none.
    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let tables = self.tables.clone();
        if let Some(reader) = blocking(move || tables.read()).await? {
            return Ok(Some(Snapshot {
                meta: reader.mark().to_snapshot(),
                snapshot: Contents::Read(reader),
            }));
        }
        let checkpoint = self.positions.checkpoint.lock();
        Ok(checkpoint.log_id.is_some().then(|| Snapshot {
            meta: checkpoint.to_snapshot(),
            snapshot: Contents::Nothing,
        }))
    }
}

/// What the tables held when openraft asked.
pub(crate) struct Checkpoint(Mark);

impl<C: Command> RaftSnapshotBuilder<Types<C>> for Checkpoint {
    type SnapshotData = Contents;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(Snapshot {
            meta: self.0.to_snapshot(),
            snapshot: Contents::Nothing,
        })
    }
}
