//! How fit the nodes are to lead: whether their disks have room, whom they reach, whose links hold.
//!
//! Each node says it of itself once a second, and when a link is lost. A leader that is less fit than another
//! voter lets that one lead: one that a part of the nodes does not reach leaves their clients without service,
//! although a majority follows it, and one whose disk is full can store nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How old may be what a node says of itself.
const NEWS: Duration = Duration::from_secs(3);

/// How long a node must have lacked a link that others have: links come and go one after the other.
const SETTLED: Duration = Duration::from_millis(700);

/// How long it is remembered that a link was lost.
const MEMORY: Duration = Duration::from_secs(180);

/// Losses within that time from which on a link counts as one that does not hold. A node that is started
/// again loses each of its links once.
const LOSSES: usize = 3;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Health {
    /// Its disk is full.
    pub(crate) is_full: bool,
    /// The nodes that it can send something to, and hears.
    pub(crate) reached: BTreeSet<u64>,
    /// Nodes to which its link was lost again and again.
    pub(crate) unsteady: u32,
}

/// What speaks against a node as a leader; less is better, the first before the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Strain {
    /// Its disk is full.
    pub(crate) is_full: bool,
    /// Nodes that others reach, and it does not.
    pub(crate) unreached: usize,
    /// Nodes to which its link does not hold.
    pub(crate) unsteady: u32,
}

/// What is known of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Healths {
    of_others: BTreeMap<u64, (Health, Instant)>,
    /// When links of this node were lost.
    losses: BTreeMap<u64, VecDeque<Instant>>,
    /// Since when nodes have not reached all that others reach.
    lacking: BTreeMap<u64, Instant>,
}

impl Healths {
    /// A node says how it is.
    pub(crate) fn heard(&mut self, node: u64, health: Health, now: Instant) {
        self.of_others.insert(node, (health, now));
    }

    /// This node's link to another one is lost.
    pub(crate) fn lost(&mut self, node: u64, now: Instant) {
        self.of_others.remove(&node);
        let losses = self.losses.entry(node).or_default();
        losses.push_back(now);
        while losses.len() > LOSSES {
            losses.pop_front();
        }
    }

    /// What this node says of itself.
    pub(crate) fn own(&mut self, is_full: bool, reached: BTreeSet<u64>, now: Instant) -> Health {
        self.losses.retain(|_, losses| {
            losses.retain(|at| now.duration_since(*at) < MEMORY);
            !losses.is_empty()
        });
        let unsteady = self.losses.values().filter(|l| l.len() >= LOSSES).count();
        Health {
            is_full,
            reached,
            unsteady: unsteady as u32,
        }
    }

    /// Whether another node has said lately that it reaches a node: that one is alive, whatever this one hears.
    pub(crate) fn is_reached(&self, node: u64, now: Instant) -> bool {
        let mut others = self.of_others.values();
        others.any(|(health, at)| now.duration_since(*at) < NEWS && health.reached.contains(&node))
    }

    /// What speaks against each node that has been heard of lately, and against this one.
    pub(crate) fn strains(&mut self, own: u64, health: &Health, now: Instant) -> Strains {
        self.of_others
            .retain(|_, (_, at)| now.duration_since(*at) < NEWS);
        let others = self
            .of_others
            .iter()
            .map(|(node, (health, _))| (*node, health));
        let all: BTreeMap<u64, &Health> = others.chain([(own, health)]).collect();
        let mut reached: BTreeSet<u64> = all.keys().copied().collect();
        reached.extend(all.values().flat_map(|health| &health.reached));
        let unreached_by = |node: u64, health: &Health| {
            let others = reached.iter().filter(|other| **other != node);
            others
                .filter(|other| !health.reached.contains(other))
                .count()
        };
        let mut lacking = BTreeMap::new();
        let mut strains = BTreeMap::new();
        for (node, health) in all {
            let mut unreached = unreached_by(node, health);
            if unreached > 0 {
                let since = self.lacking.get(&node).copied().unwrap_or(now);
                lacking.insert(node, since);
                if now.duration_since(since) < SETTLED {
                    unreached = 0;
                }
            }
            let strain = Strain {
                is_full: health.is_full,
                unreached,
                unsteady: health.unsteady,
            };
            strains.insert(node, strain);
        }
        self.lacking = lacking;
        Strains(strains)
    }
}

/// What speaks against nodes as leaders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strains(pub(crate) BTreeMap<u64, Strain>);

impl Strains {
    /// Of a node; `None`: it has not said how it is.
    pub(crate) fn of(&self, node: u64) -> Option<Strain> {
        self.0.get(&node).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(reached: &[u64]) -> Health {
        Health {
            reached: reached.iter().copied().collect(),
            ..Health::default()
        }
    }

    fn unreached(strains: &Strains, node: u64) -> usize {
        strains.of(node).unwrap().unreached
    }

    #[test]
    fn a_node_between_two_that_do_not_reach_each_other_is_the_fittest() {
        let mut healths = Healths::default();
        let begun = Instant::now();
        let now = begun + SETTLED;
        healths.heard(2, health(&[1, 3]), begun);
        // As node 1 sees it; it does not hear node 3. Perhaps it will in a moment.
        let strains = healths.strains(1, &health(&[2]), begun);
        assert_eq!((unreached(&strains, 1), unreached(&strains, 2)), (0, 0));
        let strains = healths.strains(1, &health(&[2]), now);
        assert_eq!((unreached(&strains, 1), unreached(&strains, 2)), (1, 0));
        assert_eq!(strains.of(3), None);
        assert!(strains.of(2) < strains.of(1));
    }

    #[test]
    fn a_node_that_nobody_reaches_is_held_against_nobody() {
        let mut healths = Healths::default();
        let now = Instant::now();
        healths.heard(2, health(&[1]), now);
        let strains = healths.strains(1, &health(&[2]), now);
        assert_eq!((unreached(&strains, 1), unreached(&strains, 2)), (0, 0));
    }

    #[test]
    fn a_node_that_another_one_reaches_is_alive() {
        let mut healths = Healths::default();
        let now = Instant::now();
        healths.heard(2, health(&[1, 3]), now);
        assert!(healths.is_reached(3, now));
        assert!(!healths.is_reached(2, now));
        assert!(!healths.is_reached(3, now + NEWS));
        healths.lost(2, now);
        assert!(!healths.is_reached(3, now));
    }

    #[test]
    fn what_was_said_long_ago_does_not_count() {
        let mut healths = Healths::default();
        let now = Instant::now();
        healths.heard(2, health(&[1, 3]), now);
        let strains = healths.strains(1, &health(&[2]), now + NEWS);
        assert_eq!((strains.of(2), unreached(&strains, 1)), (None, 0));
    }

    #[test]
    fn a_link_that_is_lost_again_and_again_is_remembered_for_a_while() {
        let mut healths = Healths::default();
        let now = Instant::now();
        for loss in 0..LOSSES {
            assert_eq!(
                healths.own(false, BTreeSet::new(), now).unsteady,
                0,
                "{loss}"
            );
            healths.lost(2, now);
        }
        assert_eq!(healths.own(false, BTreeSet::new(), now).unsteady, 1);
        assert_eq!(
            healths.own(false, BTreeSet::new(), now + MEMORY).unsteady,
            0
        );
    }
}
