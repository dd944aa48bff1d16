//! Nothing that was acknowledged is lost when the power fails, whenever that is.

use std::cell::RefCell;
use std::rc::Rc;

use consensus::simulation::{Chance, Loss, SimulatedDisk};
use consensus::{Group, GroupOptions, Log, LogOptions};
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::ledger::{DEADLINE, Ledger, Note, Scratch, open, runtime, start_alone};

const SEEDS: u64 = 40;
const ROUNDS: u64 = 5;
const GROUPS: usize = 3;
const CLIENTS: usize = 4;

/// One group across crashes.
#[derive(Default)]
struct Shard {
    ledger: Ledger,
    /// By client.
    proposed: [u64; CLIENTS],
    acknowledged: Vec<u64>,
}

/// A node across crashes.
struct Node {
    scratch: Scratch,
    disk: SimulatedDisk,
    chance: Chance,
    shards: Vec<Rc<RefCell<Shard>>>,
}

#[test]
fn loses_nothing_that_was_acknowledged() {
    let (mut acknowledged, mut crashes) = (0, 0);
    for seed in 0..SEEDS {
        let mut node = Node::new(seed);
        for round in 0..ROUNDS {
            crashes += u64::from(node.live_and_crash());
            assert_eq!(node.restart(), Ok(()), "seed {seed}, round {round}");
        }
        acknowledged += node.acknowledged();
    }
    // Otherwise this tests nothing.
    assert!(crashes > SEEDS * ROUNDS / 2, "only {crashes} crashes");
    assert!(acknowledged > 10_000, "only {acknowledged} acknowledged");
}

#[test]
fn the_test_finds_what_is_lost_when_syncs_do_nothing() {
    let lost = (0..SEEDS).any(|seed| {
        let mut node = Node::new(seed);
        node.live_and_crash();
        assert_eq!(node.restart(), Ok(()), "seed {seed}");
        node.disk.lie_about_syncs();
        node.live_and_crash();
        node.restart().is_err()
    });
    assert!(lost);
}

impl Node {
    fn new(seed: u64) -> Self {
        Self {
            scratch: Scratch::new(),
            disk: SimulatedDisk::new(),
            chance: Chance(seed),
            shards: (0..GROUPS).map(|_| Rc::default()).collect(),
        }
    }

    /// Small files, deleted as soon as possible.
    fn options(&self) -> LogOptions {
        LogOptions {
            file_bytes: 8 << 10,
            disk_bytes: 24 << 10,
            purge_interval: std::time::Duration::ZERO,
            ..self.scratch.options()
        }
    }

    fn acknowledged(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.borrow().acknowledged.len()).sum()
    }

    /// What a new process knows: the tables.
    fn forget_memory(&self) {
        for shard in &self.shards {
            let left = shard.borrow().ledger.after_crash();
            shard.borrow_mut().ledger = left;
        }
    }

    /// Works until the power fails or the work is done; says whether it failed.
    fn live_and_crash(&mut self) -> bool {
        let operations = self.chance.below(400) as u64;
        self.disk.fail_power_after(operations);
        self.forget_memory();
        // With so little time the log may not even open.
        if let Ok(log) = open(&self.options(), &self.disk) {
            runtime().block_on(async {
                let living = LocalSet::new();
                for (id, shard) in (1..).zip(&self.shards) {
                    let work = work(id, &log, shard.clone(), Chance(self.chance.0 + id));
                    timeout(DEADLINE, living.run_until(work))
                        .await
                        .expect("no client waits for ever");
                }
                timeout(DEADLINE, living)
                    .await
                    .expect("no client waits for ever");
            });
        }
        self.disk.is_off()
    }

    /// Everything that was acknowledged is there again, in order, and nothing twice.
    fn restart(&mut self) -> Result<(), String> {
        let loss = [Loss::All, Loss::Tail, Loss::Sectors][self.chance.below(3)];
        self.disk
            .restart(loss, self.chance.below(usize::MAX) as u64);
        let log = open(&self.options(), &self.disk).map_err(|error| error.to_string())?;
        if let Some(finding) = log.damage().first() {
            return Err(format!("taken for damage: {finding}"));
        }
        self.forget_memory();
        runtime().block_on(async {
            for (id, shard) in (1..).zip(&self.shards) {
                let ledger = shard.borrow().ledger.clone();
                let group = start(id, &log, &ledger).await?;
                group.recovered().await.map_err(|error| error.to_string())?;
                group.shutdown().await;
                shard.borrow().verify()?;
            }
            Ok(())
        })
    }
}

impl Shard {
    fn verify(&self) -> Result<(), String> {
        let mut applied = self.ledger.pages().numbers();
        for client in 0..CLIENTS as u64 {
            let of_client = applied
                .iter()
                .filter(|number| **number % CLIENTS as u64 == client);
            if !of_client.is_sorted_by(|a, b| a < b) {
                return Err(format!("not in order, or twice: {applied:?}"));
            }
        }
        applied.sort_unstable();
        let lost = |number: &&u64| applied.binary_search(number).is_err();
        match self.acknowledged.iter().find(lost) {
            Some(number) => Err(format!("{number} was acknowledged and is lost")),
            None => Ok(()),
        }
    }

    /// The next number of a client: what it proposes ascends.
    fn next(&mut self, client: usize) -> u64 {
        self.proposed[client] += 1;
        self.proposed[client] * CLIENTS as u64 + client as u64
    }
}

async fn start(id: u64, log: &Log, ledger: &Ledger) -> Result<Group<Note>, String> {
    let options = GroupOptions {
        keep: 5,
        tail_bytes: 2_000,
        in_flight_bytes: 4_000,
        ..GroupOptions::default()
    };
    let started = start_alone(id, 1, log, ledger, &options).await;
    started.map_err(|error| error.to_string())
}

/// Starts a group and, beside, clients that propose to it.
async fn work(id: u64, log: &Log, shard: Rc<RefCell<Shard>>, mut chance: Chance) {
    let ledger = shard.borrow().ledger.clone();
    let Ok(group) = start(id, log, &ledger).await else {
        return;
    };
    if group.recovered().await.is_err() {
        return;
    }
    let group = Rc::new(group);
    for number in 0..CLIENTS {
        let client = client(
            number,
            group.clone(),
            shard.clone(),
            Chance(chance.below(1 << 30) as u64),
        );
        tokio::task::spawn_local(client);
    }
}

/// Proposes a few numbers at a time, higher ones each time, and now and then writes a checkpoint.
async fn client(
    client: usize,
    group: Rc<Group<Note>>,
    shard: Rc<RefCell<Shard>>,
    mut chance: Chance,
) {
    for _ in 0..30 {
        let mut proposals = Vec::new();
        for _ in 0..=chance.below(4) {
            let number = shard.borrow_mut().next(client);
            match group.propose(Note::new(number, chance.below(700))).await {
                Ok(proposal) => proposals.push((number, proposal)),
                Err(_) => return,
            }
        }
        for (number, proposal) in proposals {
            match proposal.await {
                Ok(_) => shard.borrow_mut().acknowledged.push(number),
                Err(_) => return,
            }
        }
        if chance.below(10) == 0 {
            let mark = shard.borrow().ledger.checkpoint();
            group.checkpointed(mark).await;
        }
    }
}
