//! A whole run: rounds of work that end in a fault, and drains in which everything must arrive.
//!
//! Invariant: one thread plays all clients and the fault, so the model's order of facts is the order in
//! which they happened here.

mod drain;
mod pace;
mod report;
mod round;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::cast::{Cast, Numbers};
use crate::chance::Chance;
use crate::faults::{Filesystem, Folder, PowerError, Shim};
use crate::model::{MessageIndex, Model};
use crate::subject::{Process, Subject};
use crate::verify::{Kind, Violation};
use pace::Pace;

/// What ends a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGKILL: what was written is there.
    Kill,
    /// SIGKILL, and what was not synced is gone.
    Power,
    /// The disk takes nothing for a while; then as [`Fault::Power`].
    Full,
    /// From some sync on, all fail; then as [`Fault::Power`]. The broker may end by itself.
    Fsync,
    /// As [`Fault::Power`], as soon as the broker has closed the connection of a client with a will that has
    /// disconnected.
    Leave,
    /// SIGTERM in the midst of work.
    Stop,
    /// All connections break, and the broker lives: what any broker must stand.
    Cut,
}

impl Fault {
    fn needs_shim(self) -> bool {
        matches!(self, Self::Power | Self::Full | Self::Fsync | Self::Leave)
    }
}

/// What survives of that which was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynced {
    /// Nothing.
    Lost,
    /// Some of it.
    Torn,
    /// The one or the other, round by round.
    Either,
}

/// What to play.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many rounds.
    pub rounds: u32,
    /// Repeats the choices of a run.
    pub seed: u64,
    /// What ends a round.
    pub fault: Fault,
    /// How many clients.
    pub numbers: Numbers,
    /// Rounds between drains.
    pub drain_every: u32,
    /// What makes names durable.
    pub filesystem: Filesystem,
    /// What a loss of power leaves.
    pub unsynced: Unsynced,
    /// How long nothing may happen in a drain before what is missing counts as lost.
    pub patience: Duration,
}

/// Why a run could not go on.
#[derive(Debug)]
pub enum RunError {
    /// The system failed.
    Io(io::Error),
    /// The broker did not start, with its last words.
    Start(io::Error, String),
    /// A client without a session was not served.
    Visit(io::Error),
    /// The loss of power could not be played.
    Power(PowerError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Start(error, log) => write!(f, "the broker did not start: {error}\n{log}"),
            Self::Visit(error) => write!(f, "a new client was not served: {error}"),
            Self::Power(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<PowerError> for RunError {
    fn from(error: PowerError) -> Self {
        Self::Power(error)
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Violations by kind.
    pub violations: BTreeMap<Kind, usize>,
    /// Messages that were published.
    pub messages: usize,
    /// Of these: acknowledged.
    pub acknowledged: usize,
    /// PUBLISH packets that clients received.
    pub receipts: usize,
    /// Unsynced writes and names that were taken back.
    pub taken_back: usize,
    /// Writes and syncs that the shim refused.
    pub refused: u32,
}

/// A run under way.
pub struct Run<'a> {
    options: Options,
    subject: Subject,
    shim: Option<Shim>,
    out: &'a mut dyn Write,
    model: Model,
    cast: Cast,
    chance: Chance,
    /// Since when the round lasts, and which it is.
    began: Instant,
    round: u32,
    pace: Pace,
    broker: Option<Broker>,
    /// The first message that the last drain has not seen.
    undrained: MessageIndex,
    reported: HashSet<Violation>,
    summary: Summary,
}

/// The running broker, and what was in its folder before.
struct Broker {
    process: Process,
    before: Option<Folder>,
}

impl<'a> Run<'a> {
    /// Prepares a run. Violations and progress go to `out`.
    ///
    /// # Errors
    /// The shim cannot be built.
    pub fn new(options: Options, subject: Subject, out: &'a mut dyn Write) -> io::Result<Self> {
        let shim = options
            .fault
            .needs_shim()
            .then(|| Shim::build(&subject.work))
            .transpose()?;
        let mut model = Model::default();
        Ok(Self {
            cast: Cast::new(options.numbers, &mut model),
            chance: Chance::new(options.seed),
            options,
            subject,
            shim,
            out,
            model,
            began: Instant::now(),
            round: 0,
            pace: Pace::default(),
            broker: None,
            undrained: 0,
            reported: HashSet::new(),
            summary: Summary::default(),
        })
    }

    /// Plays it.
    ///
    /// # Errors
    /// The broker does not start again; the tool's own failures.
    pub fn play(mut self) -> Result<Summary, RunError> {
        for round in 1..=self.options.rounds {
            self.play_round(round)?;
            if round % self.options.drain_every == 0 || round == self.options.rounds {
                self.drain()?;
                self.report()?;
            }
        }
        Ok(self.summarise())
    }

    /// Starts the broker if it does not run. It may not listen yet.
    fn start_broker(&mut self) -> Result<(), RunError> {
        if self.broker.is_some() {
            return Ok(());
        }
        let data = self.subject.data();
        std::fs::create_dir_all(&data)?;
        let before = match &self.shim {
            Some(shim) => {
                shim.reset()?;
                Some(Folder::look(&data)?)
            }
            None => None,
        };
        self.broker = Some(Broker {
            process: self.subject.start(self.shim.as_ref())?,
            before,
        });
        Ok(())
    }

    fn await_broker(&mut self) -> Result<(), RunError> {
        if let Some(broker) = &mut self.broker {
            broker
                .process
                .wait_ready()
                .map_err(|error| RunError::Start(error, self.subject.last_words()))?;
        }
        Ok(())
    }

    /// How the broker has ended, if it did by itself.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.broker {
            Some(broker) => broker.process.ended(),
            None => Ok(None),
        }
    }

    /// SIGTERM; the broker must end in order.
    fn stop_broker(&mut self) -> io::Result<()> {
        if let Some(mut broker) = self.broker.take() {
            let status = broker.process.stop()?;
            if !status.success() {
                self.note_exit(status);
            }
        }
        Ok(())
    }

    fn note_exit(&mut self, status: ExitStatus) {
        let at = self.model.tick();
        let how = format!("{status}: {}", self.subject.last_words());
        self.model.exits.push((at, how));
    }

    fn set_time(&mut self) {
        let ms = u32::try_from(self.began.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.model.set_time(self.round, ms);
    }
}
