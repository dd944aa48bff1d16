//! A shard is split on several nodes, some of which are late, or gone.

use store::SplitError;
use store_state::api::StoreId;

use crate::cluster::{Cluster, until};
use crate::node::Node;
use crate::splits::try_split;

const AT: u16 = 30_000;

fn split(node: &Node, shard: u16, at: u16) -> Result<(), SplitError> {
    try_split(node, StoreId::Inbox, shard, at)
}

#[test]
fn a_split_is_refused_that_some_replica_would_be_late_for() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    let first = cluster.inbox_leader(0);
    let leader = cluster.node(first);
    let other = cluster.node((first + 1) % 3);
    let node = other.store.node();

    until("the others to know the leader", || {
        other.store.inbox_leader(0).is_some()
    });
    let leads = Some(leader.store.node());
    let refused = SplitError::NotLeader { leader: leads };
    assert_eq!(split(other, 0, AT), Err(refused));
    assert_eq!(split(leader, 9, AT), Err(SplitError::NoShard));
    for at in [0, AT] {
        cluster.hub.set_earlier(node, true);
        let refused = match at {
            0 => SplitError::NoSuchSlot {
                first: 0,
                last: u16::MAX,
            },
            _ => SplitError::EarlierVersion { node },
        };
        assert_eq!(split(leader, 0, at), Err(refused));
    }
    cluster.hub.set_earlier(node, false);
    cluster.hub.isolate(node);
    let refused = SplitError::VoterIsLate { node };
    assert_eq!(split(leader, 0, AT), Err(refused));
    assert_eq!(leader.store.inbox_shards().len(), 1);
    cluster.hub.rejoin(node);
    until("the split", || split(leader, 0, AT).is_ok());
    assert_eq!(leader.store.inbox_shards().len(), 2);
    cluster.stop();
}
