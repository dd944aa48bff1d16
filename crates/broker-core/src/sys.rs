//! The topics that are the broker's own: `$SYS` and what is below it.

/// The first level of the broker's own topics.
const ROOT: &[u8] = b"$SYS";

/// Whether a topic name, or a topic filter without `$share/…/`, is of the broker's own topics: `$SYS` and what
/// is below it. `$SYSTEM` is a client's.
pub fn is_own(topic_or_filter: &[u8]) -> bool {
    match topic_or_filter.strip_prefix(ROOT) {
        Some(behind) => behind.is_empty() || behind.starts_with(b"/"),
        None => false,
    }
}

/// The broker as the publisher of its own messages.
pub(crate) const PUBLISHER: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_levels_are_the_brokers_own() {
        for own in ["$SYS", "$SYS/", "$SYS/#", "$SYS/broker/uptime"] {
            assert!(is_own(own.as_bytes()), "{own}");
        }
        for other in [
            "$SYSTEM",
            "$SYSTEM/x",
            "$SY",
            "$",
            "",
            "SYS/x",
            "a/$SYS",
            "$share/g/$SYS/#",
        ] {
            assert!(!is_own(other.as_bytes()), "{other}");
        }
    }
}
