//! The life of a worker process: an order, ticks every second, and an end in order when that is asked for.
//!
//! Invariant: a worker whose coordinator is gone ends at once; no load goes on unwatched.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use mio::Waker;
use serde::{Deserialize, Serialize};

use super::counts::{Buckets, Counts, Reasons};
use super::order::Order;
use super::worker::{Moment, Worker};
use crate::engine::{EngineError, Share};
use crate::protocol::{read, write};

const SECOND_NS: u64 = 1_000_000_000;

/// How long to wait at the end for acknowledgements.
const DRAIN_NS: u64 = 5 * SECOND_NS;

/// How often to look whether all have come.
const DRAIN_STEP_NS: u64 = SECOND_NS / 50;

/// Commands that nobody has looked at yet; there are two in all.
const UNREAD_COMMANDS: usize = 4;

/// From the coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Comes first, and once: what is done, which share of it, and of how many.
    Start(Box<Order>, usize, usize),
    /// Those that have waited for all to be connected may publish.
    Begin,
    /// Come to an end.
    Stop,
}

/// From a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Tick(Box<Tick>),
    /// It cannot go on.
    Failed(String),
}

/// How far a worker is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Tick {
    pub(super) counts: Counts,
    /// Times since the tick before.
    pub(super) times: Buckets,
    pub(super) reasons: Reasons,
    /// All publishers have sent as much as they are to.
    pub(super) is_finished: bool,
    /// Nothing follows.
    pub(super) is_last: bool,
}

/// Serves one coordinator, which writes to `input` and reads from `output`, to its end.
///
/// # Errors
/// The connection failed, or the coordinator broke the protocol. What cannot be played is reported to the
/// coordinator and is no error here.
pub fn serve(mut input: impl Read + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let (order, share) = match read(&mut input) {
        Ok(Command::Start(order, index, of)) => (*order, Share { index, of }),
        Ok(_) => return Err(io::Error::new(ErrorKind::InvalidData, "no order came")),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
        Err(error) => return Err(error),
    };
    match play(order, share, input, &mut output) {
        Ok(()) => Ok(()),
        Err(Stop::Failed(error)) => write(&mut output, &Report::Failed(error.to_string())),
        Err(Stop::Io(error)) => Err(error),
    }
}

enum Stop {
    Failed(EngineError),
    Io(io::Error),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn play(
    order: Order,
    share: Share,
    input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<(), Stop> {
    let mut worker = Worker::new(order, share)?;
    let commands = listen(input, worker.waker()?);
    let mut tick_at = Moment::now().after(SECOND_NS);
    let mut has_told_end = false;
    loop {
        match commands.try_recv() {
            Ok(Command::Begin) => worker.begin(),
            Ok(Command::Stop) => break,
            Ok(Command::Start(..)) => {
                return Err(io::Error::new(ErrorKind::InvalidData, "a second order came").into());
            }
            Err(TryRecvError::Disconnected) => {
                worker.leave();
                return Ok(());
            }
            Err(TryRecvError::Empty) => {}
        }
        let tells_end = worker.is_finished() && !has_told_end;
        if Moment::now() >= tick_at || tells_end {
            write(output, &Report::Tick(Box::new(tick(&mut worker, false))))?;
            tick_at = Moment::now().after(SECOND_NS);
            has_told_end |= tells_end;
        }
        worker.turn(tick_at)?;
    }
    drain(&mut worker, &commands)?;
    let last = tick(&mut worker, true);
    worker.leave();
    write(output, &Report::Tick(Box::new(last)))?;
    Ok(())
}

fn tick(worker: &mut Worker, is_last: bool) -> Tick {
    Tick {
        counts: worker.counts(),
        times: worker.times().take(),
        reasons: worker.reasons().clone(),
        is_finished: worker.is_finished(),
        is_last,
    }
}

/// Waits for what is under way.
fn drain(worker: &mut Worker, commands: &Receiver<Command>) -> Result<(), EngineError> {
    worker.stop_publishing();
    let deadline = Moment::now().after(DRAIN_NS);
    while !worker.is_drained() && Moment::now() < deadline {
        if commands.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
        let step = Moment::now().after(DRAIN_STEP_NS);
        while Moment::now() < step {
            worker.turn(step)?;
        }
    }
    Ok(())
}

/// What the coordinator says from now on; disconnected when it is gone.
fn listen(mut input: impl Read + Send + 'static, waker: Arc<Waker>) -> Receiver<Command> {
    let (sender, receiver) = mpsc::sync_channel(UNREAD_COMMANDS);
    thread::spawn(move || {
        while let Ok(command) = read(&mut input)
            && sender.send(command).is_ok()
        {
            // It fails when the worker is at its end.
            let _ = waker.wake();
        }
        drop(sender);
        let _ = waker.wake();
    });
    receiver
}
