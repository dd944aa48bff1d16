//! What clients asked for and were told, as far as invariants judge it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many of the latest times at which readers were to come again.
pub(crate) const REOPENED: usize = 20;

/// A message that a client publishes, or its will; its number is its payload.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// `None`: it is a will.
    pub(crate) publisher: Option<usize>,
    pub(crate) topic: String,
    pub(crate) once: bool,
    pub(crate) begun: u64,
    pub(crate) acknowledged: Option<u64>,
}

/// What a client did with its will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WillFate {
    /// CONNACK was not seen, or no answer to DISCONNECT: anything may have become of it.
    Unknown,
    /// The connection of this epoch is open.
    Connected(u64),
    /// DISCONNECT of the connection of this epoch: it must not be published.
    Discarded(u64),
    /// The connection ended without: it must be published.
    Due,
}

/// A claim that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) client: usize,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) epoch: u64,
}

/// Something that was done with a retained topic.
#[derive(Clone, Debug)]
pub(crate) struct RetainedOp {
    pub(crate) asked: u64,
    /// `None`: never answered, or refused.
    pub(crate) answered: Option<u64>,
    pub(crate) kind: RetainedKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetainedKind {
    Write(u64),
    Read(Option<u64>),
}

#[derive(Default)]
pub(crate) struct History {
    /// By number.
    pub(crate) published: BTreeMap<u64, Published>,
    pub(crate) wills: BTreeMap<u64, WillFate>,
    /// As the wills of which epochs they were fired, each time.
    pub(crate) fired: BTreeMap<u64, Vec<u64>>,
    /// By client: filters and since when they hold.
    pub(crate) subscribed: BTreeMap<usize, BTreeMap<String, u64>>,
    /// By client and message: under which sequences it was given.
    pub(crate) given: BTreeMap<(usize, u64), BTreeSet<u64>>,
    pub(crate) claims: Vec<Claim>,
    /// By topic.
    pub(crate) retained: BTreeMap<String, Vec<RetainedOp>>,
    /// When readers of a shard were to come again, by node and shard; the latest ones.
    pub(crate) reopened: BTreeMap<(u64, u16), VecDeque<u64>>,
    /// What was seen to be wrong when it happened.
    pub(crate) wrong: Vec<String>,
}

impl History {
    /// Whether a will was fired as that of an epoch.
    pub(crate) fn has_fired(&self, will: u64, epoch: u64) -> bool {
        let epochs = self.fired.get(&will);
        epochs.is_some_and(|epochs| epochs.contains(&epoch))
    }

    pub(crate) fn reopened(&mut self, node: u64, shard: u16, now: u64) {
        let times = self.reopened.entry((node, shard)).or_default();
        times.push_back(now);
        if times.len() > REOPENED {
            times.pop_front();
        }
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }
}
