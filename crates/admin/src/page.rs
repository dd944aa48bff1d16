//! Lists: page by page, in the order of their keys.
//!
//! A page has the items behind a key. The cursor of the next page is the key of the last item that was looked at: it names
//! no node, no shard and no time, and so stays good after splits, moves and restarts, at every node.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::NodeId;
use crate::problem::{Kind, Problem};

/// Items of a page if the request does not say.
pub const DEFAULT_LIMIT: u16 = 100;

/// The most items of a page.
pub const LARGEST_LIMIT: u16 = 500;

/// How long an answer may take if the request does not say.
pub const DEFAULT_BUDGET: Duration = Duration::from_secs(1);

/// The shortest and the longest time for an answer, in ms.
pub const BUDGET_MS: std::ops::RangeInclusive<u64> = 50..=5_000;

/// The longest key that a cursor has in full, in bytes: a header of a request has 16 KiB, base64 makes a third more of it.
const LONGEST_KEY: usize = 8 * 1024;

/// The format of cursors.
const VERSION: u8 = 1;

/// A page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// In the order of their keys' bytes.
    pub items: Vec<T>,
    /// The cursor of the next page, for `after`. `null` exactly if nothing follows. A page may be empty and have one.
    pub next: Option<String>,
    /// What is not in this answer because a node did not answer; empty if the answer is whole.
    pub partial: Vec<Missing>,
    /// How many items were looked at, with those that filters left out.
    pub scanned: u64,
}

impl<T> Page<T> {
    /// All of something of which there is not much.
    #[must_use]
    pub fn whole(items: Vec<T>, partial: Vec<Missing>) -> Self {
        Self {
            scanned: items.len() as u64,
            items,
            next: None,
            partial,
        }
    }
}

/// What a node was to answer and did not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Missing {
    /// The node.
    pub node: Option<NodeId>,
    /// What people call it; empty if it does not say.
    pub node_name: String,
    /// Why.
    pub reason: MissingReason,
    /// What is not known therefore, such as `connections` or `session_store:0-21845`, with the first and the last slot.
    pub missing: Vec<String>,
}

/// Why a node did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// It is down, or there is no connection to it.
    Down,
    /// Its answer did not come in time.
    Timeout,
    /// It answers others.
    Busy,
    /// Its version does not know the question.
    Version,
    /// It could not answer.
    Failed,
    /// Nobody leads the shard.
    NoLeader,
}

impl MissingReason {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Version => "version",
            Self::Failed => "failed",
            Self::NoLeader => "no_leader",
        }
    }
}

/// What an answer of several nodes has: items behind a key.
#[derive(Clone, PartialEq, Debug)]
pub struct Found<T> {
    /// In the order of their keys.
    pub items: Vec<T>,
    /// The key of the last one that was looked at, if more may follow.
    pub last: Option<String>,
    /// What is missing.
    pub partial: Vec<Missing>,
    /// How many were looked at.
    pub scanned: u64,
}

impl<T> Found<T> {
    /// The page, with the cursor for what follows.
    #[must_use]
    pub fn page(self, list: &List) -> Page<T> {
        Page {
            items: self.items,
            next: self.last.map(|key| list.cursor(&key)),
            partial: self.partial,
            scanned: self.scanned,
        }
    }
}

/// Which list a cursor is of: another list, or the same with other filters, does not take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    hash: u64,
}

impl List {
    /// `name`: of the list. `filters`: each in its place, and whether it was given.
    #[must_use]
    pub fn new(name: &str, filters: &[Option<&str>]) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        for filter in filters {
            match filter {
                Some(text) => {
                    bytes.push(1);
                    bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
                None => bytes.push(0),
            }
        }
        Self {
            hash: xxh3_64(&bytes),
        }
    }

    /// The cursor behind an item. Of keys over 8 KiB it has the beginning: items that share it with the last one of a page
    /// may be passed over.
    #[must_use]
    pub fn cursor(&self, key: &str) -> String {
        let (key, end): (&str, &[u8]) = match key.get(..key.floor_char_boundary(LONGEST_KEY)) {
            Some(cut) if cut.len() < key.len() => (cut, "\u{10ffff}".as_bytes()),
            _ => (key, &[]),
        };
        let bytes = [
            &[VERSION][..],
            &self.hash.to_be_bytes(),
            key.as_bytes(),
            end,
        ]
        .concat();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The key behind which a page begins.
    ///
    /// # Errors
    /// It is no cursor of this list.
    pub fn key(&self, cursor: &str) -> Result<String, Problem> {
        let wrong = wrong_cursor;
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| wrong())?;
        let key = match bytes.split_first_chunk::<9>() {
            Some(([VERSION, hash @ ..], key)) if *hash == self.hash.to_be_bytes() => key,
            _ => return Err(wrong()),
        };
        String::from_utf8(key.to_vec()).map_err(|_| wrong())
    }
}

/// A key of two parts, in the order of the first and then the second.
#[must_use]
pub fn join(first: &str, second: &str) -> String {
    // U+0000 is in no topic filter and in no client identifier (MQTT-1.5.4-2), and sorts before all else.
    format!("{first}\0{second}")
}

/// The two parts of a key.
#[must_use]
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('\0').unwrap_or((key, ""))
}

/// A cursor that no page of the list has had.
pub(crate) fn wrong_cursor() -> Problem {
    let why = "`after` must be the `next` of a page of the same list with the same filters";
    Problem::new(Kind::InvalidCursor, why).with("parameter", "after")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let list = List::new("clients", &[Some("press-"), None]);
        for key in ["", "press-17", "a/b ?%", "ü\u{10ffff}", "0\u{1}"] {
            let cursor = list.cursor(key);
            assert!(
                cursor
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            );
            assert_eq!(list.key(&cursor).unwrap(), key);
            for other in [
                List::new("sessions", &[Some("press-"), None]),
                List::new("clients", &[Some("press"), None]),
                List::new("clients", &[None, Some("press-")]),
                List::new("clients", &[Some("press-")]),
            ] {
                assert_eq!(other.key(&cursor).unwrap_err().kind, Kind::InvalidCursor);
            }
        }
        for wrong in ["", "?", "AQ", "AQAAAAAAAAAA", &"A".repeat(10_000)] {
            assert_eq!(list.key(wrong).unwrap_err().kind, Kind::InvalidCursor);
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(list.cursor("a")).unwrap();
        bytes.push(0xff);
        let cursor = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(list.key(&cursor).unwrap_err().kind, Kind::InvalidCursor);
    }

    #[test]
    fn the_cursor_of_a_long_key_fits_a_header_and_goes_on_behind_it() {
        let list = List::new("clients", &[]);
        for key in ["x".repeat(60_000), "ü".repeat(30_000)] {
            let cursor = list.cursor(&key);
            assert!(cursor.len() < 11 * 1024, "{}", cursor.len());
            assert!(list.key(&cursor).unwrap() > key);
        }
        let longest = "y".repeat(LONGEST_KEY);
        assert_eq!(list.key(&list.cursor(&longest)).unwrap(), longest);
    }

    #[test]
    fn a_key_of_two_parts_is_ordered_by_the_first() {
        let mut keys = [
            join("a/b", "x"),
            join("a", "z"),
            join("a", "b/"),
            join("a/", ""),
        ];
        keys.sort();
        let split: Vec<_> = keys.iter().map(|key| split(key)).collect();
        assert_eq!(split, [("a", "b/"), ("a", "z"), ("a/", ""), ("a/b", "x")]);
    }
}
