//! A whole cluster in one thread: the shards of several nodes, their membership and their routes, with a
//! clock, disks and a network that the seed decides on.
//!
//! `HERALD_SEED=n` runs one seed, and with `HERALD_TRACE=1` tells what happens; `HERALD_SEEDS=n` runs so many,
//! from `HERALD_FIRST` on.
//! Each seed has a process of its own: tokio draws its seeds from a counter that all threads share.
//!
//! What runs: `store` with its consensus, placement, forwarding and tables, and `route-exchange`. What is
//! played: the network, membership, and of the broker what it asks the store (`load.rs`).
//!
//! Deliberately absent: full disks (`tests/nodes/full.rs`), the broker, sockets.

mod faults;
mod history;
mod invariants;
mod load;
mod network;
mod node;
mod randomness;
mod routes;
mod world;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use store::Role;
use world::{World, tell};

/// Seeds of a run, if nobody says how many.
const SEEDS: u64 = 80;

/// How long it may take until all is quiet, in ms.
const QUIET: u64 = 60_000;

/// How often invariants are looked at, in ms.
const LOOK: u64 = 500;

/// The test that runs as many seeds as are wanted.
const TEST: &str = "whatever_happens_the_invariants_hold";

/// The test of [`lose_a_new_voter`].
const LOST_VOTER: &str = "a_change_of_voters_is_finished_though_a_new_one_is_gone";

/// What became of a seed: its trace, or what was wrong.
type Outcome = Result<u64, String>;

fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    for _ in 0..3 {
        world.add();
        pass(&mut world, 500)?;
    }
    pass(&mut world, 4_000)?;
    faults::rage(&mut world)?;
    world.heal();
    world.load.end();
    become_quiet(&mut world)?;
    invariants::check_all(&world)?;
    Ok(world.trace())
}

/// Lets time pass.
fn pass(world: &mut World, time: u64) -> Result<(), String> {
    let end = world.now + time;
    while world.now < end {
        step(world)?;
    }
    Ok(())
}

/// One step of time; the invariants are looked at now and then.
fn step(world: &mut World) -> Result<(), String> {
    world.step();
    if world.now.is_multiple_of(LOOK) {
        invariants::check(world)?;
    }
    Ok(())
}

fn become_quiet(world: &mut World) -> Result<(), String> {
    let end = world.now + QUIET;
    loop {
        pass(world, LOOK)?;
        match invariants::quiet::check(world) {
            Ok(()) => return Ok(()),
            Err(why) if world.now >= end => return Err(format!("not quiet: {why}")),
            Err(why) => world.note(&format!("not quiet yet: {why}")),
        }
    }
}

/// Runs a seed in this process, in a thread of its own.
fn run_here(seed: u64, run: fn(u64) -> Outcome) {
    let thread = std::thread::Builder::new().name(format!("seed {seed}"));
    let run = thread.spawn(move || {
        randomness::follow(seed);
        consensus::simulation::stay_in_one_thread();
        run(seed)
    });
    match run.expect("a thread").join() {
        Ok(Ok(trace)) => tell(&format!("trace {trace}")),
        Ok(Err(why)) => panic!("seed {seed}: {why}"),
        Err(_) => panic!("seed {seed} panicked"),
    }
}

/// Runs a seed of a test in a process of its own.
fn outcome(test: &str, seed: u64) -> Outcome {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--exact", test, "--nocapture"]);
    command.env("HERALD_SEED", seed.to_string());
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("it can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    let trace = told.lines().find_map(|line| line.strip_prefix("trace "));
    let trace = trace.and_then(|trace| trace.parse().ok());
    trace.ok_or_else(|| told.into_owned())
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn whatever_happens_the_invariants_hold() {
    if let Some(seed) = number("HERALD_SEED") {
        return run_here(seed, run);
    }
    let first = number("HERALD_FIRST").unwrap_or(0);
    let end = first + number("HERALD_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let work = || {
        let mut failed = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return failed;
            }
            if let Err(why) = outcome(TEST, seed) {
                tell(&format!(
                    "{why}\nagain: HERALD_SEED={seed} cargo test -p herald-store --test simulation -- --exact {TEST}"
                ));
                failed.push(seed);
            }
        }
    };
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.flat_map(|failed| failed.expect("it ends")).collect()
    });
    assert_eq!(failed, [0; 0], "seeds that failed");
}

/// A leader that has begun to change voters loses its power before it is answered, and a new voter is lost for
/// good.
fn lose_a_new_voter(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    let old = [world.add(), world.add(), world.add()];
    pass(&mut world, 4_000)?;
    let new = world.add();
    world.give_role(old[0], Role::Leaves);
    let leader = loop {
        step(&mut world)?;
        if let Some(leader) = leader_of_learner(&world, new) {
            break leader;
        }
    };
    let answers = old.iter().map(|from| (*from, leader));
    world.cut(answers.collect(), 5_000);
    pass(&mut world, 4_500)?;
    world.crash(leader);
    world.evict(new);
    world.start_later(leader, 1_000);
    pass(&mut world, 1_000)?;
    world.load.end();
    become_quiet(&mut world)?;
    Ok(world.trace())
}

/// Who leads a shard that a node is to have a replica of.
fn leader_of_learner(world: &World, learner: u64) -> Option<u64> {
    let lives = world.nodes.values().filter_map(|node| node.life.as_ref());
    let mut leads = lives.flat_map(|life| life.store.leads());
    let (leader, _) = leads.find(|(_, lead)| lead.learners.contains(&learner))?;
    Some(leader)
}

#[test]
fn a_change_of_voters_is_finished_though_a_new_one_is_gone() {
    if let Some(seed) = number("HERALD_SEED") {
        return run_here(seed, lose_a_new_voter);
    }
    for seed in 0..4 {
        if let Err(why) = outcome(LOST_VOTER, seed) {
            panic!("{why}");
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..2 {
        assert_eq!(outcome(TEST, seed), outcome(TEST, seed), "seed {seed}");
    }
}
