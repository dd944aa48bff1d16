//! Which shard a node splits next, if any, and what it has decided about each.
//!
//! | Input | What follows |
//! |---|---|
//! | a second has passed | a verdict for each shard led here; at most one is to be split |
//! | a split is done | none of the store for the cooldown |
//! | a split is refused | none of this shard for the cooldown |
//!
//! Invariants: one split is under way at a time; a shard that this node does not lead has no verdict.

use std::collections::BTreeMap;
use std::time::Duration;

use store_state::api::{PerStore, ShardNumber, Slot, StoreId};
use tokio::time::Instant;

use crate::peers::member::ShardId;
use crate::shard::load::Total;
use crate::splitting::as_bifromq::AsBifromq;
use crate::splitting::by_load::ByLoad;
use crate::splitting::options::{SplitBy, SplitOptions};
use crate::splitting::policy::{ByHandOnly, Candidate, Hold, NodeView, SplitPolicy, Verdict, Why};
use crate::splitting::script::{SplitScripts, StoreView};

/// Time from one look for those who have a hot slot of a shard to the next: all clients, or topics, of the shard are looked at, and
/// whoever makes the load could have it done each second.
const NAME_AGAIN: Duration = Duration::from_secs(60);

/// A split that is to be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SplitOrder {
    pub(crate) id: ShardId,
    pub(crate) at: Slot,
    /// What the script of the store says of it, if one has decided.
    pub(crate) why: Option<Why>,
}

/// What has become of a split that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Refused,
}

/// What follows from a second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) split: Option<SplitOrder>,
    /// Shards of which a slot has just been found to have most of the load: who it belongs to is to be said.
    pub(crate) to_name: Vec<(ShardId, Slot)>,
}

/// What a node has decided about a shard that it leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitDecision {
    /// The store.
    pub store: StoreId,
    /// The shard, as [`Lead`](crate::Lead) names it.
    pub shard: ShardNumber,
    /// Whether it is to be split, or why not.
    pub verdict: Verdict,
    /// With [`Hold::OneSlot`]: clients, or topics, that have the slot, some of them.
    pub names: Vec<String>,
    /// For how long this has been so.
    pub since: Duration,
}

/// Splits that a node has decided on, since it has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SplitCounts {
    /// That were done.
    pub done: Total,
    /// That were refused.
    pub refused: Total,
}

struct Standing {
    verdict: Verdict,
    names: Vec<String>,
    since: Instant,
    /// When a slot was last given out to be named.
    named: Option<Instant>,
}

struct StoreSplits {
    policy: Box<dyn SplitPolicy + Send>,
    options: SplitOptions,
    /// When the last one was done.
    last: Option<Instant>,
    counts: SplitCounts,
}

/// The policy of a store, or what decides while its script does not.
fn policy(options: SplitOptions) -> Box<dyn SplitPolicy + Send> {
    match options.by {
        SplitBy::Load | SplitBy::Script => Box::new(ByLoad),
        SplitBy::Bifromq => Box::new(AsBifromq { options }),
        SplitBy::Nothing => Box::new(ByHandOnly),
    }
}

/// What a built-in policy says of a shard, to compare a script with it; `load` with [`SplitBy::Script`].
#[must_use]
pub fn built_in(options: SplitOptions, shard: &Candidate, node: &NodeView) -> Verdict {
    policy(options).decide(shard, node)
}

/// Decides about the shards that a node leads.
pub(crate) struct Splitter {
    stores: PerStore<StoreSplits>,
    scripts: SplitScripts,
    is_under_way: bool,
    /// When a split of these was refused.
    refused: BTreeMap<ShardId, Instant>,
    standings: BTreeMap<ShardId, Standing>,
}

impl Splitter {
    pub(crate) fn new(options: &PerStore<SplitOptions>, scripts: SplitScripts) -> Self {
        let splits = |store| {
            let options = options[store];
            StoreSplits {
                policy: policy(options),
                options,
                last: None,
                counts: SplitCounts::default(),
            }
        };
        Self {
            stores: PerStore::from_fn(splits),
            scripts,
            is_under_way: false,
            refused: BTreeMap::new(),
            standings: BTreeMap::new(),
        }
    }

    /// A second has passed: these shards are led here.
    pub(crate) fn handle_second(
        &mut self,
        candidates: &[Candidate],
        node: &NodeView,
        now: Instant,
    ) -> Effects {
        let mut by_script = self.ask_scripts(candidates, node, now);
        let mut verdict = |shard: &Candidate| {
            let verdict = match by_script.remove(&shard.id) {
                Some(Verdict::Hold(Hold::Deferred)) => self.as_before(shard.id),
                Some(verdict) => verdict,
                None => self.stores[shard.id.0].policy.decide(shard, node),
            };
            match (verdict, self.holds_back(shard.id, node, now)) {
                (Verdict::Split { .. }, Some(hold)) => Verdict::Hold(hold),
                (verdict, _) => verdict,
            }
        };
        let mut verdicts: Vec<_> = candidates.iter().map(&mut verdict).collect();
        let splits = verdicts.iter().zip(candidates);
        let splits = splits.filter_map(|(verdict, shard)| match verdict {
            Verdict::Split { at, why } => Some((shard, *at, why.clone())),
            Verdict::Hold(_) => None,
        });
        let busiest = splits.max_by_key(|(shard, ..)| shard.busyness.map(|busy| busy.least));
        let split = busiest.map(|(shard, at, why)| SplitOrder {
            id: shard.id,
            at,
            why,
        });
        for (verdict, shard) in verdicts.iter_mut().zip(candidates) {
            let is_next = split.as_ref().is_some_and(|split| split.id == shard.id);
            if matches!(verdict, Verdict::Split { .. }) && !is_next {
                *verdict = Verdict::Hold(Hold::UnderWay);
            }
        }
        self.is_under_way |= split.is_some();
        self.standings
            .retain(|id, _| candidates.iter().any(|shard| shard.id == *id));
        self.refused
            .retain(|id, _| candidates.iter().any(|shard| shard.id == *id));
        let mut to_name = Vec::new();
        for (verdict, shard) in verdicts.into_iter().zip(candidates) {
            if let Some(slot) = self.stands(shard.id, verdict, now) {
                to_name.push((shard.id, slot));
            }
        }
        Effects { split, to_name }
    }

    /// What scripts say of the shards of their stores; those of other stores, and of stores whose script does not work, are missing.
    fn ask_scripts(
        &self,
        candidates: &[Candidate],
        node: &NodeView,
        now: Instant,
    ) -> BTreeMap<ShardId, Verdict> {
        let by_script = self.stores.iter();
        let by_script = by_script.filter(|(_, splits)| splits.options.by == SplitBy::Script);
        let asked = by_script.filter_map(|(store, splits)| {
            let view = StoreView {
                store,
                replicas: node.replicas[store],
                since_split: splits.last.map(|last| now.duration_since(last)),
                options: splits.options,
            };
            self.scripts.ask(candidates, node, &view)
        });
        asked.flatten().collect()
    }

    /// The verdict of a shard that a script has not been asked about now: what held it back before.
    fn as_before(&self, id: ShardId) -> Verdict {
        match self.standings.get(&id).map(|standing| &standing.verdict) {
            Some(Verdict::Hold(hold)) => Verdict::Hold(hold.clone()),
            Some(Verdict::Split { .. }) | None => Verdict::Hold(Hold::Deferred),
        }
    }

    /// The scripts of the stores.
    pub(crate) fn scripts(&self) -> &SplitScripts {
        &self.scripts
    }

    /// Takes down a verdict. Returns a slot that has just been found to have most of the load.
    fn stands(&mut self, id: ShardId, verdict: Verdict, now: Instant) -> Option<Slot> {
        let slot = |verdict: &Verdict| match verdict {
            Verdict::Hold(Hold::OneSlot { slot, .. }) => Some(*slot),
            _ => None,
        };
        let slot_now = slot(&verdict);
        let standing = self.standings.entry(id).or_insert_with(|| Standing {
            verdict: verdict.clone(),
            names: Vec::new(),
            since: now,
            named: None,
        });
        let is_same_slot = slot(&standing.verdict) == slot_now;
        let is_same_kind = match (&standing.verdict, &verdict) {
            (Verdict::Hold(before), Verdict::Hold(now)) => before.name() == now.name(),
            _ => false,
        };
        standing.verdict = verdict;
        if !is_same_kind {
            standing.since = now;
        }
        if !is_same_slot {
            standing.names = Vec::new();
        }
        let is_recent = |at: Instant| now.duration_since(at) < NAME_AGAIN;
        let may_name = !standing.named.is_some_and(is_recent);
        let to_name = slot_now.filter(|_| standing.names.is_empty() && may_name);
        if to_name.is_some() {
            standing.named = Some(now);
        }
        to_name
    }

    /// Who has a slot that was found.
    pub(crate) fn handle_names(&mut self, id: ShardId, names: Vec<String>) {
        if let Some(standing) = self.standings.get_mut(&id) {
            standing.names = names;
        }
    }

    /// What has become of the split that was asked for.
    pub(crate) fn handle_outcome(&mut self, split: &SplitOrder, outcome: Outcome, now: Instant) {
        debug_assert!(
            self.is_under_way,
            "a split has an outcome that was asked for"
        );
        self.is_under_way = false;
        let splits = &mut self.stores[split.id.0];
        match outcome {
            Outcome::Done => {
                splits.last = Some(now);
                splits.counts.done.0 += 1;
            }
            Outcome::Refused => {
                splits.counts.refused.0 += 1;
                self.refused.insert(split.id, now);
            }
        }
    }

    /// What keeps a shard from being split now that should be.
    fn holds_back(&self, id: ShardId, node: &NodeView, now: Instant) -> Option<Hold> {
        let splits = &self.stores[id.0];
        let is_recent = |at: &Instant| now.duration_since(*at) < splits.options.cooldown;
        if self.is_under_way {
            Some(Hold::UnderWay)
        } else if node.replicas[id.0] >= splits.options.shards_most.get().into() {
            Some(Hold::ShardsMost)
        } else if splits.last.as_ref().is_some_and(is_recent) {
            Some(Hold::Cooldown)
        } else if self.refused.get(&id).is_some_and(is_recent) {
            Some(Hold::Refused)
        } else {
            None
        }
    }

    /// What was decided last about each shard that is led here.
    pub(crate) fn decisions(&self, now: Instant) -> Vec<SplitDecision> {
        let decision = |(id, standing): (&ShardId, &Standing)| SplitDecision {
            store: id.0,
            shard: id.1,
            verdict: standing.verdict.clone(),
            names: standing.names.clone(),
            since: now.duration_since(standing.since),
        };
        self.standings.iter().map(decision).collect()
    }

    /// How many splits were decided on, by store.
    pub(crate) fn counts(&self) -> PerStore<SplitCounts> {
        PerStore::from_fn(|store| self.stores[store].counts)
    }
}

#[cfg(test)]
mod tests {
    use store_state::SlotRange;

    use super::*;
    use crate::shard::load::{Busyness, HalfLoad, HalfSlot, HotSlot, Operations, Percent};

    const COOLDOWN: Duration = Duration::from_secs(20);

    fn shard(number: u16, least_ms: u64) -> Candidate {
        Candidate {
            id: (StoreId::Inbox, number),
            thread: 0,
            busyness: Some(Busyness {
                range: SlotRange {
                    first: number,
                    last: u16::MAX,
                },
                least: Duration::from_millis(least_ms),
                least_cpu: Duration::from_millis(least_ms),
                half: Some(HalfLoad {
                    at: HalfSlot(number + 100),
                    below: Percent(50),
                }),
                hottest: None,
                operations: Operations::default(),
            }),
        }
    }

    fn hot(number: u16, slot: u16) -> Candidate {
        let mut shard = shard(number, 900);
        let busyness = shard.busyness.as_mut().unwrap();
        busyness.half = None;
        busyness.hottest = Some(HotSlot {
            slot: HalfSlot(slot),
            share: Percent(99),
        });
        shard
    }

    fn node(replicas: usize) -> NodeView {
        NodeView {
            threads: vec![Duration::from_secs(1), Duration::ZERO],
            led_here: Duration::from_secs(1),
            led_elsewhere: Vec::new(),
            replicas: PerStore::all(replicas),
            process_cpu: 1.0,
            has_all_members: true,
        }
    }

    fn splitter() -> Splitter {
        Splitter::new(
            &PerStore::all(SplitOptions {
                by: SplitBy::Load,
                cooldown: COOLDOWN,
                shards_most: 4.try_into().unwrap(),
                ..SplitOptions::default()
            }),
            SplitScripts::default(),
        )
    }

    fn hold(splitter: &Splitter, number: u16, now: Instant) -> Option<&'static str> {
        let decisions = splitter.decisions(now);
        let decision = decisions.iter().find(|of| of.shard == number)?;
        Some(match &decision.verdict {
            Verdict::Split { .. } => "split",
            Verdict::Hold(hold) => hold.name(),
        })
    }

    #[test]
    fn the_busiest_shard_is_split_and_then_the_others_wait() {
        let (mut splitter, now) = (splitter(), Instant::now());
        let shards = [shard(0, 300), shard(7, 400), shard(9, 10)];
        let effects = splitter.handle_second(&shards, &node(3), now);
        let order = SplitOrder {
            id: (StoreId::Inbox, 7),
            at: Slot(107),
            why: None,
        };
        assert_eq!(effects.split.as_ref(), Some(&order));
        let holds = |splitter: &Splitter| {
            let of = |number| hold(splitter, number, now).unwrap();
            [of(0), of(7), of(9)]
        };
        assert_eq!(holds(&splitter), ["under_way", "split", "not_busy"]);
        assert_eq!(splitter.handle_second(&shards, &node(3), now).split, None);
        assert_eq!(holds(&splitter), ["under_way", "under_way", "not_busy"]);
        splitter.handle_outcome(&order, Outcome::Done, now);
        let later = now + COOLDOWN - Duration::from_millis(1);
        assert_eq!(splitter.handle_second(&shards, &node(3), later).split, None);
        assert_eq!(holds(&splitter), ["cooldown", "cooldown", "not_busy"]);
        let later = now + COOLDOWN;
        assert!(
            splitter
                .handle_second(&shards, &node(3), later)
                .split
                .is_some()
        );
        assert_eq!(
            splitter.counts().inbox,
            SplitCounts {
                done: Total(1),
                refused: Total(0)
            }
        );
    }

    #[test]
    fn a_shard_whose_split_was_refused_waits_and_another_one_does_not() {
        let (mut splitter, now) = (splitter(), Instant::now());
        let shards = [shard(0, 300), shard(7, 400)];
        let split = splitter
            .handle_second(&shards, &node(3), now)
            .split
            .unwrap();
        splitter.handle_outcome(&split, Outcome::Refused, now);
        let next = splitter
            .handle_second(&shards, &node(3), now)
            .split
            .unwrap();
        assert_eq!((split.id.1, next.id.1), (7, 0));
        assert_eq!(hold(&splitter, 7, now), Some("refused"));
        splitter.handle_outcome(&next, Outcome::Refused, now);
        assert_eq!(splitter.handle_second(&shards, &node(3), now).split, None);
        let later = now + COOLDOWN;
        let again = splitter.handle_second(&shards, &node(3), later).split;
        assert_eq!(again, Some(split));
        assert_eq!(
            splitter.counts().inbox,
            SplitCounts {
                done: Total(0),
                refused: Total(2)
            }
        );
    }

    #[test]
    fn a_node_has_so_many_shards_of_a_store_at_most() {
        let (mut splitter, now) = (splitter(), Instant::now());
        assert_eq!(
            splitter
                .handle_second(&[shard(0, 300)], &node(4), now)
                .split,
            None
        );
        assert_eq!(hold(&splitter, 0, now), Some("shards_most"));
        // What would not be split anyway says so.
        splitter.handle_second(&[shard(0, 3)], &node(4), now);
        assert_eq!(hold(&splitter, 0, now), Some("not_busy"));
    }

    #[test]
    fn a_hot_slot_is_named_once() {
        let (mut splitter, now) = (splitter(), Instant::now());
        let id = (StoreId::Inbox, 3);
        let shards = [hot(3, 44)];
        let effects = splitter.handle_second(&shards, &node(3), now);
        assert_eq!(
            (effects.split, &*effects.to_name),
            (None, &[(id, Slot(44))][..])
        );
        splitter.handle_names(id, vec!["boiler".to_owned()]);
        let later = now + Duration::from_secs(5);
        assert_eq!(
            splitter.handle_second(&shards, &node(3), later),
            Effects::default()
        );
        let decisions = splitter.decisions(later);
        assert_eq!(decisions[0].names, ["boiler"]);
        assert_eq!(decisions[0].since, Duration::from_secs(5));
        // Another one has the load: it is named when the shard has not been looked through for a while.
        let effects = splitter.handle_second(&[hot(3, 45)], &node(3), later);
        assert_eq!(effects.to_name, []);
        assert_eq!(splitter.decisions(later)[0].names, [""; 0]);
        let later = now + NAME_AGAIN;
        let effects = splitter.handle_second(&[hot(3, 45)], &node(3), later);
        assert_eq!(&*effects.to_name, &[(id, Slot(45))][..]);
        // Nobody was found.
        splitter.handle_names(id, Vec::new());
        let effects = splitter.handle_second(&[hot(3, 45)], &node(3), later);
        assert_eq!(effects.to_name, []);
    }

    #[test]
    fn another_node_that_leads_decides() {
        let (mut splitter, now) = (splitter(), Instant::now());
        splitter.handle_second(&[shard(0, 10)], &node(1), now);
        splitter.handle_second(&[], &node(1), now);
        assert_eq!(splitter.decisions(now), []);
    }

    #[test]
    fn a_store_that_is_split_by_hand_is_left_alone() {
        let mut splitter = Splitter::new(
            &PerStore::all(SplitOptions::default()),
            SplitScripts::default(),
        );
        let now = Instant::now();
        assert_eq!(
            splitter
                .handle_second(&[shard(0, 900)], &node(1), now)
                .split,
            None
        );
        assert_eq!(hold(&splitter, 0, now), Some("by_hand_only"));
    }
}
