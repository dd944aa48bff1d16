//! Whatever fails, in whatever order: what was acknowledged stays, everywhere in the same order.
//!
//! `HERALD_CHAOS_SEEDS` says how many histories are tried, `HERALD_CHAOS_FIRST` with which one begins.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Write;
use std::rc::Rc;

use consensus::GroupOptions;
use consensus::simulation::{Chance, Loss};
use tokio::time::{Duration, sleep, timeout};

use crate::cluster::Cluster;

const SEEDS: u64 = 12;
const NODES: u64 = 4;
const EVENTS: usize = 25;
const CLIENTS: u64 = 3;

fn number_from(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |given| given.parse().expect("a number"))
}

/// Says at a panic which history it was.
struct Shown(u64);

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut out = std::io::stderr().lock();
            // Without it the seed is not known, and nothing else is lost.
            drop(writeln!(out, "seed {}", self.0));
        }
    }
}

#[test]
fn loses_nothing_that_was_acknowledged() {
    let first = number_from("HERALD_CHAOS_FIRST", 0);
    let seeds = number_from("HERALD_CHAOS_SEEDS", SEEDS);
    let (acknowledged, chunks) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in first..first + seeds {
        let shown = Shown(seed);
        let (acknowledged, chunks) = (acknowledged.clone(), chunks.clone());
        let options = GroupOptions {
            keep: 3,
            keep_bytes: 2_000,
            tail_bytes: 1_000,
            in_flight_bytes: 4_000,
            ..GroupOptions::default()
        };
        Cluster::run(NODES, options, move |cluster| async move {
            live(cluster.clone(), seed).await;
            acknowledged.set(acknowledged.get() + cluster.acknowledged.borrow().len());
            chunks.set(chunks.get() + cluster.bulk_seen());
        });
        drop(shown);
    }
    // Otherwise this tests nothing.
    let (acknowledged, chunks) = (acknowledged.get(), chunks.get());
    assert!(
        acknowledged > 20 * seeds as usize,
        "only {acknowledged} notes"
    );
    assert!(chunks > seeds as usize, "only {chunks} parts of snapshots");
}

async fn live(cluster: Rc<Cluster>, seed: u64) {
    let mut chance = Chance(seed);
    cluster.found(1..=3).await;
    cluster
        .start(4, consensus::Birth::Invited)
        .await
        .expect("it starts");
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let chance = Chance(seed * CLIENTS + client);
        tasks.push(tokio::task::spawn_local(write(cluster.clone(), chance)));
    }
    tasks.push(tokio::task::spawn_local(ask(cluster.clone())));
    for _ in 0..EVENTS {
        event(&cluster, &mut chance).await;
        sleep(Duration::from_millis(chance.below(1_000) as u64)).await;
        cluster.check();
    }
    for task in tasks {
        task.abort();
        let ended = task.await.expect_err("they do not end by themselves");
        assert!(ended.is_cancelled(), "{ended}");
    }
    cluster.mend();
    cluster.blow(0, 5, seed);
    for number in 1..=NODES {
        restart(&cluster, &mut chance, number).await;
    }
    cluster.write(1).await;
    cluster.members_agreed().await;
}

async fn write(cluster: Rc<Cluster>, mut chance: Chance) {
    loop {
        let outcome = timeout(Duration::from_secs(10), cluster.try_write()).await;
        if outcome != Ok(true) {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_millis(chance.below(40) as u64)).await;
    }
}

/// Reads: who says that it has everything has it.
async fn ask(cluster: Rc<Cluster>) {
    loop {
        sleep(Duration::from_millis(150)).await;
        for number in cluster.leading() {
            let before = cluster.acknowledged.borrow().clone();
            let (ledger, group) = (cluster.ledger(number), cluster.group(number));
            if let Ok(Ok(())) = timeout(Duration::from_secs(5), group.linearize()).await {
                let notes: BTreeSet<u64> = ledger.pages().numbers().into_iter().collect();
                let missing = before.iter().find(|note| !notes.contains(note));
                assert_eq!(missing, None, "node {number} does not have it");
            }
        }
    }
}

async fn event(cluster: &Rc<Cluster>, chance: &mut Chance) {
    let number = 1 + chance.below(NODES as usize) as u64;
    let other = 1 + chance.below(NODES as usize) as u64;
    match chance.below(13) {
        0 | 1 => {
            let disk = &cluster.nodes[&number].disk;
            disk.fail_power_after(chance.below(30) as u64);
            sleep(Duration::from_millis(chance.below(300) as u64)).await;
            cluster.crash(number).await;
        }
        // All at once.
        2 => {
            for number in 1..=NODES {
                let disk = &cluster.nodes[&number].disk;
                disk.fail_power_after(chance.below(20) as u64);
            }
            sleep(Duration::from_millis(chance.below(300) as u64)).await;
            for number in 1..=NODES {
                cluster.crash(number).await;
            }
            for number in 1..=NODES {
                restart(cluster, chance, number).await;
            }
        }
        3 | 4 => {
            for number in 1..=NODES {
                restart(cluster, chance, number).await;
            }
        }
        5 => cluster.isolate(number),
        6 => cluster.cut(number, other),
        7 => cluster.mend(),
        8 => cluster.blow(chance.below(30), chance.below(200), chance.0),
        9 | 10 => {
            for number in 1..=NODES {
                if cluster.is_running(number) {
                    cluster.checkpoint(number).await;
                }
            }
        }
        11 => {
            let Some(leader) = cluster.leading().pop() else {
                return;
            };
            // Nobody waits for what a cut leader may never do.
            let group = cluster.group(leader);
            let voters = BTreeSet::from_iter((1..=NODES).filter(|voter| *voter != number));
            tokio::task::spawn_local(timeout(Duration::from_secs(20), async move {
                drop(group.add_learner(number).await);
                drop(group.add_learner(other).await);
                drop(group.change_voters(voters).await);
            }));
        }
        _ => {
            let Some(leader) = cluster.leading().pop() else {
                return;
            };
            if chance.below(2) == 0 {
                drop(cluster.group(leader).transfer_leader(other).await);
            } else if cluster.is_running(other) {
                cluster.group(other).presume_dead(leader).await;
            }
        }
    }
}

async fn restart(cluster: &Cluster, chance: &mut Chance, number: u64) {
    if cluster.is_running(number) && !cluster.nodes[&number].disk.is_off() {
        return;
    }
    cluster.crash(number).await;
    let loss = [Loss::All, Loss::Tail, Loss::Sectors][chance.below(3)];
    let started = cluster.restart(number, loss, chance.0).await;
    started.expect("it starts");
}
