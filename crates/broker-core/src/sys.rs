//! The topics that are the broker's own: `$SYS` and what is below it, which everybody may read, and `$hmq` and what is
//! below it, which is between the broker and its outlets.

use crate::connect::own_clients;

/// The first level of the broker's own topics.
const ROOT: &[u8] = b"$SYS";

/// The first level of the topics between the broker and its outlets.
const INTERNAL: &[u8] = b"$hmq";

/// Whether a topic name, or a topic filter without `$share/…/`, is of the broker's own topics: `$SYS` and what
/// is below it. `$SYSTEM` is a client's.
pub fn is_own(topic_or_filter: &[u8]) -> bool {
    is_below(ROOT, topic_or_filter)
}

/// Whether a topic name, or a topic filter without `$share/…/`, is between the broker and its outlets: `$hmq` and what is
/// below it. No other client publishes or subscribes to it.
pub fn is_internal(topic_or_filter: &[u8]) -> bool {
    is_below(INTERNAL, topic_or_filter)
}

/// Whether a client may never publish to a topic, whatever the rules say.
pub(crate) fn is_closed_to(client_id: &str, topic: &[u8]) -> bool {
    is_own(topic) || (is_internal(topic) && !own_clients::is_outlet(client_id))
}

#[inline]
fn is_below(root: &[u8], topic_or_filter: &[u8]) -> bool {
    match topic_or_filter.strip_prefix(root) {
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

    #[test]
    fn internal_topics_are_closed_to_all_but_outlets() {
        for internal in ["$hmq", "$hmq/", "$hmq/#", "$hmq/outlet/x"] {
            assert!(is_internal(internal.as_bytes()), "{internal}");
            assert!(is_closed_to("a", internal.as_bytes()), "{internal}");
            let is_closed = is_closed_to("$outlet/x/0", internal.as_bytes());
            assert!(!is_closed, "{internal}");
        }
        for other in ["$hmqtt/x", "hmq/x", "a/$hmq", "$", "", "#"] {
            assert!(!is_internal(other.as_bytes()), "{other}");
            assert!(!is_closed_to("a", other.as_bytes()), "{other}");
        }
        assert!(is_closed_to("$outlet/x/0", b"$SYS/x"));
    }
}
