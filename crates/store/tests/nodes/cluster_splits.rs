//! A shard is split on several nodes, some of which are late, or gone.

use std::time::Instant;

use store::{Role, SplitError};
use store_state::NameHash;
use store_state::api::{ShardNumber, Slot, Store as _, StoreId};

use crate::cluster::{Cluster, until};
use crate::hub::NAME_SEED;
use crate::node::Node;
use crate::restart::copy_folder;
use crate::splits::{AT, FORMAT_SINCE, check, fill, format, has_tables, names, try_split};

fn split(node: &Node, shard: u16, at: u16) -> Result<(), SplitError> {
    try_split(node, StoreId::Inbox, shard, at)
}

/// Splits the inbox shard, as soon as its leader can.
fn split_at_leader(cluster: &Cluster) -> usize {
    let leader = cluster.inbox_leader(0);
    until("the split", || split(cluster.node(leader), 0, AT).is_ok());
    leader
}

/// The group of an inbox shard.
fn group(shard: ShardNumber) -> u64 {
    1 << 32 | (u64::from(shard) + 1)
}

/// Has a node lead an inbox shard.
fn lead(cluster: &Cluster, shard: ShardNumber, at: usize) {
    let node = cluster.node(at).store.node();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    until("another leader", || {
        let leader = cluster.node(at).store.inbox_leader(shard);
        if let Some(leader) = leader.and_then(|leader| cluster.find(leader))
            && leader.store.node() != node
        {
            let transfer = leader.store.transfer_leader(StoreId::Inbox, shard, node);
            // Tried again until it does.
            drop(runtime.block_on(transfer));
        }
        leader == Some(node)
    });
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn a_child_is_led_at_once_where_its_parent_is() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    let names = names();
    fill(cluster.node(0), &names);
    let leader = cluster.inbox_leader(0);
    let node = cluster.node(leader);
    let upper = |name: &&String| NameHash::with_seed(NAME_SEED).slot_of(name) >= AT;
    let upper = names.iter().find(upper).unwrap();
    let begun = Instant::now();
    assert_eq!(split(node, 0, AT), Ok(()));
    let split = begun.elapsed();
    node.connect(upper);
    eprintln!(
        "the split took {split:?}, the child's first request was applied after {:?}",
        begun.elapsed()
    );
    until("a leader that all know", || {
        let known = (0..3).map(|at| cluster.node(at).store.inbox_leader(AT));
        known.eq([Some(node.store.node()); 3])
    });
    assert_eq!(cluster.node(1).publish("all", b"after"), Ok(40));
    for at in 0..3 {
        check(cluster.node(at), &names, &[b"own", b"before", b"after"]);
    }
    cluster.stop();
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

/// Whether a node has tables of the child.
fn has_child(cluster: &Cluster, at: usize) -> bool {
    has_tables(cluster.folders[at].path(), AT)
}

/// The replicas on these nodes have all that was published, once and in order. `by`: a node that has been up all the time, as
/// the others may have taken one that was not for dead.
fn check_replicas(cluster: &Cluster, at: &[usize], by: usize, payloads: &[&[u8]]) {
    for at in at {
        for shard in [0, AT] {
            lead(cluster, shard, *at);
        }
        check(cluster.node(by), &names(), payloads);
    }
}

#[test]
fn a_replica_of_the_child_comes_from_the_parent_or_waits_for_it() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    fill(cluster.node(0), &names());
    let leader = cluster.inbox_leader(0);
    let [late, other] = [1, 2].map(|next| (leader + next) % 3);
    let node = cluster.node(late).store.node();
    cluster.hub.hold(node, group(0), true);
    assert_eq!(split(cluster.node(leader), 0, AT), Ok(()));
    assert_eq!(cluster.node(leader).publish("all", b"after"), Ok(40));
    until("the child to have asked for a replica", || {
        cluster.hub.unanswered(node, group(AT)) >= 5
    });
    assert!(!has_child(&cluster, late));
    until("tables of the others", || {
        has_child(&cluster, leader) && has_child(&cluster, other)
    });
    // Also when it has started anew, and does not know of the child.
    cluster.kill(late);
    assert_eq!(cluster.node(other).publish("all", b"then"), Ok(40));
    let asked = cluster.hub.unanswered(node, group(AT));
    cluster.restart(late);
    until("the child to have asked again", || {
        cluster.hub.unanswered(node, group(AT)) >= asked + 5
    });
    assert!(!has_child(&cluster, late));
    cluster.hub.hold(node, group(0), false);
    until("tables of the late one", || has_child(&cluster, late));
    let payloads: [&[u8]; 4] = [b"own", b"before", b"after", b"then"];
    check_replicas(&cluster, &[late, other, leader], leader, &payloads);
    cluster.stop();
}

#[test]
fn a_node_that_had_nothing_gets_both_halves() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    fill(cluster.node(0), &names());
    let leader = split_at_leader(&cluster);
    assert_eq!(cluster.node(leader).publish("all", b"after"), Ok(40));
    let gone = (leader + 1) % 3;
    let mut gone = cluster.kill(gone);
    cluster.add();
    gone.role = Role::Leaves;
    let mut members = cluster.members();
    members.push(gone);
    cluster.hub.members(&members);
    let voters = [leader, (leader + 2) % 3, 3];
    cluster.settled(leader, &voters);
    let payloads: [&[u8]; 3] = [b"own", b"before", b"after"];
    check_replicas(&cluster, &[3], leader, &payloads);
    until("tables of the new one", || has_child(&cluster, 3));
    assert_eq!(format(cluster.folders[3].path()), FORMAT_SINCE);
    cluster.stop();
}

#[test]
fn a_replica_that_the_parent_gives_birth_to_no_more_is_sent_by_others() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    fill(cluster.node(0), &names());
    let leader = cluster.inbox_leader(0);
    let [late, other] = [1, 2].map(|next| (leader + next) % 3);
    let inbox = |cluster: &Cluster, at: usize| cluster.folders[at].path().join("inbox");
    // No table of the child can be made.
    let in_the_way = inbox(&cluster, late).join(format!("seeding-shard-{AT:016x}"));
    std::fs::write(&in_the_way, b"").unwrap();
    assert_eq!(split(cluster.node(leader), 0, AT), Ok(()));
    assert_eq!(cluster.node(leader).publish("all", b"after"), Ok(40));
    until("tables of the others", || {
        has_child(&cluster, leader) && has_child(&cluster, other)
    });
    // Its last checkpoint is behind the split.
    cluster.kill(leader);
    // The late one has all that the first had.
    until("it is agreed on", || {
        cluster.node(other).publish("all", b"then") == Ok(40)
    });
    cluster.kill(other);
    cluster.kill(late);
    assert!(!has_child(&cluster, late));
    // As if a snapshot had replaced the tables of the parent.
    let [from, to] = [leader, late].map(|at| inbox(&cluster, at).join(format!("shard-{:016x}", 0)));
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::create_dir(&to).unwrap();
    copy_folder(&from, &to);
    std::fs::remove_file(&in_the_way).unwrap();
    for at in [leader, other, late] {
        cluster.restart(at);
    }
    until("the child on the late one", || has_child(&cluster, late));
    let payloads: [&[u8]; 4] = [b"own", b"before", b"after", b"then"];
    check_replicas(&cluster, &[late, leader, other], other, &payloads);
    cluster.stop();
}

#[test]
fn nothing_is_lost_when_the_leader_dies_right_after_the_split() {
    let mut cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    fill(cluster.node(0), &names());
    let leader = split_at_leader(&cluster);
    cluster.kill(leader);
    let others = [1, 2].map(|next| (leader + next) % 3);
    let node = cluster.node(others[0]);
    assert_eq!(node.publish("all", b"after"), Ok(40));
    let mut payloads: Vec<&[u8]> = vec![b"own", b"before", b"after"];
    check_replicas(&cluster, &others, others[0], &payloads);
    cluster.restart(leader);
    assert_eq!(cluster.node(others[1]).publish("all", b"then"), Ok(40));
    payloads.push(b"then");
    check_replicas(&cluster, &[0, 1, 2], others[0], &payloads);
    cluster.stop();
}

#[test]
fn a_child_is_split_again_after_its_parent_and_it_have_other_leaders() {
    let cluster = Cluster::start(3, 1);
    cluster.settled(1, &[0, 1, 2]);
    let names = names();
    fill(cluster.node(0), &names);
    let first = split_at_leader(&cluster);
    let second = (first + 1) % 3;
    lead(&cluster, 0, second);
    lead(&cluster, AT, second);
    assert_eq!(cluster.node(first).publish("all", b"after"), Ok(40));
    let node = cluster.node(second);
    until("the next split", || split(node, AT, 50_000).is_ok());
    until("the last split", || split(node, 0, 10_000).is_ok());
    assert_eq!(cluster.node(first).publish("all", b"then"), Ok(40));
    let slots = [0, 10_000, AT, 50_000].map(Slot);
    for at in 0..3 {
        check(
            cluster.node(at),
            &names,
            &[b"own", b"before", b"after", b"then"],
        );
        let shard = |slot| cluster.node(at).store.inbox_shard(slot);
        assert_eq!(slots.map(shard), [0, 10_000, AT, 50_000]);
    }
    cluster.stop();
}
