//! A worker's share of the clients: one thread, one epoll instance, all its connections.
//!
//! Call order: [`Worker::new`]; [`Worker::begin`] when publishers may publish; [`Worker::turn`] again and again;
//! [`Worker::stop_publishing`], and more turns while acknowledgements come; [`Worker::leave`].
//!
//! Invariant: a client is connecting, ready or away, and away means that a time to connect again is set.
//!
//! Where to read next: `worker/publishing.rs`.

mod publishing;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mio::{Events, Poll, Token, Waker};
use transport::ClientOptions;

use self::publishing::Publishers;
use super::counts::{Count, Counts, Reasons, Times};
use super::order::{Activity, Order};
use super::pattern::Identity;
use super::payload::{self, UnixTime};
use crate::client::{Client, ClientError, Event, Options, Path, Scratch};
use crate::clock::{Timer, monotonic_ns};
use crate::engine::{
    CONNECTING, EVENTS, EngineError, FIRST_LOCAL_PORT, PING_PART, RECONNECT_WAIT_NS, Share,
};
use crate::schedule::Schedule;
use crate::workload::Login;

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

/// How long a client waits for CONNACK and SUBACK.
const ANSWER_NS: u64 = 10 * SECOND_NS;

/// Openings that are late are caught up with if they are no later than this.
const CATCH_UP_NS: u64 = SECOND_NS / 10;

/// Local ports of an address that are given out in turn, before the kernel chooses.
const LOCAL_PORTS: usize = 28_000;

/// [`monotonic_ns`] at some moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) fn now() -> Self {
        Self(monotonic_ns())
    }

    pub(super) fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Has not been opened yet.
    New,
    Connecting,
    /// Connected, and subscribed if it is to be.
    Ready,
    /// Failed, and opens again.
    Away,
}

#[derive(Debug)]
struct Slot {
    client: Option<Client>,
    state: State,
    opened: Moment,
    /// Times that it has been opened.
    visits: usize,
    /// Times that it failed: each time, the next listener's turn comes.
    breaks: usize,
    /// It was ready at least once.
    was_ready: bool,
    /// Since when it has no connection, after it had one.
    away_since: Option<Moment>,
}

/// Whose turn it is to connect, and when.
#[derive(Debug)]
struct Openings {
    /// Slots below have been opened at least once.
    opened: usize,
    connecting: usize,
    /// When the first opening was due.
    first: Moment,
    next: Moment,
    gap_ns: f64,
    /// Who failed, and when to open again, ascending.
    again: VecDeque<(Moment, usize)>,
    /// Until when which slot has to be ready, of which visit, ascending.
    limits: VecDeque<(Moment, usize, usize)>,
}

/// A share of the clients of a run.
#[derive(Debug)]
pub(super) struct Worker {
    order: Order,
    share: Share,
    /// By listener.
    layers: Vec<ClientOptions>,
    poll: Poll,
    events: Events,
    timer: Timer,
    slots: Vec<Slot>,
    openings: Openings,
    publishers: Option<Publishers>,
    pings: Option<Schedule>,
    keep_alive_s: Option<u16>,
    /// Slots with bytes to write.
    touched: Vec<usize>,
    scratch: Scratch,
    clock: Clock,
    /// When the load ended; what is due later is not counted.
    ended: Option<Moment>,
    counts: Counts,
    times: Times,
    reasons: Reasons,
}

/// How to tell wall-clock time from [`Moment`]s.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: OffsetNs,
}

/// Nanoseconds from a [`Moment`] to the time since 1970.
#[derive(Clone, Copy, Debug)]
struct OffsetNs(u64);

impl Clock {
    fn read() -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let offset_ns = (now.as_nanos() as u64).saturating_sub(monotonic_ns());
        Self {
            offset: OffsetNs(offset_ns),
        }
    }

    fn time(self, moment: Moment) -> UnixTime {
        UnixTime(moment.0.saturating_add(self.offset.0))
    }
}

/// What a read brought besides what is counted.
#[derive(Debug, Default)]
struct News {
    is_accepted: bool,
    has_room: bool,
}

impl Worker {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// A file of the transport cannot be used; no epoll instance or timer could be made.
    pub(super) fn new(order: Order, share: Share) -> Result<Self, EngineError> {
        let layers = order.target.layers()?;
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let now = Moment::now();
        let of_share = (share.index..order.clients.count).step_by(share.of);
        let slots: Vec<_> = of_share.map(|_| Slot::new(now)).collect();
        let gap_ns = 1e9 / order.clients.per_second;
        // Workers take turns.
        let first = now.after((gap_ns * share.index as f64) as u64);
        let openings = Openings {
            opened: 0,
            connecting: 0,
            first,
            next: first,
            gap_ns: gap_ns * share.of as f64,
            again: VecDeque::new(),
            limits: VecDeque::new(),
        };
        let publishers = match &order.activity {
            Activity::Publish(publishing) => Some(Publishers::new(publishing, slots.len())),
            Activity::Connect | Activity::Subscribe { .. } => None,
        };
        let keep_alive_s = Some(order.clients.login.keep_alive_s).filter(|&seconds| seconds > 0);
        let mut worker = Self {
            order,
            share,
            layers,
            poll,
            events: Events::with_capacity(EVENTS),
            timer,
            slots,
            openings,
            publishers,
            pings: None,
            keep_alive_s,
            touched: Vec::new(),
            scratch: Scratch::default(),
            clock: Clock::read(),
            ended: None,
            counts: Counts::default(),
            times: Times::default(),
            reasons: Reasons::default(),
        };
        worker.fix_pings();
        Ok(worker)
    }

    /// Ends a wait of [`Worker::turn`] from another thread.
    pub(super) fn waker(&self) -> io::Result<Arc<Waker>> {
        Waker::new(self.poll.registry(), WAKER).map(Arc::new)
    }

    /// Counts so far. Costs a look at each client.
    pub(super) fn counts(&mut self) -> Counts {
        // It may have been set since.
        self.clock = Clock::read();
        let mut counts = self.counts;
        let now = self.load_time(Moment::now());
        if self.ended.is_none() {
            self.count_due(&mut counts, now);
        }
        counts[Count::ConnectsDue] = self.openings.due(self.slots.len(), now);
        let first_connections = self.slots.iter().filter(|slot| slot.was_ready).count() as u64;
        let never = counts[Count::ConnectsDue].saturating_sub(first_connections);
        counts[Count::NeverConnected] = never;
        let away = self.slots.iter().filter_map(|slot| slot.away_since);
        let away_ns: u64 = away.map(|since| now.since(since)).sum();
        counts[Count::AwayMs] += away_ns / MS_NS;
        counts
    }

    /// `now`, or the end of the load if that was before.
    fn load_time(&self, now: Moment) -> Moment {
        self.ended.map_or(now, |ended| ended.min(now))
    }

    /// Times since the call before.
    pub(super) fn times(&mut self) -> &mut Times {
        &mut self.times
    }

    /// Failures so far.
    pub(super) fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// Takes leave of the broker, as far as sockets take the bytes.
    pub(super) fn leave(mut self) {
        let keeps_session = !self.order.clients.clean;
        for slot in &mut self.slots {
            if let (Some(client), State::Ready) = (&mut slot.client, slot.state) {
                let left = match keeps_session {
                    true => client.leave(),
                    false => client.close(),
                };
                // A connection that fails now is at its end, too.
                let _ = left
                    .map_err(ClientError::from)
                    .and_then(|()| client.flush(&mut self.scratch));
            }
        }
    }

    /// Does what is due, then waits for something to happen, until `until` at the latest, and handles it.
    ///
    /// # Errors
    /// The event loop failed.
    pub(super) fn turn(&mut self, until: Moment) -> Result<(), EngineError> {
        let now = Moment::now();
        self.do_due(now);
        self.flush(now);
        self.send_freed(now);
        self.flush(now);
        let wake = until.min(self.next_due());
        let is_due = wake <= now || self.has_freed();
        if !is_due {
            self.timer.arm(wake.0)?;
        }
        match self
            .poll
            .poll(&mut self.events, is_due.then_some(Duration::ZERO))
        {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let now = Moment::now();
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let index = event.token().0;
            // The timer and the waker are nobody's.
            if index < self.slots.len() {
                self.handle_readiness(index, event, now);
            }
        }
        self.events = events;
        self.flush(now);
        self.send_freed(now);
        self.flush(now);
        Ok(())
    }

    fn next_due(&self) -> Moment {
        let openings = &self.openings;
        let has_room = openings.connecting < CONNECTING;
        let again = openings.again.front().map(|&(due, _)| due);
        let new = (openings.opened < self.slots.len()).then_some(openings.next);
        let opening = [again, new].into_iter().flatten().min();
        let opening = opening
            .filter(|_| has_room)
            .map(|due| due.max(openings.next));
        let limit = openings.limits.front().map(|&(limit, ..)| limit);
        let ping = self.pings.as_ref().map(|pings| Moment(pings.next_due_ns()));
        let due = [opening, limit, ping, self.next_message()];
        due.into_iter().flatten().min().unwrap_or(Moment(u64::MAX))
    }

    fn do_due(&mut self, now: Moment) {
        while let Some(&(limit, index, visits)) = self.openings.limits.front()
            && limit <= now
        {
            self.openings.limits.pop_front();
            let slot = &self.slots[index];
            if slot.state == State::Connecting && slot.visits == visits {
                let error = io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s");
                self.fail(index, &error.into(), now);
            }
        }
        while let Some(index) = self.openings.take(self.slots.len(), now) {
            if let Err(error) = self.open(index, now) {
                self.fail(index, &error, now);
            }
        }
        while let Some((index, _)) = self.pings.as_mut().and_then(|pings| pings.take(now.0 + 1)) {
            let slot = &mut self.slots[index];
            if let (Some(client), State::Ready) = (&mut slot.client, slot.state)
                && client.ping().is_ok()
            {
                self.touched.push(index);
            }
        }
        self.publish_due(now);
    }

    /// The number of a slot's client in the whole run.
    fn number(&self, index: usize) -> usize {
        self.order.clients.first + self.share.index + index * self.share.of
    }

    fn open(&mut self, index: usize, now: Moment) -> Result<(), ClientError> {
        let number = self.number(index);
        let names = self.order.clients.names(number);
        let filters = self.filters(names.identity());
        let subscriptions: Vec<_> = filters
            .iter()
            .map(|(filter, qos)| (filter.as_str(), *qos))
            .collect();
        let path = self.path(index);
        let slot = &mut self.slots[index];
        slot.state = State::Connecting;
        slot.visits += 1;
        slot.opened = now;
        self.openings.connecting += 1;
        let limit = (now.after(ANSWER_NS), index, slot.visits);
        self.openings.limits.push_back(limit);
        self.touched.push(index);
        let clients = &self.order.clients;
        let login = Login {
            username: names.username.clone(),
            ..clients.login.clone()
        };
        let options = Options {
            login: &login,
            client_id: &names.client_id,
            clean_session: clients.clean,
            session_expiry_s: clients.session_expiry_s,
            subscriptions: &subscriptions,
            will: None,
            receive_buffer: None,
        };
        let path = Path {
            server: path.server,
            local: path.local,
            layers: &self.layers[path.listener],
        };
        let (registry, token) = (self.poll.registry(), Token(index));
        match &mut slot.client {
            Some(client) => client.reopen(path, registry, token, options)?,
            None => slot.client = Some(Client::open(path, registry, token, options)?),
        }
        Ok(())
    }

    fn filters(&self, identity: Identity<'_>) -> Vec<(String, mqtt_proto::QoS)> {
        match &self.order.activity {
            Activity::Subscribe { filters, qos } => {
                let filters = filters.iter();
                filters.map(|f| (f.text(identity), *qos)).collect()
            }
            Activity::Connect | Activity::Publish(_) => Vec::new(),
        }
    }

    fn path(&self, index: usize) -> Way {
        let (slot, target) = (&self.slots[index], &self.order.target);
        let place = self.number(index) - self.order.clients.first;
        let listener = (place + slot.breaks) % target.listeners.len();
        let sources = &target.sources;
        let local = sources.get(place % sources.len().max(1)).map(|&source| {
            // A port of an earlier visit may not be free yet: the kernel finds another.
            let port = match slot.visits {
                0 => FIRST_LOCAL_PORT + (place / sources.len() % LOCAL_PORTS) as u16,
                _ => 0,
            };
            SocketAddr::from((source, port))
        });
        Way {
            server: target.listeners[listener].address,
            listener,
            local,
        }
    }

    /// Spreads pings evenly over all clients.
    fn fix_pings(&mut self) {
        let clients = self.slots.len();
        let every_s = self.keep_alive_s.map(|s| f64::from(s) * PING_PART);
        let schedule = |every_s| Schedule::new(monotonic_ns(), clients as f64 / every_s, clients);
        self.pings = every_s.filter(|_| clients > 0).map(schedule);
    }

    fn handle_readiness(&mut self, index: usize, event: &mio::event::Event, now: Moment) {
        let visits = self.slots[index].visits;
        if event.is_readable() {
            self.read(index, now);
        }
        // The event says nothing of a connection that was opened since.
        if event.is_read_closed() && self.slots[index].visits == visits {
            self.fail(index, &ClientError::Closed, now);
        }
        let client = self.slots[index].client.as_ref();
        if client.is_some_and(Client::has_output) {
            self.touched.push(index);
        }
    }

    fn read(&mut self, index: usize, now: Moment) {
        let slot = &mut self.slots[index];
        let is_open = matches!(slot.state, State::Connecting | State::Ready);
        let client = match slot.client.as_mut() {
            Some(client) if is_open => client,
            // The event is of a connection that failed a moment ago.
            _ => return,
        };
        let (counts, times, clock) = (&mut self.counts, &mut self.times, self.clock);
        let reasons = &mut self.reasons;
        let mut news = News::default();
        let opened = slot.opened;
        let result = client.read(&mut self.scratch, usize::MAX, &mut |event| match event {
            Event::Connected => {
                news.is_accepted = true;
                times.connect.saturating_record(now.since(opened));
            }
            Event::Subscribed => {}
            Event::Message(bytes) => {
                counts[Count::Received] += 1;
                if let Some(due) = payload::due(bytes) {
                    let time = clock.time(now).0.saturating_sub(due.0);
                    times.deliver.saturating_record(time);
                }
            }
            Event::Acknowledged(due_ns) => {
                counts[Count::Acknowledged] += 1;
                news.has_room = true;
                let time = now.since(Moment(due_ns));
                times.acknowledge.saturating_record(time);
            }
            Event::MessageRefused(reason) => {
                counts[Count::Refused] += 1;
                news.has_room = true;
                reasons.add(format!("message refused: {reason:?}"), 1);
            }
        });
        if let Err(error) = result {
            return self.fail(index, &error, now);
        }
        if news.is_accepted {
            self.take_keep_alive(index);
        }
        if client_has_unsent(&self.slots[index]) {
            self.resend(index, now);
        }
        if news.has_room {
            self.free(index);
        }
        let slot = &self.slots[index];
        let is_ready = slot.client.as_ref().is_some_and(Client::is_ready);
        if is_ready && slot.state == State::Connecting {
            self.handle_ready(index, now);
        }
    }

    /// A server may ask for a shorter keep alive than the clients do.
    fn take_keep_alive(&mut self, index: usize) {
        let client = self.slots[index].client.as_ref();
        let asked = client.and_then(Client::server_keep_alive_s);
        if let Some(seconds @ 1..) = asked
            && self.keep_alive_s.is_none_or(|present| seconds < present)
        {
            self.keep_alive_s = Some(seconds);
            self.fix_pings();
        }
    }

    fn handle_ready(&mut self, index: usize, now: Moment) {
        let load_time = self.load_time(now);
        let slot = &mut self.slots[index];
        slot.state = State::Ready;
        slot.was_ready = true;
        if let Some(since) = slot.away_since.take() {
            self.counts[Count::AwayMs] += load_time.since(since) / MS_NS;
        }
        let is_first = slot.visits == 1;
        self.openings.connecting -= 1;
        self.counts[Count::Attempted] += u64::from(is_first);
        self.counts[Count::Connects] += 1;
        self.counts[Count::Ready] += 1;
        self.start_publishing(index, now);
    }

    /// Counts a failure, and sets the time to connect again. Of a client that is away it is no news.
    fn fail(&mut self, index: usize, error: &ClientError, now: Moment) {
        let slot = &mut self.slots[index];
        match slot.state {
            State::New | State::Away => return,
            State::Connecting => {
                let is_first = slot.visits == 1;
                self.openings.connecting -= 1;
                self.counts[Count::Attempted] += u64::from(is_first);
                self.counts[Count::ConnectFailures] += 1;
            }
            State::Ready => {
                self.counts[Count::Ready] -= 1;
                self.counts[Count::Disconnects] += 1;
                let unsettled = slot.client.as_ref().map_or(0, Client::unacknowledged);
                self.counts[Count::Unsettled] += unsettled as u64;
                slot.away_since = Some(now);
            }
        }
        slot.state = State::Away;
        slot.breaks += 1;
        self.reasons.add(error.to_string(), 1);
        let again = (now.after(RECONNECT_WAIT_NS), index);
        self.openings.again.push_back(again);
    }

    fn flush(&mut self, now: Moment) {
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let slot = &mut self.slots[index];
            if let (Some(client), State::Connecting | State::Ready) = (&mut slot.client, slot.state)
            {
                match client.flush(&mut self.scratch) {
                    Ok(()) => self.free(index),
                    Err(error) => self.fail(index, &error, now),
                }
            }
        }
        // Its memory is kept; nobody was touched meanwhile.
        self.touched = touched;
    }
}

fn client_has_unsent(slot: &Slot) -> bool {
    slot.client.as_ref().is_some_and(Client::has_unsent)
}

/// Where a client connects to, and from.
struct Way {
    server: SocketAddr,
    listener: usize,
    local: Option<SocketAddr>,
}

impl Slot {
    fn new(now: Moment) -> Self {
        Self {
            client: None,
            state: State::New,
            opened: now,
            visits: 0,
            breaks: 0,
            was_ready: false,
            away_since: None,
        }
    }
}

impl Openings {
    /// Of `slots`, those whose first connection was due until `now`.
    fn due(&self, slots: usize, now: Moment) -> u64 {
        let since_ns = now.since(self.first) as f64;
        match self.first <= now {
            true => ((since_ns / self.gap_ns) as u64 + 1).min(slots as u64),
            false => 0,
        }
    }

    /// The next slot of `slots` if it may be opened now: those that failed come first.
    fn take(&mut self, slots: usize, now: Moment) -> Option<usize> {
        if self.connecting >= CONNECTING || self.next > now {
            return None;
        }
        let index = match self.again.front() {
            Some(&(due, index)) if due <= now => {
                self.again.pop_front();
                index
            }
            _ if self.opened < slots => {
                self.opened += 1;
                self.opened - 1
            }
            _ => return None,
        };
        let earliest = Moment(now.0.saturating_sub(CATCH_UP_NS));
        self.next = self.next.after(self.gap_ns as u64).max(earliest);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const MS: u64 = 1_000_000;

    fn taken(openings: &mut Openings, slots: usize, ms: RangeInclusive<u64>) -> Vec<(u64, usize)> {
        let mut taken = Vec::new();
        for ms in ms {
            while let Some(index) = openings.take(slots, Moment(ms * MS)) {
                taken.push((ms, index));
            }
        }
        taken
    }

    fn openings(per_second: f64) -> Openings {
        Openings {
            opened: 0,
            connecting: 0,
            first: Moment(0),
            next: Moment(0),
            gap_ns: 1e9 / per_second,
            again: VecDeque::new(),
            limits: VecDeque::new(),
        }
    }

    #[test]
    fn clients_open_at_their_rate_and_those_that_failed_come_first() {
        let mut openings = openings(100.0);
        assert_eq!(taken(&mut openings, 9, 0..=25), [(0, 0), (10, 1), (20, 2)]);
        openings.again.push_back((Moment(35 * MS), 1));
        assert_eq!(
            taken(&mut openings, 9, 26..=50),
            [(30, 3), (40, 1), (50, 4)]
        );
        assert_eq!(taken(&mut openings, 5, 51..=99), []);
    }

    #[test]
    fn a_pause_is_caught_up_with_in_part() {
        let mut openings = openings(100.0);
        let caught = taken(&mut openings, 1_000, 5_000..=5_000);
        assert_eq!(caught.len(), 12, "the first, and those of 100 ms");
    }

    #[test]
    fn openings_are_due_at_their_rate_whether_they_are_made_or_not() {
        let openings = openings(100.0);
        let due = |ms: u64| openings.due(9, Moment(ms * MS));
        assert_eq!((due(0), due(9), due(10), due(500)), (1, 1, 2, 9));
    }

    #[test]
    fn few_are_on_their_way_at_a_time() {
        let mut openings = openings(1e6);
        openings.connecting = CONNECTING;
        assert_eq!(taken(&mut openings, 9, 0..=9), []);
    }
}
