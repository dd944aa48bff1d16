//! Plays a scenario: one thread, one epoll instance, all connections.
//!
//! Call order: [`Engine::new`], [`Engine::connect`] (in steps if wanted), [`Engine::load`] (first to warm
//! up, then to measure), [`Engine::drain`], [`Engine::outcome`], [`Engine::close`]. Between the steps the caller may look at
//! the broker's CPU and memory.
//!
//! A turn reads all that is ready, publishes what is due, and writes each touched connection once.
//!
//! Deliberately absent: reconnecting. A connection that breaks ends the run: figures of a run in which
//! clients fell away would not mean what they say.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::{fmt, io};

use mio::{Events, Poll, Token};

use crate::client::{Client, ClientError, Options};
use crate::clock::{Timer, monotonic_ns};
use crate::scenario::{Pace, Scenario, ScenarioError};
use crate::schedule::Schedule;
use crate::traffic::{Outcome, Totals, Traffic};

const TIMER: Token = Token(usize::MAX);

/// Events taken from the kernel in a turn.
const EVENTS: usize = 1024;

/// Connections that may be on their way to ready at a time; more would overflow a small backlog.
const CONNECTING: usize = 128;

/// Where the local ports of [`Target::sources`] begin. They are counted up here because the kernel, asked
/// to find a free port for a bound address, takes hundreds of µs for each once thousands are in use.
const FIRST_LOCAL_PORT: u16 = 32_768;

/// How long nothing may happen before a wait is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long [`Engine::drain`] waits for a message while some are missing.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// How long [`Engine::drain`] looks for duplicates when nothing is missing.
const DUPLICATES_WAIT: Duration = Duration::from_millis(100);

/// The broker under load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its listener.
    pub address: SocketAddr,
    /// Addresses of this machine to connect from in turn, for more connections than one address has
    /// ports. Empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
}

/// Why a run ended early.
#[derive(Debug)]
pub enum EngineError {
    /// The scenario cannot be played.
    Scenario(ScenarioError),
    /// The kernel refused something that is not a client's socket.
    Io(io::Error),
    /// A client failed.
    Client {
        /// Its number: subscribers first, then publishers, then the background.
        index: usize,
        /// What happened.
        error: ClientError,
    },
    /// Clients wait for answers that do not come.
    ConnectTimeout {
        /// Those that are connected and subscribed.
        ready: usize,
        /// Those that should be.
        wanted: usize,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Io(error) => write!(f, "event loop: {error}"),
            Self::Client { index, error } => write!(f, "client {index}: {error}"),
            Self::ConnectTimeout { ready, wanted } => {
                write!(
                    f,
                    "only {ready} of {wanted} clients got connected and subscribed"
                )
            }
        }
    }
}

impl std::error::Error for EngineError {}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ScenarioError> for EngineError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

/// The publishing half of a client.
#[derive(Debug)]
struct Publisher {
    topic: String,
    /// Due times of messages that had no room yet.
    waiting: VecDeque<u64>,
}

/// A scenario being played.
#[derive(Debug)]
pub struct Engine {
    scenario: Scenario,
    target: Target,
    poll: Poll,
    events: Events,
    timer: Timer,
    /// Subscribers first, then publishers, then the background.
    clients: Vec<Client>,
    publishers: Vec<Publisher>,
    traffic: Traffic,
    /// Clients with bytes to write.
    touched: Vec<usize>,
    /// Messages in all `waiting` queues.
    waiting: usize,
    read_buffer: Vec<u8>,
    payload: Vec<u8>,
}

impl Engine {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// The scenario makes no sense; no epoll instance or timer could be made.
    pub fn new(scenario: Scenario, target: Target) -> Result<Self, EngineError> {
        scenario.check()?;
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let topology = scenario.topology;
        let publishers = (0..topology.publishers()).map(|number| Publisher {
            topic: topology.topic(&scenario.prefix, number),
            waiting: VecDeque::new(),
        });
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            clients: Vec::new(),
            publishers: publishers.collect(),
            traffic: Traffic::new(&topology),
            touched: Vec::new(),
            waiting: 0,
            read_buffer: Vec::new(),
            payload: vec![0; scenario.payload_len],
            scenario,
            target,
        })
    }

    /// Counts so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.traffic.totals
    }

    /// What came of it so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.traffic.outcome()
    }

    /// Connects and subscribes until `wanted` clients in all are ready; subscribers come first, the
    /// background last.
    ///
    /// # Errors
    /// A client failed, or the broker stopped answering.
    pub fn connect(&mut self, wanted: usize) -> Result<(), EngineError> {
        let wanted = wanted.min(self.scenario.connections());
        let mut progress = Progress::start(PATIENCE);
        let per_second = self.scenario.connect_rate.unwrap_or(f64::INFINITY);
        let mut schedule = Schedule::new(monotonic_ns(), per_second, 1);
        while self.traffic.ready < wanted {
            while self.clients.len() < wanted
                && self.clients.len() - self.traffic.ready < CONNECTING
                && schedule.take(monotonic_ns() + 1).is_some()
            {
                self.open()?;
            }
            // Past, the next one waits for others to get ready, and these wake by themselves.
            if self.clients.len() < wanted && schedule.next_due_ns() > monotonic_ns() {
                self.timer.arm(schedule.next_due_ns())?;
            }
            self.turn(Some(progress.left()))?;
            if progress.is_over(self.traffic.ready as u64) {
                return Err(EngineError::ConnectTimeout {
                    ready: self.traffic.ready,
                    wanted,
                });
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), EngineError> {
        let index = self.clients.len();
        let Scenario {
            topology, prefix, ..
        } = &self.scenario;
        let filter = (index < topology.subscribers()).then(|| topology.filter(prefix, index));
        let options = Options {
            version: self.scenario.version,
            client_id: &format!("{prefix}-{index}"),
            clean_session: self.scenario.clean_session || filter.is_none(),
            subscription: filter.as_deref().map(|filter| (filter, self.scenario.qos)),
        };
        let sources = &self.target.sources;
        let local = sources.get(index % sources.len().max(1)).map(|&source| {
            let port = FIRST_LOCAL_PORT.saturating_add((index / sources.len()) as u16);
            SocketAddr::from((source, port))
        });
        self.traffic.open(monotonic_ns());
        let client = Client::open(
            self.target.address,
            local,
            self.poll.registry(),
            Token(index),
            options,
        );
        self.clients
            .push(client.map_err(|error| EngineError::Client { index, error })?);
        self.touched.push(index);
        Ok(())
    }

    /// Sends at the scenario's pace for a while, or just waits if nobody publishes; all clients must be
    /// connected. If `record`, the
    /// latencies of the messages due meanwhile are kept.
    ///
    /// # Errors
    /// A client failed.
    pub fn load(&mut self, duration: Duration, record: bool) -> Result<(), EngineError> {
        let start_ns = monotonic_ns();
        let until_ns = start_ns + duration.as_nanos() as u64;
        if record {
            self.traffic.record(start_ns..until_ns);
        }
        // Left over from an earlier load; this one starts with all publishers.
        self.traffic.freed.clear();
        match self.scenario.pace {
            _ if self.publishers.is_empty() => self.hold(until_ns),
            Pace::Open { per_second } => self.load_open(start_ns, until_ns, per_second),
            Pace::Closed { .. } => self.load_closed(until_ns),
        }
    }

    fn hold(&mut self, until_ns: u64) -> Result<(), EngineError> {
        self.timer.arm(until_ns)?;
        while monotonic_ns() < until_ns {
            self.turn(None)?;
        }
        Ok(())
    }

    fn load_open(
        &mut self,
        start_ns: u64,
        until_ns: u64,
        per_second: f64,
    ) -> Result<(), EngineError> {
        let mut schedule = Schedule::new(start_ns, per_second, self.publishers.len());
        loop {
            let now_ns = monotonic_ns();
            while let Some((publisher, due_ns)) = schedule.take(until_ns.min(now_ns + 1)) {
                self.traffic.look(due_ns, now_ns);
                self.publishers[publisher].waiting.push_back(due_ns);
                self.waiting += 1;
                self.send_waiting(publisher, now_ns)?;
            }
            self.flush()?;
            if now_ns >= until_ns {
                return Ok(());
            }
            self.timer.arm(schedule.next_due_ns().min(until_ns))?;
            self.turn(None)?;
        }
    }

    fn load_closed(&mut self, until_ns: u64) -> Result<(), EngineError> {
        self.traffic.freed.extend(0..self.publishers.len());
        self.timer.arm(until_ns)?;
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                return Ok(());
            }
            self.fill_windows(now_ns)?;
            self.flush()?;
            self.turn(None)?;
        }
    }

    /// Waits until everything sent has arrived and is acknowledged, or nothing happens any more.
    ///
    /// # Errors
    /// A client failed.
    pub fn drain(&mut self) -> Result<(), EngineError> {
        let mut progress = Progress::start(DRAIN_PATIENCE);
        while !(self.traffic.is_complete() && self.waiting == 0 && self.is_acknowledged()) {
            self.turn(Some(progress.left()))?;
            let Totals {
                sent,
                acknowledged,
                delivered,
            } = self.traffic.totals;
            if progress.is_over(sent + acknowledged + delivered) {
                return Ok(());
            }
        }
        let mut progress = Progress::start(DUPLICATES_WAIT);
        while !progress.is_over(0) {
            self.turn(Some(progress.left()))?;
        }
        Ok(())
    }

    /// Takes leave of the broker, which ends persistent sessions too (in 5.0). Nobody waits for a
    /// socket that takes no more bytes.
    ///
    /// # Errors
    /// A client failed.
    pub fn close(mut self) -> Result<(), EngineError> {
        for (index, client) in self.clients.iter_mut().enumerate() {
            let closed = client.close().map_err(ClientError::from);
            closed
                .and_then(|()| client.flush())
                .map_err(|error| EngineError::Client { index, error })?;
        }
        Ok(())
    }

    fn is_acknowledged(&self) -> bool {
        self.clients
            .iter()
            .all(|client| client.unacknowledged() == 0)
    }

    /// Waits for something to happen and handles it.
    fn turn(&mut self, timeout: Option<Duration>) -> Result<(), EngineError> {
        self.flush()?;
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        self.traffic.now_ns = monotonic_ns();
        for event in &self.events {
            let index = event.token().0;
            // Also the timer, which is nobody's.
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            let traffic = &mut self.traffic;
            let mut result = Ok(());
            if event.is_readable() {
                result = client.read(&mut self.read_buffer, &mut |event| {
                    traffic.handle(index, event)
                });
            }
            if event.is_read_closed() {
                result = result.and(Err(ClientError::Closed));
            }
            result.map_err(|error| EngineError::Client { index, error })?;
            if client.has_output() {
                self.touched.push(index);
            }
            // A socket that had refused bytes may have made room for messages that wait.
            if let Some(publisher) = index.checked_sub(self.scenario.topology.subscribers())
                && publisher < self.publishers.len()
                && event.is_writable()
                && self.waiting > 0
            {
                self.traffic.freed.push(publisher);
            }
        }
        // First, because a connection with much to write has no room for more.
        self.flush()?;
        if self.waiting > 0 {
            let mut freed = std::mem::take(&mut self.traffic.freed);
            for publisher in freed.drain(..) {
                self.send_waiting(publisher, self.traffic.now_ns)?;
            }
            self.traffic.freed = freed;
        } else if matches!(self.scenario.pace, Pace::Open { .. }) {
            self.traffic.freed.clear();
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        for index in self.touched.drain(..) {
            let flushed = self.clients[index].flush();
            flushed.map_err(|error| EngineError::Client { index, error })?;
        }
        Ok(())
    }

    /// Publishes what was due before, as far as there is room.
    fn send_waiting(&mut self, publisher: usize, now_ns: u64) -> Result<(), EngineError> {
        while let Some(&due_ns) = self.publishers[publisher].waiting.front()
            && self.publish(publisher, due_ns, now_ns)?
        {
            self.publishers[publisher].waiting.pop_front();
            self.waiting -= 1;
        }
        Ok(())
    }

    /// Fills the windows of the publishers that may have room.
    fn fill_windows(&mut self, now_ns: u64) -> Result<(), EngineError> {
        let Pace::Closed { window } = self.scenario.pace else {
            return Ok(());
        };
        let subscribers = self.scenario.topology.subscribers();
        let mut freed = std::mem::take(&mut self.traffic.freed);
        for publisher in freed.drain(..) {
            let unacknowledged = self.clients[subscribers + publisher].unacknowledged();
            let under_way = unacknowledged.max(self.traffic.undelivered(publisher));
            for _ in under_way..usize::from(window) {
                if !self.publish(publisher, now_ns, now_ns)? {
                    break;
                }
            }
        }
        self.traffic.freed = freed;
        Ok(())
    }

    /// Publishes a message; `false` if there is no room.
    fn publish(&mut self, publisher: usize, due_ns: u64, now_ns: u64) -> Result<bool, EngineError> {
        let index = self.scenario.topology.subscribers() + publisher;
        let client = &mut self.clients[index];
        if !client.has_room() {
            return Ok(false);
        }
        let stamp = self.traffic.send(publisher, due_ns, now_ns).to_bytes();
        self.payload[..stamp.len()].copy_from_slice(&stamp);
        if !client.has_output() {
            self.touched.push(index);
        }
        client
            .publish(
                &self.publishers[publisher].topic,
                self.scenario.qos,
                &self.payload,
                due_ns,
            )
            .map_err(|error| EngineError::Client {
                index,
                error: error.into(),
            })?;
        Ok(true)
    }
}

/// Notices when a count has not changed for some time.
#[derive(Debug)]
struct Progress {
    patience_ns: u64,
    since_ns: u64,
    count: u64,
}

impl Progress {
    fn start(patience: Duration) -> Self {
        let patience_ns = patience.as_nanos() as u64;
        Self {
            patience_ns,
            since_ns: monotonic_ns(),
            count: 0,
        }
    }

    fn left(&self) -> Duration {
        let passed = monotonic_ns() - self.since_ns;
        Duration::from_nanos(self.patience_ns.saturating_sub(passed))
    }

    fn is_over(&mut self, count: u64) -> bool {
        if count != self.count {
            self.count = count;
            self.since_ns = monotonic_ns();
        }
        self.left().is_zero()
    }
}
