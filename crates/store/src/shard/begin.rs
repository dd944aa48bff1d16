//! A store begins: the replicas of the first session shard give birth to those of its one shard.
//!
//! ```text
//! the first session shard applies `Begin` ─► noted in its descriptor ─► an empty state for the shard of the store
//!     └─► the controller of that shard: seed in the log, synced ─► group starts, with the voters of the session shard
//!          └─► first checkpoint ─► the session shard writes checkpoints again
//! ```
//!
//! Nobody founds the group, and it begins with the voters that the entry finds, so there is never a second one. As after a split,
//! the session shard's tables do not reach to the entry before the shard has tables, so that a start applies the entry again.
//!
//! Deliberately absent: who asks for it (`api/control.rs`); replicas on the other nodes, which the leader invites (`placement`).

use std::sync::{Arc, Weak};

use consensus::{Applied, EntryIndex, GroupId, Mark, Origin};
use store_state::api::{ShardNumber, StoreId};
use store_state::control::ControlMachine;
use store_state::session::SessionMachine;
use store_state::{Descriptor, Machine as _, SlotRange, Slots};
use tokio::time::Instant;

use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::node::beginnings::{Begin, Beginnings};
use crate::node::services::NodeServices;
use crate::shard::apply::Replica;
use crate::shard::handle::State;
use crate::shard::shards::Shards;
use crate::shard::split::{Seed, until_over};

/// The one shard of the control store.
pub(crate) const CONTROL_SHARD: ShardNumber = 0;

/// The shards of the stores of which one begins the other.
pub(crate) struct StoreBeginnings {
    pub(crate) session: Weak<Shards<SessionMachine>>,
    pub(crate) control: Weak<Shards<ControlMachine>>,
}

impl<M: Kind> State<M> {
    /// Notes that the control store begins. False: it has begun, or cannot begin now; all replicas find the same.
    fn note_begun(&mut self, before: &Mark) -> bool {
        let is_first = M::STORE == StoreId::Session && self.descriptor.range.first == 0;
        let are_settled = before.members().voters.len() == 1;
        let has_begun = self.descriptor.has_begun_control;
        if !is_first || !are_settled || has_begun || !self.level.begins_stores() {
            return false;
        }
        self.mark = None;
        self.dirty_since.get_or_insert_with(Instant::now);
        self.descriptor.has_begun_control = true;
        self.is_descriptor_unsaved = true;
        true
    }
}

impl<M: Kind> Replica<M> {
    /// Applies an entry that begins the control store. `before`: the position of the state before it, and the members there.
    pub(super) fn begin_control(&self, index: u64, before: &Mark) -> Applied {
        let shard = &self.shard;
        if let Some(wait) = until_over(&shard.in_checkpoint) {
            // The checkpoint would not have what the descriptor says of it.
            return wait;
        }
        let begun = match &mut *shard.state.write() {
            Some(state) => state.note_begun(before).then_some(state.level),
            None => None,
        };
        let Some(level) = begun else {
            tracing::info!(
                store = M::NAME,
                shard = shard.number,
                "the control store has begun already, or cannot begin now"
            );
            return Applied::Done;
        };
        let members = before.members();
        if members.has_voter(shard.routing.node) {
            self.seed_control(Begin {
                by: Origin {
                    parent: GroupId(shard.group()),
                    index: EntryIndex(index),
                },
                mark: Mark::seed(&members),
                level,
                is_parent_led_here: shard.routing.is_here(),
                parent: Arc::clone(shard) as _,
            });
        }
        let group = shard.routing.group.borrow().clone();
        if let Some(group) = group.filter(|_| shard.routing.is_here()) {
            // The others hear at once that the entry is agreed on: the group needs a majority.
            tokio::spawn(async move { group.heartbeat().await });
        }
        Applied::Done
    }

    fn seed_control(&self, begin: Begin) {
        let (shard, services) = (&self.shard, &self.services);
        let beginnings = services.beginnings.get();
        let beginnings = beginnings.expect("it is said before any entry is applied");
        // Before the replica can have told that it has a table.
        shard.seeding.add();
        let begun = beginnings.begin_control(services, begin);
        if !matches!(begun, Ok(true)) {
            shard.seeding.remove();
        }
        if let Err(error) = begun {
            services.listener.failed(&error);
        }
    }
}

impl Beginnings for StoreBeginnings {
    fn begin_control(&self, services: &NodeServices, begin: Begin) -> Result<bool, String> {
        let shards = self.control.upgrade();
        let shard = shards.and_then(|shards| shards.get(CONTROL_SHARD));
        let shard = shard.ok_or("the store ends")?;
        if shard.look(|_| ()).is_some() || !may_begin(services, begin.by)? {
            tracing::info!("there is a replica of the control store already, or was one");
            return Ok(false);
        }
        let tables = services.tables_of::<ControlMachine>();
        let table = tables.nothing().map_err(|error| error.to_string())?;
        let slots = Slots {
            range: SlotRange::ALL,
            hash: shard.hash,
            level: begin.level,
        };
        let machine = ControlMachine::load(slots, &table).map_err(|error| error.to_string())?;
        let Begin {
            by,
            mark,
            level,
            is_parent_led_here,
            parent,
        } = begin;
        shard.birth.give(Seed {
            machine,
            descriptor: Descriptor::first(SlotRange::ALL),
            level,
            parent,
            table: Arc::new(table),
            by,
            mark,
            is_parent_led_here,
        });
        Ok(true)
    }

    fn applied_by_session(&self, shard: ShardNumber) -> Option<u64> {
        self.session.upgrade()?.get(shard)?.applied_index()
    }
}

/// Whether the replica here begins with what an entry makes: there is none, and was none.
fn may_begin(services: &NodeServices, by: Origin) -> Result<bool, String> {
    let group = group_of::<ControlMachine>(CONTROL_SHARD);
    let may_seed = services.log.may_seed(group, by);
    let shards = services.tables_of::<ControlMachine>().shards();
    let has_table = shards.map_err(|error| error.to_string())?;
    let has_table = has_table.contains(&u64::from(CONTROL_SHARD));
    Ok(may_seed.map_err(|error| error.to_string())? && !has_table)
}
