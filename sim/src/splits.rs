//! Shards that are split while a run goes on: the seed decides which, where and when.
//!
//! The leader of the shard that has the slot is asked. A split that is refused, or whose answer is lost, is asked for again;
//! it is done when a node knows the child.

use store::SplitError;
use store_state::api::{Slot, Store as _, StoreId};

use crate::node::Life;
use crate::world::World;

/// Splits of a run: so many at least, and fewer than this more.
const SPLITS: (usize, usize) = (3, 6);

/// The time within which splits begin, in ms.
const BEGIN_WITHIN: usize = 12_000;

/// How long the answer to a split is waited for, in ms.
const ASK_AGAIN: u64 = 500;

/// No slots from this one on: the last one of all begins no shard.
const SLOTS: usize = u16::MAX as usize;

/// Names of clients and topics that exist, so that a split can be at their slots.
const NAMES: [&str; 10] = [
    "client-0", "client-1", "client-2", "client-3", "client-4", "client-5", "client-6", "client-7",
    "r/0", "r/1",
];

/// The splits of a run that are not done.
#[derive(Default)]
pub(crate) struct Splits {
    wanted: Vec<Wanted>,
    /// Nodes that were asked since this was last looked at.
    asked: Vec<u64>,
}

/// A split that is not done.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    store: StoreId,
    at: Slot,
    /// When it is asked for, in ms.
    due: u64,
}

/// What became of a split that a node was asked for.
pub(crate) struct SplitAnswer {
    pub(crate) store: StoreId,
    pub(crate) at: Slot,
    pub(crate) outcome: Result<(), SplitError>,
}

impl World {
    /// Draws the splits of the run.
    pub(crate) fn plan_splits(&mut self) {
        let (least, more) = SPLITS;
        for _ in 0..least + self.chance.below(more) {
            let store = match self.chance.below(6) {
                0 | 1 => StoreId::Session,
                2..5 => StoreId::Inbox,
                _ => StoreId::Retain,
            };
            let at = self.draw_slot();
            let due = self.now + self.chance.below(BEGIN_WITHIN) as u64;
            self.note(&format!("{store:?} is to be split at {at:?} from {due} on"));
            self.splits.wanted.push(Wanted { store, at, due });
        }
    }

    /// Any slot, or that of something that exists, or the next one.
    fn draw_slot(&mut self) -> Slot {
        let name = NAMES[self.chance.below(NAMES.len())];
        let next = self.chance.below(2) as u16;
        let any = 2 + self.chance.below(SLOTS - 2) as u16;
        let is_of_name = self.chance.below(2) == 0;
        let life = self.nodes.values().find_map(|node| node.life.as_ref());
        let of_name = life.map(|life| life.store().inbox_slot(name).0.saturating_add(next));
        // All stores spread names alike.
        Slot(match of_name {
            Some(slot) if is_of_name && (2..u16::MAX).contains(&slot) => slot,
            _ => any,
        })
    }

    /// Asks for the splits that are due.
    pub(crate) fn split_shards(&mut self) {
        let now = self.now;
        let nodes = &self.nodes;
        let is_known = |wanted: &Wanted| {
            let lives = nodes.values().filter_map(|node| node.life.as_ref());
            let mut shards = lives.flat_map(|life| life.store().shards());
            shards.any(|shard| shard.store == wanted.store && shard.first == wanted.at)
        };
        let is_due = |wanted: &Wanted| wanted.due <= now;
        self.splits
            .wanted
            .retain(|wanted| !is_due(wanted) || !is_known(wanted));
        let due: Vec<Wanted> = self.splits.wanted.iter().copied().filter(is_due).collect();
        for wanted in self
            .splits
            .wanted
            .iter_mut()
            .filter(|wanted| is_due(wanted))
        {
            wanted.due = now + ASK_AGAIN;
        }
        for wanted in due {
            let leader = self.nodes.values().find_map(|node| {
                let shard = node.life.as_ref()?.led_shard(wanted.store, wanted.at)?;
                Some((node.id, shard))
            });
            if let Some((id, shard)) = leader {
                let life = self.nodes[&id].life.as_ref();
                life.expect("it lives")
                    .split(wanted.store, shard, wanted.at);
                self.splits.asked.push(id);
                let Wanted { store, at, .. } = wanted;
                self.note(&format!(
                    "{id} is asked to split {store:?}/{shard} at {at:?}"
                ));
            }
        }
    }

    /// Nodes that were asked to split a shard since the last call.
    pub(crate) fn take_splitting(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.splits.asked)
    }

    /// Whether all splits are done; else, what is not.
    pub(crate) fn splits_are_done(&self) -> Result<(), String> {
        match &self.splits.wanted[..] {
            [] => Ok(()),
            wanted => Err(format!("splits are not done: {wanted:?}")),
        }
    }
}

impl Life {
    /// The shard that has a slot, if this node leads it.
    fn led_shard(&self, store: StoreId, slot: Slot) -> Option<u16> {
        let own = self.store().node();
        let shards = self.store().shards().into_iter();
        let mut with_slot = shards
            .filter(|shard| shard.store == store && (shard.first..=shard.last).contains(&slot));
        let shard = with_slot.next()?;
        (shard.leader == Some(own)).then_some(shard.shard)
    }
}
