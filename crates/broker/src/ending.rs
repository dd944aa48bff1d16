//! What the end of this node would cost its cluster now, and would not cost a little later: shards that lose their majority,
//! because a voter elsewhere is down that may be on its way back.
//!
//! Deliberately absent: how long is waited for it (`stop.rs`), and nodes that never come back (`eviction.rs`).

use admin::cluster::{ClusterStatus, NodeId, NodeState, NodeStatus, Reach, ShardStatus, StoreName};

use crate::eviction::has_majority;

/// Whose end counts as certain already, of the nodes that are about to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// All of them: this node is not one of them yet.
    All,
    /// Those whose identifiers are lower: this node is one of them, and the others look as it does.
    Lower,
}

/// The shards that would have no majority of their voters without the node that gives `status`, have one now, and could have
/// one without it. None, if no other node serves: then all end together.
pub(crate) fn costs(status: &ClusterStatus, about: About) -> Vec<(StoreName, u64)> {
    let own = status.node;
    let others = || status.nodes.iter().filter(|member| member.node != own);
    let serves = |member: &NodeStatus| {
        member.reach != Reach::Down && matches!(member.state, NodeState::Up | NodeState::Joining)
    };
    if !others().any(serves) {
        return Vec::new();
    }
    let remains = |voter: NodeId| {
        let mut member = others().filter(|member| member.node == voter);
        member.next().is_some_and(|member| {
            let ends = match about {
                About::All => true,
                About::Lower => member.node < own,
            };
            member.reach != Reach::Down && !(ends && member.state == NodeState::Stopping)
        })
    };
    let is_at_risk = |shard: &&ShardStatus| {
        has_majority(shard, |voter| voter == own || remains(voter))
            && !has_majority(shard, |voter| voter != own && remains(voter))
            && has_majority(shard, |voter| voter != own)
    };
    let at_risk = status.shards.iter().filter(is_at_risk);
    at_risk.map(|shard| (shard.store, shard.shard)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::tests::status;

    const NONE: [u64; 0] = [];

    /// The shards that node 1 would cost, of nodes with these reaches and of one shard for each set of voters.
    fn costs_of(reaches: &[Reach], voters: &[&[u64]]) -> Vec<u64> {
        let costs = costs(&status(reaches, voters), About::All);
        costs.into_iter().map(|(_, shard)| shard).collect()
    }

    #[test]
    fn a_node_ends_while_all_others_are_up() {
        assert_eq!(costs_of(&[Reach::Up; 3], &[&[1, 2, 3]]), NONE);
    }

    #[test]
    fn a_voter_that_is_down_may_come_back() {
        let reaches = [Reach::Up, Reach::Up, Reach::Down];
        let voters: &[&[u64]] = &[&[1, 2, 3], &[1, 2], &[2, 3], &[1], &[2], &[1, 3, 9]];
        // The others have lost their majority already, or have none without this node in any case, or do not need it.
        assert_eq!(costs_of(&reaches, voters), [0]);
        let five = [Reach::Up, Reach::Up, Reach::Up, Reach::Up, Reach::Down];
        assert_eq!(costs_of(&five, &[&[1, 2, 3, 4, 5]]), NONE);
    }

    #[test]
    fn all_nodes_end_together() {
        let mut status = status(&[Reach::Up, Reach::Up, Reach::Down], &[&[1, 2, 3]]);
        assert_eq!(costs(&status, About::All).len(), 1);
        for state in [NodeState::Draining, NodeState::Stopping, NodeState::Leaving] {
            status.nodes[1].state = state;
            assert_eq!(costs(&status, About::All), []);
        }
    }

    #[test]
    fn of_two_that_end_at_once_one_goes_first() {
        let mut status = status(&[Reach::Up; 3], &[&[1, 2, 3]]);
        for node in &mut status.nodes[..2] {
            node.state = NodeState::Stopping;
        }
        assert_eq!(costs(&status, About::Lower), []);
        status.node = NodeId(2);
        assert_eq!(costs(&status, About::Lower).len(), 1);
        assert_eq!(costs(&status, About::All).len(), 1);
    }
}
