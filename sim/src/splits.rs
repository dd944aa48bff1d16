//! Shards that are split while a run goes on: the seed decides which, where and when.
//!
//! The leader of the shard that has the slot is asked. A split that is refused, or whose answer is lost, is asked for again;
//! it is done when a node knows the child.

use std::num::NonZeroU16;
use std::time::Duration;

use consensus::simulation::Chance;
use store::{SplitBy, SplitError, SplitOptions, Store};
use store_state::api::{Slot, Store as _, StoreId};

/// Splits of a run: so many at least, and fewer than this more.
const SPLITS: (usize, usize) = (3, 6);

/// Shards of a store that a node has, from which on it splits none by itself.
const SHARDS_MOST: NonZeroU16 = NonZeroU16::new(6).expect("it is above 0");

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

/// How nodes split shards by themselves, and what they believe to use of the CPU.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByItself {
    pub(crate) options: SplitOptions,
    /// Each time that a node looks what it has used, this much more.
    pub(crate) look: Duration,
}

impl ByItself {
    /// Shards are busy that propose, apply or read some ten times a second.
    pub(crate) fn busy() -> Self {
        Self {
            options: SplitOptions {
                by: SplitBy::Load,
                cooldown: Duration::from_secs(1),
                shards_most: SHARDS_MOST,
                ..SplitOptions::default()
            },
            look: Duration::from_millis(100),
        }
    }
}

/// The splits of a run that are not done.
#[derive(Default)]
pub(crate) struct Splits {
    /// How nodes split shards by themselves.
    pub(crate) by_itself: ByItself,
    wanted: Vec<Wanted>,
    /// Nodes that were asked since this was last looked at.
    asked: Vec<u64>,
}

/// A split that is not done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) store: StoreId,
    pub(crate) at: Slot,
    due: Due,
}

/// When a split is asked for, in ms of the run.
#[derive(Clone, Copy, Debug)]
struct Due(u64);

/// What became of a split that a node was asked for.
pub(crate) struct SplitAnswer {
    pub(crate) store: StoreId,
    pub(crate) at: Slot,
    pub(crate) outcome: Result<(), SplitError>,
}

impl Splits {
    /// Draws the splits of a run, which begin from `now` on. `store` is that of any node, if one is alive. Returns what is to
    /// be noted of each.
    pub(crate) fn plan(
        &mut self,
        chance: &mut Chance,
        now: u64,
        store: Option<&Store>,
    ) -> Vec<String> {
        let (least, more) = SPLITS;
        let count = least + chance.below(more);
        let planned = (0..count).map(|_| {
            let kind = match chance.below(6) {
                0 | 1 => StoreId::Session,
                2..5 => StoreId::Inbox,
                _ => StoreId::Retain,
            };
            let at = draw_slot(chance, store);
            let due = now + chance.below(BEGIN_WITHIN) as u64;
            self.wanted.push(Wanted {
                store: kind,
                at,
                due: Due(due),
            });
            format!("{kind:?} is to be split at {at:?} from {due} on")
        });
        planned.collect()
    }

    /// Forgets the splits that are done, and takes note that those are asked for that are due and whose shards have leaders.
    /// `stores` are those of the nodes that are alive. Returns for each: the leader, the shard, and the split.
    pub(crate) fn ask(&mut self, now: u64, stores: &[&Store]) -> Vec<(u64, u16, Wanted)> {
        let is_due = |wanted: &Wanted| wanted.due.0 <= now;
        let is_known = |wanted: &Wanted| {
            let mut shards = stores.iter().flat_map(|store| store.shards());
            shards.any(|shard| shard.store == wanted.store && shard.first == wanted.at)
        };
        self.wanted
            .retain(|wanted| !is_due(wanted) || !is_known(wanted));
        let mut asked = Vec::new();
        for wanted in self.wanted.iter_mut().filter(|wanted| is_due(wanted)) {
            wanted.due = Due(now + ASK_AGAIN);
            let led = stores.iter().find_map(|store| {
                let shard = led_shard(store, wanted.store, wanted.at)?;
                Some((store.node(), shard))
            });
            if let Some((leader, shard)) = led {
                self.asked.push(leader);
                asked.push((leader, shard, *wanted));
            }
        }
        asked
    }

    /// Nodes that were asked to split a shard since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.asked)
    }

    /// Whether all splits are done; else, what is not.
    pub(crate) fn are_done(&self) -> Result<(), String> {
        match &self.wanted[..] {
            [] => Ok(()),
            wanted => Err(format!("splits are not done: {wanted:?}")),
        }
    }
}

/// Any slot, or that of something that exists, or the next one.
fn draw_slot(chance: &mut Chance, store: Option<&Store>) -> Slot {
    let name = NAMES[chance.below(NAMES.len())];
    let next = chance.below(2) as u16;
    let any = 2 + chance.below(SLOTS - 2) as u16;
    let is_of_name = chance.below(2) == 0;
    // All stores spread names alike.
    let of_name = store.map(|store| store.inbox_slot(name).0.saturating_add(next));
    Slot(match of_name {
        Some(slot) if is_of_name && (2..u16::MAX).contains(&slot) => slot,
        _ => any,
    })
}

/// The shard that has a slot, if the node of `store` leads it.
fn led_shard(store: &Store, kind: StoreId, slot: Slot) -> Option<u16> {
    let mut shards = store.shards().into_iter();
    let shard =
        shards.find(|shard| shard.store == kind && (shard.first..=shard.last).contains(&slot))?;
    (shard.leader == Some(store.node())).then_some(shard.shard)
}
