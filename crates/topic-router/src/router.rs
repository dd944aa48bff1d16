//! From topic name to receivers.
//!
//! Invariant: what `for_each_match` reports is what comparing the topic name with every filter would
//! report. Filters without wildcards stand in a hash table, the others in a trie; a match is one hash
//! lookup, and a walk of the trie only if it holds anything.
//!
//! Deliberately absent: merging of overlapping subscriptions (a receiver whose filters match twice is
//! reported twice, the caller knows whether that is one message or two [MQTT-3.3.4-2]).

use core::fmt;

use crate::exact::Exact;
use crate::hashing::Hashing;
use crate::level::has_wildcard;
use crate::trie::Trie;

/// The index from topic filters to receivers `R`, each with options `O`, which the router only stores.
///
/// Both should be small: they are copied into tables, and a filter with one receiver is cheapest while
/// they take at most 20 bytes together.
pub struct Router<R, O> {
    hashing: Hashing,
    exact: Exact<R, O>,
    wild: Trie<R, O>,
    len: usize,
}

/// A router that is not used any more, and whose memory is freed in parts: at once, a million filters take a tenth of a
/// second or more.
pub struct Retired<R, O>(Router<R, O>);

impl<R: Copy + Ord, O: Copy> Retired<R, O> {
    /// Frees at least so many filters, and some thousand more at most. True: there are none left.
    pub fn free_part(&mut self, filters: usize) -> bool {
        let mut freed = 0;
        while freed < filters {
            let exact = self.0.exact.drop_last();
            let wild = self.0.wild.drop_last();
            if exact + wild == 0 {
                return true;
            }
            freed += exact + wild;
        }
        false
    }
}

impl<R: Copy + Ord, O: Copy> fmt::Debug for Retired<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retired").finish_non_exhaustive()
    }
}

/// What [`Router::insert`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted<O> {
    /// The receiver did not have this filter.
    New,
    /// The receiver had this filter, with these options.
    Replaced(O),
}

impl<R: Copy + Ord, O: Copy> Router<R, O> {
    /// An empty router that holds no heap memory.
    ///
    /// The seed decides the places in hash tables; clients must not be able to guess it.
    pub fn with_seed(seed: u64) -> Self {
        Router {
            hashing: Hashing::with_seed(seed),
            exact: Exact::new(),
            wild: Trie::new(),
            len: 0,
        }
    }

    /// Adds a subscription, or replaces the options of the one with the same filter and receiver.
    ///
    /// O(levels + log receivers of the filter); growth of a hash table adds a pass over all filters.
    ///
    /// # Panics
    /// When there are 2^32 filters.
    pub fn insert(&mut self, filter: &str, receiver: R, options: O) -> Inserted<O> {
        let filter = filter.as_bytes();
        let old = if has_wildcard(filter) {
            self.wild.insert(&self.hashing, filter, receiver, options)
        } else {
            self.exact.insert(&self.hashing, filter, receiver, options)
        };
        match old {
            Some(old) => Inserted::Replaced(old),
            None => {
                self.len += 1;
                Inserted::New
            }
        }
    }

    /// Removes a subscription; returns its options, or `None` if there was none.
    pub fn remove(&mut self, filter: &str, receiver: &R) -> Option<O> {
        let filter = filter.as_bytes();
        let old = if has_wildcard(filter) {
            self.wild.remove(&self.hashing, filter, receiver)
        } else {
            self.exact.remove(&self.hashing, filter, receiver)
        };
        self.len -= usize::from(old.is_some());
        old
    }

    /// Calls `f` for each subscription whose filter matches; receivers of one filter come in order. Returns how
    /// many levels of filters with wildcards it had to compare, a few nanoseconds each: for each pattern of `+`
    /// (a set of levels at which a filter has it) at most the levels of the topic.
    ///
    /// Allocates only for topic names of more than 16 levels.
    pub fn for_each_match(&self, topic: &str, mut f: impl FnMut(&R, &O)) -> usize {
        let topic = topic.as_bytes();
        if let Some(receivers) = self.exact.get(&self.hashing, topic) {
            receivers.for_each(&mut f);
        }
        self.wild.for_each_match(&self.hashing, topic, &mut f)
    }

    /// Ends the use of the router, so that its memory can be freed in parts.
    pub fn retire(self) -> Retired<R, O> {
        Retired(self)
    }

    /// The number of subscriptions: pairs of filter and receiver.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Heap memory held, in bytes as asked of the allocator; O(1). What the allocator adds by rounding
    /// up is not in it.
    pub fn bytes(&self) -> usize {
        self.exact.heap_bytes() + self.wild.heap_bytes()
    }
}

impl<R: Copy + Ord, O: Copy> fmt::Debug for Router<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
