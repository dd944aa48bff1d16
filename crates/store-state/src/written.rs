//! What a batch is written as, and whether the next one is worth compressing.
//!
//! Purpose: an entry goes to the own log and to each follower, and a follower writes what it was sent. Its bytes are made
//! once, and kept with the batch.
//!
//! Deliberately absent: the formats of entries, and LZ4 (`store`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// Entries that pass without an attempt after attempts that have failed one after the other, at most.
const LONGEST_PAUSE: u32 = 64;

/// The bytes of a batch, once it was encoded or read.
#[derive(Debug, Default)]
pub struct Written {
    bytes: OnceLock<Bytes>,
    attempts: Option<Arc<Attempts>>,
    is_for_one: bool,
}

impl Written {
    /// Not encoded yet. Where it is, that may compress it if `attempts` say so.
    #[must_use]
    pub fn compressible(attempts: Arc<Attempts>) -> Self {
        Self {
            attempts: Some(attempts),
            ..Self::default()
        }
    }

    /// For a log that is the only one: nothing is kept, since nobody asks twice.
    #[must_use]
    pub fn for_one() -> Self {
        Self {
            is_for_one: true,
            ..Self::default()
        }
    }

    /// Whether nobody but the own log asks for the bytes.
    #[must_use]
    pub fn is_for_one(&self) -> bool {
        self.is_for_one
    }

    /// What a batch was read from.
    #[must_use]
    pub fn read(bytes: Bytes) -> Self {
        Self {
            bytes: OnceLock::from(bytes),
            ..Self::default()
        }
    }

    /// The bytes; the first call makes them. A call that comes meanwhile waits for it.
    pub fn bytes_or(&self, encode: impl FnOnce(Option<&Attempts>) -> Bytes) -> Bytes {
        let attempts = self.attempts.as_deref();
        self.bytes.get_or_init(|| encode(attempts)).clone()
    }
}

/// Which entries of a shard are tried: all as long as they shrink, then ever fewer, down to one in 65, until one
/// shrinks again.
#[derive(Debug, Default)]
pub struct Attempts {
    /// Entries that pass before the next attempt.
    passing: AtomicU32,
    /// How many pass after the next attempt that fails.
    pause: AtomicU32,
}

impl Attempts {
    /// Whether the next entry is tried. Counts it.
    pub fn is_due(&self) -> bool {
        let passing = self.passing.load(Ordering::Relaxed);
        if passing > 0 {
            self.passing.store(passing - 1, Ordering::Relaxed);
        }
        passing == 0
    }

    /// Says what came of an attempt.
    pub fn tell(&self, has_shrunk: bool) {
        let pause = match has_shrunk {
            true => 0,
            false => (2 * self.pause.load(Ordering::Relaxed)).clamp(1, LONGEST_PAUSE),
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.passing.store(pause, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_shrink_is_tried_ever_more_rarely() {
        let attempts = Attempts::default();
        let mut tried = Vec::new();
        for entry in 0..400 {
            if attempts.is_due() {
                tried.push(entry);
                attempts.tell(false);
            }
        }
        assert_eq!(tried, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264, 329, 394]);
        while !attempts.is_due() {}
        attempts.tell(true);
        assert!(attempts.is_due() && attempts.is_due());
    }

    #[test]
    fn bytes_are_made_once() {
        let written = Written::default();
        let first = written.bytes_or(|_| Bytes::from_static(b"first"));
        let second = written.bytes_or(|_| unreachable!("they are there"));
        assert_eq!(first.as_ptr(), second.as_ptr());
        let read = Written::read(Bytes::from_static(b"read"));
        assert_eq!(read.bytes_or(|_| Bytes::new()), "read");
    }
}
