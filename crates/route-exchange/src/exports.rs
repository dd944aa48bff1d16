//! The owner's side: what this node wants from its peers, and which of them know it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::{Batch, Key, Malformed, NodeId, ShardNumber, State, Times, Value};

/// Routes in a batch.
const BATCH_ROUTES: usize = 256;

/// Bytes of routes at which a batch is full.
const BATCH_BYTES: usize = 64 * 1024;

/// Batches on their way to a peer.
///
/// Limit: routes on their way to a peer | {} batches of {BATCH_ROUTES} routes or {BATCH_BYTES} | the rest waits
const WINDOW: u64 = 16;

/// Bytes of changes that are kept for peers that have not been sent them. A peer that needs older ones gets a
/// snapshot instead.
///
/// Limit: routes that a peer has not been sent | {} of changes | it gets a snapshot instead
const LOG_BYTES: usize = 16 << 20;

/// Streams of one incarnation of a node.
const STREAM_BITS: u32 = 32;

/// Which messages a session that is connected gets directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receivers {
    /// All.
    All,
    /// Those of QoS 0; its inbox gets the others.
    Qos0,
}

/// The routes of this node.
#[derive(Debug)]
pub struct Exports {
    times: Times,
    routes: BTreeMap<Key, Route>,
    /// The number of the last change.
    number: u64,
    /// The last changes.
    log: VecDeque<(Key, Option<Value>)>,
    log_bytes: usize,
    peers: BTreeMap<NodeId, Peer>,
    last_stream: u64,
}

/// A route, and how many sessions it stands for.
#[derive(Clone, Copy, Debug)]
struct Route {
    value: Value,
    all: u32,
    qos0: u32,
}

/// A peer, and where its stream stands.
#[derive(Debug)]
struct Peer {
    /// When one of its beats was last answered. It believes nothing for longer than a lease after that.
    granted_ms: u64,
    /// `None`: there is no connection to it.
    stream: Option<Stream>,
    /// It has every route up to this number, or knows that it does not.
    held: u64,
    /// A beat to be answered.
    echo_ms: Option<u64>,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    sent: u64,
    acknowledged: u64,
    snapshot: Snapshot,
    /// The number of the next change to be sent.
    next: u64,
}

#[derive(Debug)]
enum Snapshot {
    /// The next page begins behind this route.
    Paging(Option<Key>),
    /// All pages are sent; it is complete when all changes up to this number are.
    CatchingUp(u64),
    /// It was complete with this batch, and this number.
    Complete { sequence: u64, number: u64 },
}

impl Exports {
    /// `incarnation`: of the node; grows with each start of it.
    #[must_use]
    pub fn new(incarnation: u64, times: Times) -> Self {
        Self {
            times,
            routes: BTreeMap::new(),
            number: 0,
            log: VecDeque::new(),
            log_bytes: 0,
            peers: BTreeMap::new(),
            last_stream: incarnation << STREAM_BITS,
        }
    }

    /// A session subscribes to a filter.
    pub fn subscribe(&mut self, filter: &str, receivers: Receivers) {
        self.count(Key::Filter(filter.into()), receivers, true);
    }

    /// A session unsubscribes from a filter that it had subscribed to.
    pub fn unsubscribe(&mut self, filter: &str, receivers: Receivers) {
        self.count(Key::Filter(filter.into()), receivers, false);
    }

    /// A connected session joins a shared group.
    pub fn join(&mut self, group: &str) {
        self.count(Key::Group(group.into()), Receivers::All, true);
    }

    /// A connected session leaves a shared group that it was in.
    pub fn leave(&mut self, group: &str) {
        self.count(Key::Group(group.into()), Receivers::All, false);
    }

    /// How many members of a group have room, roughly. A group without members stays without.
    pub fn show_room(&mut self, group: &str, room: u32) {
        let key = Key::Group(group.into());
        if let Some(route) = self.routes.get_mut(&key)
            && route.value != (Value::Group { room })
        {
            route.value = Value::Group { room };
            let value = Some(route.value);
            self.changed(key, value);
        }
    }

    /// This node leads an inbox shard. Its routes are to be told from now on, all of them. A second time in
    /// the same term changes nothing.
    pub fn lead(&mut self, shard: ShardNumber, term: u64) {
        if self.led(shard).is_some_and(|(led, _)| led == term) {
            return;
        }
        self.forget_shard(shard);
        let complete = false;
        self.set(Key::Lead(shard), Some(Value::Lead { term, complete }));
    }

    /// A shard that this node leads was split, and has the slots up to `last`. `covers`: see [`Value::Range`]. False:
    /// nothing has changed.
    pub fn narrow(&mut self, shard: ShardNumber, last: u16, covers: bool) -> bool {
        let value = Some(Value::Range { last, covers });
        let changes = self.led(shard).is_some() && self.range(shard) != Some((last, covers));
        if changes {
            self.set(Key::Range(shard), value);
        }
        changes
    }

    /// What is told of the range of a shard that this node leads, if it was split.
    #[must_use]
    pub fn range(&self, shard: ShardNumber) -> Option<(u16, bool)> {
        match self.routes.get(&Key::Range(shard))?.value {
            Value::Range { last, covers } => Some((last, covers)),
            _ => None,
        }
    }

    /// All routes of a shard that this node leads have been told.
    pub fn complete(&mut self, shard: ShardNumber) {
        if let Some((term, _)) = self.led(shard) {
            let complete = true;
            self.set(Key::Lead(shard), Some(Value::Lead { term, complete }));
        }
    }

    /// This node leads a shard no longer.
    pub fn resign(&mut self, shard: ShardNumber) {
        self.forget_shard(shard);
        self.set(Key::Lead(shard), None);
    }

    /// The term that this node leads a shard in, and whether its routes are complete.
    #[must_use]
    pub fn led(&self, shard: ShardNumber) -> Option<(u64, bool)> {
        match self.routes.get(&Key::Lead(shard))?.value {
            Value::Lead { term, complete } => Some((term, complete)),
            _ => None,
        }
    }

    /// Sets, or removes, a route of a shard that this node leads. False: it does not lead it, and nothing
    /// has changed.
    pub fn set_of_shard(&mut self, key: Key, value: Option<Value>) -> bool {
        let (Key::ShardFilter(shard, _) | Key::Member(shard, ..)) = key else {
            return false;
        };
        let leads = self.led(shard).is_some();
        if leads {
            self.set(key, value);
        }
        leads
    }

    /// The routes of a shard that this node leads.
    pub fn of_shard(&self, shard: ShardNumber) -> impl Iterator<Item = &Key> {
        Key::of_shard(shard)
            .into_iter()
            .flat_map(|(from, to)| self.routes.range(from..to))
            .map(|(key, _)| key)
    }

    /// There is a peer. It is waited for from now on.
    pub fn add_peer(&mut self, peer: NodeId, now_ms: u64) {
        self.peers.entry(peer).or_insert(Peer {
            granted_ms: now_ms,
            stream: None,
            held: 0,
            echo_ms: None,
        });
    }

    /// A peer is none any more.
    pub fn remove_peer(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
        self.trim();
    }

    /// A new connection to a peer: what was sent before may be lost.
    pub fn connected(&mut self, peer: NodeId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            self.last_stream += 1;
            peer.stream = Some(Stream::new(self.last_stream, self.number));
        }
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    /// Whether no beat of a peer was answered for so long that it believes nothing, and nobody waits for it.
    #[must_use]
    pub fn is_silent(&self, peer: NodeId, now_ms: u64) -> bool {
        let silence = self.times.silence_ms;
        let peer = self.peers.get(&peer);
        peer.is_none_or(|peer| now_ms >= peer.granted_ms + silence)
    }

    /// There is no connection to a peer.
    pub fn disconnected(&mut self, peer: NodeId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.stream = None;
        }
        self.trim();
    }

    /// A peer says what it has applied.
    ///
    /// # Errors
    /// It says more than it can have.
    pub fn handle_state(&mut self, peer: NodeId, state: &State) -> Result<(), Malformed> {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return Ok(());
        };
        peer.echo_ms = state.beat_ms.or(peer.echo_ms);
        let Some(stream) = &mut peer.stream else {
            return Ok(());
        };
        if state.missed == Some(stream.number) {
            self.last_stream += 1;
            *stream = Stream::new(self.last_stream, self.number);
        }
        if state.stream != stream.number {
            return Ok(());
        }
        if state.sequence > stream.sent || state.number > self.number {
            return Err(Malformed::State);
        }
        stream.acknowledged = stream.acknowledged.max(state.sequence);
        if let Snapshot::Complete { sequence, number } = stream.snapshot
            && stream.acknowledged > 0
        {
            peer.held = peer.held.max(number);
            if state.sequence >= sequence {
                peer.held = peer.held.max(state.number);
            }
        }
        Ok(())
    }

    /// The next batch for a peer; `None`: there is nothing to send, or enough is on its way.
    /// `now_ms`: not earlier than the last beat that was handled.
    pub fn poll(&mut self, peer: NodeId, now_ms: u64) -> Option<Batch> {
        let first = self.first();
        let peer = self.peers.get_mut(&peer)?;
        let stream = peer.stream.as_mut()?;
        if stream.next < first {
            self.last_stream += 1;
            *stream = Stream::new(self.last_stream, self.number);
        }
        if stream.sent - stream.acknowledged >= WINDOW {
            return None;
        }
        let mut routes = Vec::new();
        if let Snapshot::Paging(after) = &mut stream.snapshot {
            routes = page(&self.routes, after.as_ref());
            match routes.last() {
                Some((last, _)) => *after = Some(last.clone()),
                None => stream.snapshot = Snapshot::CatchingUp(self.number),
            }
        }
        let mut completes = false;
        let mut echo_ms = None;
        if !matches!(stream.snapshot, Snapshot::Paging(_)) {
            routes = stream.changes(&self.log, first);
            completes =
                matches!(stream.snapshot, Snapshot::CatchingUp(until) if stream.next > until);
            if stream.next > self.number {
                echo_ms = peer.echo_ms.take();
                if echo_ms.is_some() {
                    peer.granted_ms = now_ms;
                }
            }
        }
        if routes.is_empty() && echo_ms.is_none() && !completes {
            return None;
        }
        stream.sent += 1;
        let number = stream.next - 1;
        if completes {
            let sequence = stream.sent;
            stream.snapshot = Snapshot::Complete { sequence, number };
        }
        let batch = Batch {
            stream: stream.number,
            sequence: stream.sent,
            routes,
            number,
            complete: stream.is_complete(),
            echo_ms,
        };
        self.trim();
        Some(batch)
    }

    /// The number of the last change.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many routes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The number up to which each peer that is not silent has all changes, or knows that it has not.
    #[must_use]
    pub fn passed(&self, now_ms: u64) -> u64 {
        self.peers
            .iter()
            .filter(|(node, _)| !self.is_silent(**node, now_ms))
            .map(|(_, peer)| peer.covered(self.number))
            .min()
            .unwrap_or(self.number)
    }

    fn count(&mut self, key: Key, receivers: Receivers, more: bool) {
        let none = match key {
            Key::Group(_) => Value::Group { room: 1 },
            _ => Value::Sessions { all: false },
        };
        let before = self.routes.get(&key).copied();
        let mut route = before.unwrap_or(Route {
            value: none,
            all: 0,
            qos0: 0,
        });
        let count = match receivers {
            Receivers::All => &mut route.all,
            Receivers::Qos0 => &mut route.qos0,
        };
        *count = if more {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        if let Value::Sessions { all } = &mut route.value {
            *all = route.all > 0;
        }
        let after = (route.all + route.qos0 > 0).then_some(route);
        match after {
            Some(route) => self.routes.insert(key.clone(), route),
            None => self.routes.remove(&key),
        };
        let value = after.map(|route| route.value);
        if value != before.map(|route| route.value) {
            self.changed(key, value);
        }
    }

    fn set(&mut self, key: Key, value: Option<Value>) {
        let before = match value {
            Some(value) => {
                let route = Route {
                    value,
                    all: 0,
                    qos0: 0,
                };
                self.routes.insert(key.clone(), route)
            }
            None => self.routes.remove(&key),
        };
        if value != before.map(|route| route.value) {
            self.changed(key, value);
        }
    }

    /// Receivers forget a shard's routes when they are told of the lead that ends.
    fn forget_shard(&mut self, shard: ShardNumber) {
        self.routes.remove(&Key::Range(shard));
        for (from, to) in Key::of_shard(shard) {
            let gone: Vec<Key> = self
                .routes
                .range(from..to)
                .map(|(key, _)| key.clone())
                .collect();
            for key in gone {
                self.routes.remove(&key);
            }
        }
    }

    fn changed(&mut self, key: Key, value: Option<Value>) {
        self.number += 1;
        self.log_bytes += key.bytes();
        self.log.push_back((key, value));
        self.trim();
    }

    /// The number of the oldest change that is kept.
    fn first(&self) -> u64 {
        self.number + 1 - self.log.len() as u64
    }

    /// Forgets the changes that nobody needs, and those that are too many.
    fn trim(&mut self) {
        let streams = self.peers.values().filter_map(|peer| peer.stream.as_ref());
        let needed = streams.map(|s| s.next).min().unwrap_or(self.number + 1);
        while (self.first() < needed || self.log_bytes > LOG_BYTES)
            && let Some((key, _)) = self.log.pop_front()
        {
            self.log_bytes -= key.bytes();
        }
    }
}

impl Peer {
    /// The number up to which it has all changes, or knows that it has not.
    fn covered(&self, number: u64) -> u64 {
        match &self.stream {
            // It has seen that a new stream has begun, and knows nothing until that is complete.
            Some(stream) if stream.acknowledged > 0 && !stream.is_complete() => number,
            _ => self.held,
        }
    }
}

impl Stream {
    fn new(number: u64, last_change: u64) -> Self {
        Self {
            number,
            sent: 0,
            acknowledged: 0,
            snapshot: Snapshot::Paging(None),
            next: last_change + 1,
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self.snapshot, Snapshot::Complete { .. })
    }

    /// The next changes. `first`: the number of the first in the log.
    fn changes(
        &mut self,
        log: &VecDeque<(Key, Option<Value>)>,
        first: u64,
    ) -> Vec<(Key, Option<Value>)> {
        let from = usize::try_from(self.next - first).unwrap_or(usize::MAX);
        let routes = full_batch(log.range(from.min(log.len())..).cloned());
        self.next += routes.len() as u64;
        routes
    }
}

fn page(routes: &BTreeMap<Key, Route>, after: Option<&Key>) -> Vec<(Key, Option<Value>)> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let rest = routes.range((from, Bound::Unbounded));
    full_batch(rest.map(|(key, route)| (key.clone(), Some(route.value))))
}

/// As many as a batch may hold.
fn full_batch(routes: impl Iterator<Item = (Key, Option<Value>)>) -> Vec<(Key, Option<Value>)> {
    let mut bytes = 0;
    let mut batch = Vec::new();
    for route in routes.take(BATCH_ROUTES) {
        bytes += route.0.bytes();
        batch.push(route);
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    batch
}
