//! What a [`Service`](net_api::Service) can do to its loop.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mio::{Registry, Token};
use net_api::{
    Arena, ConnectionId, Connections, Destination, Handshakes, Key, PeerAddress, RateGroup, Rates,
};
use socket2::Socket;

use crate::connection::{Connection, Phase, Unwritten};
use crate::listener::Profile;
use crate::places::Places;
use crate::stats::LoopStats;
use crate::timers::Timers;
use crate::{CHUNK, Clock};

/// How long a closing connection may take to accept its last bytes.
const CLOSING_MS: u64 = 5_000;

/// How long a connection whose last bytes are written waits for the peer to close.
const LINGER_MS: u64 = 1_000;

/// How long handshakes may take before the service says so.
const HANDSHAKE_MS: u64 = 30_000;

/// Units of work, of about a microsecond each, after which a part of a turn has done enough. A turn has three: mail
/// and what has just come; deadlines and what was left by earlier turns; what is written.
///
/// Limit: work of a loop in a turn | 3 × {} units: what has just come, what earlier turns have left, what is written
/// | connections are read and written in the next turn, in their order
const WORK: u64 = 10_000;

/// Marks timers of connections; the service's own have the bit clear.
pub(crate) const CONNECTION_TIMER: u64 = 1 << 63;

/// What one loop has for another.
#[derive(Debug)]
pub(crate) enum Envelope<M> {
    /// From the service.
    Mail(M),
    /// A fresh connection, dealt to the loop with the fewest.
    Accepted(Box<Accepted>),
    /// A connection that belongs to the other loop.
    HandedOver(Box<HandedOver<M>>),
    /// End the loop.
    Stop,
}

/// A connection that a listener took, or that was handed in.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
    pub(crate) profile: Arc<Profile>,
}

/// A connection on its way to another loop.
#[derive(Debug)]
pub(crate) struct HandedOver<M> {
    pub(crate) connection: Connection,
    /// What the service sends along.
    pub(crate) mail: Option<M>,
}

/// The part of a loop that its service may use: connections, deadlines, mail to other loops.
#[derive(Debug)]
pub struct Io<M> {
    pub(crate) index: usize,
    pub(crate) connections: Arena<Connection>,
    pub(crate) registry: Registry,
    pub(crate) timers: Timers<u64>,
    pub(crate) touched: Vec<ConnectionId>,
    /// Connections with something to read, in the order in which their turn comes.
    pub(crate) ready: VecDeque<ConnectionId>,
    /// Mail by destination; that to the loop itself is handled before the turn ends.
    pub(crate) outgoing: Vec<Vec<Envelope<M>>>,
    /// What goes behind all of that, and where to.
    pub(crate) behind: Vec<(usize, Envelope<M>)>,
    pub(crate) now_ms: u64,
    pub(crate) clock: Clock,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) places: Arc<Places>,
    /// The service wants a flush before the turn goes on.
    pub(crate) flush_soon: bool,
    /// Goes with the connection that is handed over next.
    pub(crate) accompanying: Option<M>,
    /// Mail of this turn.
    pub(crate) mailed: usize,
    /// Units of work that were done since the start.
    work: u64,
    /// Units at which this part of the turn has done enough.
    work_until: u64,
    pub(crate) rates: GroupRates,
    /// How long the handshakes of a connection may take.
    pub(crate) handshake_ms: u64,
    /// What layers made of a transmission; empty between calls.
    sealed: Vec<u8>,
}

/// The rates of connections, by the groups that the service has put them into.
#[derive(Debug, Default)]
pub(crate) struct GroupRates {
    /// Of those that are in no group, or in one that is not known.
    rates: Rates,
    /// From group 1 on.
    groups: Vec<Rates>,
}

impl GroupRates {
    pub(crate) fn of(&self, group: RateGroup) -> Rates {
        let number = usize::from(group.0).checked_sub(1);
        let found = number.and_then(|number| self.groups.get(number));
        found.copied().unwrap_or(self.rates)
    }
}

impl<M> Io<M> {
    pub(crate) fn new(
        index: usize,
        loops: usize,
        registry: Registry,
        clock: Clock,
        stats: Arc<LoopStats>,
        places: Arc<Places>,
    ) -> Self {
        Self {
            index,
            connections: Arena::default(),
            registry,
            timers: Timers::default(),
            touched: Vec::new(),
            ready: VecDeque::new(),
            work: 0,
            work_until: 0,
            outgoing: (0..loops).map(|_| Vec::new()).collect(),
            behind: Vec::new(),
            now_ms: clock.now_ms(),
            clock,
            stats,
            places,
            flush_soon: false,
            accompanying: None,
            mailed: 0,
            rates: GroupRates::default(),
            handshake_ms: HANDSHAKE_MS,
            sealed: Vec::new(),
        }
    }

    /// Takes a connection out of the loop. Its place stays taken: whoever closes it gives that back.
    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Connection> {
        let c = self.connections.remove(connection)?;
        c.deregister(&self.registry);
        self.stats.open.set(self.connections.len() as u64);
        self.stats.listener(c.listener).open.sub(1);
        Some(c)
    }

    /// A part of a turn begins, with a share of work of its own.
    pub(crate) fn begin_part(&mut self) {
        self.work_until = self.work + WORK;
    }

    /// Arms the time at which a connection over its rate goes on, unless an earlier one is armed.
    pub(crate) fn throttle(&mut self, connection: ConnectionId, at_ms: u64) {
        if let Some(c) = self.connections.get_mut(connection)
            && c.wake_at(at_ms)
        {
            self.timers
                .arm(at_ms, CONNECTION_TIMER | connection.to_bits());
        }
    }

    pub(crate) fn make_ready(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection)
            && !c.ready
        {
            c.ready = true;
            self.ready.push_back(connection);
        }
    }

    /// Takes a connection in and watches it. `None`: the kernel refused to watch it, and it is closed.
    pub(crate) fn adopt(&mut self, mut connection: Connection) -> Option<ConnectionId> {
        let id = self.connections.next_key();
        if let Err(error) = connection.register(&self.registry, token(id)) {
            tracing::warn!(%error, peer = %connection.peer.address(), "a connection cannot be watched and is closed");
            drop(connection);
            self.places.free();
            return None;
        }
        connection.watches_writable = false;
        self.stats.listener(connection.listener).open.add(1);
        let id = self.connections.insert(connection);
        self.stats.open.set(self.connections.len() as u64);
        Some(id)
    }

    /// Turns bytes of the service into those of the socket.
    pub(crate) fn seal(&mut self, connection: ConnectionId, out: &mut Vec<u8>) {
        let Some(c) = self.connections.get_mut(connection) else {
            return;
        };
        if let Some(layers) = &mut c.layers {
            layers.seal(out, &mut self.sealed);
            std::mem::swap(out, &mut self.sealed);
            self.sealed.clear();
            self.sealed.shrink_to(4 * CHUNK);
            if c.readable {
                // It was not read as long as the layers had something to send.
                self.make_ready(connection);
            }
        }
    }

    /// The last bytes are out: shut our side and wait for the peer's.
    pub(crate) fn linger(&mut self, connection: ConnectionId) {
        let until = self.now_ms + LINGER_MS;
        let Some(c) = self.connections.get_mut(connection) else {
            return;
        };
        if c.socket.shutdown(std::net::Shutdown::Write).is_err() {
            self.close(connection);
            return;
        }
        c.close_until(Phase::Lingering, until);
        self.timers
            .arm(until, CONNECTION_TIMER | connection.to_bits());
        self.make_ready(connection);
    }
}

impl<M> Connections<M> for Io<M> {
    fn index(&self) -> usize {
        self.index
    }

    fn loops(&self) -> usize {
        self.outgoing.len()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn turn(&self) -> u64 {
        self.stats.turns.get()
    }

    fn open_connections(&self) -> usize {
        self.connections.len()
    }

    fn set_rate_group(&mut self, connection: ConnectionId, group: RateGroup) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.rate_group = group;
        }
    }

    fn set_limits(&mut self, rates: Rates, groups: Vec<Rates>, handshake_ms: u64) {
        self.rates = GroupRates { rates, groups };
        self.handshake_ms = handshake_ms;
    }

    fn tag(&self, connection: ConnectionId) -> Option<u64> {
        self.connections.get(connection).map(|c| c.tag)
    }

    fn set_tag(&mut self, connection: ConnectionId, tag: u64) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.tag = tag;
        }
    }

    fn attach(&mut self, connection: ConnectionId, attached: Box<dyn Any + Send>) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.attach(attached);
        }
    }

    fn peer(&self, connection: ConnectionId) -> Option<PeerAddress> {
        self.connections.get(connection).map(|c| c.peer.address())
    }

    fn listener(&self, connection: ConnectionId) -> Option<u16> {
        self.connections.get(connection).map(|c| c.listener)
    }

    fn handshakes(&self, connection: ConnectionId) -> Handshakes<'_> {
        let connection = self.connections.get(connection);
        let layers = connection.and_then(|connection| connection.layers.as_ref());
        layers.map_or_else(Handshakes::default, |layers| layers.handshakes())
    }

    fn is_held_back(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|c| !c.peer_closed && (c.paused || c.readable || c.unoffered))
    }

    fn is_write_blocked(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|c| c.write_blocked)
    }

    fn touch(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection)
            && !c.touched
        {
            c.touched = true;
            self.touched.push(connection);
        }
    }

    fn resume(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection)
            && c.paused
        {
            c.paused = false;
            c.unoffered = c.pending_in.is_some();
            self.make_ready(connection);
        }
    }

    fn read_soon(&mut self, connection: ConnectionId) -> bool {
        let Some(c) = self.connections.get_mut(connection) else {
            return false;
        };
        if c.paused || c.phase != Phase::Open {
            return false;
        }
        c.readable = true;
        self.make_ready(connection);
        true
    }

    fn is_read_soon(&self, connection: ConnectionId) -> bool {
        let c = self.connections.get(connection);
        c.is_some_and(|c| c.ready)
    }

    fn close(&mut self, connection: ConnectionId) {
        // Dropping it closes the socket.
        if let Some(c) = self.remove(connection) {
            drop(c);
            self.places.free();
        }
    }

    fn close_in_order(&mut self, connection: ConnectionId) {
        let c = self.connections.get(connection);
        if c.is_some_and(|c| c.layers.is_some()) {
            self.send_last(connection, Vec::new());
        } else {
            self.close(connection);
        }
    }

    fn abort(&mut self, connection: ConnectionId) {
        if let Some(c) = self.remove(connection) {
            // A socket of another kind, or one that is broken already, has nothing to reset.
            let _ = c.socket.set_linger(Some(Duration::ZERO));
            drop(c);
            self.places.free();
        }
    }

    fn close_untagged(&mut self) {
        let untagged: Vec<ConnectionId> = self
            .connections
            .keys()
            .filter(|id| self.tag(*id) == Some(0))
            .collect();
        for connection in untagged {
            self.close(connection);
        }
    }

    #[inline]
    fn charge(&mut self, units: u32) {
        self.work += u64::from(units);
    }

    #[inline]
    fn has_done_enough(&self) -> bool {
        self.work >= self.work_until
    }

    fn flush_soon(&mut self) {
        self.flush_soon = true;
    }

    fn send_bytes(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let Some(c) = self.connections.get_mut(connection) else {
            return;
        };
        if c.phase != Phase::Open {
            return;
        }
        let bytes = match &mut c.layers {
            Some(layers) => {
                let mut sealed = Vec::new();
                layers.seal(bytes, &mut sealed);
                sealed
            }
            None => bytes.to_vec(),
        };
        append(&mut c.pending_out, bytes);
        self.touch(connection);
    }

    fn send_last(&mut self, connection: ConnectionId, bytes: Vec<u8>) {
        let until = self.now_ms + CLOSING_MS;
        let Some(c) = self.connections.get_mut(connection) else {
            return;
        };
        if c.phase != Phase::Open {
            return;
        }
        let bytes = match &mut c.layers {
            Some(layers) => layers.seal_last(&bytes),
            None => bytes,
        };
        append(&mut c.pending_out, bytes);
        c.close_until(Phase::Closing, until);
        c.pending_in = None;
        c.paused = false;
        self.timers
            .arm(until, CONNECTION_TIMER | connection.to_bits());
        self.touch(connection);
    }

    fn arm(&mut self, at_ms: u64, timer: u64) {
        self.timers.arm(at_ms, timer & !CONNECTION_TIMER);
    }

    fn send(&mut self, to: impl Into<Destination>, mail: M) {
        let envelope = Envelope::Mail(mail);
        match to.into() {
            Destination::Behind(to) => self.behind.push((to, envelope)),
            Destination::Loop(to) => match self.outgoing.get_mut(to) {
                Some(queue) => queue.push(envelope),
                None => return,
            },
        }
        self.mailed += 1;
    }

    fn add_to_last(&mut self, to: usize, add: impl FnOnce(&mut M) -> bool) -> bool {
        let last = self.outgoing.get_mut(to).and_then(|queue| queue.last_mut());
        let is_added = match last {
            Some(Envelope::Mail(last)) => add(last),
            _ => false,
        };
        self.mailed += usize::from(is_added);
        is_added
    }

    fn accompany(&mut self, mail: M) {
        self.accompanying = Some(mail);
    }
}

/// Puts bytes behind what waits to be written.
fn append(pending: &mut Option<Box<Unwritten>>, bytes: Vec<u8>) {
    match pending {
        Some(unwritten) => unwritten.bytes.extend_from_slice(&bytes),
        None if !bytes.is_empty() => *pending = Some(Box::new(Unwritten { bytes, written: 0 })),
        None => {}
    }
}

pub(crate) fn token(id: Key) -> Token {
    Token(id.to_bits() as usize)
}
