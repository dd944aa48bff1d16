//! The loops, their threads, and how they pass work to each other.
//!
//! Each loop's state is a [`Core`] under a lock of its own. Its thread holds the lock for the length of
//! a turn and lets it go to sleep in epoll_wait(2). At the end of a turn, still under the lock, mail is
//! put into the inboxes of its destinations: so mail of one loop to another is handled in the order of
//! its sending, whichever threads ran the turns. After the lock is released the thread looks after the
//! destinations: for one that sleeps it takes the lock and runs a turn (a wake-up costs more than the
//! work); one that is awake will find the mail before it sleeps.
//!
//! When there is little to do, one thread does it all: the others park, and the host (the thread of the
//! first loop) runs their loops as well; see `parking.rs`.
//!
//! An inbox is bounded: a sender that leaves more than [`INBOX_LIMIT`] items there waits for the lock
//! and works them off. It holds no other lock then, so no two threads can wait for each other.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use histogram::Micros;
use mio::event::{Event, Source};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use net_api::{
    Arrival, Closed, ConnectionId, Connections, Key, Next, PeerAddress, Service, Transmit,
};
use parking_lot::Mutex;
use transport::TransportError;

use crate::connection::{Connection, Phase, Unconsumed, Unwritten};
use crate::io::{Accepted, CONNECTION_TIMER, Envelope, HandedOver, Io, token};
use crate::layered::Layered;
use crate::listener::{Listener, Profile};
use crate::packed_address::PackedAddress;
use crate::parking::{
    FIRST_PARKED, HOST, Host, Meter, PARK_BELOW, PARK_BELOW_HOST, Parking, host_load, park,
};
use crate::places::Places;
use crate::stats::{HandshakeFailure, LoopStats};
use crate::{CHUNK, Clock};

/// Reads or writes of one connection in a turn, so that a busy one leaves room for the others.
const ROUNDS: usize = 4;

/// Connections accepted from a listener in a turn.
const ACCEPTS: usize = 256;

/// Events taken from the kernel in a turn.
pub(crate) const EVENTS: usize = 1024;

/// Units of work of a read(2), and of a write(2).
const READ_WORK: u32 = 2;
const WRITE_WORK: u32 = 4;

/// Bytes that are worth a unit when they are written.
const BYTES_PER_UNIT: usize = 4096;

/// Units of work of accepting a connection.
const ACCEPT_WORK: u32 = 8;

/// Units of work of bytes for a handshake, which may be of TLS.
const HANDSHAKE_WORK: u32 = 250;

/// Items in a loop's inbox at which senders stop to work them off.
///
/// Limit: items that wait in the inbox of a loop, from other loops | {} items | the sender stops reading in this turn, then works it off
const INBOX_LIMIT: usize = 4096;

/// Touched connections at which a turn flushes before it goes on: a broadcast's receivers are written
/// while their state is still in the cache.
const FLUSH_AT: usize = 256;

/// Pause after accept(2) failed for want of descriptors or memory, or when all places are taken or the service
/// wants no more connections for the moment.
const ACCEPT_PAUSE_MS: u64 = 50;

const WAKER: Token = Token(usize::MAX);
pub(crate) const FIRST_LISTENER: usize = 1 << 62;
/// The service's timers use 63 bits, connections' timers 56; this one stands apart from both.
const ACCEPT_TIMER: u64 = u64::MAX;

/// A loop as the others see it.
pub(crate) struct Peer<S: Service> {
    pub(crate) core: Mutex<Core<S>>,
    pub(crate) inbox: Mutex<Vec<Envelope<S::Mail>>>,
    waker: Waker,
    /// Held by the loop's own thread, unless that is parked.
    pub(crate) poll: Mutex<Poll>,
    /// The thread sleeps, or is about to, and has seen an empty inbox since it said so.
    pub(crate) asleep: AtomicBool,
    /// When the sleeping thread will wake by itself.
    pub(crate) wakes_at: AtomicU64,
    pub(crate) parking: Parking,
    pub(crate) clock: Clock,
    stats: Arc<LoopStats>,
    places: Arc<Places>,
}

impl<S: Service> Peer<S> {
    /// Notes when the loop's thread wakes by itself. Called under the lock of the core.
    pub(crate) fn plan(&self, wait: Option<(u64, u64)>) {
        self.wakes_at
            .store(wait.map_or(u64::MAX, |(_, at)| at), Ordering::SeqCst);
    }
}

/// What belongs to one loop.
pub(crate) struct Core<S: Service> {
    pub(crate) io: Io<S::Mail>,
    service: S,
    listeners: Vec<Listener>,
    all_stats: Arc<[Arc<LoopStats>]>,
    /// A timer is armed for going on to accept.
    accept_armed: bool,
    /// An empty buffer that changes places with the inbox.
    batch: Vec<Envelope<S::Mail>>,
    /// How many connections were left with something to read when this turn began.
    left: usize,
    /// When this turn began.
    began: Micros,
    /// When the last one ended.
    finished: Micros,
    read_buffer: Vec<u8>,
    /// What layers made of what was read; empty between calls.
    inner_buffer: Vec<u8>,
    write_buffer: Vec<u8>,
    pub(crate) stopping: bool,
}

/// The running loops.
pub struct EventLoops<S: Service> {
    remote: Remote<S>,
    threads: Vec<JoinHandle<()>>,
}

/// Sends mail and connections to loops from other threads.
pub struct Remote<S: Service> {
    peers: Arc<[Peer<S>]>,
}

/// Why a loop is not given a socket.
#[derive(Debug)]
pub enum HandInError {
    /// As many connections are open as the process has file descriptors for.
    NoPlace,
    /// There are no loops.
    NoLoop,
    /// The socket cannot be made non-blocking.
    Socket(io::Error),
}

impl fmt::Display for HandInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPlace => "the process has no file descriptor left for another connection",
            Self::NoLoop => "there is no event loop",
            Self::Socket(_) => "the socket cannot be made non-blocking",
        })
    }
}

impl std::error::Error for HandInError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket(error) => Some(error),
            Self::NoPlace | Self::NoLoop => None,
        }
    }
}

impl<S: Service> Clone for Remote<S> {
    fn clone(&self) -> Self {
        Self {
            peers: Arc::clone(&self.peers),
        }
    }
}

impl<S: Service> fmt::Debug for Remote<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("loops", &self.loops())
            .finish()
    }
}

impl<S: Service> Remote<S> {
    /// How many loops there are.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.peers.len()
    }

    /// Sends mail to a loop. It waits for the loop's current turn if the loop has too much mail.
    pub fn send(&self, to: usize, mail: S::Mail) {
        post(&self.peers, to, Envelope::Mail(mail));
    }

    /// Gives a connected socket to the loop with the fewest connections, as if a listener of this profile had accepted it;
    /// [`Service::admits`] is not asked. The connection takes a place until it is closed.
    ///
    /// # Errors
    /// All places are taken, or the socket cannot be made non-blocking. The socket is closed then.
    pub fn hand_in(&self, socket: UnixStream, profile: Arc<Profile>) -> Result<(), HandInError> {
        let fewest = self.peers.iter().enumerate();
        let fewest = fewest.min_by_key(|(_, peer)| peer.stats.open.get());
        let Some((to, peer)) = fewest else {
            return Err(HandInError::NoLoop);
        };
        socket.set_nonblocking(true).map_err(HandInError::Socket)?;
        if !peer.places.take() {
            return Err(HandInError::NoPlace);
        }
        let accepted = Accepted {
            socket: OwnedFd::from(socket).into(),
            peer: PeerAddress::Unix,
            profile,
        };
        post(&self.peers, to, Envelope::Accepted(Box::new(accepted)));
        Ok(())
    }
}

impl<S: Service> EventLoops<S> {
    /// Starts `services.len()` loops, each on a thread of its own, the listeners spread over them.
    ///
    /// # Errors
    /// Those of creating epoll instances, wakers and threads, and of registering the listeners.
    pub fn start(
        services: Vec<S>,
        listeners: Vec<Listener>,
        clock: Clock,
        stats: &[Arc<LoopStats>],
        places: &Arc<Places>,
    ) -> io::Result<Self> {
        let loops = services.len();
        let all_stats: Arc<[Arc<LoopStats>]> = stats.into();
        let mut peers = Vec::new();
        let mut listeners: VecDeque<(usize, Listener)> =
            listeners.into_iter().enumerate().collect();
        for (index, (service, stats)) in services.into_iter().zip(stats).enumerate() {
            let poll = Poll::new()?;
            let registry = poll.registry().try_clone()?;
            let waker = Waker::new(&registry, WAKER)?;
            let mut mine = Vec::new();
            for (number, listener) in std::mem::take(&mut listeners) {
                if number % loops == index {
                    SourceFd(&listener.socket.as_raw_fd()).register(
                        &registry,
                        Token(FIRST_LISTENER + mine.len()),
                        Interest::READABLE,
                    )?;
                    mine.push(listener);
                } else {
                    listeners.push_back((number, listener));
                }
            }
            let core = Core {
                io: Io::new(
                    index,
                    loops,
                    registry,
                    clock,
                    Arc::clone(stats),
                    Arc::clone(places),
                ),
                service,
                listeners: mine,
                all_stats: Arc::clone(&all_stats),
                accept_armed: false,
                batch: Vec::new(),
                left: 0,
                began: Micros::default(),
                finished: Micros::default(),
                read_buffer: vec![0; CHUNK],
                inner_buffer: Vec::new(),
                write_buffer: Vec::with_capacity(CHUNK),
                stopping: false,
            };
            let parking = Parking::new(poll.registry().try_clone()?);
            peers.push(Peer {
                core: Mutex::new(core),
                inbox: Mutex::new(Vec::new()),
                waker,
                poll: Mutex::new(poll),
                asleep: AtomicBool::new(false),
                wakes_at: AtomicU64::new(0),
                parking,
                clock,
                stats: Arc::clone(stats),
                places: Arc::clone(places),
            });
        }
        let peers: Arc<[Peer<S>]> = peers.into();
        let mut threads = Vec::new();
        for index in 0..peers.len() {
            let peers = Arc::clone(&peers);
            let thread = std::thread::Builder::new().name(format!("loop-{index}"));
            threads.push(thread.spawn(move || run(&peers, index))?);
        }
        Ok(Self {
            remote: Remote { peers },
            threads,
        })
    }

    /// A handle for other threads.
    #[must_use]
    pub fn remote(&self) -> Remote<S> {
        self.remote.clone()
    }

    /// Stops all loops after their current turn and waits for their threads. What is not written by then
    /// is lost.
    pub fn stop(self) {
        for to in 0..self.remote.peers.len() {
            post(&self.remote.peers, to, Envelope::Stop);
            if let Some(peer) = self.remote.peers.get(to) {
                wake(peer);
            }
        }
        for (thread, peer) in self.threads.into_iter().zip(self.remote.peers.iter()) {
            peer.parking.end(thread.thread());
            if thread.join().is_err() {
                tracing::error!("a panic ended an event loop");
            }
            // Handles in other threads keep the loop, and the process may go on: nobody is to connect to what is not served.
            peer.core.lock().listeners.clear();
        }
    }
}

impl<S: Service> Peer<S> {
    fn now(&self) -> Micros {
        Micros(self.clock.now_us())
    }
}

/// A loop's thread.
fn run<S: Service>(peers: &[Peer<S>], index: usize) {
    let Some(me) = peers.get(index) else { return };
    let mut poll = me.poll.lock();
    let mut events = Events::with_capacity(EVENTS);
    let mut wait = Some((0, 0));
    let mut receivers = VecDeque::new();
    let mut host = (index == HOST).then(|| Host::new(peers));
    let mut until = me.now();
    let mut meter = Meter::start(until);
    loop {
        me.asleep.store(true, Ordering::SeqCst);
        let mut timeout = wait.map(|(ms, _)| Duration::from_millis(ms));
        if let Some(parked) = host.as_ref().and_then(|host| host.wait(until)) {
            timeout = Some(timeout.map_or(parked, |own| own.min(parked)));
        }
        if !me.inbox.lock().is_empty() {
            timeout = Some(Duration::ZERO);
        }
        if let Err(error) = poll.poll(&mut events, timeout)
            && error.kind() != ErrorKind::Interrupted
        {
            tracing::error!(%error, "waiting for events failed; the loop ends");
            return;
        }
        me.asleep.store(false, Ordering::SeqCst);
        let mut core = me.core.lock();
        core.begin_turn();
        meter.wake(core.began);
        core.take_inbox(me);
        for event in &events {
            match event.token() {
                Token(number) if (FIRST_PARKED..FIRST_LISTENER).contains(&number) => {
                    if let Some(host) = &mut host {
                        host.has_events(number - FIRST_PARKED);
                    }
                }
                _ => core.handle_event(event),
            }
        }
        core.finish_turn();
        if core.stopping {
            return;
        }
        wait = core.wait();
        let finished = core.finished;
        // Under the lock: who runs a turn of this loop next compares with it, and wakes us if it must.
        me.plan(wait);
        core.hand_out(peers, &mut receivers);
        drop(core);
        let has_receivers = !receivers.is_empty();
        look_after(peers, &mut receivers);
        let has_run = host
            .as_mut()
            .is_some_and(|host| host.run_parked(finished, &mut receivers));
        until = match has_receivers || has_run {
            true => me.now(),
            false => finished,
        };
        let Some(busy) = meter.sleep(until) else {
            continue;
        };
        match &mut host {
            Some(host) => host.share_load(busy),
            None if busy < PARK_BELOW && host_load(peers) < PARK_BELOW_HOST => {
                drop(poll);
                park(peers, index);
                poll = me.poll.lock();
                wait = Some((0, 0));
            }
            None => {}
        }
    }
}

/// Sends mail from outside the loops.
fn post<S: Service>(peers: &[Peer<S>], to: usize, envelope: Envelope<S::Mail>) {
    if let Some(peer) = peers.get(to) {
        peer.inbox.lock().push(envelope);
        look_after(peers, &mut VecDeque::from([to]));
    }
}

/// Sees to it that loops handle what is in their inboxes, and those that get mail of that.
pub(crate) fn look_after<S: Service>(peers: &[Peer<S>], receivers: &mut VecDeque<usize>) {
    while let Some(peer) = receivers.pop_front().and_then(|to| peers.get(to)) {
        let core = peer.core.try_lock().or_else(|| {
            // Whoever has the lock may have looked into the inbox already.
            if peer.asleep.swap(false, Ordering::SeqCst) {
                wake(peer);
            }
            let full = peer.inbox.lock().len() > INBOX_LIMIT;
            full.then(|| peer.core.lock())
        });
        let Some(mut core) = core else { continue };
        core.begin_turn();
        core.take_inbox(peer);
        core.io.stats.helped.add(1);
        core.finish_turn();
        core.hand_out(peers, receivers);
        let wait = core.wait();
        let stopping = core.stopping;
        drop(core);
        // Its thread sleeps by a plan that this turn may have made too long.
        if stopping || wait.is_some_and(|(_, at)| at < peer.wakes_at.load(Ordering::Relaxed)) {
            wake(peer);
        }
    }
}

pub(crate) fn wake<S: Service>(peer: &Peer<S>) {
    if let Err(error) = peer.waker.wake() {
        tracing::error!(%error, "an event loop cannot be woken");
    }
}

impl<S: Service> Core<S> {
    pub(crate) fn begin_turn(&mut self) {
        self.began = Micros(self.io.clock.now_us());
        self.io.now_ms = self.began.0 / 1_000;
        self.io.stats.turns.add(1);
        self.left = self.io.ready.len();
        self.io.begin_part();
    }

    pub(crate) fn take_inbox(&mut self, peer: &Peer<S>) {
        let mut batch = std::mem::take(&mut self.batch);
        std::mem::swap(&mut batch, &mut *peer.inbox.lock());
        self.open_mail(&mut batch);
        self.batch = batch;
    }

    fn open_mail(&mut self, batch: &mut Vec<Envelope<S::Mail>>) {
        for envelope in batch.drain(..) {
            match envelope {
                Envelope::Mail(mail) => self.service.mail(&mut self.io, mail),
                Envelope::Accepted(accepted) => self.take_in(*accepted),
                Envelope::HandedOver(moved) => self.take_over(*moved),
                Envelope::Stop => self.stopping = true,
            }
            self.flush_early();
        }
        if batch.capacity() > 4 * INBOX_LIMIT {
            batch.shrink_to(INBOX_LIMIT);
        }
    }

    /// Within a turn: flushes when many connections are touched, or a queue fills.
    fn flush_early(&mut self) {
        if self.io.touched.len() >= FLUSH_AT || std::mem::take(&mut self.io.flush_soon) {
            self.flush_touched();
        }
    }

    pub(crate) fn handle_event(&mut self, event: &Event) {
        match event.token() {
            WAKER => {}
            Token(number) if number >= FIRST_LISTENER => self.accept(number - FIRST_LISTENER),
            Token(number) => {
                let id = Key::from_bits(number as u64);
                let Some(c) = self.io.connections.get_mut(id) else {
                    return;
                };
                if event.is_writable() && c.write_blocked {
                    c.write_blocked = false;
                    self.io.touch(id);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    let mut is_left = false;
                    if let Some(c) = self.io.connections.get_mut(id) {
                        c.readable = true;
                        c.peer_closed |= event.is_read_closed() || event.is_error();
                        is_left = c.ready;
                    }
                    // One that is left from an earlier turn is read when its turn comes, and not twice.
                    if !is_left {
                        self.read(id);
                    }
                }
            }
        }
    }

    /// Deadlines, connections that had more to read than their share, own mail, and the flush.
    pub(crate) fn finish_turn(&mut self) {
        self.io.begin_part();
        // All that are due are taken first: one that is armed again for now waits for the next turn.
        let mut due = Vec::new();
        while let Some(timer) = self.io.timers.pop_due(self.io.now_ms) {
            due.push(timer);
        }
        for timer in due {
            if timer == ACCEPT_TIMER {
                self.accept_armed = false;
                for listener in 0..self.listeners.len() {
                    self.accept(listener);
                }
            } else if timer & CONNECTION_TIMER != 0 {
                self.connection_timer(Key::from_bits(timer & !CONNECTION_TIMER));
            } else {
                self.service.timer(&mut self.io, timer);
            }
        }
        for _ in 0..std::mem::take(&mut self.left) {
            if self.io.has_done_enough() {
                // The rest keeps its place before those that come after it.
                self.io.stats.put_off.add(1);
                break;
            }
            let Some(id) = self.io.ready.pop_front() else {
                break;
            };
            if let Some(c) = self.io.connections.get_mut(id) {
                c.ready = false;
            }
            self.read(id);
        }
        if self.io.ready.capacity() > 4 * EVENTS {
            self.io.ready.shrink_to(EVENTS);
        }
        self.io.begin_part();
        loop {
            let mut own = self
                .io
                .outgoing
                .get_mut(self.io.index)
                .map(std::mem::take)
                .unwrap_or_default();
            if own.is_empty() && (self.io.touched.is_empty() || self.has_flushed_enough()) {
                break;
            }
            self.open_mail(&mut own);
            self.flush_touched();
        }
        self.finished = Micros(self.io.clock.now_us());
        let took = self.finished.0.saturating_sub(self.began.0);
        self.io.stats.turn_time.record(Micros(took));
    }

    /// How long the thread may sleep: ms, and the time at which it wakes. `None`: until something comes.
    pub(crate) fn wait(&self) -> Option<(u64, u64)> {
        if !self.io.ready.is_empty() || !self.io.touched.is_empty() {
            return Some((0, self.io.now_ms));
        }
        let at = self.io.timers.next()?;
        // A turn has just ended.
        Some((at.saturating_sub(self.finished.0 / 1_000), at))
    }

    /// Puts the turn's mail into the inboxes of its receivers.
    pub(crate) fn hand_out(&mut self, peers: &[Peer<S>], receivers: &mut VecDeque<usize>) {
        self.io.mailed = 0;
        for (to, queue) in self.io.outgoing.iter_mut().enumerate() {
            if !queue.is_empty()
                && let Some(peer) = peers.get(to)
            {
                peer.inbox.lock().append(queue);
                receivers.push_back(to);
            }
        }
        for (to, envelope) in self.io.behind.drain(..) {
            if let Some(peer) = peers.get(to) {
                peer.inbox.lock().push(envelope);
                if !receivers.contains(&to) {
                    receivers.push_back(to);
                }
            }
        }
    }

    fn accept(&mut self, number: usize) {
        let budget = self.service.accept_budget(&mut self.io);
        for _ in 0..budget.min(ACCEPTS) {
            let Some(listener) = self.listeners.get(number) else {
                return;
            };
            if !self.io.places.take() {
                // It waits in the listener, and is not lost.
                return self.accept_later(ACCEPT_PAUSE_MS);
            }
            let accepted = listener.accept();
            if accepted.is_err() {
                self.io.places.free();
            }
            match accepted {
                Ok((socket, peer)) => {
                    self.io.charge(ACCEPT_WORK);
                    let profile = Arc::clone(&listener.profile);
                    self.deal(Accepted {
                        socket,
                        peer,
                        profile,
                    });
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Events are edge-triggered: without a new connection nothing would call
                        // accept again, so a timer does.
                        tracing::warn!(%error, "a connection could not be accepted");
                        self.io.stats.accept_errors.add(1);
                        self.accept_later(ACCEPT_PAUSE_MS);
                        return;
                    }
                },
            }
        }
        let pause = if budget < ACCEPTS { ACCEPT_PAUSE_MS } else { 0 };
        self.accept_later(pause);
    }

    fn accept_later(&mut self, pause_ms: u64) {
        if !self.accept_armed {
            self.accept_armed = true;
            self.io.timers.arm(self.io.now_ms + pause_ms, ACCEPT_TIMER);
        }
    }

    /// Gives a connection that was accepted to the loop with the fewest.
    fn deal(&mut self, accepted: Accepted) {
        let Accepted { peer, profile, .. } = &accepted;
        if !self.service.admits(&mut self.io, profile.number, *peer) {
            self.io.stats.listener(profile.number).refused.add(1);
            drop(accepted);
            self.io.places.free();
            return;
        }
        let fewest = self
            .all_stats
            .iter()
            .enumerate()
            .min_by_key(|(index, stats)| {
                let on_its_way = self.io.outgoing.get(*index).map_or(0, Vec::len);
                (
                    stats.open.get() + on_its_way as u64,
                    *index != self.io.index,
                )
            });
        match fewest {
            Some((to, _)) if to != self.io.index => {
                if let Some(queue) = self.io.outgoing.get_mut(to) {
                    queue.push(Envelope::Accepted(Box::new(accepted)));
                }
            }
            _ => self.take_in(accepted),
        }
    }

    fn take_in(&mut self, accepted: Accepted) {
        let Accepted {
            socket,
            peer,
            profile,
        } = accepted;
        let handshake_until = self.io.now_ms + self.io.handshake_ms;
        let layers = Layered::accept(&profile, handshake_until);
        let is_layered = layers.is_some();
        let Some(id) = self
            .io
            .adopt(Connection::new(socket, peer, &profile, layers))
        else {
            return;
        };
        if is_layered {
            self.io
                .timers
                .arm(handshake_until, CONNECTION_TIMER | id.to_bits());
        }
        self.io.stats.accepted.add(1);
        self.io.stats.listener(profile.number).accepted.add(1);
        self.service
            .arrived(&mut self.io, id, peer, Arrival::Accepted);
    }

    fn take_over(&mut self, moved: HandedOver<S::Mail>) {
        let HandedOver { connection, mail } = moved;
        let peer = connection.peer.address();
        let is_layered = connection.layers.is_some();
        if let Some(id) = self.io.adopt(connection) {
            if is_layered {
                // The end of a handshake may still be to be sent.
                self.io.touch(id);
            }
            self.service
                .arrived(&mut self.io, id, peer, Arrival::HandedOver);
            if let Some(mail) = mail {
                self.service.accompanied(&mut self.io, id, mail);
            }
            if let Some(c) = self.io.connections.get_mut(id) {
                c.unoffered = c.pending_in.is_some();
                c.ready = false;
            }
            self.io.make_ready(id);
        }
    }

    fn connection_timer(&mut self, id: ConnectionId) {
        let now = self.io.now_ms;
        let Some(c) = self.io.connections.get_mut(id) else {
            return;
        };
        c.woken();
        let is_open = c.phase == Phase::Open;
        if c.closing_until().is_some_and(|until| now >= until) {
            self.io.close(id);
        } else if is_open && c.handshake_until().is_some_and(|until| now >= until) {
            self.lost(id, Closed::HandshakeTimeout);
        } else {
            self.io.make_ready(id);
            self.io.touch(id);
        }
    }

    fn lost(&mut self, id: ConnectionId, cause: Closed) {
        let failure = match &cause {
            Closed::HandshakeTimeout => HandshakeFailure::Timeout,
            Closed::ByPeer | Closed::Error(_) | Closed::Transport(_) => {
                HandshakeFailure::Disconnected
            }
        };
        self.tell_closed(id, cause, failure);
        self.io.close(id);
    }

    /// The layers of a connection let nothing more in. What they have to say about it is still sent.
    fn end_layers(&mut self, id: ConnectionId, error: TransportError) {
        let failure = HandshakeFailure::of(&error);
        let cause = match error {
            TransportError::Closed => Closed::ByPeer,
            error => Closed::Transport(Box::new(error)),
        };
        self.tell_closed(id, cause, failure);
        self.io.send_last(id, Vec::new());
    }

    /// Tells the service that a connection is gone, unless the service has given it up itself. `failure`: what it
    /// is counted as if its handshakes are not done.
    fn tell_closed(&mut self, id: ConnectionId, cause: Closed, failure: HandshakeFailure) {
        let Some(c) = self.io.connections.get(id) else {
            return;
        };
        if c.phase != Phase::Open {
            return;
        }
        if c.handshake_until().is_some() {
            self.io.stats.listener(c.listener).failed(failure).add(1);
            tracing::debug!(
                peer = %c.peer.address(),
                listener = c.listener,
                reason = failure.name(),
                error = cause.error().map(tracing::field::display),
                "a handshake failed"
            );
        }
        self.service.closed(&mut self.io, id, cause);
    }

    fn read(&mut self, id: ConnectionId) {
        for _ in 0..ROUNDS {
            let is_enough = self.io.mailed > INBOX_LIMIT || self.io.has_done_enough();
            let Some(c) = self.io.connections.get_mut(id) else {
                return;
            };
            if c.phase != Phase::Open {
                self.discard(id);
                return;
            }
            if c.paused {
                return;
            }
            if is_enough {
                // Enough for this turn: the rest is read when this is on its way.
                self.io.stats.put_off.add(1);
                self.io.make_ready(id);
                return;
            }
            if c.unoffered {
                c.unoffered = false;
                let goes_on = self.offer_pending(id);
                self.flush_early();
                if !goes_on {
                    return;
                }
                continue;
            }
            if let Some(layers) = &mut c.layers {
                if let Some(error) = layers.take_end() {
                    return self.end_layers(id, *error);
                }
                if layers.has_output() {
                    // Who sends and does not read is not read: the flush goes on when this is out.
                    return;
                }
            }
            if !c.readable {
                return;
            }
            let rate = self.io.rates.of(c.rate_group).bytes_in.0;
            let available = c.metered.inbound.available(rate, self.io.now_ms);
            if available == 0 {
                let at = c.metered.inbound.resumes_at(rate, self.io.now_ms);
                self.io.throttle(id, at);
                self.io.stats.throttled_in.add(1);
                self.service.throttled(&mut self.io, id, at);
                return;
            }
            let wanted = usize::try_from(available).map_or(CHUNK, |n| n.min(CHUNK));
            let Some(buffer) = self.read_buffer.get_mut(..wanted) else {
                return;
            };
            self.io.stats.reads.add(1);
            let n = match c.socket.read(buffer) {
                Ok(0) => return self.lost(id, Closed::ByPeer),
                Ok(n) => n,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        c.readable = false;
                        return;
                    }
                    ErrorKind::Interrupted => continue,
                    _ => return self.lost(id, Closed::Error(error)),
                },
            };
            // Less than asked for means that the socket is empty (epoll(7), question 9); but an end of
            // the stream that was announced with these bytes is not announced again.
            c.readable = n == wanted || c.peer_closed;
            c.metered.inbound.take(n as u64, rate, self.io.now_ms);
            self.io.stats.bytes_in.add(n as u64);
            let is_layered = c.layers.is_some();
            self.io.charge(READ_WORK);
            let buffer = std::mem::take(&mut self.read_buffer);
            let bytes = buffer.get(..n).unwrap_or_default();
            let goes_on = if is_layered {
                self.receive_layered(id, bytes)
            } else {
                self.offer_fresh(id, bytes)
            };
            self.read_buffer = buffer;
            self.flush_early();
            if !goes_on {
                return;
            }
        }
        if self.io.connections.get(id).is_some_and(|c| c.readable) {
            self.io.make_ready(id);
        }
    }

    /// Takes what was read through the layers of the connection. False: it is to be left alone now.
    fn receive_layered(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        let mut inner = std::mem::take(&mut self.inner_buffer);
        let handshakes = |c: &Connection| c.handshake_until().is_some();
        if self.io.connections.get(id).is_some_and(handshakes) {
            self.io.charge(HANDSHAKE_WORK);
        }
        if let Some(c) = self.io.connections.get_mut(id)
            && let Some(layers) = &mut c.layers
        {
            let is_open = layers.is_open();
            layers.receive(bytes, &mut inner);
            if !is_open && let Some(client) = layers.client(c.peer.address()) {
                c.peer = PackedAddress::from(client);
            }
            if layers.are_done() {
                c.layers = None;
            } else if layers.has_output() {
                self.io.touch(id);
            }
        }
        let goes_on = inner.is_empty() || self.offer_fresh(id, &inner);
        inner.clear();
        inner.shrink_to(4 * CHUNK);
        self.inner_buffer = inner;
        goes_on
    }

    /// Offers bytes that have just come, behind those that wait. False: the connection is to be left alone
    /// now.
    fn offer_fresh(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        if let Some(c) = self.io.connections.get_mut(id)
            && let Some(pending) = &mut c.pending_in
        {
            pending.append(bytes);
            return self.offer_pending(id);
        }
        self.offer(id, bytes)
    }

    /// Offers bytes that belong to no buffer yet. False: the connection is to be left alone now.
    fn offer(&mut self, id: ConnectionId, bytes: &[u8]) -> bool {
        let received = self.service.received(&mut self.io, id, bytes);
        let rest = bytes.get(received.consumed..).unwrap_or_default();
        if let Some(c) = self.io.connections.get_mut(id)
            && c.phase == Phase::Open
            && !rest.is_empty()
        {
            c.pending_in = Some(Box::new(Unconsumed::new(rest)));
        }
        self.follow(id, received.next)
    }

    /// Offers the connection's own buffer, and frees it when all is consumed.
    fn offer_pending(&mut self, id: ConnectionId) -> bool {
        let Some(c) = self.io.connections.get_mut(id) else {
            return false;
        };
        let Some(mut pending) = c.pending_in.take() else {
            return true;
        };
        let received = self.service.received(&mut self.io, id, pending.rest());
        pending.consume(received.consumed);
        pending.trim();
        if !pending.rest().is_empty()
            && let Some(c) = self.io.connections.get_mut(id)
            && c.phase == Phase::Open
        {
            c.pending_in = Some(pending);
        }
        self.follow(id, received.next)
    }

    fn follow(&mut self, id: ConnectionId, next: Next) -> bool {
        match next {
            Next::Read => self
                .io
                .connections
                .get(id)
                .is_some_and(|c| c.phase == Phase::Open),
            Next::Yield => {
                if let Some(c) = self.io.connections.get_mut(id) {
                    c.unoffered = c.pending_in.is_some();
                    self.io.make_ready(id);
                }
                false
            }
            Next::Pause => {
                if let Some(c) = self.io.connections.get_mut(id) {
                    c.paused = true;
                }
                false
            }
            Next::Close => {
                self.io.close_in_order(id);
                false
            }
            Next::HandOver(to) => {
                let mail = self.io.accompanying.take();
                if let Some(mut c) = self.io.remove(id) {
                    c.touched = false;
                    c.write_blocked = false;
                    if let Some(queue) = self.io.outgoing.get_mut(to) {
                        let moved = HandedOver {
                            connection: c,
                            mail,
                        };
                        queue.push(Envelope::HandedOver(Box::new(moved)));
                    }
                }
                false
            }
        }
    }

    /// Reads and throws away what still comes on a connection that is being closed.
    fn discard(&mut self, id: ConnectionId) {
        for _ in 0..ROUNDS {
            self.io.charge(READ_WORK);
            let Some(c) = self.io.connections.get_mut(id) else {
                return;
            };
            match c.socket.read(&mut self.read_buffer) {
                Ok(0) => {
                    // The peer has closed. If last bytes are still to be written, it may yet read them.
                    c.readable = false;
                    if c.phase == Phase::Lingering {
                        self.io.close(id);
                    }
                    return;
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    c.readable = false;
                    return;
                }
                Err(_) => return self.io.close(id),
            }
        }
        self.io.make_ready(id);
    }

    /// Whether the connections that are still to be flushed wait for the next turn.
    fn has_flushed_enough(&self) -> bool {
        self.io.has_done_enough() && !self.stopping
    }

    fn flush_touched(&mut self) {
        // Flushing may touch further connections (a message that could not be sent goes to another
        // member of its group); they are flushed in the same pass.
        let mut next = 0;
        while let Some(&id) = self.io.touched.get(next)
            && !self.has_flushed_enough()
        {
            next += 1;
            if let Some(c) = self.io.connections.get_mut(id) {
                c.touched = false;
                self.flush(id);
            }
        }
        self.io.touched.drain(..next);
        if self.io.touched.capacity() > 4 * FLUSH_AT {
            self.io.touched.shrink_to(FLUSH_AT);
        }
    }

    fn flush(&mut self, id: ConnectionId) {
        for _ in 0..ROUNDS {
            let Some(c) = self.io.connections.get_mut(id) else {
                return;
            };
            if c.write_blocked || c.phase == Phase::Lingering {
                return;
            }
            let open = c.phase == Phase::Open;
            let rate = self.io.rates.of(c.rate_group).bytes_out.0;
            let available = c.metered.outbound.available(rate, self.io.now_ms);
            if available == 0 && open {
                let at = c.metered.outbound.resumes_at(rate, self.io.now_ms);
                self.io.throttle(id, at);
                self.io.stats.throttled_out.add(1);
                return;
            }
            if let Some(unwritten) = c.pending_out.take() {
                let mut unwritten = *unwritten;
                let rest = unwritten.bytes.get(unwritten.written..).unwrap_or_default();
                let Some(n) = self.write(id, rest) else {
                    return;
                };
                unwritten.written += n;
                if unwritten.written < unwritten.bytes.len() {
                    return self.keep(id, unwritten);
                }
                continue;
            }
            if !open {
                self.io.linger(id);
                return;
            }
            let budget = usize::try_from(available).map_or(CHUNK, |n| n.min(CHUNK));
            let (is_layered, is_open) = (c.layers.is_some(), c.is_open());
            let mut out = std::mem::take(&mut self.write_buffer);
            out.clear();
            let transmit = if is_open {
                self.service.transmit(&mut self.io, id, &mut out, budget)
            } else {
                Transmit::Idle
            };
            if transmit == Transmit::Close {
                self.io.send_last(id, std::mem::take(&mut out));
            } else if is_layered {
                self.io.seal(id, &mut out);
            }
            let written = if out.is_empty() {
                Some(0)
            } else {
                self.write(id, &out)
            };
            if let Some(rest) = written.and_then(|n| out.get(n..))
                && !rest.is_empty()
            {
                self.keep(
                    id,
                    Unwritten {
                        bytes: rest.to_vec(),
                        written: 0,
                    },
                );
            }
            if out.capacity() > 4 * CHUNK || out.capacity() == 0 {
                out = Vec::with_capacity(CHUNK);
            }
            self.write_buffer = out;
            if written.is_none() || transmit == Transmit::Idle {
                return;
            }
        }
        // Its share of the turn is used up; the next turn goes on.
        self.io
            .timers
            .arm(self.io.now_ms, CONNECTION_TIMER | id.to_bits());
    }

    /// Writes what the socket takes and says how much that was. `None`: the connection is lost.
    fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> Option<usize> {
        let length = u32::try_from(bytes.len() / BYTES_PER_UNIT).unwrap_or(u32::MAX);
        self.io.charge(WRITE_WORK.saturating_add(length));
        let c = self.io.connections.get_mut(id)?;
        let rate = self.io.rates.of(c.rate_group).bytes_out.0;
        match write_some(c, bytes, &self.io.stats) {
            Ok(n) => {
                c.metered.outbound.take(n as u64, rate, self.io.now_ms);
                Some(n)
            }
            Err(error) => {
                self.lost(id, Closed::Error(error));
                None
            }
        }
    }

    /// Keeps what the socket did not take.
    fn keep(&mut self, id: ConnectionId, unwritten: Unwritten) {
        if let Some(c) = self.io.connections.get_mut(id) {
            c.pending_out = Some(Box::new(unwritten));
            self.block(id);
        }
    }

    /// Waits for the socket to take more.
    fn block(&mut self, id: ConnectionId) {
        let Some(c) = self.io.connections.get_mut(id) else {
            return;
        };
        c.write_blocked = true;
        if !c.watches_writable {
            // Most connections never fill their socket; only those that did are watched for room.
            c.watches_writable = true;
            if let Err(error) = c.watch_writable(&self.io.registry, token(id)) {
                self.lost(id, Closed::Error(error));
            }
        }
    }
}

/// One write(2), or several when interrupted. `Ok(0)`: the socket is full.
fn write_some(c: &mut Connection, bytes: &[u8], stats: &LoopStats) -> io::Result<usize> {
    loop {
        stats.writes.add(1);
        match c.socket.write(bytes) {
            Ok(n) => {
                stats.bytes_out.add(n as u64);
                return Ok(n);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
