//! What the tables of a shard hold, in a few bytes.
//!
//! Two replicas that hold the same rows have the same digest; two that do not have another one, but for a chance of 2⁻¹²⁸ for rows that
//! nobody has chosen to collide.
//!
//! Deliberately absent: which replicas are compared, and when (`shard/comparison.rs`).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The index of an entry in the log of a shard.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub(crate) struct LogIndex(pub(crate) u64);

/// The rows of a shard as of one entry of its log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Digest {
    /// The last entry whose effects are in the rows.
    pub(crate) applied: LogIndex,
    pub(crate) rows: RowCount,
    /// XXH3 with 128 bits of all rows in the order of their keys: the length of the key, the key, the length of the value, the value; lengths in four bytes, little-endian.
    hash: u128,
}

/// What a replica says when an entry has it compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Holds {
    /// That entry.
    pub(crate) entry: LogIndex,
    /// `None`: the replica has left the comparison out.
    pub(crate) digest: Option<Digest>,
    /// It stops, to be made anew, and says nothing of comparisons until it serves again.
    pub(crate) is_stopping: bool,
}

/// How many rows.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub(crate) struct RowCount(pub(crate) u64);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            applied,
            rows,
            hash,
        } = self;
        write!(f, "{} rows, {hash:032x}, at entry {}", rows.0, applied.0)
    }
}

/// As [`Kind::agreed`](crate::kinds::kind::Kind::agreed).
pub(crate) type Agreed = for<'a> fn(&[u8], &'a [u8]) -> Cow<'a, [u8]>;

/// Makes a [`Digest`].
#[derive(Default)]
pub(crate) struct RowHasher {
    rows: RowCount,
    hash: Box<Xxh3>,
}

impl RowHasher {
    /// The next row, in the order of keys. Lengths are below 4 GiB.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows.0 += 1;
        for part in [key, value] {
            self.hash.update(&(part.len() as u32).to_le_bytes());
            self.hash.update(part);
        }
    }

    /// That was all.
    pub(crate) fn finish(&self, applied: LogIndex) -> Digest {
        Digest {
            applied,
            rows: self.rows,
            hash: self.hash.digest128(),
        }
    }
}

#[cfg(test)]
impl Holds {
    pub(crate) fn at(entry: u64, digest: Option<Digest>) -> Self {
        Self {
            entry: LogIndex(entry),
            digest,
            is_stopping: false,
        }
    }
}

#[cfg(test)]
impl Digest {
    /// Of some content.
    pub(crate) fn of(applied: u64, content: u128) -> Self {
        Self {
            applied: LogIndex(applied),
            rows: RowCount(1),
            hash: content,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(rows: &[(&str, &str)]) -> Digest {
        let mut hasher = RowHasher::default();
        for (key, value) in rows {
            hasher.add(key.as_bytes(), value.as_bytes());
        }
        hasher.finish(LogIndex(7))
    }

    #[test]
    fn a_row_more_or_less_or_cut_elsewhere_makes_another_digest() {
        let all = [
            digest(&[]),
            digest(&[("", "")]),
            digest(&[("a", "bc")]),
            digest(&[("ab", "c")]),
            digest(&[("a", "b"), ("c", "")]),
            digest(&[("a", "b")]),
        ];
        for (number, one) in all.iter().enumerate() {
            for other in &all[number + 1..] {
                assert_ne!(one.hash, other.hash);
            }
        }
        assert_eq!(all[4].rows, RowCount(2));
    }

    /// Nodes of other versions make the same.
    #[test]
    fn a_digest_is_what_it_has_always_been() {
        assert_eq!(
            digest(&[("key", "value"), ("other", "")]).to_string(),
            "2 rows, 97a75140ef18f1e579998504d45a3999, at entry 7"
        );
    }
}
