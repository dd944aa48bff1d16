//! How an index is cut in two.
//!
//! Invariant: topics are read once, in order, and written once, in order, into chunks that are full. That takes less
//! time than to remove half of them and to insert them elsewhere, each with a search.

use core::mem;

use super::chunk::{Chunk, common};
use super::{RetainedIndex, order};
use crate::text::Text;

impl<M> RetainedIndex<M> {
    /// Takes out all topics of which `leaves` is true. It is called once for each topic, in order.
    ///
    /// Each cursor is valid in both: it is a place in the order of all possible topics.
    #[must_use]
    pub fn split_off(&mut self, mut leaves: impl FnMut(&str) -> bool) -> Self {
        let (mut own, mut others) = (Builder::new(), Builder::new());
        let mut topic = Vec::new();
        for chunk in mem::take(self).chunks.into_values() {
            chunk.for_each(|key, value| {
                if leaves(order::to_topic(key, &mut topic)) {
                    others.push(key, value);
                } else {
                    own.push(key, value);
                }
            });
        }
        *self = own.finish();
        others.finish()
    }
}

/// Makes an index of topics that come in order.
struct Builder<M> {
    chunks: Vec<(Text, Chunk<M>)>,
    len: usize,
    heap: usize,
    /// The last chunk, which is not among `chunks` yet, and the lower bound of its topics.
    open: Chunk<M>,
    bound: Text,
    /// The last topic.
    last: Vec<u8>,
}

impl<M> Builder<M> {
    fn new() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
            heap: 0,
            open: Chunk::new(),
            bound: Text::new(b""),
            last: Vec::new(),
        }
    }

    /// Adds a topic above all others.
    fn push(&mut self, key: &[u8], value: M) {
        let shared = common(&self.last, key);
        let rest = key.get(shared..).unwrap_or_default();
        if self.open.has_room(rest.len()) {
            self.open.push(shared, rest, value);
        } else {
            // The shortest key that is above the last topic.
            self.close(Text::new(key.get(..=shared).unwrap_or(key)));
            self.open.push(0, key, value);
        }
        self.len += 1;
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
    }

    /// The last chunk is done; the topics from `next` on come into another one.
    fn close(&mut self, next: Text) {
        let chunk = self.open.take_exact();
        let bound = mem::replace(&mut self.bound, next);
        self.heap += chunk.heap_bytes() + bound.heap_bytes();
        self.chunks.push((bound, chunk));
    }

    fn finish(mut self) -> RetainedIndex<M> {
        if self.len == 0 {
            return RetainedIndex::new();
        }
        self.close(Text::new(b""));
        RetainedIndex {
            chunks: self.chunks.into_iter().collect(),
            len: self.len,
            heap: self.heap,
        }
    }
}
