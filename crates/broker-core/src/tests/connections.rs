//! An event loop's connections, in memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use broker_core::LoopMessage;
use net_api::{
    Arena, ConnectionId, Connections, Destination, Handshakes, PeerAddress, RateGroup, Rates,
};

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The client that opened it.
    pub(crate) client: String,
    /// What it sent and the broker has not consumed.
    pub(crate) unread: Vec<u8>,
    /// What the broker sent since it was last looked at.
    pub(crate) sent: Vec<u8>,
    pub(crate) tag: u64,
    pub(crate) is_paused: bool,
    pub(crate) is_touched: bool,
    /// The client takes nothing.
    pub(crate) is_blocked: bool,
    /// Nothing more is read, and it closes.
    pub(crate) is_closing: bool,
    /// It is closed, and the client can see that all was well.
    pub(crate) is_closed_in_order: bool,
}

/// A loop's connections and deadlines, and its messages to others.
#[derive(Debug)]
pub(crate) struct Memory {
    index: usize,
    loops: usize,
    pub(crate) now_ms: u64,
    pub(crate) turn: u64,
    pub(crate) connections: Arena<Connection>,
    /// What was closed, and by which client it was opened.
    pub(crate) closed: Vec<Connection>,
    /// By time and order of arming.
    pub(crate) timers: BTreeMap<(u64, u64), u64>,
    armed: u64,
    outgoing: Vec<(usize, LoopMessage)>,
    /// What goes behind all of that.
    behind: Vec<(usize, LoopMessage)>,
    pub(crate) accompanying: Option<LoopMessage>,
}

impl Memory {
    pub(crate) fn new(index: usize, loops: usize, now_ms: u64) -> Self {
        Self {
            index,
            loops,
            now_ms,
            turn: 0,
            connections: Arena::default(),
            closed: Vec::new(),
            timers: BTreeMap::new(),
            armed: 0,
            outgoing: Vec::new(),
            behind: Vec::new(),
            accompanying: None,
        }
    }

    /// A turn ends: its messages goes behind what others have sent, in the order that receivers get it in.
    pub(crate) fn append_messages(&mut self, messages: &mut Vec<(usize, LoopMessage)>) {
        messages.append(&mut self.outgoing);
        messages.append(&mut self.behind);
    }
}

impl Connections<LoopMessage> for Memory {
    fn index(&self) -> usize {
        self.index
    }

    fn loops(&self) -> usize {
        self.loops
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn turn(&self) -> u64 {
        self.turn
    }

    fn open_connections(&self) -> usize {
        self.connections.len()
    }

    fn set_limits(&mut self, _: Rates, _: Vec<Rates>, _: u64) {}

    fn set_rate_group(&mut self, _: ConnectionId, _: RateGroup) {}

    fn tag(&self, connection: ConnectionId) -> Option<u64> {
        self.connections.get(connection).map(|c| c.tag)
    }

    fn set_tag(&mut self, connection: ConnectionId, tag: u64) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.tag = tag;
        }
    }

    fn attach(&mut self, _: ConnectionId, _: Box<dyn Any + Send>) {}

    fn peer(&self, connection: ConnectionId) -> Option<PeerAddress> {
        self.connections.get(connection)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        Some(PeerAddress::Ip(address))
    }

    fn listener(&self, connection: ConnectionId) -> Option<u16> {
        self.connections.get(connection).map(|_| 0)
    }

    fn handshakes(&self, _: ConnectionId) -> Handshakes<'_> {
        Handshakes::default()
    }

    fn is_held_back(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|c| c.is_paused)
    }

    fn is_write_blocked(&self, connection: ConnectionId) -> bool {
        self.connections
            .get(connection)
            .is_some_and(|c| c.is_blocked)
    }

    fn touch(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.is_touched = true;
        }
    }

    fn resume(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.is_paused = false;
        }
    }

    fn read_soon(&mut self, connection: ConnectionId) -> bool {
        let c = self.connections.get(connection);
        c.is_some_and(|c| !c.is_paused && !c.is_closing)
    }

    fn is_read_soon(&self, connection: ConnectionId) -> bool {
        let c = self.connections.get(connection);
        c.is_some_and(|c| !c.is_paused && !c.unread.is_empty())
    }

    fn close(&mut self, connection: ConnectionId) {
        self.closed.extend(self.connections.remove(connection));
    }

    fn close_in_order(&mut self, connection: ConnectionId) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.is_closed_in_order = true;
        }
        self.close(connection);
    }

    fn abort(&mut self, connection: ConnectionId) {
        self.close(connection);
    }

    fn close_untagged(&mut self) {
        let untagged: Vec<_> = self
            .connections
            .keys()
            .filter(|id| self.tag(*id) == Some(0))
            .collect();
        for connection in untagged {
            self.close(connection);
        }
    }

    fn charge(&mut self, _: u32) {}

    fn has_done_enough(&self) -> bool {
        false
    }

    fn flush_soon(&mut self) {}

    fn send_bytes(&mut self, connection: ConnectionId, bytes: &[u8]) {
        if let Some(c) = self.connections.get_mut(connection) {
            c.sent.extend_from_slice(bytes);
        }
    }

    fn send_last(&mut self, connection: ConnectionId, bytes: Vec<u8>) {
        self.send_bytes(connection, &bytes);
        self.close(connection);
    }

    fn arm(&mut self, at_ms: u64, timer: u64) {
        self.armed += 1;
        self.timers.insert((at_ms, self.armed), timer);
    }

    fn send(&mut self, to: impl Into<Destination>, messages: LoopMessage) {
        match to.into() {
            Destination::Loop(to) => self.outgoing.push((to, messages)),
            Destination::Behind(to) => self.behind.push((to, messages)),
        }
    }

    fn add_to_last(&mut self, to: usize, add: impl FnOnce(&mut LoopMessage) -> bool) -> bool {
        // As in the queue of each loop.
        let mut queued = self.outgoing.iter_mut().rev();
        let last = queued.find(|(other, _)| *other == to);
        last.is_some_and(|(_, messages)| add(messages))
    }

    fn accompany(&mut self, messages: LoopMessage) {
        self.accompanying = Some(messages);
    }
}
