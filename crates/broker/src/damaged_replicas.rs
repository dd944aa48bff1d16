//! Damaged replicas of this node, as people are told of them: what makes each whole again, how far that is, and what a person has to do.
//!
//! Invariant: where the node does not make a replica whole by itself, an action is named.
//!
//! Deliberately absent: the recovery itself (`store`), and what is said at other nodes (`upgrade.rs`).

use admin::cluster::{DamagedReplica, NodeId, RecoverySource, Seconds};
use store::{Levels, Recovery, RecoveryWait};

/// Whether other nodes may have what is damaged here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// The node runs alone.
    None,
    /// The node is a member of a cluster.
    Nodes,
}

/// The damaged replicas of this node.
pub(crate) fn damaged(levels: &Levels, others: Others) -> Vec<DamagedReplica> {
    let damaged = levels.damaged().into_iter();
    damaged.map(|replica| status(replica, others)).collect()
}

fn status(replica: store::DamagedReplica, others: Others) -> DamagedReplica {
    let (recovers_from, state) = match &replica.recovery {
        Recovery::Nothing => (RecoverySource::Nothing, "does not serve".to_owned()),
        Recovery::Waits(wait) => (RecoverySource::OtherReplicas, wait.to_string()),
        Recovery::Receives(_) => {
            let state = "receives the table of the leader".to_owned();
            (RecoverySource::OtherReplicas, state)
        }
    };
    let received_bytes = match replica.recovery {
        Recovery::Receives(received) => Some(received.0),
        Recovery::Nothing | Recovery::Waits(_) => None,
    };
    DamagedReplica {
        store: replica.store.into(),
        shard: replica.shard.into(),
        damage: replica.damage,
        seconds: Seconds(replica.age.as_secs()),
        recovers_from,
        state,
        received_bytes,
        action: action(&replica.recovery, others),
    }
}

/// What a person has to do. `None`: nothing.
fn action(recovery: &Recovery, others: Others) -> Option<String> {
    match (recovery, others) {
        (Recovery::Nothing, Others::None) => Some(
            "put a backup back, or go on without what is lost: docs/operate/damage.md#what-is-said-and-what-to-do"
                .to_owned(),
        ),
        (Recovery::Nothing, Others::Nodes) => Some(
            "make the node anew when the other nodes are up: docs/operate/damage.md#a-node-of-a-cluster"
                .to_owned(),
        ),
        (Recovery::Waits(RecoveryWait::Leader), _) => Some(
            "start the nodes that are down; if all are up and none leads the shard, a person has to decide: docs/operate/damage.md#where-a-person-is-needed"
                .to_owned(),
        ),
        (Recovery::Waits(RecoveryWait::Node(node)), _) => {
            let node = NodeId(*node);
            Some(format!(
                "start node {node}; if it is gone for good, `heraldmq cluster evict {node}`"
            ))
        }
        (
            Recovery::Waits(
                RecoveryWait::Pause
                | RecoveryWait::Membership
                | RecoveryWait::Voters
                | RecoveryWait::Split,
            )
            | Recovery::Receives(_),
            _,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::ReceivedBytes;
    use store_state::api::StoreId;

    use super::*;

    #[test]
    fn each_state_says_what_heals_it_and_what_a_person_does() {
        use RecoverySource::{Nothing, OtherReplicas};
        let wait = Recovery::Waits;
        for (recovery, others, source, state, received, action) in [
            (
                Recovery::Nothing,
                Others::None,
                Nothing,
                "does not serve",
                None,
                Some("backup"),
            ),
            (
                Recovery::Nothing,
                Others::Nodes,
                Nothing,
                "does not serve",
                None,
                Some("make the node anew"),
            ),
            (
                wait(RecoveryWait::Pause),
                Others::Nodes,
                OtherReplicas,
                "waits before",
                None,
                None,
            ),
            (
                wait(RecoveryWait::Leader),
                Others::Nodes,
                OtherReplicas,
                "another node leads",
                None,
                Some("none leads"),
            ),
            (
                wait(RecoveryWait::Membership),
                Others::Nodes,
                OtherReplicas,
                "as a member",
                None,
                None,
            ),
            (
                wait(RecoveryWait::Node(0xb2)),
                Others::Nodes,
                OtherReplicas,
                "waits for node 00000000000000b2",
                None,
                Some("evict 00000000000000b2`"),
            ),
            (
                wait(RecoveryWait::Voters),
                Others::Nodes,
                OtherReplicas,
                "confirm",
                None,
                None,
            ),
            (
                wait(RecoveryWait::Split),
                Others::Nodes,
                OtherReplicas,
                "a split",
                None,
                None,
            ),
            (
                Recovery::Receives(ReceivedBytes(7)),
                Others::Nodes,
                OtherReplicas,
                "receives",
                Some(7),
                None,
            ),
        ] {
            let replica = store::DamagedReplica {
                store: StoreId::Inbox,
                shard: 2,
                damage: "a block".to_owned(),
                age: Duration::from_millis(41_900),
                recovery: recovery.clone(),
            };
            let told = status(replica, others);
            assert_eq!(
                (told.shard, told.seconds, told.damage.as_str()),
                (2, Seconds(41), "a block")
            );
            assert_eq!(
                (told.recovers_from, told.received_bytes),
                (source, received),
                "{recovery:?}"
            );
            assert!(told.state.contains(state), "{recovery:?}: {}", told.state);
            let said = told.action.as_deref();
            assert_eq!(said.is_some(), action.is_some(), "{recovery:?}: {said:?}");
            assert!(
                said.unwrap_or_default()
                    .contains(action.unwrap_or_default()),
                "{recovery:?}: {said:?}"
            );
        }
    }
}
