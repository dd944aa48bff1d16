//! A worker: plays its share of a workload as a coordinator tells it.
//!
//! Call order: [`run`] until the coordinator closes the connection.
//!
//! Invariant: a worker whose coordinator is gone ends at once; no load goes on unwatched.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;

use mio::Waker;

use crate::clock::monotonic_ns;
use crate::engine::{Engine, EngineError, OnTurn, PartOutcome, Share, warm_up};
use crate::meter::buckets;
use crate::protocol::{
    Command, Finish, Order, PartFinish, Report, Tick, Timeline, VERSION, next_mark, read, write,
};
use host::{Cpu, Process};

/// Serves one coordinator, which writes to `input` and reads from `output`, to its end.
///
/// # Errors
/// The connection failed, or the coordinator broke the protocol. A load that failed is reported to the
/// coordinator and is no error here.
pub fn run(input: impl Read + Send + 'static, mut output: impl Write) -> io::Result<()> {
    write(&mut output, &Report::Hello(VERSION.to_owned()))?;
    let commands = Commands::listen(input);
    let Some(order) = prepare(&commands, &mut output)? else {
        return Ok(());
    };
    let result = Worker::new(&order, &commands, &mut output).and_then(|mut worker| {
        let played = worker.play();
        worker.engine.close();
        played
    });
    match result {
        Ok(()) | Err(Stop::Gone) => Ok(()),
        Err(Stop::Failed(error)) => write(&mut output, &Report::Failed(error.to_string())),
        Err(Stop::Io(error)) => Err(error),
    }
}

/// Commands that nobody has looked at yet; a coordinator that says more waits.
const UNREAD_COMMANDS: usize = 64;

/// What the coordinator says, and who has to be woken when it does.
struct Commands {
    receiver: Receiver<io::Result<Command>>,
    waker: Arc<OnceLock<Arc<Waker>>>,
}

impl Commands {
    fn listen(mut input: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::sync_channel(UNREAD_COMMANDS);
        let waker: Arc<OnceLock<Arc<Waker>>> = Arc::default();
        let wakes = waker.clone();
        thread::spawn(move || {
            loop {
                let command = read(&mut input);
                let is_last = command.is_err();
                if sender.send(command).is_err() || is_last {
                    break;
                }
                // Before there is one, nobody waits for anything but commands.
                wakes.get().map(|waker| waker.wake());
            }
            drop(sender);
            wakes.get().map(|waker| waker.wake());
        });
        Self { receiver, waker }
    }
}

/// Why the play ends early.
enum Stop {
    /// The coordinator has closed the connection.
    Gone,
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

/// Answers pings until the order comes; `None` if the coordinator leaves.
fn prepare(commands: &Commands, output: &mut impl Write) -> io::Result<Option<Order>> {
    while let Ok(Ok(command)) = commands.receiver.recv() {
        match command {
            Command::Ping(sent_ns) => pong(output, sent_ns)?,
            Command::Prepare(order) => return Ok(Some(*order)),
            _ => return Err(out_of_turn()),
        }
    }
    Ok(None)
}

fn pong(output: &mut impl Write, sent_ns: u64) -> io::Result<()> {
    write(output, &Report::Pong(sent_ns, monotonic_ns()))
}

fn out_of_turn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a command out of turn")
}

struct Worker<'a, W> {
    engine: Engine,
    commands: &'a Commands,
    output: &'a mut W,
    epoch_ns: u64,
    /// The mark of the tick that comes next.
    mark_ns: u64,
    timeline: Option<Timeline>,
}

impl<'a, W: Write> Worker<'a, W> {
    fn new(order: &Order, commands: &'a Commands, output: &'a mut W) -> Result<Self, Stop> {
        let share = Share {
            index: order.index,
            of: order.of,
        };
        let (workload, target) = (order.workload.clone(), order.target.clone());
        let engine = Engine::new(workload, share, target, &order.prefix, order.epoch_ns)?;
        // Only this worker sets it.
        let _ = commands.waker.set(engine.waker()?);
        write(output, &Report::Prepared(engine.connections()))?;
        Ok(Self {
            engine,
            commands,
            output,
            epoch_ns: order.epoch_ns,
            mark_ns: next_mark(0, None),
            timeline: None,
        })
    }

    fn play(&mut self) -> Result<(), Stop> {
        match self.next_command()? {
            Command::Connect => {
                self.go(|engine, on_turn| engine.connect(usize::MAX, on_turn))?;
            }
            _ => return Err(out_of_turn().into()),
        }
        write(self.output, &Report::Connected)?;
        loop {
            match self.next_command()? {
                Command::WarmUp => {
                    self.go(|engine, on_turn| warm_up(engine, on_turn))?;
                    write(self.output, &Report::WarmedUp)?;
                }
                Command::Load(timeline) => self.load(timeline)?,
                Command::Ping(sent_ns) => pong(self.output, sent_ns)?,
                Command::Settle => break,
                _ => return Err(out_of_turn().into()),
            }
        }
        self.engine.settle();
        write(self.output, &Report::Settled(self.engine.sent()))?;
        match self.next_command()? {
            Command::Finish(sent) => {
                let finish = self.finish(&sent);
                write(self.output, &Report::Finished(Box::new(finish)))?;
            }
            _ => return Err(out_of_turn().into()),
        }
        loop {
            match self.next_command()? {
                Command::Ping(sent_ns) => pong(self.output, sent_ns)?,
                _ => return Err(out_of_turn().into()),
            }
        }
    }

    /// Keeps the load and the ticks going until a command comes.
    fn next_command(&mut self) -> Result<Command, Stop> {
        loop {
            if let Some(command) = poll_command(self.commands)? {
                return Ok(command);
            }
            self.tick()?;
            self.engine.turn(self.epoch_ns + self.mark_ns)?;
        }
    }

    /// Does what takes many turns of the engine, with the ticks that are due after each.
    fn go(
        &mut self,
        step: impl FnOnce(&mut Engine, &mut OnTurn<'_>) -> Result<(), EngineError>,
    ) -> Result<(), Stop> {
        let Self {
            engine,
            commands,
            output,
            epoch_ns,
            mark_ns,
            ..
        } = self;
        let mut stop = None;
        let done = step(engine, &mut |engine| {
            // The connection to the coordinator matters more than the broker: its end ends the wait.
            let mut ticked = || -> Result<(), Stop> {
                if poll_command(commands)?.is_some() {
                    return Err(out_of_turn().into());
                }
                send_due_ticks(engine, *output, *epoch_ns, mark_ns, None)
            };
            match ticked() {
                Ok(()) => Ok(Some(*epoch_ns + *mark_ns)),
                Err(reason) => {
                    stop = Some(reason);
                    Err(EngineError::Io(io::ErrorKind::Interrupted.into()))
                }
            }
        });
        match stop {
            Some(reason) => Err(reason),
            None => Ok(done?),
        }
    }

    fn load(&mut self, timeline: Timeline) -> Result<(), Stop> {
        self.timeline = Some(timeline);
        let local = |ns: u64| self.epoch_ns + ns;
        let measured_ns = local(timeline.measure_ns)..local(timeline.end_ns);
        self.engine.begin(local(timeline.start_ns), measured_ns);
        let end_ns = local(timeline.end_ns);
        while self.mark_ns <= timeline.end_ns {
            if poll_command(self.commands)?.is_some() {
                return Err(out_of_turn().into());
            }
            self.engine
                .turn(end_ns.min(local_mark(self.epoch_ns, self.mark_ns)))?;
            self.tick()?;
        }
        write(self.output, &Report::Loaded)?;
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Stop> {
        send_due_ticks(
            &mut self.engine,
            self.output,
            self.epoch_ns,
            &mut self.mark_ns,
            self.timeline,
        )
    }

    fn finish(&self, sent: &[Vec<u32>]) -> Finish {
        let (connect, subscribe) = self.engine.connect_times();
        let part = |outcome: PartOutcome<'_>| PartFinish {
            totals: outcome.totals,
            findings: outcome.findings,
            acknowledged: outcome.acknowledged.to_vec(),
            deliver: outcome.times.map_or_else(Vec::new, |t| buckets(&t.deliver)),
            acknowledge: outcome
                .times
                .map_or_else(Vec::new, |t| buckets(&t.acknowledge)),
            due_to_sent: outcome
                .times
                .map_or_else(Vec::new, |t| buckets(&t.due_to_sent)),
            tool_lateness: outcome
                .times
                .map_or_else(Vec::new, |t| buckets(&t.tool_lateness)),
        };
        Finish {
            parts: self.engine.findings(sent).into_iter().map(part).collect(),
            connect: buckets(connect),
            subscribe: buckets(subscribe),
            complaints: self.engine.complaints(),
        }
    }
}

fn local_mark(epoch_ns: u64, mark_ns: u64) -> u64 {
    epoch_ns.saturating_add(mark_ns)
}

fn poll_command(commands: &Commands) -> Result<Option<Command>, Stop> {
    match commands.receiver.try_recv() {
        Ok(Ok(command)) => Ok(Some(command)),
        Err(TryRecvError::Empty) => Ok(None),
        Ok(Err(_)) | Err(TryRecvError::Disconnected) => Err(Stop::Gone),
    }
}

/// Sends a tick for each mark that has come.
fn send_due_ticks(
    engine: &mut Engine,
    output: &mut impl Write,
    epoch_ns: u64,
    mark_ns: &mut u64,
    timeline: Option<Timeline>,
) -> Result<(), Stop> {
    while monotonic_ns() >= local_mark(epoch_ns, *mark_ns) {
        let Cpu { user, system } = Process::own().cpu()?;
        let tick = Tick {
            mark_ns: *mark_ns,
            progress: engine.progress(),
            interval: engine.take_interval(),
            cpu_user_ns: user.as_nanos() as u64,
            cpu_system_ns: system.as_nanos() as u64,
        };
        write(output, &Report::Tick(Box::new(tick)))?;
        *mark_ns = next_mark(*mark_ns, timeline);
    }
    Ok(())
}
