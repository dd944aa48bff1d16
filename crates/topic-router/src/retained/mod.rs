//! Retained topics, found by topic filter.
//!
//! Topics stand in one sorted sequence, ordered level by level, cut into chunks that store of each topic
//! only what differs from the one before. Matching leaps: from a topic that does not match it goes
//! straight to the least topic that could, so that the levels below a sibling that cannot match are not
//! read.
//!
//! Invariants: a cursor is a place in the order of all possible topics, not in memory, so that a topic
//! present throughout is visited exactly once whatever is inserted or removed between two pages. A page
//! does a bounded amount of work, even if it finds nothing.
//!
//! Deliberately absent: the messages; `M` is whatever finds them.
//!
//! Read next: `order` for the order, `filter` for the leaps, `chunk` for the storage.

use core::fmt;
use core::ops::Bound::{Excluded, Included, Unbounded};
use std::collections::BTreeMap;

use crate::text::Text;
use chunk::{Chunk, Found};
use filter::{Filter, Step};

mod chunk;
mod filter;
mod order;

/// Topics that a page examines beyond its limit before it ends without having reached it.
const EXAMINED: usize = 1024;

/// The index from retained topic names to `M`.
pub struct RetainedIndex<M> {
    /// Chunks by a lower bound of their topics; the first bound is empty, so that each topic has a chunk.
    chunks: BTreeMap<Text, Chunk<M>>,
    len: usize,
    /// Heap memory of the chunks and of their bounds, in bytes.
    heap: usize,
}

/// Where the next page begins. Valid for the filter that it was returned for, at any later time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// What [`Cursor::from_bytes`] makes the same cursor of.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A cursor that was written down or sent.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl<M> Default for RetainedIndex<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> RetainedIndex<M> {
    /// An empty index that holds no heap memory.
    pub fn new() -> Self {
        RetainedIndex {
            chunks: BTreeMap::new(),
            len: 0,
            heap: 0,
        }
    }

    /// Adds a topic or replaces what it has; returns that.
    pub fn insert(&mut self, topic: &str, value: M) -> Option<M> {
        let key = order::of_topic(topic);
        let last = self
            .chunks
            .last_key_value()
            .is_none_or(|(bound, _)| *bound.as_bytes() <= key[..]);
        if self.chunks.is_empty() {
            self.chunks.insert(Text::new(b""), Chunk::new());
        }
        let (_, chunk) =
            below(&mut self.chunks, &key).expect("the first bound is below each topic");
        let place = match chunk.find(&key) {
            Found::At(place) => return Some(core::mem::replace(chunk.value_mut(place), value)),
            Found::Before(place) => place,
        };
        let before = chunk.heap_bytes();
        // Topics that come in ascending order leave full chunks behind.
        let appended = last && place.is_at_end(chunk);
        chunk.insert(place, &key, value);
        let upper = chunk.is_over().then(|| chunk.split(appended));
        self.heap = self.heap - before + chunk.heap_bytes();
        if let Some((bound, upper)) = upper {
            let bound = Text::new(&bound);
            self.heap += upper.heap_bytes() + bound.heap_bytes();
            self.chunks.insert(bound, upper);
        }
        self.len += 1;
        None
    }

    /// Removes a topic; returns what it had.
    pub fn remove(&mut self, topic: &str) -> Option<M> {
        let key = order::of_topic(topic);
        let (bound, chunk) = below(&mut self.chunks, &key)?;
        let Found::At(place) = chunk.find(&key) else {
            return None;
        };
        let before = chunk.heap_bytes();
        let value = chunk.remove(place);
        self.heap = self.heap - before + chunk.heap_bytes();
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new();
        } else if chunk.is_under() {
            let bound = Text::new(bound.as_bytes());
            self.join(bound);
        }
        Some(value)
    }

    /// What a topic has.
    pub fn get(&self, topic: &str) -> Option<&M> {
        let key = order::of_topic(topic);
        let (_, chunk) = self
            .chunks
            .range::<[u8], _>((Unbounded, Included(&key[..])))
            .next_back()?;
        match chunk.find(&key) {
            Found::At(place) => Some(chunk.value(place)),
            Found::Before(_) => None,
        }
    }

    /// Calls `f` for the topics that match `filter`, from `after` on (`None`: from the first), until
    /// `limit` topics (at least one) were visited. Returns where the next page begins, or `None` if
    /// there is nothing left.
    ///
    /// A page examines about 1,000 topics at most beyond `limit`; so it may visit fewer, even none, and
    /// yet return a cursor. Topics come level by level in the order of their bytes.
    pub fn page(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        limit: usize,
        mut f: impl FnMut(&str, &M),
    ) -> Option<Cursor> {
        let filter = Filter::new(filter);
        let limit = limit.max(1);
        let mut next = after.map_or_else(|| filter.least(), |cursor| cursor.0.clone());
        let mut walk = Walk {
            index: self,
            chunk: None,
            bound_after: None,
            read: 0,
            offset: 0,
            key: Vec::new(),
        };
        let mut topic = Vec::new();
        let (mut visited, mut examined) = (0, 0);
        while visited < limit && examined < limit.saturating_add(EXAMINED) {
            let (key, value) = walk.seek(&next)?;
            examined += 1;
            let step = filter.step(key, &mut next);
            debug_assert!(matches!(step, Step::Done) || *next > *key, "a leap goes up");
            match step {
                Step::Match => {
                    f(order::to_topic(key, &mut topic), value);
                    visited += 1;
                }
                Step::Leap => {}
                Step::Done => return None,
            }
        }
        Some(Cursor(next))
    }

    /// The number of topics.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no topics.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Heap memory held, in bytes as asked of the allocator, without what `M` owns; O(1). The tree of
    /// chunks, some 3 bytes per topic, is taken to be two thirds full.
    pub fn bytes(&self) -> usize {
        self.heap + self.chunks.len() * size_of::<(Text, Chunk<M>)>() * 3 / 2
    }

    /// Makes one chunk of the one at `bound` and a neighbour, if they fit into one.
    fn join(&mut self, bound: Text) {
        let after = self
            .chunks
            .range::<[u8], _>((Excluded(bound.as_bytes()), Unbounded))
            .next();
        let (lower, upper) = match after {
            Some((after, _)) => {
                let after = Text::new(after.as_bytes());
                (bound, after)
            }
            None => match self
                .chunks
                .range::<[u8], _>((Unbounded, Excluded(bound.as_bytes())))
                .next_back()
            {
                Some((before, _)) => (Text::new(before.as_bytes()), bound),
                None => return,
            },
        };
        let (Some(left), Some(right)) = (self.chunks.get(&lower), self.chunks.get(&upper)) else {
            return;
        };
        if !left.can_take(right) {
            return;
        }
        self.heap -= left.heap_bytes() + right.heap_bytes() + upper.heap_bytes();
        if let (Some(right), Some(left)) = (self.chunks.remove(&upper), self.chunks.get_mut(&lower))
        {
            left.append(right);
            self.heap += left.heap_bytes();
        }
    }
}

/// The chunk in which `key` is or would be.
fn below<'a, M>(
    chunks: &'a mut BTreeMap<Text, Chunk<M>>,
    key: &[u8],
) -> Option<(&'a Text, &'a mut Chunk<M>)> {
    chunks
        .range_mut::<[u8], _>((Unbounded, Included(key)))
        .next_back()
}

/// A walk upwards through the topics.
struct Walk<'a, M> {
    index: &'a RetainedIndex<M>,
    chunk: Option<&'a Chunk<M>>,
    /// The bound of the next chunk.
    bound_after: Option<&'a Text>,
    /// Topics read of the chunk; the last of them is in `key`.
    read: usize,
    /// Where the next one stands in the chunk.
    offset: usize,
    key: Vec<u8>,
}

impl<'a, M> Walk<'a, M> {
    /// The first topic at or above `least`, not below the current one.
    fn seek(&mut self, least: &[u8]) -> Option<(&[u8], &'a M)> {
        if self.chunk.is_none()
            || self
                .bound_after
                .is_some_and(|bound| bound.as_bytes() <= least)
        {
            self.enter(least)?;
        }
        loop {
            let chunk = self.chunk?;
            if self.read > 0 && *self.key >= *least {
                return Some((&self.key, chunk.value_at(self.read - 1)));
            }
            match chunk.read(self.offset, &mut self.key) {
                Some(offset) => {
                    self.offset = offset;
                    self.read += 1;
                }
                None => self.enter(self.bound_after?.as_bytes())?,
            }
        }
    }

    fn enter(&mut self, key: &[u8]) -> Option<()> {
        let (_, chunk) = self
            .index
            .chunks
            .range::<[u8], _>((Unbounded, Included(key)))
            .next_back()?;
        self.chunk = Some(chunk);
        self.bound_after = self
            .index
            .chunks
            .range::<[u8], _>((Excluded(key), Unbounded))
            .next()
            .map(|(bound, _)| bound);
        (self.read, self.offset) = (0, 0);
        self.key.clear();
        Some(())
    }
}

impl<M> fmt::Debug for RetainedIndex<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetainedIndex")
            .field("len", &self.len)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
