//! Plays a workload with a crew of workers, watches the broker meanwhile, and puts everything together.
//!
//! Call order: [`play`].
//!
//! Invariant: what is measured lies between the end of the warm-up and the end of the load, the same moments
//! for all workers. Only counts and faults are of the whole run, because a message of the warm-up may be
//! lost too.
//!
//! Deliberately absent: printing and files. [`Observer`] is told what goes on; `played.rs` makes the record.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use report::{Phase, Sample, Usage};
use transport::ClientTransport;

use crate::clock::monotonic_ns;
use crate::crew::{Crew, CrewError};
use crate::engine::{DRAIN_PATIENCE, DUPLICATES_WAIT, Listener, Patience, Progress, Target};
use crate::meter::{add_buckets, histogram};
use crate::protocol::{Command, Finish, Order, Report, Tick, Timeline, VERSION};
use crate::shards::ShardBook;
use crate::system::{Reading, System};
use crate::workload::Workload;
use host::{Cpu, Process};

const SECOND_NS: u64 = 1_000_000_000;

/// From the order to begin until the beginning: the order has reached everybody.
const LEAD_NS: u64 = 250_000_000;

/// Pings that measure a clock; the quickest counts.
const PINGS: usize = 16;

/// How long a worker may take to answer a ping or an order.
const ANSWER: Duration = Duration::from_secs(10);

/// What a run has besides its crew.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// What is played.
    pub workload: Workload,
    /// The broker's; at least one.
    pub listeners: Vec<Listener>,
    /// What connections to them begin with. The workers read its files, each on its machine.
    pub transport: ClientTransport,
    /// By worker: addresses of its machine to connect from; empty to leave it to the kernel.
    pub sources: Vec<Vec<IpAddr>>,
    /// Load before the measurement.
    pub warm_up: Duration,
    /// Of the measurement; above 0.
    pub duration: Duration,
    /// First level of all topics, and start of all client identifiers.
    pub prefix: String,
}

/// Why a run came to nothing.
#[derive(Debug)]
pub enum PlayError {
    /// A worker failed.
    Crew(CrewError),
    /// A worker said something out of turn.
    OutOfTurn(String),
    /// The broker cannot be watched: which part of it, and why.
    System(String, std::io::Error),
    /// The observer wants no more.
    Cancelled,
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crew(error) => error.fmt(f),
            Self::OutOfTurn(worker) => write!(f, "{worker} broke the protocol"),
            Self::System(name, error) => write!(f, "cannot watch {name}: {error}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for PlayError {}

impl From<CrewError> for PlayError {
    fn from(error: CrewError) -> Self {
        Self::Crew(error)
    }
}

/// What an observer is told about once a second.
#[derive(Clone, Copy, Debug)]
pub struct News<'a> {
    /// What happened since the news before.
    pub sample: &'a Sample,
    /// Of all workers, so far.
    pub progress: &'a Progress,
    /// Clients that there will be.
    pub connections: usize,
    /// To the end of the measurement; `None` while clients connect.
    pub remaining: Option<Duration>,
}

/// Looks on while a run goes on.
pub trait Observer {
    /// Something to look at. `false` ends the run.
    fn observe(&mut self, news: &News<'_>) -> bool;
}

/// Looks away.
impl Observer for () {
    fn observe(&mut self, _: &News<'_>) -> bool {
        true
    }
}

/// Sums at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) mark_ns: u64,
    pub(crate) progress: Progress,
    /// By worker.
    pub(crate) tool: Vec<Cpu>,
    /// Of this process.
    pub(crate) own: Cpu,
    /// In the order of the systems; `None` for one that could not be read.
    pub(crate) systems: Vec<Option<Reading>>,
}

impl Moment {
    /// Of a system; `None` if it could not be read.
    pub(crate) fn reading(&self, number: usize) -> Option<&Reading> {
        self.systems.get(number)?.as_ref()
    }
}

/// How well a worker's clock is known, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Clock {
    /// The worker's less this machine's.
    pub(crate) offset_ns: i64,
    /// The offset is right to this.
    pub(crate) uncertainty_ns: u64,
}

/// Everything that a run yielded, not yet put in order.
#[derive(Debug)]
pub struct Played {
    pub(crate) system_names: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) connect_seconds: f64,
    /// Before the first connection.
    pub(crate) before: Moment,
    /// When all were connected.
    pub(crate) connected: Moment,
    /// At the beginning of the measurement.
    pub(crate) start: Moment,
    /// At its end.
    pub(crate) end: Moment,
    /// After everything.
    pub(crate) last: Progress,
    pub(crate) samples: Vec<Sample>,
    /// By part and publisher.
    pub(crate) sent: Vec<Vec<u32>>,
    /// By worker.
    pub(crate) finishes: Vec<Finish>,
    /// By worker of another machine: its name, its clock before the run and after.
    pub(crate) clocks: Vec<(String, Clock, Clock)>,
}

/// Plays a workload to its end.
///
/// # Errors
/// A worker failed or is gone, which is also how an unreachable broker shows; the broker's processes
/// cannot be read at the beginning.
pub fn play(
    mut crew: Crew,
    settings: &Settings,
    systems: &mut [Box<dyn System>],
    observer: &mut dyn Observer,
) -> Result<Played, PlayError> {
    let clocks = measure_clocks(&mut crew)?;
    let epoch_ns = monotonic_ns();
    let connections = prepare(&mut crew, settings, &clocks, epoch_ns)?;
    for system in &mut *systems {
        let read = system.read();
        read.map_err(|error| PlayError::System(system.name(), error))?;
    }
    let mut watch = Watch::new(crew, systems, observer, epoch_ns, connections);
    let before = watch.moment(0);
    watch.last = before.clone();
    watch.shards.count(&before.systems);
    let connected = watch.connect()?;
    let connect_seconds = (monotonic_ns() - epoch_ns) as f64 / 1e9;
    let parts = &settings.workload.parts;
    if parts.iter().any(|part| part.warm_up_messages > 0) {
        watch.warm_up()?;
    }
    let (start, end) = watch.load(settings.warm_up, settings.duration)?;
    let longest_s = parts.iter().map(|part| part.drain_s).fold(0.0, f64::max);
    watch.drain(end.mark_ns + (longest_s * 1e9) as u64)?;
    watch.crew.tell_all(&Command::Settle)?;
    let settled = watch.collect(|report| match report {
        Report::Settled(sent) => Ok(sent),
        other => Err(other),
    })?;
    let sent = concatenate(&settled);
    watch.crew.tell_all(&Command::Finish(sent.clone()))?;
    let finishes = watch.collect(|report| match report {
        Report::Finished(finish) => Ok(*finish),
        other => Err(other),
    })?;
    watch.sample(Phase::Drain);
    // It is over; what the observer thinks of it changes nothing.
    watch.show_last_sample();
    let Watch {
        mut crew,
        samples,
        last,
        ..
    } = watch;
    let after = measure_clocks(&mut crew)?;
    let remote = (0..crew.len()).filter(|&index| crew.is_remote(index));
    let clocks = remote
        .map(|index| (crew.name(index).to_owned(), clocks[index], after[index]))
        .collect();
    Ok(Played {
        system_names: systems.iter().map(|system| system.name()).collect(),
        connections,
        connect_seconds,
        before,
        connected,
        start,
        end,
        last: last.progress,
        samples,
        sent,
        finishes: finishes.into_iter().collect(),
        clocks,
    })
}

/// Each worker's clock against this one; those of this machine share it.
fn measure_clocks(crew: &mut Crew) -> Result<Vec<Clock>, PlayError> {
    let mut clocks = Vec::new();
    for index in 0..crew.len() {
        let mut best: Option<Clock> = None;
        let pings = if crew.is_remote(index) { PINGS } else { 0 };
        for _ in 0..pings {
            let sent_ns = monotonic_ns();
            crew.tell(index, &Command::Ping(sent_ns))?;
            let clock_ns = await_pong(crew, index, sent_ns)?;
            let round_trip_ns = monotonic_ns() - sent_ns;
            let middle_ns = sent_ns + round_trip_ns / 2;
            let clock = Clock {
                offset_ns: clock_ns.cast_signed() - middle_ns.cast_signed(),
                uncertainty_ns: round_trip_ns / 2,
            };
            if best.is_none_or(|best| clock.uncertainty_ns < best.uncertainty_ns) {
                best = Some(clock);
            }
        }
        clocks.push(best.unwrap_or_default());
    }
    Ok(clocks)
}

fn await_pong(crew: &mut Crew, index: usize, sent_ns: u64) -> Result<u64, PlayError> {
    let deadline = Instant::now() + ANSWER;
    loop {
        match crew.hear(deadline)? {
            Some((from, Report::Pong(echo_ns, clock_ns)))
                if from == index && echo_ns == sent_ns =>
            {
                return Ok(clock_ns);
            }
            Some((from, Report::Hello(version))) => check_version(crew, from, version)?,
            // Those who are done tick on until they are let go.
            Some((_, Report::Tick(_))) => {}
            Some((from, _)) => return Err(PlayError::OutOfTurn(crew.name(from).to_owned())),
            None => return Err(silent(crew, index)),
        }
    }
}

fn silent(crew: &Crew, index: usize) -> PlayError {
    CrewError::Silent(crew.name(index).to_owned(), ANSWER).into()
}

fn check_version(crew: &Crew, index: usize, version: String) -> Result<(), PlayError> {
    if version == VERSION {
        return Ok(());
    }
    Err(CrewError::Version(crew.name(index).to_owned(), version).into())
}

/// Tells everybody what to do; returns the connections that there will be.
fn prepare(
    crew: &mut Crew,
    settings: &Settings,
    clocks: &[Clock],
    epoch_ns: u64,
) -> Result<usize, PlayError> {
    for (index, clock) in clocks.iter().enumerate() {
        let order = Order {
            workload: settings.workload.clone(),
            index,
            of: crew.len(),
            target: Target {
                listeners: settings.listeners.clone(),
                transport: settings.transport.clone(),
                sources: settings.sources.get(index).cloned().unwrap_or_default(),
            },
            prefix: settings.prefix.clone(),
            epoch_ns: epoch_ns.saturating_add_signed(clock.offset_ns),
        };
        crew.tell(index, &Command::Prepare(Box::new(order)))?;
    }
    let mut connections = 0;
    let mut are_prepared = vec![false; crew.len()];
    let deadline = Instant::now() + ANSWER;
    while let Some(late) = are_prepared.iter().position(|is_prepared| !is_prepared) {
        match crew.hear(deadline)? {
            Some((index, Report::Hello(version))) => check_version(crew, index, version)?,
            Some((index, Report::Prepared(count))) => {
                connections += count;
                are_prepared[index] = true;
            }
            // Those who are prepared tick on while others, with more to prepare, are not.
            Some((_, Report::Tick(_))) => {}
            Some((index, _)) => return Err(PlayError::OutOfTurn(crew.name(index).to_owned())),
            None => return Err(silent(crew, late)),
        }
    }
    Ok(connections)
}

/// By part, the shares of all workers in a row: shares are contiguous and in the order of the workers.
fn concatenate(settled: &[Vec<Vec<u32>>]) -> Vec<Vec<u32>> {
    let parts = settled.first().map_or(0, Vec::len);
    let of_part = |part: usize| settled.iter().filter_map(move |worker| worker.get(part));
    (0..parts)
        .map(|part| of_part(part).flatten().copied().collect())
        .collect()
}

/// The run while it goes on.
struct Watch<'a> {
    crew: Crew,
    systems: &'a mut [Box<dyn System>],
    observer: &'a mut dyn Observer,
    epoch_ns: u64,
    connections: usize,
    timeline: Option<Timeline>,
    /// Whether all are connected and publishers send the messages of the warm-up.
    is_warming_up: bool,
    /// Ticks of marks that not all workers have reached.
    marks: BTreeMap<u64, Vec<Tick>>,
    /// By worker, the last tick.
    latest: Vec<Option<Tick>>,
    /// Where the last sample ended.
    last: Moment,
    /// The last mark that all workers have reached.
    reached: Moment,
    /// Headline times since the last sample.
    interval: Histogram<u64>,
    samples: Vec<Sample>,
    shards: ShardBook,
}

impl<'a> Watch<'a> {
    fn new(
        crew: Crew,
        systems: &'a mut [Box<dyn System>],
        observer: &'a mut dyn Observer,
        epoch_ns: u64,
        connections: usize,
    ) -> Self {
        Self {
            latest: vec![None; crew.len()],
            crew,
            systems,
            observer,
            epoch_ns,
            connections,
            timeline: None,
            is_warming_up: false,
            marks: BTreeMap::new(),
            last: Moment::default(),
            reached: Moment::default(),
            interval: histogram(),
            samples: Vec::new(),
            shards: ShardBook::default(),
        }
    }

    /// Now, as far as everybody has told.
    fn moment(&mut self, mark_ns: u64) -> Moment {
        let mut progress = Progress::default();
        let mut tool = Vec::new();
        for tick in &self.latest {
            let cpu = tick.as_ref().map_or_else(Cpu::default, |tick| {
                progress.add(&tick.progress);
                Cpu {
                    user: Duration::from_nanos(tick.cpu_user_ns),
                    system: Duration::from_nanos(tick.cpu_system_ns),
                }
            });
            tool.push(cpu);
        }
        Moment {
            mark_ns,
            progress,
            tool,
            own: Process::own().cpu().unwrap_or_default(),
            systems: self.systems.iter_mut().map(|s| s.read().ok()).collect(),
        }
    }

    fn connect(&mut self) -> Result<Moment, PlayError> {
        let is_done = |report: &Report| matches!(report, Report::Connected);
        self.let_all(&Command::Connect, is_done)?;
        let now_ns = monotonic_ns() - self.epoch_ns;
        Ok(self.moment(now_ns))
    }

    /// Lets all publishers send the messages that must be acknowledged before the load.
    fn warm_up(&mut self) -> Result<(), PlayError> {
        self.is_warming_up = true;
        let is_done = |report: &Report| matches!(report, Report::WarmedUp);
        self.let_all(&Command::WarmUp, is_done)
    }

    /// Gives a command to all workers and waits until each has said that it is done.
    fn let_all(
        &mut self,
        command: &Command,
        is_done: impl Fn(&Report) -> bool,
    ) -> Result<(), PlayError> {
        self.crew.tell_all(command)?;
        let mut done = 0;
        while done < self.crew.len() {
            let report = self.next_report()?;
            done += usize::from(is_done(&report));
        }
        Ok(())
    }

    /// Plays warm-up and measurement; returns the moments when the latter began and ended.
    fn load(
        &mut self,
        warm_up: Duration,
        duration: Duration,
    ) -> Result<(Moment, Moment), PlayError> {
        // A whole second, where the workers' marks are anyway.
        let soon_ns = monotonic_ns() - self.epoch_ns + LEAD_NS;
        let start_ns = soon_ns.next_multiple_of(SECOND_NS);
        let measure_ns = start_ns + warm_up.as_nanos() as u64;
        let timeline = Timeline {
            start_ns,
            measure_ns,
            end_ns: measure_ns + duration.as_nanos() as u64,
        };
        self.timeline = Some(timeline);
        self.crew.tell_all(&Command::Load(timeline))?;
        let (mut start, mut loaded) = (None, 0);
        while loaded < self.crew.len() {
            match self.next_report()? {
                Report::Loaded => loaded += 1,
                Report::Tick(_) if self.reached.mark_ns == measure_ns && start.is_none() => {
                    start = Some(self.reached.clone());
                }
                _ => {}
            }
        }
        let end = self.reached.clone();
        Ok((start.unwrap_or_else(|| end.clone()), end))
    }

    /// Waits until everything sent has arrived and is acknowledged, or nothing happens any more, and at least until
    /// `until_ns`.
    fn drain(&mut self, until_ns: u64) -> Result<(), PlayError> {
        let mut patience = Patience::start(DRAIN_PATIENCE);
        let mut complete_since_ns = None;
        loop {
            self.next_report()?;
            let progress = self.reached.progress;
            let totals = progress.totals;
            let is_over = patience.is_over(totals.sent + totals.acknowledged + totals.delivered);
            let now_ns = self.reached.mark_ns;
            if now_ns < until_ns {
                // What comes later than all else is seen too.
                continue;
            }
            let is_complete = progress.pending == 0 && progress.distinct >= progress.expected;
            if !is_complete {
                complete_since_ns = None;
            } else if now_ns - *complete_since_ns.get_or_insert(now_ns)
                >= DUPLICATES_WAIT.as_nanos() as u64
            {
                return Ok(());
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// The next report; ticks are booked.
    fn next_report(&mut self) -> Result<Report, PlayError> {
        loop {
            // Silence ends the wait by itself.
            let deadline = Instant::now() + ANSWER;
            let Some((index, report)) = self.crew.hear(deadline)? else {
                continue;
            };
            match &report {
                Report::Tick(tick) => self.book(index, tick)?,
                Report::Connected | Report::WarmedUp | Report::Loaded => {}
                _ => return Err(PlayError::OutOfTurn(self.crew.name(index).to_owned())),
            }
            return Ok(report);
        }
    }

    /// One report of a kind from each worker, in their order.
    fn collect<T>(
        &mut self,
        mut is_wanted: impl FnMut(Report) -> Result<T, Report>,
    ) -> Result<Vec<T>, PlayError> {
        let mut collected: Vec<Option<T>> = (0..self.crew.len()).map(|_| None).collect();
        while let Some(late) = collected.iter().position(Option::is_none) {
            let deadline = Instant::now() + ANSWER;
            let Some((index, report)) = self.crew.hear(deadline)? else {
                return Err(silent(&self.crew, late));
            };
            match is_wanted(report) {
                Ok(value) => collected[index] = Some(value),
                Err(Report::Tick(tick)) => self.book(index, &tick)?,
                Err(_) => return Err(PlayError::OutOfTurn(self.crew.name(index).to_owned())),
            }
        }
        Ok(collected.into_iter().flatten().collect())
    }

    fn book(&mut self, index: usize, tick: &Tick) -> Result<(), PlayError> {
        let of_mark = self.marks.entry(tick.mark_ns).or_default();
        of_mark.push(tick.clone());
        if of_mark.len() == self.crew.len() {
            add_all(&mut self.interval, of_mark);
            self.marks.remove(&tick.mark_ns);
            self.latest[index] = Some(tick.clone());
            self.reach(tick.mark_ns)?;
        }
        self.latest[index] = Some(tick.clone());
        Ok(())
    }

    /// All workers have reached a mark.
    fn reach(&mut self, mark_ns: u64) -> Result<(), PlayError> {
        self.reached = self.moment(mark_ns);
        let phase = self.phase(mark_ns);
        let is_second = mark_ns - self.last.mark_ns >= SECOND_NS;
        let is_border = self.timeline.is_some_and(|timeline| {
            [timeline.start_ns, timeline.measure_ns, timeline.end_ns].contains(&mark_ns)
        });
        if !is_second && !is_border {
            return Ok(());
        }
        self.sample(phase);
        if self.show_last_sample() {
            Ok(())
        } else {
            Err(PlayError::Cancelled)
        }
    }

    /// Shows the observer the last sample; whether it wants to see more.
    fn show_last_sample(&mut self) -> bool {
        let mark_ns = self.reached.mark_ns;
        let remaining = self
            .timeline
            .map(|timeline| Duration::from_nanos(timeline.end_ns.saturating_sub(mark_ns)));
        self.samples.last().is_none_or(|sample| {
            self.observer.observe(&News {
                sample,
                progress: &self.reached.progress,
                connections: self.connections,
                remaining,
            })
        })
    }

    fn phase(&self, mark_ns: u64) -> Phase {
        match self.timeline {
            Some(timeline) if mark_ns > timeline.end_ns => Phase::Drain,
            Some(timeline) if mark_ns > timeline.measure_ns => Phase::Measure,
            Some(timeline) if mark_ns > timeline.start_ns => Phase::WarmUp,
            _ if self.is_warming_up => Phase::WarmUp,
            _ => Phase::Connect,
        }
    }

    /// What happened from the last sample to the mark that was reached.
    fn sample(&mut self, phase: Phase) {
        let (before, now) = (&self.last, &self.reached);
        if now.mark_ns <= before.mark_ns {
            return;
        }
        let totals = now.progress.totals - before.progress.totals;
        let ms = |ns: u64| ns as f64 / 1e6;
        let has_times = !self.interval.is_empty();
        let usages = now.systems.iter().enumerate().map(|(number, reading)| {
            let now = reading.as_ref()?;
            Some(usage(before.reading(number).unwrap_or(now), now))
        });
        self.samples.push(Sample {
            at_s: now.mark_ns as f64 / 1e9,
            seconds: (now.mark_ns - before.mark_ns) as f64 / 1e9,
            phase,
            connections: now.progress.ready as u64,
            sent: totals.sent,
            acknowledged: totals.acknowledged,
            delivered: totals.delivered,
            bytes_out: now.progress.bytes.out - before.progress.bytes.out,
            bytes_in: now.progress.bytes.received - before.progress.bytes.received,
            mean_ms: has_times.then(|| self.interval.mean() / 1e6),
            p99_ms: has_times.then(|| ms(self.interval.value_at_quantile(0.99))),
            max_ms: has_times.then(|| ms(self.interval.max())),
            system: usages.collect(),
            shards: self.shards.count(&now.systems),
            tool_cpu_s: tool_cpu(before, now).total().as_secs_f64(),
            machine_load: host::Machine::load(),
        });
        self.interval.reset();
        self.last = self.reached.clone();
    }
}

fn add_all(interval: &mut Histogram<u64>, ticks: &[Tick]) {
    for tick in ticks {
        add_buckets(interval, &tick.interval);
    }
}

/// CPU time of all the tool's processes between two moments.
pub(crate) fn tool_cpu(before: &Moment, now: &Moment) -> Cpu {
    let mut all = now.own - before.own;
    for (number, cpu) in now.tool.iter().enumerate() {
        let used = *cpu - before.tool.get(number).copied().unwrap_or_default();
        all.user += used.user;
        all.system += used.system;
    }
    all
}

fn usage(before: &Reading, now: &Reading) -> Usage {
    let since = |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64();
    let grown = |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before?));
    Usage {
        cpu_user_s: since(before.cpu_user, now.cpu_user),
        cpu_system_s: since(before.cpu_system, now.cpu_system),
        resident_bytes: now.resident_bytes,
        threads: now.threads,
        descriptors: now.descriptors,
        network_in_bytes: grown(before.network_in_bytes, now.network_in_bytes),
        network_out_bytes: grown(before.network_out_bytes, now.network_out_bytes),
    }
}

#[cfg(test)]
mod tests;
