//! A shard is split: its replica cuts its state when it applies the entry, and gives birth to one of the child.
//!
//! ```text
//! parent applies `Split` ─► cut in memory ─► child known ─► child's controller: seed in the log, synced ─► group starts
//!                                                            │   └─► where the parent is led: an election at once
//!                                                            └─► child's first checkpoint: links to the parent's files
//!                                                                └─► the parent writes checkpoints again
//! ```
//!
//! Invariants: all replicas decide alike whether an entry splits the shard; nothing of a split is on the disk before the format
//! of the data folder says so; a replica of the child answers nothing before its seed is on the disk; the parent's tables do not reach to the split before the child has tables of its own, so that a start
//! applies the entry again and the child is born again.
//!
//! Deliberately absent: who asks for a split, and where; requests that find their half (`shards.rs`).

use std::sync::Arc;
use std::time::Duration;

use consensus::{Applied, EntryIndex, GroupId, Mark, Origin, blocking};
use parking_lot::{Condvar, Mutex};
use store_state::{ChildShard, Descriptor, Level};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::api::listener::Listener;
use crate::kinds::command::Split;
use crate::kinds::effects::Effects;
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::node::beginnings::Parent;
use crate::node::services::NodeServices;
use crate::shard::cursors::InboxCursors;
use crate::shard::handle::{Shard, State};
use crate::shard::load::{LoadMeter, SlotWeights};
use crate::shard::outbox::Outbox;
use crate::shard::unsettled::Unsettled;
use crate::storage::folder::Folder;
use crate::storage::tables::ShardTable;

/// Time until the format of the data folder is written again that could not be.
const NOTE_RETRY: Duration = Duration::from_secs(1);

/// How many children of a shard have no tables yet. What they begin with is in the log and the tables of the replica here.
#[derive(Default)]
pub(super) struct Seeding {
    children: Mutex<usize>,
    over: Condvar,
}

impl Seeding {
    pub(super) fn add(&self) {
        *self.children.lock() += 1;
    }

    pub(super) fn remove(&self) {
        let mut children = self.children.lock();
        *children = children.saturating_sub(1);
        if *children == 0 {
            self.over.notify_all();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.children.lock() == 0
    }

    /// Waits until all children have tables. False: not in time.
    pub(super) fn wait_over(&self, time: Duration) -> bool {
        let mut children = self.children.lock();
        let has = |children: &mut usize| *children > 0;
        let waited = self.over.wait_while_for(&mut children, has, time);
        !waited.timed_out()
    }
}

impl<M: Kind> Parent for Shard<M> {
    fn is_seeded(&self) {
        self.seeding.remove();
    }
}

/// Where the replica of a child waits for what its parent's replica makes.
pub(super) struct Birth<M: Kind> {
    seed: Mutex<Option<Seed<M>>>,
    is_there: Notify,
}

impl<M: Kind> Default for Birth<M> {
    fn default() -> Self {
        Self {
            seed: Mutex::new(None),
            is_there: Notify::new(),
        }
    }
}

impl<M: Kind> Birth<M> {
    /// Tells the replica what it begins with.
    pub(super) fn give(&self, seed: Seed<M>) {
        *self.seed.lock() = Some(seed);
        self.is_there.notify_one();
    }
}

/// What a replica of a child begins with.
pub(crate) struct Seed<M: Kind> {
    pub(super) machine: M,
    pub(super) descriptor: Descriptor,
    pub(super) level: Level,
    pub(super) parent: Arc<dyn Parent>,
    /// The parent's table as of its last checkpoint before the split; one without rows where a store begins.
    pub(super) table: Arc<ShardTable>,
    /// The entry that has split the parent.
    pub(crate) by: Origin,
    /// The position that the child begins with, and its members.
    pub(crate) mark: Mark,
    /// The node leads the parent, and is to lead the child.
    pub(crate) is_parent_led_here: bool,
}

impl<M: Kind> Seed<M> {
    /// The node needs it not: it has, or had, a replica of the child that has come from elsewhere.
    pub(crate) fn give_up(self) {
        self.parent.is_seeded();
    }
}

/// Has earlier programs refuse the data folder. Tries until that is written: without it the entry cannot be applied.
async fn note_split(folder: Arc<Folder>) {
    let mut is_told = false;
    loop {
        let to_note = Arc::clone(&folder);
        match blocking(move || to_note.note_split()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if !std::mem::replace(&mut is_told, true) => tracing::error!(
                %error,
                "a shard is not split yet, because the format of the data folder cannot be raised"
            ),
            Ok(Err(_)) => {}
            // The store ends.
            Err(_) => return,
        }
        sleep(NOTE_RETRY).await;
    }
}

/// What an entry waits for that nothing of a checkpoint may come behind; `None`: none is under way. A few seconds at most.
pub(super) fn until_over(in_checkpoint: &watch::Sender<bool>) -> Option<Applied> {
    if !*in_checkpoint.borrow() {
        return None;
    }
    let mut in_checkpoint = in_checkpoint.subscribe();
    Some(Applied::Wait(Box::pin(async move {
        // An error: the shard is gone.
        let _ = in_checkpoint.wait_for(|is_under_way| !is_under_way).await;
    })))
}

impl<M: Kind> Shard<M> {
    /// Waits until the parent's replica has made what the replica here begins with.
    pub(crate) async fn is_to_be_born(&self) {
        self.birth.is_there.notified().await;
    }

    /// Whether it has made that, and nobody has taken it.
    pub(crate) fn has_seed(&self) -> bool {
        self.birth.seed.lock().is_some()
    }

    /// Takes it; `None`: it was taken.
    pub(crate) fn take_seed(&self) -> Option<Seed<M>> {
        self.birth.seed.lock().take()
    }

    /// Before the replica here is removed: if it has no table yet, it gets none and serves no longer. Returns the parent then,
    /// which is to be told.
    pub(crate) fn leave_parent(&self) -> Option<Arc<dyn Parent>> {
        let mut state = self.state.write();
        let parent = state.as_mut()?.parent.take()?;
        // Else a checkpoint would be written to the parent's table.
        *state = None;
        Some(parent)
    }

    /// Begins with what the parent's replica has made.
    pub(crate) fn begin_with(&self, seed: Seed<M>, listener: &Arc<dyn Listener>) {
        let Seed {
            machine,
            descriptor,
            level,
            parent,
            table,
            mark,
            ..
        } = seed;
        self.rebuild.want(false);
        machine.loaded(&**listener);
        *self.state.write() = Some(State {
            machine,
            meter: LoadMeter::new(descriptor.range),
            level,
            is_level_unsaved: level.is_said(),
            is_descriptor_unsaved: true,
            effects: Effects {
                shard: self.number,
                listener: Arc::clone(listener),
                cursors: InboxCursors::default(),
                weights: SlotWeights::new(descriptor.range),
                events: Vec::new(),
                attaching: None,
                live: false,
            },
            outbox: Outbox::default(),
            unsettled: Unsettled::default(),
            descriptor,
            table,
            parent: Some(parent),
            mark: Some(mark),
            dirty_since: Some(Instant::now()),
            generation: 0,
        });
    }

    /// Applies an entry that splits the shard. `before`: the position of the state before it, and the members there.
    pub(super) fn split(
        self: &Arc<Self>,
        services: &NodeServices,
        index: u64,
        before: &Mark,
        split: &Split,
    ) -> Applied {
        if let Some(wait) = until_over(&self.in_checkpoint) {
            // The cut would be between what the checkpoint has and what it has not.
            return wait;
        }
        let Some(shards) = self.shards() else {
            return Applied::Done;
        };
        let ChildShard(at) = split.at;
        let members = before.members();
        let mut guard = self.state.write();
        let Some(state) = guard.as_mut() else {
            return Applied::Done;
        };
        if split.version != state.descriptor.version
            || !state.level.allows_splits()
            || !state.descriptor.can_split_at(at)
            || members.voters.len() != 1
            || at < shards.base().len()
        {
            tracing::info!(
                store = M::NAME,
                shard = self.number,
                at,
                "a split no longer applies, and does nothing"
            );
            return Applied::Done;
        }
        if !services.folder.is_split() {
            let folder = Arc::clone(&services.folder);
            return Applied::Wait(Box::pin(note_split(folder)));
        }
        let entry = Origin {
            parent: GroupId(self.group()),
            index: EntryIndex(index),
        };
        let is_led_here = self.routing.is_here();
        let is_wanted = self.may_be_born(services, &shards.get(at), at, entry);
        state.mark = None;
        state.dirty_since.get_or_insert_with(Instant::now);
        let machine = state.machine.split_off(at);
        let descriptor = state.descriptor.split_off(at);
        let level = state.level;
        state.is_descriptor_unsaved = true;
        state.send_on_unsettled(self.hash);
        let routing = &self.routing;
        self.rebuild
            .want(M::HAS_ROUTES && (routing.is_here() || routing.peers.is_none()));
        state.meter = LoadMeter::new(state.descriptor.range);
        state.effects.weights = SlotWeights::new(state.descriptor.range);
        let State {
            machine: left,
            effects,
            ..
        } = &mut *state;
        effects.cursors.retain(|inbox| left.has_inbox(inbox));
        if is_wanted {
            self.seeding.add();
        }
        let table = Arc::clone(&state.table);
        drop(guard);
        // What is asked of the parent from now on may be answered with its new range.
        shards.learn(at);
        if let Some(child) = shards.get(at).filter(|_| is_wanted) {
            child.birth.give(Seed {
                machine,
                descriptor,
                level,
                parent: Arc::clone(self) as _,
                table,
                by: entry,
                mark: Mark::seed(&members),
                is_parent_led_here: is_led_here,
            });
        }
        M::shards_changed(&*services.listener);
        let group = self.routing.group.borrow().clone();
        if let Some(group) = group.filter(|_| is_led_here) {
            // The others hear at once that the entry is agreed on: the child needs a majority to have cut.
            tokio::spawn(async move { group.heartbeat().await });
        }
        Applied::Done
    }

    /// Whether the replica of a child begins with what this one makes: not if there is one already, or was one.
    fn may_be_born(
        &self,
        services: &NodeServices,
        child: &Option<Arc<Self>>,
        at: u16,
        entry: Origin,
    ) -> bool {
        let is_running = child
            .as_ref()
            .is_some_and(|child| child.look(|_| ()).is_some());
        let tables = services.tables_of::<M>().shards();
        let has_table = tables.map(|shards| shards.contains(&u64::from(at)));
        let may_seed = services.log.may_seed(group_of::<M>(at), entry);
        match (has_table, may_seed) {
            (Ok(has_table), Ok(may_seed)) => !is_running && !has_table && may_seed,
            (Err(error), _) => {
                services.listener.failed(&error.to_string());
                false
            }
            (_, Err(error)) => {
                services.listener.failed(&error.to_string());
                false
            }
        }
    }
}
