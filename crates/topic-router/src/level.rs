//! Topic levels: what lies between the separators.
//!
//! Invariant: a topic name or filter of n separators has n + 1 levels; empty ones count, so that
//! `/a` and `a` differ (sections 4.7.1.1 and 4.7.3). Works on bytes, since every character with a meaning
//! here is ASCII and UTF-8 never hides ASCII inside a longer character; so levels match character for
//! character, without normalisation [MQTT-4.7.3-4].

pub(crate) const SEPARATOR: u8 = b'/';
/// The level that stands for any one level.
pub(crate) const SINGLE: &[u8] = b"+";
/// The last level that stands for the parent and all levels below.
pub(crate) const MULTI: &[u8] = b"#";

/// The offset at which the level that begins at `start` ends.
pub(crate) fn end_of_level(name: &[u8], start: usize) -> usize {
    let rest = name.get(start..).unwrap_or_default();
    start
        + rest
            .iter()
            .position(|&b| b == SEPARATOR)
            .unwrap_or(rest.len())
}

/// The first level.
pub(crate) fn first(name: &[u8]) -> &[u8] {
    name.get(..end_of_level(name, 0)).unwrap_or_default()
}

/// Whether a filter has a wildcard level; all other filters match only the topic name they equal.
pub(crate) fn has_wildcard(filter: &[u8]) -> bool {
    // A scan for the two characters settles most filters without a look at their levels.
    let mut levels = filter.split(|&b| b == SEPARATOR);
    filter.iter().any(|b| matches!(b, b'+' | b'#'))
        && (levels.any(|level| level == SINGLE)
            || filter.rsplit(|&b| b == SEPARATOR).next() == Some(MULTI))
}

/// Whether a first-level wildcard must not match this topic name.
pub(crate) fn is_hidden(topic: &[u8]) -> bool {
    // [MQTT-4.7.2-1] no match of filters starting with a wildcard and topic names starting with $.
    topic.first() == Some(&b'$')
}
