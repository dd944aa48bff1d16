//! The bytes of a batch.
//!
//! Purpose: an entry goes to the own log and to each follower, and a follower writes what it was sent. Its bytes are made
//! once, and kept with the batch.
//!
//! Deliberately absent: the formats of entries (`store`).

use std::sync::OnceLock;

use bytes::Bytes;

/// The bytes of a batch, once it was encoded or read.
#[derive(Debug, Default)]
pub struct Written(OnceLock<Bytes>);

impl Written {
    /// What a batch was read from.
    #[must_use]
    pub fn read(bytes: Bytes) -> Self {
        Self(OnceLock::from(bytes))
    }

    /// The bytes; the first call makes them. A call that comes meanwhile waits for it.
    pub fn bytes_or(&self, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.0.get_or_init(encode).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_made_once() {
        let written = Written::default();
        let first = written.bytes_or(|| Bytes::from_static(b"first"));
        let second = written.bytes_or(|| unreachable!("they are there"));
        assert_eq!(first.as_ptr(), second.as_ptr());
        let read = Written::read(Bytes::from_static(b"read"));
        assert_eq!(read.bytes_or(Bytes::new), "read");
    }
}
