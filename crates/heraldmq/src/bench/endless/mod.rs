//! `heraldmq bench conn`, `sub` and `pub`: clients that go on until somebody stops them, by flags alone.
//!
//! Purpose: what users of `emqtt_bench` expect. Its command lines are accepted as they are, to the options that
//! `docs/operate/load-testing.md` lists as having no counterpart.
//!
//! Invariant: a broker that is away when a run begins ends it, with an error that names its address. Later it does not.
//!
//! Deliberately absent: whatever plays or counts, which is `loadtest::endless`; records and comparisons, which
//! `run.rs` has; agents on other machines.
//!
//! Where to read next: `options.rs` (what is asked for), `view.rs` (what is shown), `results.rs` (what is kept).

mod options;
mod reach;
mod results;
mod view;

use std::time::{Duration, Instant};

use loadtest::endless::{Activity, Count, Criteria, Order, Outcome, Run, RunError};
use loadtest::{Target, most_connections};
use text_table::units::{count, counted};

use self::options::Common;
pub(super) use self::options::{Conn, Pub, Sub};
use self::results::Results;
use self::view::{Summary, View};
use super::agent::CLIENTS;
use super::interrupt::Interrupt;
use super::outputs::print;
use super::{live, require, run, target};
use crate::failure::{Failure, complain};

/// How often to look for signals and the end.
const STEP: Duration = Duration::from_millis(50);

/// From one line of a view to the next.
const SECOND: Duration = Duration::from_secs(1);

/// How long the first clients may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Conn {
    pub(super) fn run(&self) -> Result<(), Failure> {
        play("conn", &self.common, Activity::Connect)
    }
}

impl Sub {
    pub(super) fn run(&self) -> Result<(), Failure> {
        play("sub", &self.common, self.activity()?)
    }
}

impl Pub {
    pub(super) fn run(&self) -> Result<(), Failure> {
        play("pub", &self.common, self.activity()?)
    }
}

/// Plays to the end, and shows what came of it.
fn play(command: &'static str, common: &Common, activity: Activity) -> Result<(), Failure> {
    let failed = |message: String| {
        let targets = common.targets().join(",");
        Failure::Runtime(format!("{targets}: {message}"))
    };
    let require = common.course.require.as_deref();
    let criteria = require
        .map(|text| Criteria::parse(text, &activity))
        .transpose();
    let criteria = criteria.map_err(|error| Failure::Usage(format!("--require: {error}")))?;
    let clients = common.clients(&run::prefix(), command)?;
    let workers = workers(clients.count, common.workers)?;
    // First: a run is too long to find out afterwards that its figures cannot be kept.
    let output = common
        .course
        .json
        .as_ref()
        .map(results::Output::open)
        .transpose()?;
    let interrupt = Interrupt::watch()?;
    let listeners = reach::listeners(&common.targets(), CONNECT_TIMEOUT)?;
    let addresses: Vec<_> = listeners.iter().map(|l| l.address).collect();
    let sources = match common.sources.as_slice() {
        [] => target::sources(&addresses, clients.count, workers),
        _ => Vec::new(),
    };
    let order = Order {
        clients,
        activity,
        target: Target {
            listeners,
            transport: common.transport(),
            sources: common.sources.clone(),
        },
    };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let started = Instant::now();
    let lost = |error: RunError| failed(error.to_string());
    let mut run = Run::start(&program, &CLIENTS, &order, workers, &sources).map_err(lost)?;
    let title = format!("{command} at {}", common.targets().join(","));
    let mut view = View::open(&title, live::redraws());
    let mut shown = started;
    loop {
        run.hear(STEP).map_err(lost)?;
        let has_run = started.elapsed();
        if let Some(hopeless) = hopeless(&run, has_run) {
            return Err(failed(hopeless));
        }
        if run.have_all_attempted() {
            run.begin().map_err(lost)?;
        }
        let is_over = common
            .course
            .duration
            .is_some_and(|duration| has_run >= duration);
        if is_over || interrupt.is_set() || run.is_finished() {
            break;
        }
        if shown.elapsed() >= SECOND {
            view.show(&run, has_run, shown.elapsed());
            run.forget_interval();
            shown = Instant::now();
        }
    }
    let has_run = started.elapsed();
    run.stop().map_err(lost)?;
    drop(view);
    if run.counts()[Count::Connects] == 0 {
        return Err(failed(nobody(&run)));
    }
    let summary = Summary {
        title: &title,
        run: &run,
        has_run,
    };
    match &output {
        Some(output) if output.is_stdout() => complain(&summary.to_string()),
        _ => print(&summary.to_string()),
    }
    let outcome = Outcome {
        counts: run.counts(),
        latencies: run.times().latencies(),
    };
    if let Some(output) = output {
        let results = Results::new(command, common.targets(), &run, has_run, &outcome);
        output.write(&results)?;
    }
    match criteria {
        Some(criteria) => require::judged(criteria.judge(&outcome)),
        None => Ok(()),
    }
}

/// How many processes hold this many connections.
fn workers(connections: usize, wanted: Option<u16>) -> Result<usize, Failure> {
    let fitting = most_connections();
    let needed = connections.div_ceil(fitting);
    let workers = wanted.map_or(needed, usize::from);
    if workers < needed {
        return Err(Failure::Runtime(format!(
            "{} wanted, but {} with at most {} each (ulimit -n) cannot hold them; use --workers {needed}, or a lower \
             --count",
            counted(connections as u64, "connection is", "connections are"),
            counted(workers as u64, "worker", "workers"),
            count(fitting as u64)
        )));
    }
    Ok(workers)
}

/// Why a run is not worth going on with: nobody was ever connected, though all have tried or had their time.
fn hopeless(run: &Run, has_run: Duration) -> Option<String> {
    let counts = run.counts();
    let is_over = run.have_all_attempted() || has_run >= CONNECT_TIMEOUT + SECOND;
    let has_failed = counts[Count::ConnectFailures] > 0;
    (is_over && has_failed && counts[Count::Connects] == 0).then(|| nobody(run))
}

fn nobody(run: &Run) -> String {
    let reasons = run.reasons();
    let reason = reasons.first().map_or("no answer", |(reason, _)| reason);
    format!("no client got connected: {reason}")
}
