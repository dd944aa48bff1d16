//! From a topic to the next one that could match.
//!
//! Invariant: a leap passes over no topic that matches, and always goes up.

use super::order::{DOLLAR, LONGER, MULTI, SEPARATOR, SINGLE, of_topic};

/// A filter as a key.
pub(super) struct Filter(Vec<u8>);

/// What a look at one topic tells.
pub(super) enum Step {
    /// It matches.
    Match,
    /// It does not.
    Leap,
    /// Neither it nor any topic above it does.
    Done,
}

impl Filter {
    pub(super) fn new(filter: &str) -> Self {
        Filter(of_topic(filter))
    }

    /// A key that no matching topic is below.
    pub(super) fn least(&self) -> Vec<u8> {
        let mut least = Vec::new();
        self.extend(0, &mut least);
        least
    }

    /// Compares a topic with the filter and writes to `next` where the search goes on, unless it is done.
    pub(super) fn step(&self, key: &[u8], next: &mut Vec<u8>) -> Step {
        next.clear();
        let filter = &*self.0;
        // [MQTT-4.7.2-1] no match of filters starting with a wildcard and topic names starting with $.
        if key.first() == Some(&DOLLAR) && [SINGLE, MULTI].contains(&level(filter, 0)) {
            next.push(DOLLAR + 1);
            return Step::Leap;
        }
        let (mut at, mut start) = (0, 0);
        // Where the last level ends that could be another one.
        let mut free = None;
        while at <= filter.len() {
            let wanted = level(filter, at);
            if self.is_multi(at) {
                break;
            }
            if start > key.len() {
                next.extend_from_slice(key);
                next.push(SEPARATOR);
                self.extend(at, next);
                return Step::Leap;
            }
            let found = level(key, start);
            if wanted == SINGLE {
                free = Some(start + found.len());
            } else if found < wanted {
                next.extend_from_slice(key.get(..start).unwrap_or_default());
                self.extend(at, next);
                return Step::Leap;
            } else if found > wanted {
                return leave(key, free, next);
            }
            at += wanted.len() + 1;
            start += found.len() + 1;
            if at > filter.len() && start <= key.len() {
                return leave(key, free, next);
            }
        }
        next.extend_from_slice(key);
        next.push(SEPARATOR);
        Step::Match
    }

    /// Whether the level at offset `at` is the multi-level wildcard, which is one in the last place only.
    fn is_multi(&self, at: usize) -> bool {
        self.0.get(at..) == Some(MULTI)
    }

    /// Appends the levels from offset `at` on, up to the first wildcard.
    fn extend(&self, mut at: usize, key: &mut Vec<u8>) {
        while at <= self.0.len() {
            let wanted = level(&self.0, at);
            if wanted == SINGLE || self.is_multi(at) {
                return;
            }
            key.extend_from_slice(wanted);
            at += wanted.len() + 1;
            // `#` matches the parent too, which has no separator at its end.
            if at <= self.0.len() && !self.is_multi(at) {
                key.push(SEPARATOR);
            }
        }
    }
}

/// The step of a walk through all topics.
pub(super) fn each(key: &[u8], next: &mut Vec<u8>) -> Step {
    next.clear();
    next.extend_from_slice(key);
    next.push(SEPARATOR);
    Step::Match
}

/// Goes past everything below the level that could be another one.
fn leave(key: &[u8], free: Option<usize>, next: &mut Vec<u8>) -> Step {
    let Some(end) = free else { return Step::Done };
    next.extend_from_slice(key.get(..end).unwrap_or_default());
    next.push(LONGER);
    Step::Leap
}

/// The level that begins at `start`.
fn level(key: &[u8], start: usize) -> &[u8] {
    let rest = key.get(start..).unwrap_or_default();
    rest.split(|&byte| byte == SEPARATOR)
        .next()
        .unwrap_or_default()
}
