//! The receiver's side: what the peers have told, and whether that is all.

use std::collections::BTreeMap;

use crate::{Batch, Key, Malformed, NodeId, ShardNumber, State, Times, Value};

/// A change of a peer's route: as it is now; `None`: it is gone.
pub type Change = (Key, Option<Value>);

/// What peers have told.
#[derive(Debug)]
pub struct Imports {
    times: Times,
    peers: BTreeMap<NodeId, View>,
}

/// What one peer has told.
#[derive(Debug, Default)]
struct View {
    /// 0: none.
    stream: u64,
    sequence: u64,
    number: u64,
    complete: bool,
    /// A stream that came without its beginning.
    missed: Option<u64>,
    lease_until_ms: u64,
    /// With the stream that each was told by.
    routes: BTreeMap<Key, (Value, u64)>,
}

/// Those that may want any message, because what they want is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unknown {
    /// Nodes.
    pub nodes: Vec<NodeId>,
    /// Inbox shards.
    pub shards: Vec<ShardNumber>,
}

impl Imports {
    /// There are no peers yet.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self {
            times,
            peers: BTreeMap::new(),
        }
    }

    /// There is a peer. What it wants is not known yet.
    pub fn add_peer(&mut self, peer: NodeId) {
        self.peers.entry(peer).or_default();
    }

    /// A peer is none any more. Returns the end of its routes.
    pub fn remove_peer(&mut self, peer: NodeId) -> Vec<Change> {
        let view = self.peers.remove(&peer).unwrap_or_default();
        view.routes.into_keys().map(|key| (key, None)).collect()
    }

    /// The connection from a peer is gone. Its routes stay, and are not all.
    pub fn lost(&mut self, peer: NodeId) {
        if let Some(view) = self.peers.get_mut(&peer) {
            view.stream = 0;
            view.complete = false;
        }
    }

    /// Applies a batch of a peer. Returns what it changes.
    ///
    /// # Errors
    /// A batch that does not follow the one before it, or makes no sense; [`Imports::lost`] is to follow.
    pub fn apply(&mut self, peer: NodeId, batch: Batch) -> Result<Vec<Change>, Malformed> {
        let lease_ms = self.times.lease_ms;
        let Some(view) = self.peers.get_mut(&peer) else {
            return Ok(Vec::new());
        };
        if batch.sequence == 1 && batch.stream != view.stream {
            view.stream = batch.stream;
            view.complete = false;
            view.missed = None;
        } else if view.stream == 0 {
            // The rest of a stream that was lost, or said to be.
            view.missed = Some(batch.stream);
            return Ok(Vec::new());
        } else if batch.stream != view.stream || batch.sequence != view.sequence + 1 {
            return Err(Malformed::Sequence);
        }
        view.sequence = batch.sequence;
        view.number = batch.number;
        let mut changes = Vec::with_capacity(batch.routes.len());
        for (key, value) in batch.routes {
            view.set(key, value, &mut changes)?;
        }
        if batch.complete && !view.complete {
            view.complete = true;
            view.forget_other_streams(&mut changes);
        }
        if let Some(beat) = batch.echo_ms {
            view.lease_until_ms = view.lease_until_ms.max(beat.saturating_add(lease_ms));
        }
        Ok(changes)
    }

    /// What to tell a peer. `beat_ms`: the time, if it is to be answered; to be done a few times within a
    /// lease.
    #[must_use]
    pub fn state(&self, peer: NodeId, beat_ms: Option<u64>) -> State {
        let view = self.peers.get(&peer);
        let of = |get: fn(&View) -> u64| view.map_or(0, get);
        State {
            stream: of(|view| view.stream),
            sequence: of(|view| view.sequence),
            number: of(|view| view.number),
            missed: view.and_then(|view| view.missed),
            beat_ms,
        }
    }

    /// Whether a peer wants only what it has told.
    #[must_use]
    pub fn knows(&self, peer: NodeId, now_ms: u64) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|view| view.is_known(now_ms))
    }

    /// A route of a peer.
    #[must_use]
    pub fn get(&self, peer: NodeId, key: &Key) -> Option<Value> {
        let (value, _) = self.peers.get(&peer)?.routes.get(key)?;
        Some(*value)
    }

    /// How many routes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.peers.values().map(|view| view.routes.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Until when what is known now is so, if nothing comes.
    #[must_use]
    pub fn valid_until(&self, now_ms: u64) -> u64 {
        self.peers
            .values()
            .filter(|view| view.is_known(now_ms))
            .map(|view| view.lease_until_ms)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Who may want any message. `shards`: those that there are; `own`: the term that this node leads a shard
    /// in, and whether it has all its routes.
    #[must_use]
    pub fn unknown(
        &self,
        shards: &[ShardNumber],
        own: impl Fn(ShardNumber) -> Option<(u64, bool)>,
        now_ms: u64,
    ) -> Unknown {
        let nodes = self
            .peers
            .iter()
            .filter(|(_, view)| !view.is_known(now_ms))
            .map(|(node, _)| *node)
            .collect();
        let is_known = |shard: &ShardNumber| {
            let of_peers = self.peers.values().filter_map(|view| {
                let (term, complete) = view.lead(*shard)?;
                Some((term, complete && view.is_known(now_ms)))
            });
            // The highest term, and of that a complete one.
            of_peers
                .chain(own(*shard))
                .max()
                .is_some_and(|(_, complete)| complete)
        };
        Unknown {
            nodes,
            shards: shards
                .iter()
                .copied()
                .filter(|shard| !is_known(shard))
                .collect(),
        }
    }

    /// Whether each peer wants only what it has told.
    #[must_use]
    pub fn knows_all(&self, now_ms: u64) -> bool {
        self.peers.values().all(|view| view.is_known(now_ms))
    }

    /// Whether any peer has told that it leads a shard.
    #[must_use]
    pub fn is_led(&self, shard: ShardNumber) -> bool {
        self.peers.values().any(|view| view.lead(shard).is_some())
    }

    /// What the peer that was the last to lead a shard, as far as is known, tells of its range: the term, and, if it says
    /// that the shard was split, the last slot and whether its routes cover what lies behind that.
    #[must_use]
    pub fn range(&self, shard: ShardNumber) -> Option<(u64, Option<(u16, bool)>)> {
        let of_peers = self.peers.values().filter_map(|view| {
            let (term, _) = view.lead(shard)?;
            Some((term, view.range(shard)))
        });
        of_peers.max_by_key(|(term, _)| *term)
    }

    /// Whether the last leader of a shard that is known of had told all of its routes, however long ago.
    /// `own`: of this node's own lead of it, present or past, the term, and whether it had all routes.
    #[must_use]
    pub fn was_told(&self, shard: ShardNumber, own: Option<(u64, bool)>) -> bool {
        let of_peers = self.peers.values().filter_map(|view| view.lead(shard));
        of_peers.chain(own).max().is_some_and(|(_, told)| told)
    }

    /// Whether more than half of all nodes, this one among them, have answered a beat within the lease.
    #[must_use]
    pub fn hears_majority(&self, now_ms: u64) -> bool {
        let heard = |view: &&View| now_ms < view.lease_until_ms;
        let heard = self.peers.values().filter(heard).count() + 1;
        2 * heard > self.peers.len() + 1
    }
}

impl View {
    fn is_known(&self, now_ms: u64) -> bool {
        self.complete && now_ms < self.lease_until_ms
    }

    fn lead(&self, shard: ShardNumber) -> Option<(u64, bool)> {
        match self.routes.get(&Key::Lead(shard))?.0 {
            Value::Lead { term, complete } => Some((term, complete)),
            _ => None,
        }
    }

    fn range(&self, shard: ShardNumber) -> Option<(u16, bool)> {
        match self.routes.get(&Key::Range(shard))?.0 {
            Value::Range { last, covers } => Some((last, covers)),
            _ => None,
        }
    }

    fn set(
        &mut self,
        key: Key,
        mut value: Option<Value>,
        changes: &mut Vec<Change>,
    ) -> Result<(), Malformed> {
        if value.is_some_and(|value| !key.takes(&value)) {
            return Err(Malformed::Value);
        }
        if let Key::Lead(shard) = key {
            let term = |lead| match lead {
                Some(Value::Lead { term, .. }) => Some(term),
                _ => None,
            };
            let before = self.routes.get(&key).map(|(value, _)| *value);
            if term(before) != term(value) {
                self.forget_shard(shard, changes);
            }
        }
        if let (Key::Range(shard), Some(Value::Range { covers, .. })) = (&key, &mut value) {
            // Else the next shard may have wanted more since the split, and may be led by nobody now.
            *covers &= self.complete && self.lead(*shard).is_some_and(|(_, told)| told);
        }
        match value {
            Some(value) => {
                let before = self.routes.insert(key.clone(), (value, self.stream));
                if before.is_none_or(|(before, _)| before != value) {
                    changes.push((key, Some(value)));
                }
            }
            None => {
                if self.routes.remove(&key).is_some() {
                    changes.push((key, None));
                }
            }
        }
        Ok(())
    }

    fn forget_shard(&mut self, shard: ShardNumber, changes: &mut Vec<Change>) {
        self.forget(vec![Key::Range(shard)], changes);
        for (from, to) in Key::of_shard(shard) {
            let gone: Vec<Key> = self
                .routes
                .range(from..to)
                .map(|(key, _)| key.clone())
                .collect();
            self.forget(gone, changes);
        }
    }

    /// What a complete snapshot does not mention is gone.
    fn forget_other_streams(&mut self, changes: &mut Vec<Change>) {
        let other = |(_, (_, stream)): &(&Key, &(Value, u64))| *stream != self.stream;
        let gone: Vec<Key> = self
            .routes
            .iter()
            .filter(other)
            .map(|(key, _)| key.clone())
            .collect();
        self.forget(gone, changes);
    }

    fn forget(&mut self, gone: Vec<Key>, changes: &mut Vec<Change>) {
        for key in gone {
            if self.routes.remove(&key).is_some() {
                changes.push((key, None));
            }
        }
    }
}
