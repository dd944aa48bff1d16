//! A whole cluster in one thread: the brokers and stores of several nodes, and clients, with a clock, disks and a network
//! that the seed decides on.
//!
//! What runs: `broker-core` with its event loops and what it says to other nodes, `store` with its consensus, placement,
//! forwarding and tables, `route-exchange`, `peer-protocol`, `mqtt-client`. What is played: sockets, clients' wishes,
//! clocks, disks, the network, and which nodes are members and reached.
//!
//! `herald-sim run SEED` runs one seed, and with `HERALD_TRACE=1` tells what happens; `herald-sim many N` runs so many,
//! from `--first` on. Each seed has a process of its own: tokio draws its seeds from a counter that all threads share.
//!
//! A seed repeats its run byte for byte, as long as the program is the same: `randomness.rs` says what is drawn from where.
//! The trace at the end is a digest of all frames between nodes and to and from clients, of all operations on the shards and
//! their effects, and of how much the disks did.
//!
//! `docs/internals/simulation.md` says more, and which deliberate bugs are found (`sim/mutations`).
//!
//! Deliberately absent: full disks (`store/tests/nodes/full.rs`), authentication and authorization, limits, TLS and
//! WebSocket, the real membership (`cluster`).

mod clients;
#[path = "../../crates/broker-core/src/tests/connections.rs"]
mod connections;
mod control;
mod faults;
mod history;
mod levels;
mod network;
mod node;
mod operators;
mod promises;
mod randomness;
mod rim;
mod settings;
mod splits;
mod world;

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Parser, Subcommand, ValueEnum};
use levels::Levels;
use node::{Part, stores};
use splits::ByItself;
use store::Role;
use world::{Damages, World, tell};

/// How long it may take until all is quiet, in ms.
const QUIET: u64 = 60_000;

/// How long clients act in a run in which nothing goes wrong, in ms.
const CALM: u64 = 10_000;

/// How often it is looked at what must always hold, in ms.
const LOOK: u64 = 500;

/// Runs clusters of brokers in one thread, under faults that a seed decides on.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs one seed.
    Run {
        /// It decides what clients do and what goes wrong.
        seed: u64,
        /// What goes wrong.
        #[arg(long, value_enum, default_value_t = Scenario::Faults)]
        scenario: Scenario,
    },
    /// Runs many seeds, each in a process of its own.
    Many {
        /// How many.
        count: u64,
        /// The first one.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Seeds that are left out, with commas between them.
        #[arg(long, value_delimiter = ',')]
        except: Vec<u64>,
        /// How many at a time; as many as there are cores if nobody says.
        #[arg(long)]
        threads: Option<usize>,
        /// What goes wrong.
        #[arg(long, value_enum, default_value_t = Scenario::Faults)]
        scenario: Scenario,
        /// Begins no further one after the first that fails.
        #[arg(long)]
        until_failure: bool,
    },
}

/// What goes wrong in a run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// What the seed decides on.
    Faults,
    /// Nothing.
    Calm,
    /// What the seed decides on, while shards are split.
    Splits,
    /// Shards are split, and nothing goes wrong.
    CalmSplits,
    /// What the seed decides on, while nodes split their shards by themselves.
    Busy,
    /// What the seed decides on, while messages are kept for some seconds only, and a few of them.
    Retention,
    /// What the seed decides on, while replicas are raised from an earlier level.
    Levels,
    /// What the seed decides on, and the log of one node is damaged once: in half of the runs of the node whose vote
    /// decides an election.
    Damage,
    /// What the seed decides on, while users are made in the control store.
    Control,
    /// A leader that has begun to change voters loses its power before it is answered, and a new voter is lost for good.
    LostVoter,
}

impl Scenario {
    /// What it is called on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.expect("each can be asked for").get_name().to_owned()
    }
}

/// What became of a seed: its trace, or what was wrong.
type Outcome = Result<u64, String>;

fn main() -> ExitCode {
    let failed = match Arguments::parse().command {
        Task::Run { seed, scenario } => run_here(seed, scenario),
        Task::Many {
            count,
            first,
            except,
            threads,
            scenario,
            until_failure,
        } => {
            let seeds = (first..first + count).filter(|seed| !except.contains(seed));
            let threads = threads.or_else(|| {
                let cores = std::thread::available_parallelism();
                cores.ok().map(usize::from)
            });
            run_many(
                &seeds.collect::<Vec<_>>(),
                scenario,
                threads.unwrap_or(1),
                until_failure,
            )
        }
    };
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn run(seed: u64, scenario: Scenario) -> Outcome {
    let mut world = World::new(seed);
    if scenario == Scenario::Busy {
        world.operators.splits.by_itself = ByItself::busy();
    }
    if scenario == Scenario::Retention {
        world.retention = Arc::new(settings::retention());
    }
    if scenario == Scenario::Damage {
        world.damages = Damages::Once(Part::Any);
    }
    if scenario == Scenario::Levels {
        world.levels = Levels::earlier(&mut world.chance);
    }
    for _ in 0..3 {
        world.add();
        pass(&mut world, 500)?;
    }
    pass(&mut world, 4_000)?;
    match scenario {
        Scenario::Faults | Scenario::Retention => faults::rage(&mut world)?,
        Scenario::Damage => {
            if world.chance.below(2) == 0 {
                faults::elect_the_third(&mut world)?;
            }
            faults::rage(&mut world)?;
        }
        Scenario::Busy => {
            // A shard is split when it has been busy for ten seconds.
            pass(&mut world, CALM)?;
            faults::rage(&mut world)?;
        }
        Scenario::Levels => {
            let planned = world.levels.plan(&mut world.chance, world.now);
            world.note(&planned);
            faults::rage(&mut world)?;
        }
        Scenario::Control => {
            world.operators.changes.plan(&mut world.chance, world.now);
            faults::rage(&mut world)?;
        }
        Scenario::Calm => pass(&mut world, CALM)?,
        Scenario::Splits => {
            plan_splits(&mut world);
            faults::rage(&mut world)?;
        }
        Scenario::CalmSplits => {
            plan_splits(&mut world);
            pass(&mut world, CALM)?;
        }
        Scenario::LostVoter => lose_a_new_voter(&mut world)?,
    }
    world.heal();
    world.clients.end();
    world.operators.changes.end();
    become_quiet(&mut world)?;
    while !world.read_retained() {
        step(&mut world)?;
    }
    promises::check_all(&world)?;
    Ok(world.trace())
}

/// Draws the splits of the run.
fn plan_splits(world: &mut World) {
    let stores = stores(&world.nodes);
    let store = stores.first().copied();
    let planned = world
        .operators
        .splits
        .plan(&mut world.chance, world.now, store);
    for split in planned {
        world.note(&split);
    }
}

/// [`Scenario::LostVoter`], with the nodes 1 to 3.
fn lose_a_new_voter(world: &mut World) -> Result<(), String> {
    let new = world.add();
    world.give_role(1, Role::Leaves);
    let leader = loop {
        step(world)?;
        if let Some(leader) = leader_of_learner(world, new) {
            break leader;
        }
    };
    let answers = (1..=3).map(|from| (from, leader));
    world.cut(answers.collect(), 5_000);
    pass(world, 4_500)?;
    world.crash(leader);
    world.evict(new);
    world.start_later(leader, 1_000);
    pass(world, 1_000)
}

/// The leader of a shard that a node is to have a replica of.
fn leader_of_learner(world: &World, learner: u64) -> Option<u64> {
    let lives = world.nodes.values().filter_map(|node| node.life.as_ref());
    let mut leads = lives.flat_map(|life| life.store().leads());
    let (leader, _) = leads.find(|(_, lead)| lead.learners.contains(&learner))?;
    Some(leader)
}

/// Lets time pass.
fn pass(world: &mut World, time: u64) -> Result<(), String> {
    let end = world.now + time;
    while world.now < end {
        step(world)?;
    }
    Ok(())
}

/// One step of time; what must always hold is looked at now and then.
fn step(world: &mut World) -> Result<(), String> {
    world.step();
    if world.now.is_multiple_of(LOOK) {
        promises::check(world)?;
    }
    Ok(())
}

fn become_quiet(world: &mut World) -> Result<(), String> {
    let end = world.now + QUIET;
    loop {
        pass(world, LOOK)?;
        match promises::quiet::check(world) {
            Ok(()) => return Ok(()),
            Err(why) if world.now >= end => return Err(format!("not quiet: {why}")),
            Err(why) => world.note(&format!("not quiet yet: {why}")),
        }
    }
}

/// Runs a seed in this process, in a thread of its own. True: it failed.
fn run_here(seed: u64, scenario: Scenario) -> bool {
    let thread = std::thread::Builder::new().name(format!("seed {seed}"));
    let run = thread.spawn(move || {
        randomness::follow(seed);
        consensus::simulation::stay_in_one_thread();
        run(seed, scenario)
    });
    match run.expect("a thread").join() {
        Ok(Ok(trace)) => {
            tell(&format!("seed {seed}: trace {trace:016x}"));
            false
        }
        Ok(Err(why)) => {
            tell(&format!("seed {seed}: {why}"));
            true
        }
        Err(_) => {
            tell(&format!("seed {seed} panicked"));
            true
        }
    }
}

/// Runs seeds in processes of their own. True: some failed.
fn run_many(seeds: &[u64], scenario: Scenario, threads: usize, until_failure: bool) -> bool {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = run_elsewhere(seed, scenario) {
                tell(&format!(
                    "{why}again: herald-sim run {seed} --scenario {}",
                    scenario.name()
                ));
                failed.push(seed);
                if until_failure {
                    next.store(seeds.len(), Ordering::Relaxed);
                }
            }
        }
        failed
    };
    let mut failed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.flat_map(|failed| failed.expect("it ends")).collect()
    });
    failed.sort_unstable();
    let count = seeds.len();
    tell(&format!(
        "{count} seeds, {} failed: {failed:?}",
        failed.len()
    ));
    !failed.is_empty()
}

/// Runs a seed in a process of its own.
fn run_elsewhere(seed: u64, scenario: Scenario) -> Result<(), String> {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["run", &seed.to_string(), "--scenario", &scenario.name()]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.expect("it can be started");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
