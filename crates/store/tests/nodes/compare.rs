//! Replicas are compared, and one that differs is made anew from what the others hold.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use consensus::{Log, LogOptions};
use store::{Options, ShardStats, Tables, TablesOptions};
use store_state::api::{PerStore, StoreId};
use store_state::inbox::InboxMachine;
use store_state::retain::{RetainMachine, RetainReply};
use store_state::{Changes, Table as _};

use crate::cluster::{Cluster, until};
use crate::node::options;

/// Replicas are compared when something has changed, so often.
fn cluster(compare_every: Duration) -> Cluster {
    let options = Options {
        compare_every,
        // The newest.
        level: None,
        ..options(1)
    };
    let cluster = Cluster::start_with(3, options);
    cluster.settled(0, &[0, 1, 2]);
    cluster
}

fn stats(cluster: &Cluster, at: usize) -> PerStore<ShardStats> {
    let now = mqtt_session::Timestamp(0);
    cluster.node(at).store.stats(now).stores
}

fn leader(cluster: &Cluster, store: StoreId) -> usize {
    until("a leader", || {
        cluster.node(0).store.leader(store, 0).is_some()
    });
    let leader = cluster.node(0).store.leader(store, 0).unwrap();
    let is = |at: &usize| cluster.node(*at).store.node() == leader;
    (0..3).find(is).unwrap()
}

/// Waits until each replica has been compared after the latest change.
fn compared(cluster: &Cluster) {
    let all = || [0, 1, 2].map(|at| stats(cluster, at));
    let node = cluster.node(0);
    // The first comparison that is seen to end may have begun before.
    for _ in 0..2 {
        let before = all();
        assert_eq!(node.retain("compared", b"again"), Ok(RetainReply::Done));
        assert_eq!(node.publish("compared", b"again"), Ok(0));
        let clients = before[0].session.requests;
        node.sleeper(&format!("compared-{clients}"), "other");
        until("comparisons", || {
            let now = all();
            now.iter().zip(&before).all(|(now, before)| {
                let mut stores = StoreId::OF_NAMES.into_iter();
                stores.all(|store| now[store].compared.0 > before[store].compared.0)
            })
        });
    }
}

/// Takes the first row that says `name` out of a table of a node that is down.
fn take_out(store: &Path, options: TablesOptions, name: &str) {
    let tables = Tables::open(store, options).unwrap();
    let table = tables.shard(0).unwrap();
    let mark = table.mark().unwrap().expect("a checkpoint was written");
    let mut found = None;
    let says = |bytes: &[u8]| {
        bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    let visit = &mut |key: &[u8], value: &[u8]| match says(key) || says(value) {
        true => {
            found = Some(key.to_vec());
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    };
    table.range(&[], &[0xff; 8], visit).unwrap();
    let mut changes = Changes::default();
    changes.delete(found.expect("a row says it"));
    table.write(&changes, &mark).unwrap();
}

#[test]
fn replicas_that_hold_the_same_agree() {
    let cluster = cluster(Duration::from_millis(100));
    for number in 0..50 {
        let topic = format!("t/{number}");
        assert_eq!(cluster.node(0).retain(&topic, b"x"), Ok(RetainReply::Done));
        cluster.node(0).sleeper(&format!("c{number}"), &topic);
        assert_eq!(cluster.node(0).publish(&topic, b"y"), Ok(1));
        if number % 10 == 0 {
            compared(&cluster);
        }
    }
    compared(&cluster);
    for at in 0..3 {
        let stores = stats(&cluster, at);
        for store in StoreId::OF_NAMES {
            let of = stores[store];
            assert_eq!((of.differed.0, of.made_anew.0), (0, 0), "{store}");
            assert!(of.compared.0 > 0, "{store}");
        }
        assert!(cluster.node(at).store.levels.differences().is_empty());
    }
    cluster.stop();
}

/// A row is missing at one replica.
fn heals(is_leader: bool, store: StoreId, tables: TablesOptions, name: &str) {
    // So long that it leads before it is compared.
    let mut cluster = cluster(Duration::from_millis(if is_leader { 1_000 } else { 100 }));
    for number in 0..20 {
        let topic = format!("t/{number}");
        assert_eq!(cluster.node(0).retain(&topic, b"x"), Ok(RetainReply::Done));
        cluster.node(0).sleeper(&format!("c{number}"), &topic);
    }
    compared(&cluster);
    let leads = leader(&cluster, store);
    let at = match is_leader {
        true => leads,
        false => (leads + 1) % 3,
    };
    cluster.kill(at);
    take_out(&cluster.folders[at].path().join(store.name()), tables, name);
    cluster.restart(at);
    cluster.settled(at, &[0, 1, 2]);
    if is_leader {
        // It is to lead again, with what it has.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let own = cluster.node(at).store.node();
        until("the replica that differs leads", || {
            let other = leader(&cluster, store);
            let moves = cluster.node(other).store.transfer_leader(store, 0, own);
            let moved = runtime.block_on(moves).is_ok();
            moved || stats(&cluster, at)[store].made_anew.0 > 0
        });
    }
    until("the replica is made anew", || {
        // An entry comes now and then in any cluster that is used.
        let _ = cluster.node((at + 1) % 3).retain("more", b"x");
        let _ = cluster.node((at + 1) % 3).publish("more", b"x");
        stats(&cluster, at)[store].made_anew.0 == 1
    });
    let told = cluster.node(at).store.levels.differences();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].store, store);
    assert!(told[0].why.contains("made anew"), "{told:?}");
    compared(&cluster);
    for node in 0..3 {
        let of = stats(&cluster, node)[store];
        let expected = u64::from(node == at);
        assert_eq!((of.differed.0, of.made_anew.0), (expected, expected));
    }
    assert_eq!(cluster.node(at).retained().len(), 22);
    cluster.stop();
}

#[test]
fn a_follower_that_lacks_a_row_is_made_anew() {
    let tables = TablesOptions::of::<RetainMachine>();
    heals(false, StoreId::Retain, tables, "t/7");
}

#[test]
fn a_leader_that_lacks_a_row_lets_another_one_lead_and_is_made_anew() {
    let tables = TablesOptions::of::<InboxMachine>();
    heals(true, StoreId::Inbox, tables, "t/7");
}

#[test]
fn a_table_whose_log_is_deleted_is_sent_again() {
    let mut cluster = cluster(Duration::ZERO);
    for number in 0..20 {
        let topic = format!("t/{number}");
        assert_eq!(cluster.node(0).retain(&topic, b"x"), Ok(RetainReply::Done));
    }
    let at = (leader(&cluster, StoreId::Retain) + 1) % 3;
    cluster.kill(at);
    // As if the process had ended between the two steps of making the replica anew.
    let log = cluster.folders[at].path().join("log");
    let log = Log::open(&LogOptions::new(log)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    // Shard 0 of the retain store.
    runtime.block_on(log.delete_group((2 << 32) + 1)).unwrap();
    drop(log);
    cluster.restart(at);
    cluster.settled(at, &[0, 1, 2]);
    assert_eq!(cluster.node(0).retain("more", b"x"), Ok(RetainReply::Done));
    let own = cluster.node(at).store.node();
    until("it has all, and leads", || {
        let other = leader(&cluster, StoreId::Retain);
        let moves = cluster
            .node(other)
            .store
            .transfer_leader(StoreId::Retain, 0, own);
        other == at || runtime.block_on(moves).is_ok() && leader(&cluster, StoreId::Retain) == at
    });
    assert_eq!(cluster.node(at).retained().len(), 21);
    cluster.stop();
}
