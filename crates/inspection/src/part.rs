//! Parts of lists, and how much of them an answer has room for.

use serde::{Deserialize, Serialize};

/// The longest answer, in bytes, without what a last item adds.
pub const ANSWER_BYTES: usize = 512 * 1024;

/// Bytes of names in a question, without what a last one adds: a question has 512 KiB.
const QUESTION_BYTES: usize = 100 * 1024;

/// Bytes of an answer that one of several things in it takes at most, without what a last row adds.
const FEW_BYTES: usize = 16 * 1024;

/// A part of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Part<T> {
    /// In the order of the list.
    pub rows: Vec<T>,
    /// Others follow.
    pub more: bool,
}

impl<T: Serialize> Part<T> {
    /// The first `limit` rows, or as many as fit into an answer; one at least.
    pub fn new(rows: impl Iterator<Item = T>, limit: usize) -> Self {
        Self::within(rows, limit, ANSWER_BYTES)
    }

    fn within(rows: impl Iterator<Item = T>, limit: usize, bytes: usize) -> Self {
        let mut part = Self {
            rows: Vec::new(),
            more: false,
        };
        let mut taken = 0;
        for row in rows {
            if part.rows.len() >= limit || taken >= bytes {
                part.more = true;
                break;
            }
            taken += size(&row);
            part.rows.push(row);
        }
        part
    }
}

/// The first rows, about as many as fit beside others.
pub fn few<T: Serialize>(rows: impl Iterator<Item = T>) -> Vec<T> {
    Part::within(rows, usize::MAX, FEW_BYTES).rows
}

/// The first names, about as many as fit into a question.
pub fn short(names: impl Iterator<Item = String>) -> Vec<String> {
    Part::within(names, usize::MAX, QUESTION_BYTES).rows
}

/// Bytes of a row. Clients choose how long names are, and characters that JSON escapes.
pub fn size(row: &impl Serialize) -> usize {
    serde_json::to_vec(row).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_at_its_limit_or_when_an_answer_is_full() {
        let rows = |count: usize, len: usize| (0..count).map(move |_| "\u{1}".repeat(len));
        for (count, len, limit, expected, more) in [
            (0, 1, 5, 0, false),
            (5, 1, 5, 5, false),
            (6, 1, 5, 5, true),
            // Each is six times as long as JSON.
            (500, 60_000, 500, 2, true),
            (1, 600_000, 5, 1, false),
        ] {
            let part = Part::new(rows(count, len), limit);
            assert_eq!(
                (part.rows.len(), part.more),
                (expected, more),
                "{count} {len}"
            );
        }
        assert_eq!(few(rows(20, 60_000)).len(), 1);
        assert_eq!(few(rows(20, 10)).len(), 20);
    }
}
