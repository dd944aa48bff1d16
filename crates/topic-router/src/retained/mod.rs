//! Retained topics, found by topic filter.
//!
//! Topics stand in one sorted sequence, ordered level by level, cut into chunks that store of each topic
//! only what differs from the one before. Matching leaps: from a topic that does not match it goes
//! straight to the least topic that could, so that the levels below a sibling that cannot match are not
//! read.
//!
//! Invariants: a cursor is a place in the order of all possible topics, not in memory, so that a topic
//! present throughout is visited exactly once whatever is inserted or removed between two pages. A page
//! does as much work as it is given, even if it finds nothing.
//!
//! Deliberately absent: the messages; `M` is whatever finds them.
//!
//! Read next: `order` for the order, `filter` for the leaps, `chunk` for the storage,
//! `split` for how an index is cut in two.

use core::fmt;
use core::ops::Bound::{Excluded, Included, Unbounded};
use core::ops::ControlFlow;
use std::collections::BTreeMap;

use crate::text::Text;
use chunk::{Chunk, Found};
use filter::{Filter, Step, each};

mod chunk;
mod filter;
mod order;
mod split;

/// Bytes of a name that are as much work as to read another topic.
const BYTES_PER_WORK: usize = 64;

/// What a page is, whatever it reads.
const PAGE_WORK: usize = 8;

/// The index from retained topic names to `M`.
pub struct RetainedIndex<M> {
    /// Chunks by a lower bound of their topics; the first bound is empty, so that each topic has a chunk.
    chunks: BTreeMap<Text, Chunk<M>>,
    len: usize,
    /// Heap memory of the chunks and of their bounds, in bytes.
    heap: usize,
}

/// Where the next page begins. Valid for the filter that it was returned for, at any later time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// The place of a topic, whether it is there or not.
    #[must_use]
    pub fn at(topic: &str) -> Self {
        Self(order::of_topic(topic))
    }

    /// The first place behind a topic. What is below it follows.
    #[must_use]
    pub fn behind(topic: &str) -> Self {
        Self::at(topic).and(order::SEPARATOR)
    }

    /// The first place behind a topic and all that is below it.
    #[must_use]
    pub fn behind_all_below(topic: &str) -> Self {
        Self::at(topic).and(order::LONGER)
    }

    fn and(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

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

    /// Calls `visit` for the topics that match `filter`, from `after` on (`None`: from the first), until it
    /// breaks or `work` is used up; then that is 0. Returns where the next page begins, or `None` if there is
    /// nothing left. Topics come level by level in the order of their bytes.
    ///
    /// `work`: one for each topic that is read, whether it matches or not, one for each 64 bytes of it, and
    /// 8 for the page; some 60 ns each (`benches/router.rs`). A page reads one topic at least, even if `work` is 0, so that
    /// pages end; it may visit none and yet return a cursor.
    pub fn page(
        &self,
        filter: &str,
        after: Option<&Cursor>,
        work: &mut usize,
        mut visit: impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> Option<Cursor> {
        let begun = PAGE_WORK + filter.len() / BYTES_PER_WORK;
        let filter = Filter::new(filter);
        let mut next = after.map_or_else(|| filter.least(), |cursor| cursor.0.clone());
        let mut walk = Walk::new(self, work.saturating_sub(begun));
        let has_more = walk.visit(|key, next| filter.step(key, next), &mut next, &mut visit);
        *work = walk.work;
        has_more.then_some(Cursor(next))
    }

    /// Calls `visit` for all topics, as [`RetainedIndex::page`] does for those that match.
    pub fn walk(
        &self,
        after: Option<&Cursor>,
        work: &mut usize,
        mut visit: impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> Option<Cursor> {
        let mut next = after.map_or_else(Vec::new, |cursor| cursor.0.clone());
        let mut walk = Walk::new(self, work.saturating_sub(PAGE_WORK));
        let has_more = walk.visit(each, &mut next, &mut visit);
        *work = walk.work;
        has_more.then_some(Cursor(next))
    }

    /// What all topics have, in their order.
    pub fn values(&self) -> impl Iterator<Item = &M> {
        self.chunks.values().flat_map(Chunk::values)
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
    /// What is left to be done, as [`RetainedIndex::page`] counts it.
    work: usize,
}

impl<'a, M> Walk<'a, M> {
    fn new(index: &'a RetainedIndex<M>, work: usize) -> Self {
        Self {
            index,
            chunk: None,
            bound_after: None,
            read: 0,
            offset: 0,
            key: Vec::new(),
            work,
        }
    }

    /// Calls `visit` for topics that match, from `next` on. Whether there may be more, at `next`.
    fn visit(
        &mut self,
        step: impl Fn(&[u8], &mut Vec<u8>) -> Step,
        next: &mut Vec<u8>,
        visit: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> bool {
        let mut topic = Vec::new();
        while let Some((key, value)) = self.seek(next) {
            let step = step(key, next);
            debug_assert!(
                matches!(step, Step::Done) || **next > *key,
                "a leap goes up"
            );
            let goes_on = match step {
                Step::Match => visit(order::to_topic(key, &mut topic), value),
                Step::Leap => ControlFlow::Continue(()),
                Step::Done => return false,
            };
            if goes_on.is_break() || self.work == 0 {
                return true;
            }
        }
        false
    }

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
                    let work = 1 + self.key.len() / BYTES_PER_WORK;
                    self.work = self.work.saturating_sub(work);
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
