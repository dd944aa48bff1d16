//! When a cached match may be stale, without one version for all topics.
//!
//! A caller that caches the receivers of a topic keeps [`BUCKETS`] counters. Whoever inserts or removes
//! a filter adds one to the counter of [`bucket_of_filter`], after the change; a cached match is fresh
//! while the counters of [`buckets_of_topic`], read before the match was made, are what they were.
//!
//! Invariant: the bucket of a filter is among the buckets of each topic that it matches.
//!
//! Deliberately absent: the counters (they are shared between threads, this crate shares nothing), and a
//! seed: a client that wants to make caches useless need not find a collision, it can subscribe to `+/x`.

use core::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use crate::level::{first, has_wildcard, is_hidden};

/// The number of counters that the caller keeps.
pub const BUCKETS: usize = 1024;

/// The number of a counter, below [`BUCKETS`].
pub type Bucket = u16;

/// The bucket of filters whose first level is a wildcard.
const WILDCARD_FIRST: Bucket = 0;

/// The bucket that changes when this filter is inserted or removed: that of the whole filter if it has
/// no wildcard, that of the first level if a wildcard comes later, and one for all others.
pub fn bucket_of_filter(filter: &str) -> Bucket {
    let filter = filter.as_bytes();
    let level = first(filter);
    if !has_wildcard(filter) {
        of_name(filter)
    } else if has_wildcard(level) {
        WILDCARD_FIRST
    } else {
        of_first_level(level)
    }
}

/// The buckets of all filters that can match this topic name; they may repeat.
pub fn buckets_of_topic(topic: &str) -> [Bucket; 3] {
    let topic = topic.as_bytes();
    let by_level = of_first_level(first(topic));
    // [MQTT-4.7.2-1] filters that start with a wildcard do not concern a topic name that starts with $.
    [
        of_name(topic),
        by_level,
        if is_hidden(topic) {
            by_level
        } else {
            WILDCARD_FIRST
        },
    ]
}

fn of_name(name: &[u8]) -> Bucket {
    spread(name, 1)
}

fn of_first_level(level: &[u8]) -> Bucket {
    spread(level, 2)
}

fn spread(bytes: &[u8], seed: u64) -> Bucket {
    let mut hasher = FixedState::with_seed(seed).build_hasher();
    hasher.write(bytes);
    1 + (hasher.finish() % (BUCKETS as u64 - 1)) as Bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_elsewhere_leaves_a_topic_alone() {
        let topic = buckets_of_topic("dev/1/temp");
        for filter in ["dev/1/temp", "dev/+/temp", "dev/#", "+/1/#", "#"] {
            assert!(topic.contains(&bucket_of_filter(filter)), "{filter}");
        }
        assert!(!topic.contains(&bucket_of_filter("dev/2/temp")));
        assert!(!topic.contains(&bucket_of_filter("site/+/temp")));
        assert!(!buckets_of_topic("$SYS/broker").contains(&bucket_of_filter("#")));
    }
}
