//! A run of sorted topics in one block of memory.
//!
//! Each topic is stored as the length of the prefix that it shares with the one before, the length of
//! the rest, and the rest; the lengths in base 128, low digits first. Topics of devices differ in few
//! characters from their neighbours, so one takes some 10 bytes where its text has 25.
//!
//! Invariant: the shared length is exact, the longest common prefix. So a search compares bytes only
//! where it must, and insert and remove rewrite one neighbour without reading its whole key.

/// Topics per chunk: a search reads half of them, the head of a chunk (some 110 bytes) is paid by all.
const TOPICS: usize = 64;

/// Bytes of keys per chunk, as long as it has more than one topic.
const BYTES: usize = 16 * 1024;

/// Bytes of a length at most: topics have at most 65,535.
const LENGTH_BYTES: usize = 3;

/// Sorted topics and their values.
#[derive(Debug)]
pub(super) struct Chunk<M> {
    keys: Vec<u8>,
    values: Vec<M>,
}

/// A place in a chunk, found by a search for a key.
pub(super) struct Place {
    number: usize,
    offset: usize,
    /// The prefix that the key shares with the topic before the place, and with the one at the place.
    shared: (usize, usize),
}

/// The result of a search.
pub(super) enum Found {
    At(Place),
    Before(Place),
}

/// One stored topic.
struct Entry<'a> {
    shared: usize,
    rest: &'a [u8],
    /// Where the entry ends.
    end: usize,
}

impl Place {
    pub(super) fn is_at_end<M>(&self, chunk: &Chunk<M>) -> bool {
        self.number == chunk.values.len()
    }
}

impl<M> Chunk<M> {
    pub(super) fn new() -> Self {
        Chunk {
            keys: Vec::new(),
            values: Vec::new(),
        }
    }

    pub(super) fn find(&self, key: &[u8]) -> Found {
        let mut place = Place {
            number: 0,
            offset: 0,
            shared: (0, 0),
        };
        while let Some(entry) = self.entry(place.offset) {
            let shared = place.shared.0;
            if entry.shared < shared {
                // It left the prefix that the key still has in common with the topic before: it is above.
                place.shared.1 = entry.shared;
                return Found::Before(place);
            }
            // If it shares more with the topic before than the key does, it is below like that one.
            if entry.shared == shared {
                let wanted = key.get(shared..).unwrap_or_default();
                let more = common(entry.rest, wanted);
                match (entry.rest.get(more), wanted.get(more)) {
                    (None, None) => return Found::At(place),
                    (found, wanted) if found > wanted => {
                        place.shared.1 = shared + more;
                        return Found::Before(place);
                    }
                    _ => place.shared.0 = shared + more,
                }
            }
            place.number += 1;
            place.offset = entry.end;
        }
        Found::Before(place)
    }

    pub(super) fn value(&self, place: Place) -> &M {
        &self.values[place.number]
    }

    pub(super) fn value_mut(&mut self, place: Place) -> &mut M {
        &mut self.values[place.number]
    }

    pub(super) fn values(&self) -> &[M] {
        &self.values
    }

    pub(super) fn value_at(&self, number: usize) -> &M {
        &self.values[number]
    }

    /// Turns `key`, the topic before, into the topic at `offset`; returns where the next one stands.
    pub(super) fn read(&self, offset: usize, key: &mut Vec<u8>) -> Option<usize> {
        let entry = self.entry(offset)?;
        key.truncate(entry.shared);
        key.extend_from_slice(entry.rest);
        Some(entry.end)
    }

    pub(super) fn insert(&mut self, place: Place, key: &[u8], value: M) {
        let mut patch = Vec::new();
        let (before, after) = place.shared;
        write(&mut patch, before, &[key.get(before..).unwrap_or_default()]);
        let mut end = place.offset;
        if let Some(next) = self.entry(place.offset) {
            // It may share more with the new topic than with the one before.
            write(
                &mut patch,
                after,
                &[next.rest.get(after - next.shared..).unwrap_or_default()],
            );
            end = next.end;
        }
        self.patch(place.offset, end, &patch);
        if self.values.len() == self.values.capacity() {
            self.values.reserve_exact((self.values.len() / 8).max(2));
        }
        self.values.insert(place.number, value);
    }

    pub(super) fn remove(&mut self, place: Place) -> M {
        let mut patch = Vec::new();
        let mut end = place.offset;
        if let Some(gone) = self.entry(place.offset) {
            end = gone.end;
            if let Some(next) = self.entry(gone.end) {
                // What it shared with the removed topic beyond the one before must be written out.
                let shared = next.shared.min(gone.shared);
                write(
                    &mut patch,
                    shared,
                    &[
                        gone.rest.get(..next.shared - shared).unwrap_or_default(),
                        next.rest,
                    ],
                );
                end = next.end;
            }
        }
        self.patch(place.offset, end, &patch);
        let value = self.values.remove(place.number);
        if self.values.len() * 2 < self.values.capacity() {
            self.values.shrink_to_fit();
        }
        if self.keys.len() * 2 < self.keys.capacity() {
            self.keys.shrink_to_fit();
        }
        value
    }

    /// Whether it must be split.
    pub(super) fn is_over(&self) -> bool {
        self.values.len() > TOPICS || (self.values.len() > 1 && self.keys.len() > BYTES)
    }

    /// Whether it should be joined with a neighbour.
    pub(super) fn is_under(&self) -> bool {
        self.values.len() < TOPICS / 4
    }

    /// Whether the chunk above it fits into it.
    pub(super) fn can_take(&self, upper: &Self) -> bool {
        self.values.is_empty()
            || upper.values.is_empty()
            || (self.values.len() + upper.values.len() <= TOPICS
                && self.keys.len() + upper.keys.len() <= BYTES)
    }

    /// Splits off the upper half, or only the last topic, with a bound between the two.
    pub(super) fn split(&mut self, last_only: bool) -> (Vec<u8>, Self) {
        let middle = if last_only {
            self.values.len() - 1
        } else {
            self.values.len() / 2
        };
        let (mut key, mut offset) = (Vec::new(), 0);
        for _ in 0..middle {
            offset = self.read(offset, &mut key).unwrap_or(offset);
        }
        let shared = self.entry(offset).map_or(0, |first| first.shared);
        let end = self.read(offset, &mut key).unwrap_or(offset);
        let mut keys = Vec::with_capacity(self.keys.len() - end + key.len() + 2 * size_of::<u16>());
        write(&mut keys, 0, &[&key]);
        keys.extend_from_slice(self.keys.get(end..).unwrap_or_default());
        let upper = Chunk {
            keys,
            values: self.values.split_off(middle),
        };
        self.keys.truncate(offset);
        self.keys.shrink_to_fit();
        self.values.shrink_to_fit();
        // The shortest key that is above the lower part.
        key.truncate(shared + 1);
        (key, upper)
    }

    /// Takes the topics of the chunk above it.
    pub(super) fn append(&mut self, upper: Self) {
        let (mut last, mut offset) = (Vec::new(), 0);
        while let Some(next) = self.read(offset, &mut last) {
            offset = next;
        }
        if let Some(first) = upper.entry(0) {
            let shared = common(&last, first.rest);
            let mut patch = Vec::new();
            write(
                &mut patch,
                shared,
                &[first.rest.get(shared..).unwrap_or_default()],
            );
            patch.extend_from_slice(upper.keys.get(first.end..).unwrap_or_default());
            self.patch(offset, offset, &patch);
        }
        self.values.reserve_exact(upper.values.len());
        self.values.extend(upper.values);
    }

    /// Calls `visit` for each topic in order, with its value.
    pub(super) fn for_each(mut self, mut visit: impl FnMut(&[u8], M)) {
        let (mut key, mut offset) = (Vec::new(), 0);
        for value in core::mem::take(&mut self.values) {
            offset = self.read(offset, &mut key).unwrap_or(offset);
            visit(&key, value);
        }
    }

    /// Whether one more topic fits, of which so many bytes differ from the last one.
    pub(super) fn has_room(&self, rest: usize) -> bool {
        let keys = self.keys.len() + rest + 2 * LENGTH_BYTES;
        self.values.is_empty() || (self.values.len() < TOPICS && keys <= BYTES)
    }

    /// Adds a topic behind all others: the prefix that it shares with the last one, exactly so long, and `rest`.
    pub(super) fn push(&mut self, shared: usize, rest: &[u8], value: M) {
        write(&mut self.keys, shared, &[rest]);
        self.values.push(value);
    }

    /// The same topics in as little memory as they need. Leaves an empty chunk that keeps the memory for keys.
    pub(super) fn take_exact(&mut self) -> Self {
        let keys = self.keys.as_slice().to_vec();
        self.keys.clear();
        let mut values = core::mem::replace(&mut self.values, Vec::with_capacity(TOPICS));
        values.shrink_to_fit();
        Chunk { keys, values }
    }

    /// Heap memory held, in bytes, without that of the values.
    pub(super) fn heap_bytes(&self) -> usize {
        self.keys.capacity() + self.values.capacity() * size_of::<M>()
    }

    fn entry(&self, offset: usize) -> Option<Entry<'_>> {
        let mut bytes = self.keys.get(offset..)?;
        if bytes.is_empty() {
            return None;
        }
        let shared = read_number(&mut bytes);
        let len = read_number(&mut bytes);
        let rest = bytes.get(..len).unwrap_or_default();
        Some(Entry {
            shared,
            rest,
            end: self.keys.len() - bytes.len() + len,
        })
    }

    /// Replaces the bytes from `start` to `end`.
    fn patch(&mut self, start: usize, end: usize, patch: &[u8]) {
        let more = patch.len().saturating_sub(end - start);
        if self.keys.len() + more > self.keys.capacity() {
            self.keys.reserve_exact(more.max(self.keys.len() / 8));
        }
        self.keys.splice(start..end, patch.iter().copied());
    }
}

/// The length of the longest common prefix.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn write(keys: &mut Vec<u8>, shared: usize, rest: &[&[u8]]) {
    write_number(keys, shared);
    write_number(keys, rest.iter().map(|part| part.len()).sum());
    rest.iter().for_each(|part| keys.extend_from_slice(part));
}

fn write_number(keys: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        keys.push(number as u8 | 0x80);
        number >>= 7;
    }
    keys.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    number
}
