//! As many threads as the load needs.
//!
//! At low rates each message wakes a thread, and waking several threads costs more than letting one do
//! the work of all: it finds more to do each time, and stays on its core. So a loop's thread that has
//! little to do parks, and lets the host, the thread of the first loop, watch its epoll instance (which
//! is registered in the host's) and run its turns. A host that has much to do lets parked threads go on
//! by themselves, one after the other.
//!
//! Invariant: a loop is run by its own thread, or by the host if that thread is parked; and beside, at
//! any time, by who has mail for it and finds its lock free. Nothing is ever stuck with a parked thread:
//! its deadlines and its waker reach the host.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::Thread;
use std::time::Duration;

use histogram::Micros;
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use net_api::Service;

use crate::event_loop::{EVENTS, Peer, look_after, wake};

/// The loop whose thread never parks.
pub(crate) const HOST: usize = 0;

/// Tokens of parked loops' epoll instances in the host's; above all connections', below the listeners'.
pub(crate) const FIRST_PARKED: usize = 1 << 61;

/// Turns that the host runs for one parked loop before it looks after the others.
const ROUNDS: usize = 4;

/// Over how long the load of a thread is measured.
const WINDOW_US: u64 = 10_000;

/// A thread parks if it is busy for less than this share of the time, in percent …
pub(crate) const PARK_BELOW: u8 = 15;

/// … and the host for less than this one.
pub(crate) const PARK_BELOW_HOST: u8 = 30;

/// Load of the host, in percent, at which a parked thread takes its loop back.
const UNPARK_ABOVE: u8 = 60;

/// What parking needs to know of a loop.
pub(crate) struct Parking {
    /// The loop's epoll instance, for the host's: where those of parked loops are registered.
    registry: Registry,
    parked: AtomicBool,
    /// The loops end: nobody parks any more.
    ending: AtomicBool,
    thread: OnceLock<Thread>,
    /// How busy the thread was in its last window, in percent.
    load: AtomicU8,
}

impl Parking {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            parked: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            thread: OnceLock::new(),
            load: AtomicU8::new(0),
        }
    }

    /// Lets a parked thread go on, and keeps it from parking again.
    pub(crate) fn end(&self, thread: &Thread) {
        self.ending.store(true, Ordering::SeqCst);
        self.parked.store(false, Ordering::SeqCst);
        thread.unpark();
    }
}

/// How busy the host was in its last window, in percent.
pub(crate) fn host_load<S: Service>(peers: &[Peer<S>]) -> u8 {
    peers
        .get(HOST)
        .map_or(0, |host| host.parking.load.load(Ordering::Relaxed))
}

/// Leaves a loop to the host until that has too much to do. The caller has let go of the loop's epoll
/// instance.
pub(crate) fn park<S: Service>(peers: &[Peer<S>], index: usize) {
    let (Some(host), Some(me)) = (peers.get(HOST), peers.get(index)) else {
        return;
    };
    if me.parking.ending.load(Ordering::SeqCst) {
        return;
    }
    let _ = me.parking.thread.set(std::thread::current());
    let fd = me.poll.lock().as_raw_fd();
    let token = Token(FIRST_PARKED + index);
    if let Err(error) =
        host.parking
            .registry
            .register(&mut SourceFd(&fd), token, Interest::READABLE)
    {
        tracing::warn!(%error, index, "a loop cannot be handed to the host and stays awake");
        return;
    }
    me.parking.parked.store(true, Ordering::SeqCst);
    me.asleep.store(true, Ordering::SeqCst);
    // Until now the host passed over this loop's events, messages that came had nobody else to look after
    // them, and the host's plan to sleep knew nothing of this loop's deadlines: its waker tells the host.
    wake(me);
    while me.parking.parked.load(Ordering::SeqCst) && !me.parking.ending.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// The host's view of the parked loops.
pub(crate) struct Host<'a, S: Service> {
    peers: &'a [Peer<S>],
    events: Events,
    /// Parked loops that have something to do.
    due: Vec<usize>,
    /// Those that had more to do than their share of a turn.
    again: Vec<usize>,
}

impl<'a, S: Service> Host<'a, S> {
    pub(crate) fn new(peers: &'a [Peer<S>]) -> Self {
        Self {
            peers,
            events: Events::with_capacity(EVENTS),
            due: Vec::new(),
            again: Vec::new(),
        }
    }

    fn parked(&self) -> impl Iterator<Item = (usize, &'a Peer<S>)> + use<'a, S> {
        let parked = |(_, peer): &(usize, &Peer<S>)| peer.parking.parked.load(Ordering::SeqCst);
        self.peers.iter().enumerate().filter(parked)
    }

    /// How long the host may sleep from `now` on for the sake of the parked loops.
    pub(crate) fn wait(&self, now: Micros) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let soonest = self
            .parked()
            .map(|(_, peer)| peer.wakes_at.load(Ordering::Relaxed))
            .min()?;
        if soonest == u64::MAX {
            return None;
        }
        Some(Duration::from_millis(soonest.saturating_sub(now.0 / 1_000)))
    }

    /// A parked loop's epoll instance has events.
    pub(crate) fn has_events(&mut self, index: usize) {
        self.due.push(index);
    }

    /// Runs turns of the parked loops that have events or deadlines.
    /// `now`: when this thread's own turn has ended. Whether there was a turn to run.
    pub(crate) fn run_parked(&mut self, now: Micros, receivers: &mut VecDeque<usize>) -> bool {
        let mut due = std::mem::take(&mut self.due);
        due.append(&mut self.again);
        for (index, peer) in self.parked() {
            let wakes_at = peer.wakes_at.load(Ordering::Relaxed);
            if wakes_at != u64::MAX && !due.contains(&index) && wakes_at <= now.0 / 1_000 {
                due.push(index);
            }
        }
        let has_run = !due.is_empty();
        for index in due.drain(..) {
            self.run_one(index, receivers);
        }
        self.due = due;
        has_run
    }

    fn run_one(&mut self, index: usize, receivers: &mut VecDeque<usize>) {
        let Some(peer) = self.peers.get(index) else {
            return;
        };
        if !peer.parking.parked.load(Ordering::SeqCst) {
            return;
        }
        let mut poll = peer.poll.lock();
        for _ in 0..ROUNDS {
            if let Err(error) = poll.poll(&mut self.events, Some(Duration::ZERO))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "looking for events of a parked loop failed");
            }
            peer.asleep.store(false, Ordering::SeqCst);
            let mut core = peer.core.lock();
            core.begin_turn();
            core.take_inbox(peer);
            let mut events = 0;
            for event in &self.events {
                core.handle_event(event);
                events += 1;
            }
            core.finish_turn();
            peer.plan(core.wait());
            core.hand_out(self.peers, receivers);
            drop(core);
            peer.asleep.store(true, Ordering::SeqCst);
            look_after(self.peers, receivers);
            // Its events are edge-triggered in the host's epoll instance: what is left is not said again.
            if events < EVENTS && peer.inbox.lock().is_empty() {
                return;
            }
        }
        self.again.push(index);
    }

    /// After a window: a host with much to do lets one more thread help.
    pub(crate) fn share_load(&self, busy: u8) {
        let Some(host) = self.peers.get(HOST) else {
            return;
        };
        host.parking.load.store(busy, Ordering::Relaxed);
        if busy < UNPARK_ABOVE {
            return;
        }
        if let Some((_, peer)) = self.parked().next() {
            let fd = peer.poll.lock().as_raw_fd();
            if let Err(error) = host.parking.registry.deregister(&mut SourceFd(&fd)) {
                tracing::warn!(%error, "a loop's epoll instance stays with the host");
            }
            peer.parking.parked.store(false, Ordering::SeqCst);
            if let Some(thread) = peer.parking.thread.get() {
                thread.unpark();
            }
        }
    }
}

/// How much of its time a thread works.
pub(crate) struct Meter {
    window: Micros,
    woken: Micros,
    busy: Micros,
}

impl Meter {
    pub(crate) fn start(now: Micros) -> Self {
        Self {
            window: now,
            woken: now,
            busy: Micros::default(),
        }
    }

    /// Work has begun. Times are those that turns have read: a clock costs as much as a small part of a message.
    pub(crate) fn wake(&mut self, at: Micros) {
        self.woken = at;
    }

    /// Work ends. At the end of a window: the share of it that was work, in percent.
    pub(crate) fn sleep(&mut self, now: Micros) -> Option<u8> {
        self.busy.0 += now.0.saturating_sub(self.woken.0);
        let window = now.0.saturating_sub(self.window.0);
        if window < WINDOW_US {
            return None;
        }
        let percent = self.busy.0 * 100 / window.max(1);
        self.window = now;
        self.busy = Micros::default();
        Some(u8::try_from(percent).unwrap_or(100))
    }
}
