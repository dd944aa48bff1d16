//! A run as its coordinator sees it: worker processes, and what they tell.
//!
//! Call order: [`Run::start`]; [`Run::hear`] at least every few seconds; [`Run::stop`].
//!
//! Invariant: workers do not outlive the run; one that is lost or silent ends it, by an error.

use std::io::{self, BufReader, BufWriter};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Program, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use mqtt_proto::QoS;

use super::counts::{Count, Counts, Reasons, Times};
use super::order::{Activity, Order};
use super::serve::{Command, Report, Tick};
use crate::protocol::{read, write};

/// How long a worker may say nothing; it speaks every second.
const SILENCE: Duration = Duration::from_secs(15);

/// How long workers may take to end: acknowledgements are waited for.
const ENDING: Duration = Duration::from_secs(10);

/// Reports that nobody has looked at yet; further ones stay with their workers.
const UNREAD_REPORTS: usize = 1_024;

/// Why a run ends early.
#[derive(Debug)]
pub enum RunError {
    /// A worker process could not be started or told something.
    Start(io::Error),
    /// A worker, by its number, is gone.
    Lost(usize, io::Error),
    /// A worker, by its number, says nothing any more.
    Silent(usize),
    /// What a worker said when it could not go on.
    Failed(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "worker cannot be started: {error}"),
            Self::Lost(worker, error) => write!(f, "worker {worker} is gone: {error}"),
            Self::Silent(worker) => {
                write!(f, "worker {worker} was silent for {} s", SILENCE.as_secs())
            }
            Self::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for RunError {}

/// A worker process.
#[derive(Debug)]
struct Hired {
    child: Child,
    /// `None` once nothing more is to be said.
    input: Option<ChildStdin>,
    heard: Instant,
    latest: Latest,
}

/// What a worker has told last.
#[derive(Debug, Default)]
struct Latest {
    counts: Counts,
    reasons: Reasons,
    is_finished: bool,
    is_last: bool,
}

/// Clients that go on until they are stopped.
#[derive(Debug)]
pub struct Run {
    workers: Vec<Hired>,
    reports: Receiver<(usize, io::Result<Report>)>,
    clients: usize,
    /// Whether messages above QoS 0 are published.
    is_acknowledged: bool,
    is_begun: bool,
    total: Times,
    interval: Times,
}

impl Run {
    /// Starts `workers` processes of `program` with `arguments`, each of which has to run [`super::serve`] on its
    /// standard input and output. `sources` are by worker the addresses to connect from, or empty: those of the
    /// order.
    ///
    /// # Errors
    /// A process cannot be started; those that were end.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        order: &Order,
        workers: usize,
        sources: &[Vec<IpAddr>],
    ) -> Result<Self, RunError> {
        let (sender, reports) = mpsc::sync_channel(UNREAD_REPORTS);
        let mut run = Self {
            workers: Vec::new(),
            reports,
            clients: order.clients.count,
            is_acknowledged: matches!(
                &order.activity,
                Activity::Publish(publishing) if publishing.qos != QoS::AtMostOnce
            ),
            is_begun: false,
            total: Times::default(),
            interval: Times::default(),
        };
        for index in 0..workers {
            let mut child = Program::new(program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(RunError::Start)?;
            let input = child.stdin.take();
            let output = child.stdout.take().expect("standard output is a pipe");
            run.workers.push(Hired {
                child,
                input,
                heard: Instant::now(),
                latest: Latest::default(),
            });
            let sender = sender.clone();
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                loop {
                    let report = read(&mut output);
                    let is_last = report.is_err();
                    if sender.send((index, report)).is_err() || is_last {
                        break;
                    }
                }
            });
            let mut order = order.clone();
            if let Some(sources) = sources.get(index) {
                order.target.sources.clone_from(sources);
            }
            run.tell(index, &Command::Start(Box::new(order), index, workers))?;
        }
        Ok(run)
    }

    /// What workers tell until `wait` is over.
    ///
    /// # Errors
    /// A worker is lost, silent or cannot go on.
    pub fn hear(&mut self, wait: Duration) -> Result<(), RunError> {
        let deadline = Instant::now() + wait;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok((index, report)) = self.reports.recv_timeout(left()) {
            self.take(index, report)?;
        }
        let is_silent = |worker: &Hired| !worker.latest.is_last && worker.heard.elapsed() > SILENCE;
        match self.workers.iter().position(is_silent) {
            Some(index) => Err(RunError::Silent(index)),
            None => Ok(()),
        }
    }

    fn take(&mut self, index: usize, report: io::Result<Report>) -> Result<(), RunError> {
        let worker = &mut self.workers[index];
        worker.heard = Instant::now();
        match report {
            Ok(Report::Tick(tick)) => {
                let Tick {
                    counts,
                    times,
                    reasons,
                    is_finished,
                    is_last,
                } = *tick;
                self.total.add(&times);
                self.interval.add(&times);
                worker.latest = Latest {
                    counts,
                    reasons,
                    is_finished,
                    is_last,
                };
                Ok(())
            }
            Ok(Report::Failed(message)) => Err(RunError::Failed(message)),
            Err(_) if worker.latest.is_last => Ok(()),
            Err(error) => Err(RunError::Lost(index, error)),
        }
    }

    /// Lets those publish that have waited for all to be connected. Only the first call does anything.
    ///
    /// # Errors
    /// A worker is lost.
    pub fn begin(&mut self) -> Result<(), RunError> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        (0..self.workers.len()).try_for_each(|index| self.tell(index, &Command::Begin))
    }

    /// Stops publishing, waits for acknowledgements, disconnects all, and waits for the workers' last word.
    ///
    /// # Errors
    /// A worker is lost or does not come to an end.
    pub fn stop(&mut self) -> Result<(), RunError> {
        (0..self.workers.len()).try_for_each(|index| self.tell(index, &Command::Stop))?;
        let deadline = Instant::now() + ENDING;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Some(index) = self.workers.iter().position(|w| !w.latest.is_last) {
            match self.reports.recv_timeout(left()) {
                Ok((index, report)) => self.take(index, report)?,
                Err(_) => return Err(RunError::Silent(index)),
            }
        }
        Ok(())
    }

    fn tell(&mut self, index: usize, command: &Command) -> Result<(), RunError> {
        let told = match &mut self.workers[index].input {
            Some(input) => write(&mut BufWriter::new(input), command),
            None => Ok(()),
        };
        told.map_err(RunError::Start)
    }

    /// How many clients there should be.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// Whether clients publish messages that brokers acknowledge: above QoS 0.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Of all workers, as they told last.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.workers.iter().for_each(|w| counts += w.latest.counts);
        counts
    }

    /// What failed, and how often; the most frequent first.
    #[must_use]
    pub fn reasons(&self) -> Vec<(String, u64)> {
        let mut all = Reasons::default();
        for worker in &self.workers {
            for (reason, &count) in &worker.latest.reasons.0 {
                all.add(reason.clone(), count);
            }
        }
        let mut reasons: Vec<_> = all.0.into_iter().collect();
        reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        reasons
    }

    /// Whether all publishers have sent as much as they are to, and know that it has arrived.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(|worker| worker.latest.is_finished)
    }

    /// Whether everybody has tried to connect.
    #[must_use]
    pub fn have_all_attempted(&self) -> bool {
        self.counts()[Count::Attempted] >= self.clients as u64
    }

    /// Of the whole run.
    #[must_use]
    pub fn times(&self) -> &Times {
        &self.total
    }

    /// Times since [`Run::forget_interval`].
    #[must_use]
    pub fn interval(&self) -> &Times {
        &self.interval
    }

    /// Begins the next interval.
    pub fn forget_interval(&mut self) {
        self.interval.reset();
    }
}

impl Drop for Run {
    /// Workers end when their input does.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.input = None;
        }
        let deadline = Instant::now() + ENDING;
        for worker in &mut self.workers {
            while !matches!(worker.child.try_wait(), Ok(Some(_)) | Err(_)) {
                if Instant::now() >= deadline {
                    let _ = worker.child.kill().and_then(|()| worker.child.wait());
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}
