//! What an eviction would take from the cluster.
//!
//! An evicted node never comes back, and its replicas with it. A shard whose remaining voters are no majority has no
//! leader any more: if they are too few for ever, what it holds is lost.
//!
//! Deliberately absent: the eviction (`cluster`), and new replicas in place of the evicted ones (`store`).

use std::fmt;

use admin::cluster::{ClusterStatus, NodeId, Reach, ShardStatus, StoreName};

/// Shards that a sentence names at most.
const NAMED: usize = 16;

/// Shards that would have no leader.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Harm {
    /// The remaining voters are no majority, whether or not they can be reached.
    lost: Vec<(StoreName, u64)>,
    /// The remaining voters are a majority, but too few of them can be reached.
    halted: Vec<(StoreName, u64)>,
    /// The asked node has not heard of a leader of these, and does not know who votes.
    unknown: Vec<(StoreName, u64)>,
}

/// Judges what would remain without a node, by what the node that gives `status` knows.
///
/// # Errors
/// Shards would have no majority of their voters, or may have none.
pub(crate) fn check(status: &ClusterStatus, node: NodeId) -> Result<(), Harm> {
    let mut harm = Harm::default();
    for shard in &status.shards {
        let id = (shard.store, shard.shard);
        if shard.voters.is_empty() {
            harm.unknown.push(id);
        } else if !shard.voters.contains(&node) {
            // It loses nothing by this eviction.
        } else if !has_majority(shard, |voter| voter != node && is_member(status, voter)) {
            harm.lost.push(id);
        } else if !has_majority(shard, |voter| voter != node && is_reached(status, voter)) {
            harm.halted.push(id);
        }
    }
    if harm == Harm::default() {
        Ok(())
    } else {
        Err(harm)
    }
}

pub(crate) fn has_majority(shard: &ShardStatus, remains: impl Fn(NodeId) -> bool) -> bool {
    let remaining = shard.voters.iter().filter(|voter| remains(**voter)).count();
    2 * remaining > shard.voters.len()
}

fn is_member(status: &ClusterStatus, voter: NodeId) -> bool {
    status.nodes.iter().any(|member| member.node == voter)
}

fn is_reached(status: &ClusterStatus, voter: NodeId) -> bool {
    voter == status.node
        || status
            .nodes
            .iter()
            .any(|member| member.node == voter && member.reach != Reach::Down)
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (shards, what) in [
            (
                &self.lost,
                "lose their majority of voters for ever without this node, and what they hold",
            ),
            (
                &self.halted,
                "have no majority of voters without this node until others are back",
            ),
            (
                &self.unknown,
                "have no leader that is known here, and may have this node as their only voter",
            ),
        ] {
            if !shards.is_empty() {
                write!(f, "{before}the shards {} {what}", Names(shards))?;
                before = "; ";
            }
        }
        Ok(())
    }
}

/// `inbox 0, inbox 1 and 7 more`.
pub(crate) struct Names<'a>(pub(crate) &'a [(StoreName, u64)]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (store, shard)) in self.0.iter().take(NAMED).enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{store} {shard}")?;
        }
        match self.0.len().checked_sub(NAMED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use admin::cluster::{NodeState, NodeStatus};

    const ALL_UP: [Reach; 3] = [Reach::Up; 3];

    /// Nodes 1, 2, … as node 1 sees them; each set of voters is of one inbox shard.
    pub(crate) fn status(reaches: &[Reach], voters: &[&[u64]]) -> ClusterStatus {
        let node = |(node, reach): (u64, &Reach)| NodeStatus {
            node: NodeId(node),
            name: String::new(),
            address: String::new(),
            state: NodeState::Up,
            reach: *reach,
            version: String::new(),
            commit: None,
            levels: None,
            incarnation: 1,
            connections: None,
            unusable_replicas: None,
            clock_offset_ms: None,
        };
        let shard = |(shard, voters): (u64, &&[u64])| ShardStatus {
            store: StoreName::Inbox,
            shard,
            first: None,
            last: None,
            version: None,
            leader: None,
            last_leader: None,
            voters: voters.iter().copied().map(NodeId).collect(),
            learners: Vec::new(),
            term: 1,
            load: None,
            split: None,
        };
        ClusterStatus {
            level: None,
            damaged: Vec::new(),
            cluster: Some(NodeId(9)),
            env: String::new(),
            node: NodeId(1),
            nodes: (1..).zip(reaches).map(node).collect(),
            shards: (0..).zip(voters).map(shard).collect(),
        }
    }

    fn harm(reaches: &[Reach], voters: &[&[u64]], evicted: u64) -> Option<String> {
        let checked = check(&status(reaches, voters), NodeId(evicted));
        checked.err().map(|harm| harm.to_string())
    }

    #[test]
    fn one_of_three_voters_can_be_evicted() {
        for reach in [Reach::Up, Reach::Suspect, Reach::Down] {
            let reaches = [Reach::Up, Reach::Up, reach];
            assert_eq!(harm(&reaches, &[&[1, 2, 3]], 3), None);
        }
    }

    #[test]
    fn a_shard_loses_its_only_voter() {
        let said = harm(&ALL_UP, &[&[1], &[3], &[2], &[3]], 3).expect("a harm");
        assert!(said.contains("the shards inbox 1, inbox 3 lose"), "{said}");
        assert_eq!(harm(&ALL_UP, &[&[1], &[2]], 3), None);
    }

    #[test]
    fn two_of_three_voters_are_not_evicted_one_after_the_other() {
        // Node 2 is evicted already, and its replica is not replaced yet.
        let mut status = status(&ALL_UP, &[&[1, 2, 3]]);
        status.nodes.retain(|member| member.node != NodeId(2));
        let harm = check(&status, NodeId(3)).unwrap_err();
        assert_eq!(harm.lost, [(StoreName::Inbox, 0)]);
    }

    #[test]
    fn voters_that_are_down_may_come_back() {
        let reaches = [Reach::Up, Reach::Down, Reach::Up];
        let said = harm(&reaches, &[&[1, 2, 3]], 3).expect("a harm");
        assert!(said.contains("until others are back"), "{said}");
        assert_eq!(harm(&reaches, &[&[1, 2, 3]], 2), None);
    }

    #[test]
    fn unknown_voters_are_assumed_to_be_the_evicted_node() {
        let said = harm(&ALL_UP, &[&[]], 2).expect("a harm");
        assert!(said.contains("inbox 0 have no leader"), "{said}");
    }

    #[test]
    fn many_shards_make_a_short_sentence() {
        let voters = [&[3_u64][..]; 1_000];
        let said = harm(&ALL_UP, &voters, 3).expect("a harm");
        assert!(said.contains("inbox 15 and 984 more lose"), "{said}");
        assert!(said.len() < 400, "{said}");
    }
}
