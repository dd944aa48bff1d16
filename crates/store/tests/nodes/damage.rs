//! A damaged shard does not serve, and the others do.

use std::fs;
use std::path::Path;
use std::time::Duration;

use store::{DamagedReplica, Options, Recovery, RecoveryWait, Tables, TablesOptions};
use store_state::api::{Failure, Read, Store as _, StoreId};
use store_state::inbox::{Done, InboxOp, InboxReply};
use store_state::retain::RetainReply;
use store_state::{Changes, NameHash, SlotRange};

use crate::cluster::Cluster;
use crate::node::{Node, flip_in_table, flip_in_value, holds_value, options, survey, until};

/// A topic for each of four shards.
fn topics() -> [String; 4] {
    names("topic")
}

/// A name for each of four shards.
fn names(beginning: &str) -> [String; 4] {
    [0, 1, 2, 3].map(|part| {
        let mut names = (0..).map(|n| format!("{beginning}-{n}"));
        let range = SlotRange::part(part, 4);
        names
            .find(|name| range.contains(NameHash::default().slot_of(name)))
            .unwrap()
    })
}

/// A node that was ended in order, with a retained message in each shard.
fn filled(folder: &Path) {
    let node = Node::start(folder, 4);
    for topic in topics() {
        assert_eq!(node.retain(&topic, b"before"), Ok(RetainReply::Done));
    }
    node.stop();
}

/// Shard 2 of the retain store is stopped, all others serve.
fn check(folder: &Path) {
    let node = Node::start(folder, 4);
    let stopped: Vec<u64> = node
        .store
        .stats(mqtt_session::Timestamp(0))
        .stores
        .iter()
        .map(|(_, of)| of.stopped)
        .collect();
    assert_eq!(stopped, [0, 0, 1, 0]);
    for (shard, topic) in topics().iter().enumerate() {
        let expected = match shard {
            2 => Err(Failure::Stopped),
            _ => Ok(RetainReply::Done),
        };
        assert_eq!(node.retain(topic, b"after"), expected, "shard {shard}");
    }
    assert_eq!(node.retained().len(), 3);
    node.sleeper("ann", "#");
    assert_eq!(node.publish("a", b"x"), Ok(1));
    node.stop();
}

/// What is found of the retain store.
fn found(folder: &Path) -> Vec<String> {
    let found = survey(folder).findings;
    let of_shard = |of: &store::Finding| (of.store, of.shard) == (Some("retain"), Some(2));
    assert!(found.iter().all(of_shard), "{found:?}");
    found.into_iter().map(|of| of.what).collect()
}

#[test]
fn a_flipped_bit_in_a_table_stops_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    flip_in_table(&at.path().join("retain"), 2);
    let said = found(at.path());
    assert!(said[0].contains("is damaged"), "{said:?}");
    check(at.path());
    let said = found(at.path());
    assert!(said[0].contains("is damaged"), "{said:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_read_stops_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let tables = Tables::open(&at.path().join("retain"), TablesOptions::default()).unwrap();
    let table = tables.shard(2).unwrap();
    table.write(&Changes::default(), b"junk").unwrap();
    drop((table, tables));
    let said = found(at.path());
    assert!(said[0].contains("its checkpoint is damaged"), "{said:?}");
    check(at.path());
}

#[test]
fn tables_that_the_log_does_not_fit_stop_their_shard_only() {
    let at = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    filled(at.path());
    let node = Node::start(other.path(), 4);
    for n in 0..50u8 {
        node.retain(&topics()[2], &[n]).unwrap();
    }
    node.stop();
    let shard = "retain/shard-0000000000000002";
    fs::remove_dir_all(at.path().join(shard)).unwrap();
    fs::rename(other.path().join(shard), at.path().join(shard)).unwrap();
    let said = found(at.path());
    assert!(said[0].contains("do not belong together"), "{said:?}");
    check(at.path());
}

#[test]
fn rows_that_do_not_agree_are_found_with_their_key() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let tables = Tables::open(&at.path().join("retain"), TablesOptions::default()).unwrap();
    let table = tables.shard(2).unwrap();
    let mark = table.mark().unwrap().unwrap();
    let mut changes = Changes::default();
    changes.put(b"R\0\0other".to_vec(), b"\x01".to_vec());
    table.write(&changes, &mark).unwrap();
    drop((table, tables));
    let found = survey(at.path()).findings;
    let keys: Vec<_> = found.iter().map(|of| of.key.as_deref()).collect();
    assert_eq!(keys, [Some("5200006f74686572")], "{found:?}");
}

#[test]
fn a_log_that_is_damaged_is_found_and_the_tables_are_still_read() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let log = at.path().join("log/entries/0000000000000001.raftlog");
    let mut bytes = fs::read(&log).unwrap();
    // Behind the file's header and the first batch's.
    bytes[69 + 8] ^= 3;
    fs::write(&log, bytes).unwrap();
    let found = survey(at.path());
    // The tables hold what is damaged: no shard lacks anything.
    assert_eq!(found.findings.len(), 1, "{found:?}");
    let finding = &found.findings[0];
    assert!(finding.what.contains("damaged from byte 69"), "{found:?}");
    assert_eq!(finding.store, None);
    assert!(
        found.stores[2]
            .shards
            .iter()
            .all(|shard| shard.rows.len() == 4)
    );
}

#[test]
fn a_torn_end_of_the_log_is_nothing_wrong() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let log = at.path().join("log/entries/0000000000000001.raftlog");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(&[7; 100]);
    fs::write(&log, bytes).unwrap();
    let found = survey(at.path());
    assert_eq!(found.findings, []);
    assert_eq!(found.log.unwrap().torn_bytes, 100);
    let node = Node::start(at.path(), 4);
    assert_eq!(node.retained().len(), 4);
    node.stop();
}

/// A message that no compression makes shorter.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..8_192).map(|_| next()).collect()
}

/// Messages in the queue of each client.
const QUEUED: u64 = 20;

/// The message that is damaged: in the middle, so that nobody who looks for the ends of a queue meets it.
const DAMAGED: u64 = QUEUED / 2;

/// Lets a client in each shard have messages, and damages a message in shard 2 of a node that was ended in order.
/// The epochs of the clients.
fn queued(folder: &Path) -> [u64; 4] {
    let node = Node::start(folder, 4);
    let epochs = names("client").map(|client| node.sleeper(&client, "news"));
    for seed in 1..=QUEUED {
        assert_eq!(node.publish("news", &noise(seed)), Ok(4));
    }
    node.stop();
    flip_in_value(&folder.join("inbox"), 2, &noise(DAMAGED));
    epochs
}

/// Shards of the inbox store that are stopped at a node.
fn stopped(node: &Node) -> u64 {
    let stats = node.store.stats(mqtt_session::Timestamp(0));
    stats.stores.inbox.stopped
}

fn acknowledge_all(client: &str, epoch: u64) -> InboxOp {
    InboxOp::Acknowledge {
        session: client.into(),
        epoch,
        sent: QUEUED,
        done: Done((1..=QUEUED).collect()),
    }
}

/// What is said of replicas at a node.
fn faults(node: &Node) -> Vec<(StoreId, u16, String)> {
    let faults = node.store.levels.faults();
    let faults = faults.into_iter().map(|of| (of.store, of.shard, of.why));
    faults.collect()
}

/// What is damaged at a node.
fn damaged(node: &Node) -> Vec<DamagedReplica> {
    node.store.levels.damaged()
}

/// Shard 2 of the inbox store is stopped, and says why; all others serve.
fn check_inboxes(node: &Node, epochs: &[u64; 4]) {
    until("the shard is closed", || !faults(node).is_empty());
    let said = faults(node);
    assert_eq!(said.len(), 1, "{said:?}");
    let (store, shard, why) = &said[0];
    assert_eq!((*store, *shard), (StoreId::Inbox, 2));
    assert!(why.contains("is damaged"), "{why}");
    let listed = damaged(node);
    let [replica] = &listed[..] else {
        panic!("one replica is damaged: {listed:?}");
    };
    assert_eq!((replica.store, replica.shard), (StoreId::Inbox, 2));
    assert!(replica.damage.contains("is damaged"), "{replica:?}");
    assert_eq!(replica.recovery, Recovery::Nothing, "nobody else has it");
    assert_eq!(stopped(node), 1);
    for (shard, (client, epoch)) in names("client").iter().zip(epochs).enumerate() {
        let expected = match shard {
            2 => Err(Failure::Stopped),
            _ => Ok(InboxReply::Done),
        };
        let op = acknowledge_all(client, *epoch);
        assert_eq!(node.inbox(op), expected, "shard {shard}");
    }
    assert_eq!(node.retain("a", b"x"), Ok(RetainReply::Done));
}

#[test]
fn damage_that_is_met_at_apply_closes_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    let epochs = queued(at.path());
    let node = Node::start(at.path(), 4);
    assert_eq!((stopped(&node), faults(&node)), (0, Vec::new()), "not met");
    let op = acknowledge_all(&names("client")[2], epochs[2]);
    assert_eq!(node.inbox(op), Err(Failure::Stopped));
    check_inboxes(&node, &epochs);
    node.stop();
    // The log has the entry that needs what is damaged.
    let node = Node::start(at.path(), 4);
    check_inboxes(&node, &epochs);
    node.stop();
}

#[test]
fn damage_that_is_met_by_a_page_closes_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    queued(at.path());
    let node = Node::start(at.path(), 4);
    let clients = names("client");
    let epochs: Vec<u64> = clients
        .iter()
        .map(|client| {
            let (epoch, at) = node.connect(client);
            let open = Read::Open {
                loop_index: 0,
                home: 7,
                inbox: at.inbox,
                epoch,
                from: at.first,
                credit: QUEUED as u32,
            };
            node.store.read(node.store.inbox_slot(client), open);
            epoch
        })
        .collect();
    check_inboxes(&node, &epochs.try_into().unwrap());
    node.stop();
}

/// What became of damaged replicas of the inbox store at a node: those that are hurt, and those that were mended.
fn mended(node: &Node) -> (u64, u64) {
    let stats = node.store.stats(mqtt_session::Timestamp(0));
    let damaged = stats.stores.inbox.damaged;
    (damaged.hurt.0, damaged.mended.0)
}

/// Three nodes whose replicas are compared for no other reason than damage.
fn three_nodes() -> Cluster {
    let options = Options {
        compare_every: Duration::ZERO,
        level: None,
        ..options(1)
    };
    let cluster = Cluster::start_with(3, options);
    cluster.settled(0, &[0, 1, 2]);
    cluster
}

/// A client with messages, which are in the tables only of a node. Its epoch.
fn queued_in_table(cluster: &Cluster, at: usize) -> u64 {
    let epoch = cluster.node(at).sleeper("ann", "news");
    for seed in 1..=QUEUED {
        assert_eq!(cluster.node(at).publish("news", &noise(seed)), Ok(1));
    }
    let table = cluster.folders[at].path().join("inbox");
    // Until a checkpoint is over, what it writes is read from memory.
    until("the messages are in the table only", || {
        let unsaved = cluster.node(at).store.memory.read().unsaved_queues;
        holds_value(&table, 0, &noise(QUEUED)) && unsaved.bytes == 0
    });
    epoch
}

/// The replica of a node was made anew, serves, and has what was queued; the damaged table is kept.
fn check_mended(cluster: &Cluster, at: usize) {
    until("the replica is mended", || {
        mended(cluster.node(at)) == (0, 1)
    });
    assert_eq!(faults(cluster.node(at)), []);
    assert_eq!(damaged(cluster.node(at)), []);
    assert_eq!(stopped(cluster.node(at)), 0);
    let kept = cluster.folders[at]
        .path()
        .join("inbox/damaged/1-shard-0000000000000000");
    assert!(kept.is_dir(), "{}", kept.display());
    let own = cluster.node(at).store.node();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    until("it leads", || {
        let leader = cluster.inbox_leader(at);
        let moves = cluster
            .node(leader)
            .store
            .transfer_leader(StoreId::Inbox, 0, own);
        leader == at || runtime.block_on(moves).is_ok() && cluster.inbox_leader(at) == at
    });
}

/// What a client has queued at the node that leads.
fn payloads(node: &Node, count: usize) -> Vec<Vec<u8>> {
    let connected = node.connect("ann");
    node.read("ann", &connected, count)
}

#[test]
fn a_damaged_table_of_a_leader_is_mended_while_it_runs() {
    let cluster = three_nodes();
    let leader = cluster.inbox_leader(0);
    let node = cluster.node(leader);
    let epoch = queued_in_table(&cluster, leader);
    flip_in_value(
        &cluster.folders[leader].path().join("inbox"),
        0,
        &noise(DAMAGED),
    );
    // Two of three replicas are whole: nothing is lost, and nobody has to ask again.
    assert_eq!(
        node.inbox(acknowledge_all("ann", epoch)),
        Ok(InboxReply::Done)
    );
    assert_ne!(cluster.inbox_leader(0), leader);
    assert_eq!(node.publish("news", b"more"), Ok(1));
    check_mended(&cluster, leader);
    assert_eq!(payloads(node, 1), [b"more"]);
    for at in [0, 1, 2].into_iter().filter(|at| *at != leader) {
        assert_eq!(faults(cluster.node(at)), [], "node {at}");
        assert_eq!(mended(cluster.node(at)), (0, 0), "node {at}");
    }
    cluster.stop();
}

#[test]
fn a_table_that_is_damaged_at_the_start_of_a_node_is_mended() {
    let mut cluster = three_nodes();
    let at = (cluster.inbox_leader(0) + 1) % 3;
    queued_in_table(&cluster, at);
    cluster.kill(at);
    flip_in_table(&cluster.folders[at].path().join("inbox"), 0);
    cluster.restart(at);
    check_mended(&cluster, at);
    let expected: Vec<Vec<u8>> = (1..=QUEUED).map(noise).collect();
    let got = payloads(cluster.node(at), QUEUED as usize);
    assert!(got == expected, "the messages are those that were queued");
    cluster.stop();
}

#[test]
fn a_damaged_replica_keeps_what_it_has_while_another_voter_is_down() {
    let mut cluster = three_nodes();
    let leader = cluster.inbox_leader(0);
    let (at, other) = ((leader + 1) % 3, (leader + 2) % 3);
    queued_in_table(&cluster, at);
    let down = cluster.kill(other).node;
    cluster.kill(at);
    flip_in_table(&cluster.folders[at].path().join("inbox"), 0);
    cluster.restart(at);
    // One whole replica of three is no majority.
    until("it says what it waits for", || {
        let said = faults(cluster.node(at));
        let waits = |why: &str| {
            why.contains("until another node leads") || why.contains(&format!("{down:016x}"))
        };
        said.iter().any(|(_, _, why)| waits(why))
    });
    until("the list says what the replica waits for", || {
        let listed = damaged(cluster.node(at));
        let waits = [RecoveryWait::Leader, RecoveryWait::Node(down)].map(Recovery::Waits);
        let is_it = |replica: &DamagedReplica| {
            (replica.store, replica.shard) == (StoreId::Inbox, 0)
                && replica.damage.contains("is damaged")
                && waits.contains(&replica.recovery)
        };
        listed.len() == 1 && is_it(&listed[0])
    });
    let folder = cluster.folders[at].path().join("inbox");
    assert!(!folder.join("damaged").exists());
    assert!(folder.join("shard-0000000000000000").is_dir());
    cluster.restart(other);
    check_mended(&cluster, at);
    cluster.stop();
}
