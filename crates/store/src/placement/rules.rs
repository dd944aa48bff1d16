//! Which nodes should hold the replicas of a shard, and which of them should lead it. Pure: the leader of a
//! shard asks now and then what to do next, and does it if it can.
//!
//! Rules, the first before the others: a voter that is gone for good, or leaves, is replaced; one that rests
//! is replaced only if there is no other; one that is down is replaced only by a node that is up, and only
//! after a while; there are as many voters as are wanted and nodes allow, an odd number of them; replicas are
//! spread over nodes, and so are leaders: by what they use of the CPU, and by their number where that is alike.
//!
//! Invariant: what is asked for changes nothing that is as it should be, so that it ends.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use store_state::api::StoreId;

use crate::leadership::health::Strain;
use crate::peers::member::{Names, Role, ShardId};

/// Voters where the settings leave it open, as soon as there are as many nodes.
const USUAL_VOTERS: usize = 3;

/// Loads are alike if they differ by less: CPU time per second.
pub(crate) const LOAD_FLOOR: Duration = Duration::from_millis(100);

/// Of what a node uses for the shards that it leads, a shard that is moved has a fiftieth at least.
const LEAST_PART: u32 = 50;

/// A node, as a place for replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) node: u64,
    pub(crate) is_up: bool,
    pub(crate) role: Role,
    /// How long it has been down.
    pub(crate) down_for: Duration,
    /// What speaks against it as a leader; `None`: it has not said.
    pub(crate) strain: Option<Strain>,
}

/// A shard, as far as its leader tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) shard: ShardId,
    pub(crate) leader: u64,
    pub(crate) voters: BTreeSet<u64>,
    pub(crate) learners: BTreeSet<u64>,
    /// What its leader uses for it: CPU time per second.
    pub(crate) load: Duration,
    /// Its leader has led it for so long that its load may move it.
    pub(crate) is_settled: bool,
}

impl Placed {
    /// Whether every node has a replica of it, which votes or listens.
    fn is_everywhere(&self) -> bool {
        let (store, _) = self.shard;
        store == StoreId::Control
    }
}

/// All that is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    pub(crate) places: Vec<Place>,
    pub(crate) shards: Vec<Placed>,
    /// The time after which a node that is down is replaced.
    pub(crate) replace_after: Duration,
}

/// What the leader of a shard should do next.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Let a node follow. When it has everything, it is asked again.
    AddLearner(u64),
    /// These nodes are to vote; all of them follow already.
    ChangeVoters(BTreeSet<u64>),
    /// A node need not follow any longer.
    RemoveLearner(u64),
    /// Another node is to lead.
    Transfer(u64),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLearner(node) => write!(f, "AddLearner({node:016x})"),
            Self::ChangeVoters(voters) => write!(f, "ChangeVoters({})", Names(voters)),
            Self::RemoveLearner(node) => write!(f, "RemoveLearner({node:016x})"),
            Self::Transfer(node) => write!(f, "Transfer({node:016x})"),
        }
    }
}

impl Situation {
    /// The next step for a shard. `wanted`: voters, if the settings say how many.
    pub(crate) fn next_step(&self, shard: &Placed, wanted: Option<usize>) -> Option<Step> {
        let target = self.target(shard, wanted);
        if let Some(new) = target.iter().find(|node| !shard.voters.contains(node)) {
            return Some(if shard.learners.contains(new) {
                self.add_more(shard, &target)
            } else {
                Step::AddLearner(*new)
            });
        }
        if target != shard.voters {
            // The leader goes last, and not by its own hand.
            return Some(if target.contains(&shard.leader) {
                Step::ChangeVoters(target)
            } else {
                let serving = self.least_leading(&target, shard);
                Step::Transfer(serving.or_else(|| self.resting(&target, shard))?)
            });
        }
        let is_useless = |node: &&u64| {
            let follows = shard.is_everywhere() && self.may_follow(**node);
            !target.contains(node) && !follows
        };
        let useless = shard.learners.iter().find(is_useless);
        if let Some(useless) = useless {
            return Some(Step::RemoveLearner(*useless));
        }
        if let Some(new) = self.next_follower(shard) {
            return Some(Step::AddLearner(new));
        }
        self.other_leader(shard).map(Step::Transfer)
    }

    /// Of a shard that every node has a replica of: a node that has none yet, and can get one now.
    fn next_follower(&self, shard: &Placed) -> Option<u64> {
        let has = |node: u64| shard.voters.contains(&node) || shard.learners.contains(&node);
        let mut places = self.places.iter().filter(|_| shard.is_everywhere());
        let place =
            places.find(|place| place.is_up && place.role != Role::Leaves && !has(place.node));
        place.map(|place| place.node)
    }

    /// Whether a node may have a replica that every node has: it is down, and comes back, or it does not leave.
    fn may_follow(&self, node: u64) -> bool {
        self.place(node)
            .is_some_and(|place| place.role != Role::Leaves)
    }

    /// One of the new voters follows already: the next one, or all of them vote.
    fn add_more(&self, shard: &Placed, target: &BTreeSet<u64>) -> Step {
        let follows = |node: &&u64| shard.voters.contains(node) || shard.learners.contains(node);
        match target.iter().find(|node| !follows(node)) {
            Some(missing) => Step::AddLearner(*missing),
            // The leader stays a voter for now; the next step is without it.
            None => {
                let mut voters = target.clone();
                voters.insert(shard.leader);
                Step::ChangeVoters(voters)
            }
        }
    }

    /// Who should vote.
    fn target(&self, shard: &Placed, wanted: Option<usize>) -> BTreeSet<u64> {
        let stays = |node: &u64| {
            self.place(*node).is_some_and(|place| match place.role {
                Role::Serves => true,
                // Without it the shard would stand still.
                Role::Rests => shard.voters.len() > 1,
                Role::Leaves => false,
            })
        };
        let mut target: BTreeSet<u64> = shard.voters.iter().copied().filter(stays).collect();
        let members = self
            .places
            .iter()
            .filter(|place| place.role != Role::Leaves)
            .count();
        let usual = if members >= USUAL_VOTERS {
            USUAL_VOTERS
        } else {
            1
        };
        let possible = target.len() + self.spare(&target).len();
        let count = odd(wanted.unwrap_or(usual).min(possible));
        while target.len() > count {
            let Some(node) = self.most_loaded(target.iter(), shard) else {
                break;
            };
            target.remove(&node);
        }
        while target.len() < count {
            let Some(node) = self.least_loaded(&self.spare(&target), shard) else {
                break;
            };
            target.insert(node);
        }
        self.replace_the_dead(shard, &mut target);
        // One at a time: two at once might both go to the same node, and back again.
        if target == shard.voters
            && let Some((from, to)) = self.better_place(shard)
            && self.is_its_turn(shard)
            && self
                .before(shard)
                .all(|other| self.better_place(other).is_none())
        {
            target.remove(&from);
            target.insert(to);
        }
        target
    }

    /// Nodes that could take a replica besides these.
    fn spare(&self, taken: &BTreeSet<u64>) -> Vec<u64> {
        let usable = |place: &&Place| place.is_up && place.role == Role::Serves;
        let free = |node: &u64| !taken.contains(node);
        let usable = self.places.iter().filter(usable).map(|place| place.node);
        usable.filter(free).collect()
    }

    fn replace_the_dead(&self, shard: &Placed, target: &mut BTreeSet<u64>) {
        let is_dead = |node: &u64| {
            let place = self.place(*node);
            place.is_some_and(|place| !place.is_up && place.down_for >= self.replace_after)
        };
        while let Some(dead) = target.iter().copied().find(is_dead)
            && let Some(node) = self.least_loaded(&self.spare(target), shard)
        {
            target.remove(&dead);
            target.insert(node);
        }
    }

    /// A voter that has two replicas more than another node, and that node.
    fn better_place(&self, shard: &Placed) -> Option<(u64, u64)> {
        // The leader moves only if it is all there is.
        let is_alone = shard.voters.len() == 1;
        let movable = shard
            .voters
            .iter()
            .filter(|node| self.serves(**node) && (is_alone || **node != shard.leader));
        let from = self.most_loaded(movable, shard)?;
        let to = self.least_loaded(&self.spare(&shard.voters), shard)?;
        (self.load(from, shard) > self.load(to, shard)).then_some((from, to))
    }

    /// No shard before this one is being moved: two at once might both be given to the same node.
    fn is_its_turn(&self, shard: &Placed) -> bool {
        self.before(shard).all(|other| other.learners.is_empty())
    }

    fn before(&self, shard: &Placed) -> impl Iterator<Item = &Placed> {
        self.shards
            .iter()
            .filter(move |other| other.shard < shard.shard)
    }

    /// A voter that should lead instead, because it leads less, or because the leader must not.
    fn other_leader(&self, shard: &Placed) -> Option<u64> {
        if !self.serves(shard.leader) {
            return self.least_leading(&shard.voters, shard);
        }
        if let Some(fitter) = self.fitter_leader(shard) {
            return Some(fitter);
        }
        // One shard of a node at a time: two at once might go to the same one, and back again.
        let mut before = self
            .shards
            .iter()
            .filter(|other| other.leader == shard.leader && other.shard < shard.shard);
        if !self.is_its_turn(shard) || before.any(|other| self.better_leader(other).is_some()) {
            return None;
        }
        self.better_leader(shard)
    }

    /// A voter that less speaks against than against the leader.
    fn fitter_leader(&self, shard: &Placed) -> Option<u64> {
        let strain = |node: u64| self.place(node)?.strain;
        let own = strain(shard.leader)?;
        self.least_leading(&shard.voters, shard)
            .filter(|other| strain(*other).is_some_and(|strain| strain < own))
    }

    /// A voter that leads so much less that it should lead a shard, and is no less fit to.
    fn better_leader(&self, shard: &Placed) -> Option<u64> {
        if let Some(other) = self.less_busy_leader(shard) {
            return Some(other);
        }
        let other = self.least_leading(&shard.voters, shard)?;
        let with_shard = self.led_load(other).saturating_add(shard.load);
        // What the load has moved is not moved back by counts.
        let is_lighter = with_shard < self.led_load(shard.leader).saturating_add(LOAD_FLOOR);
        // Otherwise counts and loads might move shards in turns for ever.
        let is_below_limit = with_shard < self.busy_load();
        let leads_more = self.led_by(shard.leader) >= self.led_by(other) + 2;
        (self.is_as_fit(other, shard) && leads_more && is_lighter && is_below_limit)
            .then_some(other)
    }

    /// A voter that would use less for what it leads, with this shard, than the leader does now.
    fn less_busy_leader(&self, shard: &Placed) -> Option<u64> {
        let own = self.led_load(shard.leader);
        let is_worth_it =
            shard.load > Duration::ZERO && shard.load.saturating_mul(LEAST_PART) >= own;
        if !shard.is_settled || !is_worth_it || own < self.busy_load() {
            return None;
        }
        let can = |node: &u64| {
            *node != shard.leader
                && self.place(*node).is_some_and(|place| place.is_up)
                && self.serves(*node)
                && self.is_as_fit(*node, shard)
        };
        let voters = shard.voters.iter().copied().filter(can);
        let other = voters.min_by_key(|node| (self.led_load(*node), self.led_by(*node), *node))?;
        let with_shard = self.led_load(other).saturating_add(shard.load);
        (with_shard.saturating_add(LOAD_FLOOR) <= own).then_some(other)
    }

    /// Whether no more speaks against a node than against the leader of a shard.
    fn is_as_fit(&self, node: u64, shard: &Placed) -> bool {
        let strain = |node: u64| self.place(node).and_then(|place| place.strain);
        match (strain(shard.leader), strain(node)) {
            (Some(own), Some(other)) => other <= own,
            _ => true,
        }
    }

    /// What a node uses for the shards that it leads. Another node may have said anything.
    fn led_load(&self, node: u64) -> Duration {
        let led = self.shards.iter().filter(|shard| shard.leader == node);
        led.fold(Duration::ZERO, |sum, shard| sum.saturating_add(shard.load))
    }

    /// What a node uses at least that gives shards away because of their load.
    fn busy_load(&self) -> Duration {
        let mean = self.mean_load();
        mean.saturating_add(mean / 10).saturating_add(LOAD_FLOOR)
    }

    /// The mean of that over the nodes that can lead.
    fn mean_load(&self) -> Duration {
        let can = |place: &&Place| place.is_up && place.role == Role::Serves;
        let nodes = self.places.iter().filter(can);
        let loads = nodes.map(|place| self.led_load(place.node));
        let (sum, count) = loads.fold((Duration::ZERO, 0), |(sum, count), load| {
            (sum.saturating_add(load), count + 1)
        });
        sum.checked_div(count).unwrap_or_default()
    }

    /// A voter among these that rests: it leads only if the leader leaves, and nobody serves.
    fn resting(&self, among: &BTreeSet<u64>, shard: &Placed) -> Option<u64> {
        let is_resting = |node: &u64| {
            let place = self.place(*node);
            place.is_some_and(|place| place.is_up && place.role == Role::Rests)
        };
        among.intersection(&shard.voters).copied().find(is_resting)
    }

    fn least_leading(&self, among: &BTreeSet<u64>, shard: &Placed) -> Option<u64> {
        let can = |node: &u64| {
            let place = self.place(*node);
            let serves = |place: &Place| place.is_up && place.role == Role::Serves;
            *node != shard.leader && place.is_some_and(serves)
        };
        let voters = among
            .iter()
            .copied()
            .filter(|node| shard.voters.contains(node));
        voters.filter(can).min_by_key(|node| {
            let strain = self.place(*node).and_then(|place| place.strain);
            (
                strain.is_none(),
                strain.unwrap_or_default(),
                self.led_by(*node),
                *node,
            )
        })
    }

    fn serves(&self, node: u64) -> bool {
        self.place(node)
            .is_some_and(|place| place.role == Role::Serves)
    }

    fn place(&self, node: u64) -> Option<&Place> {
        self.places.iter().find(|place| place.node == node)
    }

    fn led_by(&self, node: u64) -> usize {
        self.shards
            .iter()
            .filter(|shard| shard.leader == node)
            .count()
    }

    /// Replicas of other shards on a node. It does not change while this shard is moved, so that a move
    /// that has begun is gone on with.
    fn load(&self, node: u64, except: &Placed) -> usize {
        let others = self
            .shards
            .iter()
            .filter(|shard| shard.shard != except.shard && !shard.is_everywhere());
        let has = |shard: &&Placed| shard.voters.contains(&node) || shard.learners.contains(&node);
        others.filter(has).count()
    }

    fn least_loaded(&self, nodes: &[u64], shard: &Placed) -> Option<u64> {
        nodes.iter().copied().min_by_key(|node| {
            let is_new = !shard.learners.contains(node);
            (self.load(*node, shard), is_new, *node)
        })
    }

    /// The one that can best be done without; rather not the leader.
    fn most_loaded<'n>(&self, nodes: impl Iterator<Item = &'n u64>, shard: &Placed) -> Option<u64> {
        nodes.copied().max_by_key(|node| {
            let place = self.place(*node);
            (
                place.is_none_or(|place| !place.is_up),
                !self.serves(*node),
                self.load(*node, shard),
                *node != shard.leader,
                *node,
            )
        })
    }
}

/// The next odd number that is not greater.
fn odd(count: usize) -> usize {
    if count.is_multiple_of(2) {
        count.saturating_sub(1)
    } else {
        count
    }
}

#[cfg(test)]
mod tests;
