//! A whole cluster in one thread: the shards of several nodes, their membership and their routes, with a
//! clock, disks and a network that the seed decides on.
//!
//! `HERALD_SEED=n` runs one seed, and with `HERALD_TRACE=1` tells what happens; `HERALD_SEEDS=n` runs so many.
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

use world::{World, tell};

/// Seeds of a run, if nobody says how many.
const SEEDS: u64 = 80;

/// How long it may take until all is quiet, in ms.
const QUIET: u64 = 60_000;

/// How often invariants are looked at, in ms.
const LOOK: u64 = 500;

/// The test that runs seeds.
const TEST: &str = "whatever_happens_the_invariants_hold";

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
fn run_here(seed: u64) {
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

/// Runs a seed in a process of its own.
fn outcome(seed: u64) -> Outcome {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--exact", TEST, "--nocapture"]);
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
        return run_here(seed);
    }
    let seeds = number("HERALD_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        let mut failed = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return failed;
            }
            if let Err(why) = outcome(seed) {
                tell(&format!(
                    "{why}\nagain: HERALD_SEED={seed} cargo test -p herald-store --test simulation"
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

#[test]
fn a_seed_is_a_run() {
    for seed in 0..2 {
        assert_eq!(outcome(seed), outcome(seed), "seed {seed}");
    }
}
