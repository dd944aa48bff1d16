//! Plays a worker's slice of a workload: one thread, one epoll instance, all connections.
//!
//! Call order: [`Engine::new`]; [`Engine::connect`] (in steps if wanted); [`warm_up`]; [`Engine::begin`]; then
//! [`Engine::turn`] again and again until the load is over; more of these while what is under way
//! arrives; [`Engine::findings`]; [`Engine::close`]. [`Engine::load`] and [`Engine::drain`] do it for a
//! slice that is the whole.
//!
//! A turn does what is due, writes each touched connection once, and reads all that is ready.
//!
//! Invariant: a client that breaks off while others connect ends the run; one that breaks off later is
//! counted and connects again, and what it had not been acknowledged is sent again.
//!
//! Deliberately absent: talking to other workers, and any clock but the machine's monotonic one.
//!
//! Where to read next: `engine/part.rs`.

mod part;
mod warm_up;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use hdrhistogram::Histogram;
use mio::{Events, Poll, Token, Waker};
use mqtt_proto::{ProtocolVersion, QoS, ReasonCode};
use serde::{Deserialize, Serialize};
use text_table::units::counted;
use transport::{ClientOptions, ClientTransport, TlsFileError};

use self::part::{Books, Playing, Role};
use self::warm_up::own_share;
pub(crate) use self::warm_up::warm_up;
use crate::client::{ByteCounts, Client, ClientError, Event, Options, Outgoing, Path, Scratch};
use crate::clock::{Timer, monotonic_ns};
use crate::meter::{Headline, Meter, Times};
use crate::schedule::Schedule;
use crate::traffic::Totals;
use crate::verify::{Faults, Findings, Run, Stamp};
use crate::workload::{Activity, Pace, Workload, WorkloadError};

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Events taken from the kernel in a turn.
pub(crate) const EVENTS: usize = 1024;

/// Connections that may be on their way to ready at a time; more would overflow a small backlog.
pub(crate) const CONNECTING: usize = 128;

/// Where the local ports of [`Target::sources`] begin. They are counted up here because the kernel, asked
/// to find a free port for a bound address, takes hundreds of µs for each once thousands are in use.
pub(crate) const FIRST_LOCAL_PORT: u16 = 32_768;

/// How long nothing may happen before a wait is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long [`Engine::drain`] waits for a message while some are missing.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// How long [`Engine::drain`] looks for duplicates when nothing is missing.
pub(crate) const DUPLICATES_WAIT: Duration = Duration::from_millis(100);

/// Messages of a part that were due and had no room yet, at 8 bytes each; more end the run.
const MOST_WAITING: usize = 10_000_000;

/// From a connection's end to the attempt to connect again.
pub(crate) const RECONNECT_WAIT_NS: u64 = 500_000_000;

/// Bytes that the kernel keeps for one who reads slowly: its least, so that the broker notices.
const SLOW_RECEIVE_BUFFER: usize = 4 * 1024;

/// A slow reader reads this many times a second.
const SLOW_READS_PER_SECOND: u32 = 10;

/// How long a persistent session is kept: longer than any run.
const SESSION_EXPIRY_S: u32 = 24 * 60 * 60;

/// Part of the keep alive after which a ping is sent.
pub(crate) const PING_PART: f64 = 0.75;

/// A listener of the broker under load.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listener {
    /// What its machine is called; its certificate has to have this name.
    pub host: String,
    /// Where it listens.
    pub address: SocketAddr,
}

impl From<SocketAddr> for Listener {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            address,
        }
    }
}

/// The broker under load.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// In turn for subscribers, and for publishers so that each pair of listeners gets as many; at least
    /// one.
    pub listeners: Vec<Listener>,
    /// What connections begin with.
    pub transport: ClientTransport,
    /// Addresses of this machine to connect from in turn, for more connections than one address has
    /// ports. Empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
}

impl Target {
    /// A single listener of plain MQTT, from whatever address the kernel chooses.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            listeners: vec![address.into()],
            transport: ClientTransport::default(),
            sources: Vec::new(),
        }
    }

    /// By listener, what connections begin with.
    pub(crate) fn layers(&self) -> Result<Vec<ClientOptions>, TlsFileError> {
        let listeners = self.listeners.iter();
        let load = |listener: &Listener| {
            let port = listener.address.port();
            self.transport.load(&listener.host, port)
        };
        listeners.map(load).collect()
    }
}

/// Which share of a workload an engine plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// From 0.
    pub index: usize,
    /// How many shares there are, at least 1.
    pub of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

/// Looks on after each turn: until when the next may last, or why it shall be the last.
pub(crate) type OnTurn<'a> = dyn FnMut(&mut Engine) -> Result<Option<u64>, EngineError> + 'a;

/// Why a run ended early.
#[derive(Debug)]
pub enum EngineError {
    /// The workload cannot be played.
    Workload(WorkloadError),
    /// A file of the transport cannot be used.
    Tls(TlsFileError),
    /// The kernel refused something that is not a client's socket.
    Io(io::Error),
    /// A client failed while clients connected.
    Client {
        /// Its client identifier.
        client_id: String,
        /// What happened.
        error: ClientError,
    },
    /// The broker is so far behind with a part, by its name, that the tool would run out of memory.
    Backlog(String),
    /// Clients wait for answers that do not come.
    ConnectTimeout {
        /// Those that are connected and subscribed.
        ready: usize,
        /// Those that should be.
        wanted: usize,
    },
    /// Messages of the warm-up are not acknowledged.
    WarmUp {
        /// Those that are.
        acknowledged: usize,
        /// Those that should be.
        wanted: usize,
        /// Why the broker refused the last that it refused.
        refusal: Option<ReasonCode>,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Io(error) => write!(f, "event loop: {error}"),
            Self::Client { client_id, error } => write!(f, "client {client_id}: {error}"),
            Self::Backlog(part) => write!(
                f,
                "{part}: {} due and could not be sent; the broker takes too few",
                counted(MOST_WAITING as u64, "message was", "messages were")
            ),
            Self::ConnectTimeout { ready, wanted } => {
                write!(
                    f,
                    "only {ready} of {} connected and subscribed in time",
                    counted(*wanted as u64, "client", "clients")
                )
            }
            Self::WarmUp {
                acknowledged,
                wanted,
                refusal,
            } => {
                let why =
                    refusal.map_or_else(String::new, |reason| format!("; refused: {reason:?}"));
                write!(
                    f,
                    "the broker acknowledged only {acknowledged} of {} of the warm-up{why}",
                    counted(*wanted as u64, "message", "messages")
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

impl From<TlsFileError> for EngineError {
    fn from(error: TlsFileError) -> Self {
        Self::Tls(error)
    }
}

impl From<WorkloadError> for EngineError {
    fn from(error: WorkloadError) -> Self {
        Self::Workload(error)
    }
}

/// How far the load is, of this worker's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Clients that are connected and subscribed.
    pub ready: usize,
    /// Of all parts.
    pub totals: Totals,
    /// Deliveries that the messages sent should cause, at any worker.
    pub expected: u64,
    /// Deliveries, duplicates aside.
    pub distinct: u64,
    /// Messages that wait to be sent or acknowledged.
    pub pending: u64,
    /// Connections that broke off during the load.
    pub disconnects: u64,
    /// Messages that the broker refused.
    pub refused: u64,
    /// Messages as the reports count them: deliveries, or what the broker took where nobody subscribes.
    pub counted: u64,
    /// Since the start.
    pub bytes: ByteCounts,
}

impl Progress {
    /// Adds another share's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ready += other.ready;
        self.totals += other.totals;
        self.expected += other.expected;
        self.distinct += other.distinct;
        self.pending += other.pending;
        self.disconnects += other.disconnects;
        self.refused += other.refused;
        self.counted += other.counted;
        self.bytes.out += other.bytes.out;
        self.bytes.received += other.bytes.received;
    }
}

/// What one part has found out.
#[derive(Debug)]
pub(crate) struct PartOutcome<'a> {
    pub(crate) times: Option<&'a Times>,
    pub(crate) totals: Totals,
    pub(crate) findings: Findings,
    /// By publisher of the share.
    pub(crate) acknowledged: &'a [u32],
}

/// What came of a run that was played in one piece. Times in ns, over all parts.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of the whole run.
    pub totals: Totals,
    /// Of the whole run.
    pub faults: Faults,
    /// From due to received by a subscriber. In a closed loop a message is due when it is sent.
    pub deliver: Histogram<u64>,
    /// From due to acknowledged to the end; empty at QoS 0.
    pub acknowledge: Histogram<u64>,
    /// From due to sent: what the tool itself, or a full in-flight window, added.
    pub due_to_sent: Histogram<u64>,
    /// From opening a connection to its being accepted.
    pub connect: Histogram<u64>,
}

/// A place for a client, which may be away.
#[derive(Debug)]
struct Slot {
    client: Option<Client>,
    part: usize,
    role: Role,
    /// Whether it is connected and subscribed.
    is_ready: bool,
    /// When the present connection was opened, or was due to be.
    opened_ns: u64,
    /// When it was accepted.
    accepted_ns: u64,
    /// Times that it has been opened.
    visits: u32,
    /// Comes and goes: a turn that was due before the client could take it.
    turn_due_ns: Option<u64>,
    /// Reads slowly: a time to read is set already.
    reads_later: bool,
    /// Broke off, and has not been opened again.
    is_away: bool,
    /// Broke off, and has not been ready since.
    is_broken: bool,
    /// Times that it broke off, or could not connect after that: each time, the next listener's turn comes.
    breaks: usize,
}

/// A share of a workload being played.
#[derive(Debug)]
pub struct Engine {
    workload: Workload,
    share: Share,
    target: Target,
    /// By listener of the target.
    layers: Vec<ClientOptions>,
    prefix: String,
    poll: Poll,
    events: Events,
    timer: Timer,
    slots: Vec<Slot>,
    parts: Vec<Playing>,
    meter: Meter,
    /// Slots that have been opened at least once.
    opened: usize,
    ready: usize,
    disconnects: u64,
    refused: u64,
    last_refusal: Option<ReasonCode>,
    last_disconnect: Option<String>,
    bytes: ByteCounts,
    /// Whether clients that break off come back.
    reconnects: bool,
    /// Slots with bytes to write.
    touched: Vec<usize>,
    /// When to connect again, ascending.
    again: VecDeque<(u64, usize)>,
    /// When slow readers read next.
    slow_reads: BinaryHeap<Reverse<(u64, usize)>>,
    keep_alive_s: u16,
    pings: Option<Schedule>,
    scratch: Scratch,
    payload: Vec<u8>,
}

impl Engine {
    /// Nothing is connected yet. `prefix` is the first level of all topics and starts all client
    /// identifiers, but for those that are listed; it keeps two runs apart. Due times in payloads count from `epoch_ns` of
    /// [`monotonic_ns`].
    ///
    /// # Errors
    /// The workload makes no sense; a file of the transport cannot be used; no epoll instance or timer could
    /// be made.
    pub fn new(
        workload: Workload,
        share: Share,
        target: Target,
        prefix: &str,
        epoch_ns: u64,
    ) -> Result<Self, EngineError> {
        workload.check()?;
        let layers = target.layers()?;
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut slots = Vec::new();
        let mut parts = Vec::new();
        for (number, part) in workload.parts.iter().enumerate() {
            let of = (share.index, share.of);
            let (playing, roles) = Playing::new(part.clone(), slots.len(), of, prefix, epoch_ns);
            slots.extend(roles.into_iter().map(|role| Slot::new(number, role)));
            parts.push(playing);
        }
        let longest = parts.iter().map(Playing::payload_len).max().unwrap_or(0);
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            slots,
            parts,
            meter: Meter::new(Headline::of(&workload)),
            opened: 0,
            ready: 0,
            disconnects: 0,
            refused: 0,
            last_refusal: None,
            last_disconnect: None,
            bytes: ByteCounts::default(),
            reconnects: false,
            touched: Vec::new(),
            again: VecDeque::new(),
            slow_reads: BinaryHeap::new(),
            keep_alive_s: workload.login.keep_alive_s,
            pings: None,
            scratch: Scratch::default(),
            payload: vec![0; longest],
            workload,
            share,
            target,
            layers,
            prefix: prefix.to_owned(),
        })
    }

    /// Ends a wait of [`Engine::turn`] from another thread.
    ///
    /// # Errors
    /// The kernel refused one.
    pub fn waker(&self) -> io::Result<Arc<Waker>> {
        Waker::new(self.poll.registry(), WAKER).map(Arc::new)
    }

    /// Clients of this share.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// How far it is.
    pub fn progress(&mut self) -> Progress {
        let mut progress = Progress {
            ready: self.ready,
            disconnects: self.disconnects,
            refused: self.refused,
            ..Progress::default()
        };
        for part in &self.parts {
            progress.totals += part.totals();
            let (expected, distinct) = part.expected_and_distinct();
            progress.expected += expected;
            progress.distinct += distinct;
            progress.pending += part.waiting as u64;
            progress.counted += part.counted();
        }
        for client in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.client.as_mut())
        {
            let ByteCounts { out, received } = client.take_traffic();
            self.bytes.out += out;
            self.bytes.received += received;
            progress.pending += client.unacknowledged() as u64;
        }
        progress.bytes = self.bytes;
        progress
    }

    /// Counts so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for part in &self.parts {
            totals += part.totals();
        }
        totals
    }

    /// Sentences about what the broker did to clients during the load.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if let Some(last) = &self.last_disconnect {
            complaints.push(format!("connections broke off; the last one: {last}"));
        }
        if let Some(reason) = self.last_refusal {
            complaints.push(format!("messages were refused; the last one: {reason:?}"));
        }
        complaints
    }

    /// Headline times since the call before: highest time in ns of a bucket, count.
    pub fn take_interval(&mut self) -> Vec<(u64, u64)> {
        self.meter.take_interval()
    }

    pub(crate) fn connect_times(&self) -> (&Histogram<u64>, &Histogram<u64>) {
        (&self.meter.connect, &self.meter.subscribe)
    }

    /// Gives up what waits to be sent, so that no more is sent from now on.
    pub(crate) fn settle(&mut self) {
        for part in &mut self.parts {
            part.waiting = 0;
            part.publishers
                .iter_mut()
                .for_each(|publisher| publisher.waiting.clear());
        }
    }

    /// By part: how many messages each publisher of this share has sent.
    pub(crate) fn sent(&self) -> Vec<Vec<u32>> {
        let sent = |part: &Playing| match &part.books {
            Books::Traffic(traffic) => traffic.sent().to_vec(),
            Books::Readings(_) | Books::None => Vec::new(),
        };
        self.parts.iter().map(sent).collect()
    }

    /// By part, what this share found; `sent` is by part and publisher of the whole.
    pub(crate) fn findings(&self, sent: &[Vec<u32>]) -> Vec<PartOutcome<'_>> {
        let outcome = |(number, part): (usize, &'_ Playing)| {
            let sent = sent.get(number).map_or(&[][..], Vec::as_slice);
            let findings = match &part.books {
                Books::Traffic(traffic) => traffic.findings(sent),
                Books::Readings(readings) => readings.findings(),
                Books::None => Findings::default(),
            };
            (findings, part.totals())
        };
        let found = self.parts.iter().enumerate().map(outcome);
        found
            .zip(&self.parts)
            .map(|((findings, totals), part)| PartOutcome {
                times: part.times(),
                totals,
                findings,
                acknowledged: match &part.books {
                    Books::Traffic(traffic) => traffic.acknowledged(),
                    Books::Readings(_) | Books::None => &[],
                },
            })
            .collect()
    }

    /// What came of it so far, if this share is the whole.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let sent = self.sent();
        let all = Times::new();
        let mut outcome = Outcome {
            totals: self.totals(),
            faults: Faults::default(),
            deliver: all.deliver,
            acknowledge: all.acknowledge,
            due_to_sent: all.due_to_sent,
            connect: self.meter.connect.clone(),
        };
        for (number, part) in self.findings(&sent).into_iter().enumerate() {
            // All have the same bounds, so that adding cannot fail.
            if let Some(times) = part.times {
                let _ = outcome.deliver.add(&times.deliver);
                let _ = outcome.acknowledge.add(&times.acknowledge);
                let _ = outcome.due_to_sent.add(&times.due_to_sent);
            }
            let faults = Findings::merge(&[part.findings], &sent[number]).faults();
            outcome.faults.lost += faults.lost;
            outcome.faults.duplicated += faults.duplicated;
            outcome.faults.reordered += faults.reordered;
            outcome.faults.stray += faults.stray;
        }
        outcome
    }

    /// Connects and subscribes until `wanted` clients in all are ready, in the order of the parts; in each,
    /// subscribers come first. `on_turn` is called after each turn and may end the wait.
    ///
    /// # Errors
    /// A client failed, or the broker stopped answering.
    pub fn connect(
        &mut self,
        wanted: usize,
        mut on_turn: impl FnMut(&mut Self) -> Result<Option<u64>, EngineError>,
    ) -> Result<(), EngineError> {
        let wanted = wanted.min(self.slots.len());
        let mut patience = Patience::start(PATIENCE);
        let mut opening = Opening::start(self);
        while self.ready < wanted || !self.is_seeded() {
            let now_ns = monotonic_ns();
            while self.opened < wanted
                && self.opened - self.ready < most_connecting(self)
                && opening.take(self, now_ns)
            {
                self.open(self.opened, now_ns)?;
                self.opened += 1;
            }
            let mut until_ns = patience.until_ns();
            // Past, the next one waits for others to get ready, and these wake by themselves.
            let next_ns = opening.schedule.next_due_ns();
            if self.opened < wanted && next_ns > now_ns {
                until_ns = until_ns.min(next_ns);
            }
            if let Some(tick_ns) = on_turn(self)? {
                until_ns = until_ns.min(tick_ns);
            }
            self.turn(until_ns)?;
            if patience.is_over(self.ready as u64 + self.totals().acknowledged) {
                return Err(EngineError::ConnectTimeout {
                    ready: self.ready,
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// Whether what readers come for is with the broker.
    fn is_seeded(&self) -> bool {
        let mut seeders = self.slots.iter().filter(|slot| slot.role == Role::Seeder);
        seeders.all(|slot| {
            let is_acknowledged = |client: &Client| client.unacknowledged() == 0;
            self.parts[slot.part].unseeded().is_empty()
                && slot.client.as_ref().is_none_or(is_acknowledged)
        })
    }

    /// Connects slot number `index`. Connects that are due at `due_ns` are timed from then.
    fn open(&mut self, index: usize, due_ns: u64) -> Result<(), EngineError> {
        let opened = self.try_open(index, due_ns);
        opened.map_err(|error| self.failure(index, error))
    }

    fn try_open(&mut self, index: usize, due_ns: u64) -> Result<(), ClientError> {
        let client_id = self.client_id(index);
        let slot = &mut self.slots[index];
        let part = &self.parts[slot.part];
        slot.opened_ns = due_ns;
        slot.is_away = false;
        let filter = part.filter(slot.role);
        let mut will = None;
        if let (Role::Willed(number), Books::Traffic(traffic)) = (slot.role, &part.books) {
            let stamp = traffic.next_stamp(number, 0);
            let payload = &mut self.payload[..part.payload_len()];
            write_stamp(payload, stamp);
            will = part.will_topic(number);
        }
        let path = path(&self.target, &self.layers, index, slot);
        let subscription = filter
            .as_deref()
            .map(|filter| (filter, part.subscription_qos(slot.role)));
        let clean_session = part.is_clean(slot.role);
        let options = Options {
            login: &self.workload.login,
            client_id: &client_id,
            clean_session,
            session_expiry_s: (!clean_session).then_some(SESSION_EXPIRY_S),
            subscriptions: subscription.as_slice(),
            will: will
                .as_deref()
                .map(|topic| (topic, part.qos(), &self.payload[..part.payload_len()])),
            receive_buffer: part.read_rate(slot.role).map(|_| SLOW_RECEIVE_BUFFER),
        };
        let (registry, token) = (self.poll.registry(), Token(index));
        slot.visits += 1;
        match &mut slot.client {
            Some(client) => client.reopen(path, registry, token, options)?,
            None => slot.client = Some(Client::open(path, registry, token, options)?),
        }
        self.touched.push(index);
        Ok(())
    }

    /// Starts the load: it warms up until `measured_ns` begins and sends until that ends, in ns of
    /// [`monotonic_ns`]. All clients must be connected. From now on clients that break off connect again.
    pub fn begin(&mut self, start_ns: u64, measured_ns: Range<u64>) {
        if !measured_ns.is_empty() {
            self.meter.measure(measured_ns.clone());
        }
        self.reconnects = true;
        for part in &mut self.parts {
            part.begin(start_ns, &measured_ns);
            let everyone = part.actors.clone();
            if let Books::Traffic(traffic) = &mut part.books {
                traffic.freed.clear();
                // Windows are empty, and nobody will say so.
                traffic.freed.extend(everyone);
            }
        }
        self.fix_pings();
    }

    /// Sends at the workload's pace for a while, or just waits if nobody publishes. If `record`, the times
    /// of messages due meanwhile are kept.
    ///
    /// # Errors
    /// The event loop failed.
    pub fn load(&mut self, duration: Duration, record: bool) -> Result<(), EngineError> {
        let start_ns = monotonic_ns();
        let until_ns = start_ns + duration.as_nanos() as u64;
        if record {
            self.meter.measure(start_ns..until_ns);
        }
        self.begin(start_ns, until_ns..until_ns);
        while monotonic_ns() < until_ns {
            self.turn(until_ns)?;
        }
        Ok(())
    }

    /// Waits until everything sent has arrived and is acknowledged, or nothing happens any more; for a share
    /// that is the whole.
    ///
    /// # Errors
    /// The event loop failed.
    pub fn drain(&mut self) -> Result<(), EngineError> {
        let mut patience = Patience::start(DRAIN_PATIENCE);
        loop {
            let progress = self.progress();
            if progress.pending == 0 && progress.distinct >= progress.expected {
                break;
            }
            let totals = progress.totals;
            if patience.is_over(totals.sent + totals.acknowledged + totals.delivered) {
                return Ok(());
            }
            self.turn(patience.until_ns())?;
        }
        let mut patience = Patience::start(DUPLICATES_WAIT);
        while !patience.is_over(0) {
            self.turn(patience.until_ns())?;
        }
        Ok(())
    }

    /// Takes leave of the broker, ends persistent sessions, and removes what was retained. Failures leave
    /// something behind at the broker and are nobody's business here; nobody waits for a socket that takes
    /// no more bytes.
    pub fn close(mut self) {
        for index in 0..self.slots.len() {
            let _ = self.take_leave(index);
        }
        if !self.workload.login.version.is_v5() {
            self.forget_sessions();
        }
    }

    /// Before 5.0 only a clean session ends a persistent one: those clients connect once more.
    fn forget_sessions(self) {
        let mut workload = self.workload;
        workload.parts.retain_mut(|part| {
            let clean_session = match &mut part.activity {
                Activity::Messages(messages) => {
                    messages.retain = false;
                    messages.read_rate = None;
                    return !messages.make_sessions_clean();
                }
                Activity::Churn(churn) => &mut churn.clean_session,
                _ => return false,
            };
            !std::mem::replace(clean_session, true)
        });
        let (target, prefix) = (self.target, self.prefix);
        if let Ok(mut engine) = Self::new(workload, self.share, target, &prefix, 0)
            && engine.connect(usize::MAX, |_| Ok(None)).is_ok()
        {
            engine.close();
        }
    }

    fn take_leave(&mut self, index: usize) -> Result<(), ClientError> {
        let slot = &mut self.slots[index];
        let (Some(client), true) = (&mut slot.client, slot.is_ready) else {
            return Ok(());
        };
        let part = &self.parts[slot.part];
        match (slot.role, &part.part.activity) {
            (Role::Publisher(number), Activity::Messages(messages)) if messages.retain => {
                let publisher = &part.publishers[number - part.actors.start];
                client.publish(&removal(&publisher.topic))?;
            }
            (Role::Seeder, Activity::Retained(retained)) => {
                for topic in 0..retained.topics {
                    if !client.has_room(QoS::AtMostOnce) {
                        client.flush(&mut self.scratch)?;
                    }
                    client.publish(&removal(&format!("{}/{topic}", part.prefix)))?;
                }
            }
            _ => {}
        }
        client.close()?;
        client.flush(&mut self.scratch)
    }

    /// Does what is due, then waits for something to happen, until `until_ns` of [`monotonic_ns`] at the
    /// latest, and handles it.
    ///
    /// # Errors
    /// The event loop failed; or, while clients connect, a client.
    pub fn turn(&mut self, until_ns: u64) -> Result<(), EngineError> {
        let now_ns = monotonic_ns();
        self.do_due(now_ns)?;
        // A closed loop begins with windows that nobody has freed yet.
        self.send_freed(now_ns)?;
        self.flush(now_ns)?;
        let wake_ns = until_ns.min(self.next_due_ns());
        if wake_ns > now_ns {
            self.timer.arm(wake_ns)?;
        }
        let timeout = (wake_ns <= now_ns).then_some(Duration::ZERO);
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let now_ns = monotonic_ns();
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        let handled: Result<(), EngineError> = events.iter().try_for_each(|event| {
            let index = event.token().0;
            // The timer and the waker are nobody's.
            if index < self.slots.len() {
                self.handle_readiness(index, event, now_ns)?;
            }
            Ok(())
        });
        self.events = events;
        handled?;
        // First, because a connection with much to write has no room for more.
        self.flush(now_ns)?;
        self.send_freed(now_ns)?;
        self.flush(now_ns)
    }

    fn next_due_ns(&self) -> u64 {
        let parts = self.parts.iter().filter_map(Playing::next_due_ns);
        let again = self.again.front().map(|&(due_ns, _)| due_ns);
        let slow = self.slow_reads.peek().map(|&Reverse((due_ns, _))| due_ns);
        let pings = self.pings.as_ref().map(Schedule::next_due_ns);
        let others = [again, slow, pings].into_iter().flatten();
        parts.chain(others).min().unwrap_or(u64::MAX)
    }

    fn do_due(&mut self, now_ns: u64) -> Result<(), EngineError> {
        for number in 0..self.parts.len() {
            while let Some((actor, due_ns)) = self.parts[number].take_due(now_ns) {
                self.act(number, actor, due_ns, now_ns)?;
            }
        }
        while let Some(&(due_ns, index)) = self.again.front()
            && due_ns <= now_ns
        {
            self.again.pop_front();
            let opened = self.try_open(index, due_ns);
            self.survive(index, opened, now_ns)?;
        }
        while let Some(&Reverse((due_ns, index))) = self.slow_reads.peek()
            && due_ns <= now_ns
        {
            self.slow_reads.pop();
            self.slots[index].reads_later = false;
            self.read(index, now_ns)?;
        }
        while let Some((index, _)) = self.pings.as_mut().and_then(|p| p.take(now_ns + 1)) {
            self.ping(index);
        }
        Ok(())
    }

    /// Does what a part's schedule asks of one of its actors.
    fn act(
        &mut self,
        number: usize,
        actor: usize,
        due_ns: u64,
        now_ns: u64,
    ) -> Result<(), EngineError> {
        let part = &mut self.parts[number];
        if part.publishers.is_empty() {
            let index = part.first_actor + actor;
            self.slots[index].turn_due_ns = Some(due_ns);
            return self.come_and_go(index, now_ns);
        }
        if part.waiting >= MOST_WAITING {
            return Err(EngineError::Backlog(part.part.name.clone()));
        }
        if let Books::Traffic(traffic) = &mut part.books {
            traffic.look(&self.meter, due_ns, now_ns);
        }
        part.publishers[actor].waiting.push_back(due_ns);
        part.waiting += 1;
        self.send_waiting(number, actor, now_ns)
    }

    /// Ends a client's connection and opens the next, if that is due and the client is ready for it.
    fn come_and_go(&mut self, index: usize, now_ns: u64) -> Result<(), EngineError> {
        let slot = &mut self.slots[index];
        let part = &mut self.parts[slot.part];
        let (Some(due_ns), true) = (slot.turn_due_ns, slot.is_ready) else {
            return Ok(());
        };
        match (slot.role, &mut part.books) {
            (Role::Reader(reader), Books::Readings(readings)) if !readings.is_complete(reader) => {
                return Ok(());
            }
            (Role::Willed(number), Books::Traffic(traffic)) => {
                traffic.send_unsaid(&self.meter, number, now_ns);
            }
            _ => {}
        }
        slot.turn_due_ns = None;
        slot.is_ready = false;
        self.ready -= 1;
        let is_abrupt = match &part.part.activity {
            Activity::Churn(churn) => churn.abrupt,
            Activity::Wills(_) => true,
            _ => false,
        };
        if let (Some(client), false) = (&mut slot.client, is_abrupt) {
            // A socket that takes nothing more is not waited for.
            let _ = client
                .close()
                .map_err(ClientError::from)
                .and_then(|()| client.flush(&mut self.scratch));
        }
        let opened = self.try_open(index, due_ns);
        self.survive(index, opened, now_ns)
    }

    fn ping(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let (Some(client), true) = (&mut slot.client, slot.is_ready)
            && client.ping().is_ok()
        {
            self.touched.push(index);
        }
    }

    /// Spreads pings evenly over all clients.
    fn fix_pings(&mut self) {
        let every_s = f64::from(self.keep_alive_s) * PING_PART;
        let clients = self.slots.len();
        self.pings = (every_s > 0.0 && clients > 0)
            .then(|| Schedule::new(monotonic_ns(), clients as f64 / every_s, clients));
    }

    fn handle_readiness(
        &mut self,
        index: usize,
        event: &mio::event::Event,
        now_ns: u64,
    ) -> Result<(), EngineError> {
        let visits = self.slots[index].visits;
        if event.is_readable() && !self.slots[index].reads_later {
            self.read(index, now_ns)?;
        }
        let slot = &self.slots[index];
        // The event says nothing of a connection that was opened since.
        if event.is_read_closed() && slot.client.is_some() && slot.visits == visits {
            self.survive(index, Err(ClientError::Closed), now_ns)?;
        }
        let slot = &mut self.slots[index];
        if slot.client.as_ref().is_some_and(Client::has_output) {
            self.touched.push(index);
        }
        // A socket that had refused bytes may have made room for messages that wait.
        if let (Role::Publisher(number), true) = (slot.role, event.is_writable())
            && self.parts[slot.part].waiting > 0
            && let Some(traffic) = self.parts[slot.part].traffic()
        {
            traffic.freed.push(number);
        }
        Ok(())
    }

    /// Reads what a client has received.
    fn read(&mut self, index: usize, now_ns: u64) -> Result<(), EngineError> {
        let slot = &mut self.slots[index];
        let part = &mut self.parts[slot.part];
        let (Some(client), false) = (&mut slot.client, slot.is_away) else {
            return Ok(());
        };
        let read_rate = part.read_rate(slot.role);
        let limit = read_rate.map_or(usize::MAX, |rate| {
            (rate / SLOW_READS_PER_SECOND).max(1) as usize
        });
        let mut news = News::default();
        let (meter, books, role) = (&mut self.meter, &mut part.books, slot.role);
        let result = client.read(&mut self.scratch, limit, &mut |event| {
            book(meter, books, role, event, now_ns, &mut news);
        });
        self.refused += news.refused;
        self.last_refusal = news.last_refusal.or(self.last_refusal);
        // After little was read too, or a trickle of small messages would not be read slowly.
        let pauses = |count: &usize| *count >= limit || (slot.is_ready && *count > 0);
        if read_rate.is_some() && result.as_ref().is_ok_and(pauses) {
            slot.reads_later = true;
            let gap_ns = 1_000_000_000 / u64::from(SLOW_READS_PER_SECOND);
            self.slow_reads.push(Reverse((now_ns + gap_ns, index)));
        }
        self.survive(index, result.map(drop), now_ns)?;
        if self.slots[index].is_away {
            // To the client it still looks as if it were connected.
            return Ok(());
        }
        if news.is_accepted {
            self.handle_accepted(index, now_ns);
        }
        let slot = &self.slots[index];
        if slot.client.as_ref().is_some_and(Client::has_unsent) {
            let resent = self.resend(index);
            self.survive(index, resent, now_ns)?;
        }
        if news.is_subscribed {
            self.meter.subscribe(self.slots[index].accepted_ns, now_ns);
        }
        self.handle_ready(index);
        if self.slots[index].turn_due_ns.is_some() {
            self.come_and_go(index, now_ns)?;
        }
        if self.slots[index].role == Role::Seeder {
            let seeded = self.seed(index);
            self.survive(index, seeded, now_ns)?;
        }
        let slot = &self.slots[index];
        if slot.client.as_ref().is_some_and(Client::has_output) {
            self.touched.push(index);
        }
        Ok(())
    }

    fn handle_accepted(&mut self, index: usize, now_ns: u64) {
        let slot = &mut self.slots[index];
        let part = &mut self.parts[slot.part];
        slot.accepted_ns = now_ns;
        self.meter.connect(slot.opened_ns, now_ns);
        let Some(client) = &mut slot.client else {
            return;
        };
        let server_keep_alive_s = client.server_keep_alive_s();
        match (slot.role, &mut part.books) {
            (Role::Reader(reader), Books::Readings(readings)) => {
                readings.begin(reader, slot.visits > 1, now_ns);
            }
            (Role::Publisher(number), Books::Traffic(traffic)) => {
                traffic.freed.push(number);
            }
            _ => {}
        }
        if let Some(seconds @ 1..) = server_keep_alive_s
            && (self.keep_alive_s == 0 || seconds < self.keep_alive_s)
        {
            self.keep_alive_s = seconds;
            self.fix_pings();
        }
    }

    /// Sends a publisher's messages again that were not acknowledged.
    fn resend(&mut self, index: usize) -> Result<(), ClientError> {
        let slot = &mut self.slots[index];
        let part = &mut self.parts[slot.part];
        let first = part.actors.start;
        let (
            Some(client),
            Role::Publisher(number),
            Activity::Messages(messages),
            Books::Traffic(traffic),
        ) = (
            &mut slot.client,
            slot.role,
            &part.part.activity,
            &mut part.books,
        )
        else {
            return Ok(());
        };
        let message = Outgoing {
            topic: &part.publishers[number - first].topic,
            qos: messages.qos,
            retain: messages.retain,
            payload: &[],
            due_ns: 0,
            sequence: 0,
        };
        let payload = |sequence, due_ns| {
            let mut payload = vec![0; messages.payload_len];
            traffic.write_payload(traffic.stamp(number, sequence, due_ns), &mut payload);
            payload
        };
        Ok(client.resend(&message, payload)?)
    }

    /// Publishes what readers will come for, as far as there is room.
    fn seed(&mut self, index: usize) -> Result<(), ClientError> {
        let slot = &mut self.slots[index];
        let part = &mut self.parts[slot.part];
        let Some(client) = &mut slot.client else {
            return Ok(());
        };
        let len = part.payload_len();
        for topic in part.unseeded() {
            if !client.is_ready() || !client.has_room(QoS::AtLeastOnce) {
                break;
            }
            let stamp = Stamp {
                publisher: topic as u32,
                sequence: 0,
                run: Run::default(),
                due_ns: 0,
            };
            write_stamp(&mut self.payload[..len], stamp);
            client.publish(&Outgoing {
                topic: &format!("{}/{topic}", part.prefix),
                qos: QoS::AtLeastOnce,
                retain: true,
                payload: &self.payload[..len],
                due_ns: 0,
                sequence: 0,
            })?;
            part.seeded += 1;
        }
        Ok(())
    }

    fn handle_ready(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if !slot.is_ready && slot.client.as_ref().is_some_and(Client::is_ready) {
            slot.is_ready = true;
            slot.is_broken = false;
            self.ready += 1;
        }
    }

    /// Passes on success. A failure ends the run while clients connect; later it is counted, and the
    /// client connects again in a while.
    fn survive(
        &mut self,
        index: usize,
        result: Result<(), ClientError>,
        now_ns: u64,
    ) -> Result<(), EngineError> {
        let Err(error) = result else {
            return Ok(());
        };
        if !self.reconnects {
            return Err(self.failure(index, error));
        }
        let slot = &mut self.slots[index];
        if slot.is_away {
            return Ok(());
        }
        slot.is_away = true;
        slot.breaks += 1;
        if slot.is_ready {
            slot.is_ready = false;
            self.ready -= 1;
        }
        // What fails on the way back belongs to the same break.
        if !slot.is_broken {
            slot.is_broken = true;
            self.disconnects += 1;
        }
        self.last_disconnect = Some(self.failure(index, error).to_string());
        self.again.push_back((now_ns + RECONNECT_WAIT_NS, index));
        Ok(())
    }

    fn failure(&self, index: usize, error: ClientError) -> EngineError {
        EngineError::Client {
            client_id: self.client_id(index),
            error,
        }
    }

    fn client_id(&self, index: usize) -> String {
        let slot = &self.slots[index];
        if let Some(listed) = self.parts[slot.part].listed_id(slot.role) {
            return listed;
        }
        let (kind, number) = match slot.role {
            Role::Subscriber(number) => ("s", number),
            Role::Publisher(number) => ("p", number),
            Role::Background(number) => ("b", number),
            Role::Visitor(number) => ("v", number),
            Role::Willed(number) => ("w", number),
            Role::Reader(number) => ("r", number),
            Role::Seeder => ("x", 0),
        };
        let prefix = &self.prefix;
        if self.workload.login.version == ProtocolVersion::V3_1 {
            // It has room for 23 characters.
            return format!("{prefix}-{}{kind}{number}", slot.part);
        }
        let part = &self.parts[slot.part].part.name;
        format!("{prefix}-{part}-{kind}{number}")
    }

    fn flush(&mut self, now_ns: u64) -> Result<(), EngineError> {
        let mut touched = std::mem::take(&mut self.touched);
        let flushed = touched.drain(..).try_for_each(|index| {
            let slot = &mut self.slots[index];
            let flushed = match &mut slot.client {
                Some(client) if !slot.is_away => client.flush(&mut self.scratch),
                _ => Ok(()),
            };
            self.survive(index, flushed, now_ns)
        });
        self.touched = touched;
        flushed
    }

    /// Gives messages that wait to publishers that may have got room, and fills the windows of closed loops.
    fn send_freed(&mut self, now_ns: u64) -> Result<(), EngineError> {
        for number in 0..self.parts.len() {
            let part = &mut self.parts[number];
            let first = part.actors.start;
            let (waiting, window_ns) = (part.waiting, part.window_ns.clone());
            let pace = part.messages().map(|messages| messages.pace);
            if matches!(pace, Some(Pace::Closed { .. })) && now_ns < window_ns.start {
                continue;
            }
            let Some(traffic) = part.traffic() else {
                continue;
            };
            let mut freed = std::mem::take(&mut traffic.freed);
            for publisher in freed.drain(..) {
                match pace {
                    Some(Pace::Closed { window }) if window_ns.contains(&now_ns) => {
                        self.fill_window(number, publisher - first, window, now_ns)?;
                    }
                    Some(_) if waiting > 0 => {
                        self.send_waiting(number, publisher - first, now_ns)?
                    }
                    _ => {}
                }
            }
            // Its memory is kept; nobody was freed meanwhile.
            if let Some(traffic) = self.parts[number].traffic() {
                traffic.freed = freed;
            }
        }
        Ok(())
    }

    /// Publishes what was due before, as far as there is room.
    fn send_waiting(
        &mut self,
        number: usize,
        actor: usize,
        now_ns: u64,
    ) -> Result<(), EngineError> {
        while let Some(&due_ns) = self.parts[number].publishers[actor].waiting.front()
            && self.publish(number, actor, due_ns, now_ns)?
        {
            let part = &mut self.parts[number];
            part.publishers[actor].waiting.pop_front();
            part.waiting -= 1;
        }
        Ok(())
    }

    fn fill_window(
        &mut self,
        number: usize,
        actor: usize,
        window: u16,
        now_ns: u64,
    ) -> Result<(), EngineError> {
        let part = &mut self.parts[number];
        let (index, publisher) = (part.first_actor + actor, part.actors.start + actor);
        let undelivered = part.traffic().map_or(0, |t| t.undelivered(publisher));
        let client = self.slots[index].client.as_ref();
        let unacknowledged = client.map_or(0, Client::unacknowledged);
        for _ in unacknowledged.max(undelivered)..usize::from(window) {
            if !self.publish(number, actor, now_ns, now_ns)? {
                break;
            }
        }
        Ok(())
    }

    /// Publishes a message; `false` if there is no room.
    fn publish(
        &mut self,
        number: usize,
        actor: usize,
        due_ns: u64,
        now_ns: u64,
    ) -> Result<bool, EngineError> {
        let part = &mut self.parts[number];
        let (index, publisher) = (part.first_actor + actor, part.actors.start + actor);
        let slot = &mut self.slots[index];
        let (Activity::Messages(messages), Books::Traffic(traffic)) =
            (&part.part.activity, &mut part.books)
        else {
            return Ok(false);
        };
        let has_room = |client: &&mut Client| client.has_room(messages.qos);
        let Some(client) = slot.client.as_mut().filter(has_room) else {
            return Ok(false);
        };
        if !slot.is_ready {
            return Ok(false);
        }
        let stamp = traffic.send(&self.meter, publisher, due_ns, now_ns);
        let payload = &mut self.payload[..messages.payload_len];
        traffic.write_payload(stamp, payload);
        if !client.has_output() {
            self.touched.push(index);
        }
        let published = client.publish(&Outgoing {
            topic: &part.publishers[actor].topic,
            qos: messages.qos,
            retain: messages.retain,
            payload,
            due_ns,
            sequence: stamp.sequence,
        });
        self.survive(index, published.map_err(ClientError::from), now_ns)?;
        Ok(true)
    }
}

impl Slot {
    fn new(part: usize, role: Role) -> Self {
        Self {
            client: None,
            part,
            role,
            is_ready: false,
            opened_ns: 0,
            accepted_ns: 0,
            visits: 0,
            turn_due_ns: None,
            reads_later: false,
            is_away: false,
            is_broken: false,
            breaks: 0,
        }
    }
}

/// Clients that may be on their way to ready when the next one is opened.
fn most_connecting(engine: &Engine) -> usize {
    let next = engine.slots.get(engine.opened);
    let most = next.and_then(|slot| engine.parts[slot.part].part.most_concurrent);
    let of = (engine.share.index, engine.share.of);
    most.map_or(CONNECTING, |most| CONNECTING.min(own_share(most, of)))
}

/// What a read brought besides messages.
#[derive(Debug, Default)]
struct News {
    /// Whether the connection was accepted.
    is_accepted: bool,
    is_subscribed: bool,
    refused: u64,
    last_refusal: Option<ReasonCode>,
}

fn book(
    meter: &mut Meter,
    books: &mut Books,
    role: Role,
    event: Event<'_>,
    now_ns: u64,
    news: &mut News,
) {
    match (event, books, role) {
        (Event::Connected, _, _) => news.is_accepted = true,
        (Event::Subscribed, _, _) => news.is_subscribed = true,
        (Event::MessageRefused(reason), _, _) => {
            news.refused += 1;
            news.last_refusal = Some(reason);
        }
        (Event::Message(payload), Books::Traffic(traffic), Role::Subscriber(number)) => {
            traffic.arrive(meter, number, payload, now_ns);
        }
        (Event::Message(payload), Books::Readings(readings), Role::Reader(reader)) => {
            readings.arrive(meter, reader, payload, now_ns);
        }
        (Event::Acknowledged(due_ns), Books::Traffic(traffic), Role::Publisher(number)) => {
            traffic.acknowledge(meter, number, due_ns, now_ns);
        }
        (Event::Message(_) | Event::Acknowledged(_), _, _) => {}
    }
}

/// What removes a topic's retained message.
fn removal(topic: &str) -> Outgoing<'_> {
    Outgoing {
        topic,
        qos: QoS::AtMostOnce,
        retain: true,
        payload: &[],
        due_ns: 0,
        sequence: 0,
    }
}

fn write_stamp(payload: &mut [u8], stamp: Stamp) {
    if let Some(start) = payload.first_chunk_mut() {
        *start = stamp.to_bytes();
    }
}

/// Where a slot's client connects to, and from.
fn path<'a>(target: &Target, layers: &'a [ClientOptions], index: usize, slot: &Slot) -> Path<'a> {
    let listeners = target.listeners.len();
    let turn = match slot.role {
        Role::Subscriber(number)
        | Role::Background(number)
        | Role::Visitor(number)
        | Role::Willed(number)
        | Role::Reader(number) => number,
        Role::Publisher(number) => number / listeners,
        Role::Seeder => 0,
    };
    let sources = &target.sources;
    let local = sources.get(index % sources.len().max(1)).map(|&source| {
        // A port of an earlier visit may not be free yet: the kernel finds another.
        let port = match slot.visits {
            0 => FIRST_LOCAL_PORT.saturating_add((index / sources.len()) as u16),
            _ => 0,
        };
        SocketAddr::from((source, port))
    });
    let listener = (turn + slot.breaks) % listeners;
    Path {
        server: target.listeners[listener].address,
        local,
        layers: &layers[listener],
    }
}

/// When clients may connect: each part at its own rate, one part after the other.
struct Opening {
    part: usize,
    schedule: Schedule,
}

impl Opening {
    fn start(engine: &Engine) -> Self {
        let part = engine.slots.get(engine.opened).map_or(0, |slot| slot.part);
        Self {
            part,
            schedule: Self::schedule(engine, part),
        }
    }

    fn schedule(engine: &Engine, part: usize) -> Schedule {
        let rate = engine.parts.get(part).and_then(|p| p.part.connect_rate);
        let (index, of) = (engine.share.index as f64, engine.share.of as f64);
        let per_second = rate.unwrap_or(f64::INFINITY) / of;
        // Workers take turns.
        let phase_ns = 1e9 / per_second * index / of;
        Schedule::new(monotonic_ns() + phase_ns as u64, per_second, 1)
    }

    /// Whether the next client may connect now.
    fn take(&mut self, engine: &Engine, now_ns: u64) -> bool {
        let next = engine.slots.get(engine.opened).map(|slot| slot.part);
        if let Some(part) = next.filter(|&part| part != self.part) {
            self.part = part;
            self.schedule = Self::schedule(engine, part);
        }
        self.schedule.take(now_ns + 1).is_some()
    }
}

/// Notices when a count has not changed for some time.
#[derive(Debug)]
pub(crate) struct Patience {
    patience_ns: u64,
    since_ns: u64,
    count: u64,
}

impl Patience {
    pub(crate) fn start(patience: Duration) -> Self {
        let patience_ns = patience.as_nanos() as u64;
        Self {
            patience_ns,
            since_ns: monotonic_ns(),
            count: 0,
        }
    }

    /// When it is over if the count stays.
    pub(crate) fn until_ns(&self) -> u64 {
        self.since_ns + self.patience_ns
    }

    pub(crate) fn is_over(&mut self, count: u64) -> bool {
        let now_ns = monotonic_ns();
        if count != self.count {
            self.count = count;
            self.since_ns = now_ns;
        }
        now_ns >= self.until_ns()
    }
}
