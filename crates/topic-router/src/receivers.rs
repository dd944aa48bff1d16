//! The receivers of one filter, with their options.
//!
//! Invariant: sorted by receiver, each once. One receiver stands in place, a few in one allocation of
//! exact size, many in sorted chunks that grow by an eighth: about 17 bytes for a receiver and options
//! of 8 bytes each. Insert and remove cost O(log n) plus the move of a part of one chunk; iteration reads
//! memory in sequence.
//!
//! Deliberately absent: a hash table of receivers. It would cost 6–11 bytes more for each and give an
//! order that differs from run to run.

/// The longest list kept as one allocation.
const FEW: usize = 32;

/// The longest chunk of a longer list.
const CHUNK: usize = 512;

/// A sorted map from receiver to options, small when it holds little.
#[derive(Debug)]
pub(crate) enum Receivers<R, O> {
    None,
    One(R, O),
    Few(Box<[(R, O)]>),
    Many(Box<Many<R, O>>),
}

/// Chunks in order, none of them empty.
#[derive(Debug)]
pub(crate) struct Many<R, O> {
    chunks: Vec<Chunk<R, O>>,
    len: usize,
    /// Heap memory of the chunks, in bytes.
    bytes: usize,
}

/// Receivers and options apart, so that a search reads receivers only and no padding is stored.
#[derive(Debug)]
struct Chunk<R, O> {
    receivers: Vec<R>,
    options: Vec<O>,
}

impl<R: Copy + Ord, O: Copy> Receivers<R, O> {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Receivers::None)
    }

    /// Calls `f` for each receiver, in order.
    #[inline]
    pub(crate) fn for_each(&self, f: &mut impl FnMut(&R, &O)) {
        match self {
            Receivers::None => {}
            Receivers::One(receiver, options) => f(receiver, options),
            Receivers::Few(list) => list
                .iter()
                .for_each(|(receiver, options)| f(receiver, options)),
            Receivers::Many(many) => {
                for chunk in &many.chunks {
                    chunk
                        .receivers
                        .iter()
                        .zip(&chunk.options)
                        .for_each(|(receiver, options)| f(receiver, options));
                }
            }
        }
    }

    /// Adds a receiver or replaces its options; returns those it had.
    pub(crate) fn insert(&mut self, receiver: R, options: O) -> Option<O> {
        match self {
            Receivers::None => *self = Receivers::One(receiver, options),
            Receivers::One(only, old) if *only == receiver => {
                return Some(core::mem::replace(old, options));
            }
            Receivers::One(only, old) => {
                let mut list = [(*only, *old), (receiver, options)];
                list.sort_unstable_by_key(|(receiver, _)| *receiver);
                *self = Receivers::Few(Box::new(list));
            }
            Receivers::Few(list) => match list.binary_search_by_key(&receiver, |(r, _)| *r) {
                Ok(at) => return Some(core::mem::replace(&mut list[at].1, options)),
                Err(at) => {
                    let mut longer = core::mem::take(list).into_vec();
                    longer.reserve_exact(1);
                    longer.insert(at, (receiver, options));
                    *self = if longer.len() <= FEW {
                        Receivers::Few(longer.into_boxed_slice())
                    } else {
                        Receivers::Many(Box::new(Many::from_sorted(&longer)))
                    };
                }
            },
            Receivers::Many(many) => return many.insert(receiver, options),
        }
        None
    }

    /// Removes a receiver; returns its options.
    pub(crate) fn remove(&mut self, receiver: &R) -> Option<O> {
        match self {
            Receivers::None => None,
            Receivers::One(only, options) => {
                let options = *options;
                let found = *only == *receiver;
                found.then(|| {
                    *self = Receivers::None;
                    options
                })
            }
            Receivers::Few(list) => {
                let at = list.binary_search_by_key(receiver, |(r, _)| *r).ok()?;
                let mut shorter = core::mem::take(list).into_vec();
                let (_, options) = shorter.remove(at);
                *self = match shorter[..] {
                    [(receiver, options)] => Receivers::One(receiver, options),
                    _ => Receivers::Few(shorter.into_boxed_slice()),
                };
                Some(options)
            }
            Receivers::Many(many) => {
                let options = many.remove(receiver)?;
                // Half of the border, so that a list at the border does not change its form each time.
                if many.len <= FEW / 2 {
                    let mut list = Vec::with_capacity(many.len);
                    self.for_each(&mut |receiver, options| list.push((*receiver, *options)));
                    *self = Receivers::Few(list.into_boxed_slice());
                }
                Some(options)
            }
        }
    }

    /// Heap memory held, in bytes; O(1).
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Receivers::None | Receivers::One(..) => 0,
            Receivers::Few(list) => size_of_val(&**list),
            Receivers::Many(many) => {
                size_of::<Many<R, O>>()
                    + many.chunks.capacity() * size_of::<Chunk<R, O>>()
                    + many.bytes
            }
        }
    }
}

impl<R: Copy + Ord, O: Copy> Many<R, O> {
    fn from_sorted(list: &[(R, O)]) -> Self {
        let (receivers, options) = list.iter().copied().unzip();
        let chunk = Chunk { receivers, options };
        Many {
            len: list.len(),
            bytes: chunk.bytes(),
            chunks: vec![chunk],
        }
    }

    /// The chunk in which `receiver` is or would be.
    fn chunk_of(&self, receiver: &R) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.receivers.first() <= Some(receiver))
            .saturating_sub(1)
    }

    fn insert(&mut self, receiver: R, options: O) -> Option<O> {
        let mut at = self.chunk_of(&receiver);
        let chunk = &mut self.chunks[at];
        let mut place = match chunk.receivers.binary_search(&receiver) {
            Ok(found) => return Some(core::mem::replace(&mut chunk.options[found], options)),
            Err(place) => place,
        };
        if chunk.receivers.len() == CHUNK {
            let before = chunk.bytes();
            // Receivers that come in ascending order leave full chunks behind.
            let middle = if at + 1 == self.chunks.len() && place == CHUNK {
                CHUNK
            } else {
                CHUNK / 2
            };
            let chunk = &mut self.chunks[at];
            let upper = chunk.split_off(middle);
            self.bytes = self.bytes - before + chunk.bytes() + upper.bytes();
            self.chunks.insert(at + 1, upper);
            if place >= middle {
                (at, place) = (at + 1, place - middle);
            }
        }
        self.change(at, |chunk| chunk.insert(place, receiver, options));
        self.len += 1;
        None
    }

    fn remove(&mut self, receiver: &R) -> Option<O> {
        let at = self.chunk_of(receiver);
        let place = self.chunks[at].receivers.binary_search(receiver).ok()?;
        let options = self.change(at, |chunk| chunk.remove(place));
        self.len -= 1;
        if self.chunks[at].receivers.len() < CHUNK / 4 && self.chunks.len() > 1 {
            self.join(at.min(self.chunks.len() - 2));
        }
        Some(options)
    }

    /// Makes one chunk of `at` and the one after it, if they are short.
    fn join(&mut self, at: usize) {
        if self.chunks[at].receivers.len() + self.chunks[at + 1].receivers.len() > CHUNK / 2 {
            return;
        }
        let upper = self.chunks.remove(at + 1);
        self.bytes -= upper.bytes();
        self.change(at, |chunk| {
            chunk.receivers.extend_from_slice(&upper.receivers);
            chunk.options.extend_from_slice(&upper.options);
            chunk.shrink();
        });
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// Changes one chunk and keeps the account of memory.
    fn change<T>(&mut self, at: usize, change: impl FnOnce(&mut Chunk<R, O>) -> T) -> T {
        let chunk = &mut self.chunks[at];
        let before = chunk.bytes();
        let result = change(chunk);
        self.bytes = self.bytes - before + chunk.bytes();
        result
    }
}

impl<R: Copy, O: Copy> Chunk<R, O> {
    fn bytes(&self) -> usize {
        self.receivers.capacity() * size_of::<R>() + self.options.capacity() * size_of::<O>()
    }

    fn insert(&mut self, place: usize, receiver: R, options: O) {
        if self.receivers.len() == self.receivers.capacity() {
            let more = (self.receivers.len() / 8).max(8);
            self.receivers.reserve_exact(more);
            self.options.reserve_exact(more);
        }
        self.receivers.insert(place, receiver);
        self.options.insert(place, options);
    }

    fn remove(&mut self, place: usize) -> O {
        self.receivers.remove(place);
        let options = self.options.remove(place);
        if self.receivers.len() * 2 < self.receivers.capacity() {
            self.shrink();
        }
        options
    }

    fn split_off(&mut self, middle: usize) -> Self {
        let upper = Chunk {
            receivers: self.receivers.split_off(middle),
            options: self.options.split_off(middle),
        };
        self.shrink();
        upper
    }

    fn shrink(&mut self) {
        let room = self.receivers.len() + self.receivers.len() / 8;
        self.receivers.shrink_to(room);
        self.options.shrink_to(room);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn contents(receivers: &Receivers<u64, u64>) -> Vec<(u64, u64)> {
        let mut list = Vec::new();
        receivers.for_each(&mut |r, o| list.push((*r, *o)));
        list
    }

    /// A walk over all residues, in an order without pattern.
    fn scattered(n: u64) -> impl Iterator<Item = u64> {
        (0..n).map(move |i| i * 7919 % n)
    }

    #[test]
    fn equals_a_sorted_map_in_every_form() {
        for n in [1, 2, 3, 31, 32, 33, 34, 511, 512, 513, 3001] {
            let mut receivers = Receivers::None;
            let mut model = BTreeMap::new();
            for i in scattered(n) {
                assert_eq!(receivers.insert(i, i + 1), None);
                model.insert(i, i + 1);
            }
            assert_eq!(receivers.insert(n / 2, 0), model.insert(n / 2, 0));
            assert_eq!(
                contents(&receivers),
                model.clone().into_iter().collect::<Vec<_>>()
            );
            assert_eq!(receivers.remove(&n), None);
            for i in scattered(n) {
                assert_eq!(receivers.remove(&i), model.remove(&i));
                assert_eq!(receivers.remove(&i), None);
                if i % 64 == 0 {
                    assert_eq!(
                        contents(&receivers),
                        model.clone().into_iter().collect::<Vec<_>>()
                    );
                }
            }
            assert!(receivers.is_none());
            assert_eq!(receivers.heap_bytes(), 0);
        }
    }

    #[test]
    fn a_hundred_thousand_are_compact_in_any_order() {
        let n = 100_000;
        for order in [
            scattered(n).collect::<Vec<_>>(),
            (0..n).collect(),
            (0..n).rev().collect(),
        ] {
            let mut receivers = Receivers::None;
            order
                .iter()
                .for_each(|&i| assert_eq!(receivers.insert(i, i), None));
            let each = receivers.heap_bytes() as f64 / n as f64;
            assert!((16.0..20.0).contains(&each), "{each} bytes per receiver");
            let Receivers::Many(many) = &receivers else {
                panic!("a long list is chunked")
            };
            assert_eq!(
                many.bytes,
                many.chunks.iter().map(Chunk::bytes).sum::<usize>()
            );
            // Removing most of them gives the memory back.
            order
                .iter()
                .filter(|i| *i % 100 != 0)
                .for_each(|i| assert_eq!(receivers.remove(i), Some(*i)));
            assert!(receivers.heap_bytes() < n as usize / 100 * 40);
            let Receivers::Many(many) = &receivers else {
                panic!("a long list is chunked")
            };
            assert_eq!(
                many.bytes,
                many.chunks.iter().map(Chunk::bytes).sum::<usize>()
            );
        }
    }

    #[test]
    fn one_receiver_takes_no_more_than_three_words() {
        assert_eq!(size_of::<Receivers<u64, u64>>(), 24);
        assert_eq!(size_of::<Receivers<u64, [u32; 3]>>(), 24);
    }
}
