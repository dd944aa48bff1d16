//! Checkpoints: a shard's net changes are written to its tables, so that the log can be purged.
//!
//! Invariant: a checkpoint holds the state as it was when the checkpoint began; the log keeps what it would hold until it is
//! written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consensus::{Group, Mark, blocking};
use parking_lot::RwLockWriteGuard;
use store_state::{Changes, DESCRIPTOR_KEY, LEVEL_KEY};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::node::shutdown::Stop;
use crate::shard::collected::Checkpoint;
use crate::shard::handle::{Shard, State, UNSAVED_BYTES};
use crate::storage::digest::LogIndex;
use crate::storage::snapshot::TableOwner;
use crate::storage::tables::{ShardTable, Tables};

/// Rows of a checkpoint that are collected, or let go of, before the shard does something else: about a
/// millisecond.
const ROWS_AT_ONCE: usize = 1024;

/// Age of a change that only memory and log hold, at which a checkpoint begins.
const UNSAVED_TIME: Duration = Duration::from_secs(10);

/// How often is looked whether a checkpoint is due by its age.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(1);

/// Time until a checkpoint that could not be written is retried.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(1);

impl<M: Kind> State<M> {
    /// Begins to collect the net changes since the last checkpoint. None is under way.
    pub(super) fn begin_checkpoint(&mut self, mark: Mark) -> Checkpoint {
        let mut changes = Changes::default();
        let is_all = self.machine.collect_part(ROWS_AT_ONCE, &mut changes);
        if std::mem::take(&mut self.is_descriptor_unsaved) {
            changes.put(DESCRIPTOR_KEY.to_vec(), self.descriptor.to_row());
        }
        if std::mem::take(&mut self.is_level_unsaved) {
            changes.put(LEVEL_KEY.to_vec(), self.level.to_row());
        }
        self.dirty_since = None;
        Checkpoint {
            is_first: self.parent.is_some(),
            changes,
            is_all,
            mark,
            table: Arc::clone(&self.table),
            generation: self.generation,
        }
    }
}

impl<M: Kind> Shard<M> {
    /// Begins to collect the net changes since the last checkpoint, if it is time for one.
    fn begin_checkpoint(&self, now: bool) -> Option<Checkpoint> {
        let mut state = self.state.write();
        let state = state.as_mut()?;
        let since = state.dirty_since.filter(|_| self.seeding.is_over())?;
        let due = now
            || state.parent.is_some()
            || since.elapsed() >= UNSAVED_TIME
            || state.machine.unsaved_bytes() >= UNSAVED_BYTES;
        let mark = state.mark.clone().filter(|_| due)?;
        self.in_checkpoint.send_replace(true);
        Some(state.begin_checkpoint(mark))
    }

    /// Collects more of them: as they were when the checkpoint began.
    fn go_on_with(&self, checkpoint: &mut Checkpoint) {
        let mut state = self.state.write();
        match &mut *state {
            Some(state) if state.generation == checkpoint.generation => {
                let changes = &mut checkpoint.changes;
                checkpoint.is_all = state.machine.collect_part(ROWS_AT_ONCE, changes);
            }
            _ => checkpoint.is_all = true,
        }
        // Event loops that wait for a look come before the next part.
        RwLockWriteGuard::unlock_fair(state);
    }

    /// The shard has a table of its own from now on, and its parent's goes on without it.
    fn has_table(&self, own: ShardTable) {
        let parent = self.state.write().as_mut().and_then(|state| {
            state.table = Arc::new(own);
            state.parent.take()
        });
        // Else the replica is being removed, and the parent told.
        if let Some(parent) = parent {
            parent.is_seeded();
        }
    }

    /// Waits until nothing is written to the tables, or made of them, that was begun before.
    pub(crate) async fn is_written(self: &Arc<Self>) {
        let shard = Arc::clone(self);
        // An error: the store ends.
        let _ = blocking(move || drop(shard.writing.lock())).await;
    }

    /// Lets go of some of what the tables have. True: that was all.
    fn end_checkpoint(&self, generation: u64) -> bool {
        let mut state = self.state.write();
        let is_all = match &mut *state {
            Some(state) if state.generation == generation => {
                let is_all = state.machine.saved_part(ROWS_AT_ONCE);
                self.count_unsaved(&state.machine);
                if is_all && state.machine.has_to_rebuild() {
                    self.rebuild.want_more();
                }
                is_all
            }
            _ => true,
        };
        RwLockWriteGuard::unlock_fair(state);
        is_all
    }
}

/// What became of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// The tables have all that was applied when it began.
    Whole,
    /// None was due.
    Nothing,
    /// It cannot be written, and nobody waits any longer. There must be no other one in this process: it
    /// would lack what this one collected.
    Abandoned,
}

/// Writes checkpoints, and maintains the tables, until `stopping` says to end. Returns what became of the
/// last checkpoint.
pub(crate) async fn checkpoint<M: Kind>(
    shard: Arc<Shard<M>>,
    group: Arc<Group<Command>>,
    tables: Arc<Tables>,
    mut stopping: watch::Receiver<Stop>,
) -> Written {
    let mut look = tokio::time::interval(CHECKPOINT_LOOK);
    let mut maintenance = None;
    let mut is_due = true;
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = shard.is_unsaved.notified() => {}
            _ = stopping.wait_for(|stop| *stop != Stop::No) => return Written::Nothing,
        }
        match write_checkpoint(&shard, &group, &tables, &stopping).await {
            Written::Whole => is_due = true,
            Written::Nothing => {}
            Written::Abandoned => return Written::Abandoned,
        }
        // It takes seconds for gigabytes. Checkpoints go on meanwhile, or memory and log would grow.
        let is_idle = maintenance.as_ref().is_none_or(JoinHandle::is_finished);
        if is_due
            && is_idle
            && let Some(table) = shard.table()
        {
            is_due = false;
            maintenance = Some(tokio::spawn(async move {
                // An error: the store ends.
                let _ = blocking(move || maintain::<M>(&table)).await;
            }));
        }
    }
}

fn maintain<M: Kind>(table: &ShardTable) {
    if let Err(error) = table.maintain() {
        tracing::error!(
            store = M::NAME,
            %error,
            "tables cannot be compacted; their data is complete, but takes more space"
        );
    }
}

/// Writes a checkpoint if one is due, or at any rate when the shard ends. Tries until it is written, or
/// once when the shard ends.
pub(crate) async fn write_checkpoint<M: Kind>(
    shard: &Arc<Shard<M>>,
    group: &Group<Command>,
    tables: &Arc<Tables>,
    stopping: &watch::Receiver<Stop>,
) -> Written {
    let mut before = Written::Nothing;
    if let Some(begun) = shard.comparison.take_checkpoint() {
        before = write(begun, true, shard, group, tables, stopping).await;
        if before == Written::Abandoned {
            return before;
        }
        shard.in_checkpoint.send_replace(false);
    }
    let written = match try_checkpoint(shard, group, tables, stopping).await {
        Written::Nothing => before,
        written => written,
    };
    if written != Written::Abandoned {
        shard.in_checkpoint.send_replace(false);
    }
    written
}

async fn try_checkpoint<M: Kind>(
    shard: &Arc<Shard<M>>,
    group: &Group<Command>,
    tables: &Arc<Tables>,
    stopping: &watch::Receiver<Stop>,
) -> Written {
    let Some(checkpoint) = shard.begin_checkpoint(is_last(stopping)) else {
        return Written::Nothing;
    };
    write(checkpoint, false, shard, group, tables, stopping).await
}

/// Whether the shard ends.
fn is_last(stopping: &watch::Receiver<Stop>) -> bool {
    // An error: the store itself is gone.
    *stopping.borrow() != Stop::No || stopping.has_changed().is_err()
}

/// Collects the rest of a checkpoint, and writes it. `compares`: its tables are read then, to be compared with those of other
/// replicas.
async fn write<M: Kind>(
    mut checkpoint: Checkpoint,
    compares: bool,
    shard: &Arc<Shard<M>>,
    group: &Group<Command>,
    tables: &Arc<Tables>,
    stopping: &watch::Receiver<Stop>,
) -> Written {
    while !checkpoint.is_all {
        tokio::task::yield_now().await;
        shard.go_on_with(&mut checkpoint);
    }
    let Checkpoint {
        changes,
        mark,
        table,
        is_first,
        generation,
        ..
    } = checkpoint;
    let bytes = changes.bytes as u64;
    let mut changes = Some(changes);
    let mut is_told = false;
    while let Some(unwritten) = changes.take() {
        let (table, encoded) = (Arc::clone(&table), mark.encode());
        let applied = mark.index().map(LogIndex);
        let (of, tables) = (Arc::clone(shard), Arc::clone(tables));
        // The disk is written elsewhere, and the memory given back: the shard goes on meanwhile.
        let written = blocking(move || {
            let _alone = of.writing.lock();
            if !of.is_of(generation) {
                return Ok(false);
            }
            let outcome = if is_first {
                let made = tables.seed(of.number.into(), &table, &unwritten, &encoded);
                made.map(|own| of.has_table(own))
            } else {
                table.write(&unwritten, &encoded)
            };
            if compares {
                of.comparison.handle_written(match &outcome {
                    Ok(()) => table.reader().ok().flatten().zip(applied),
                    Err(_) => None,
                });
            }
            outcome.map(|()| true).map_err(|error| (error, unwritten))
        });
        match written.await {
            Ok(Ok(true)) => break,
            Ok(Ok(false)) => return Written::Nothing,
            Ok(Err((error, unwritten))) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!(
                        store = M::NAME,
                        shard = shard.number,
                        %error,
                        "a checkpoint cannot be written; the log keeps its data"
                    );
                }
                changes = Some(unwritten);
            }
            Err(_) => return Written::Abandoned,
        }
        if is_last(stopping) {
            return Written::Abandoned;
        }
        let mut stopping = stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(CHECKPOINT_RETRY) => {}
            _ = stopping.wait_for(|stop| *stop != Stop::No) => {}
        }
    }
    shard.stats.checkpoints.fetch_add(1, Ordering::Relaxed);
    shard
        .stats
        .checkpoint_bytes
        .fetch_add(bytes, Ordering::Relaxed);
    while !shard.end_checkpoint(generation) {
        tokio::task::yield_now().await;
    }
    if shard.is_of(generation) {
        group.checkpointed(mark).await;
    }
    Written::Whole
}
