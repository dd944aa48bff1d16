//! Topic names and topic filters (§4.7), shared subscriptions (5.0 §4.8.2).
//!
//! Deliberately absent: matching (the topic router's) and limits of policy such as a number of levels.

use crate::codec::{contains_nul, contains_wildcard};

const MAX_LEN: usize = 65_535;

/// Why a string is no topic name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TopicError {
    /// No character at all.
    Empty,
    /// More than 65,535 bytes.
    TooLong,
    /// U+0000.
    Nul,
    /// `+` or `#`.
    Wildcard,
}

impl std::fmt::Display for TopicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "topic name is empty",
            Self::TooLong => "topic name is longer than 65,535 bytes",
            Self::Nul => "topic name contains U+0000",
            Self::Wildcard => "topic name contains a wildcard character",
        })
    }
}

impl std::error::Error for TopicError {}

/// Why a string is no topic filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FilterError {
    /// No character at all.
    Empty,
    /// More than 65,535 bytes.
    TooLong,
    /// U+0000.
    Nul,
    /// `#` that is not the whole last level.
    MultiLevelWildcard,
    /// `+` that is not a whole level.
    SingleLevelWildcard,
    /// A shared subscription whose group is empty, has a wildcard character, or is not followed by a
    /// topic filter.
    ShareName,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "topic filter is empty",
            Self::TooLong => "topic filter is longer than 65,535 bytes",
            Self::Nul => "topic filter contains U+0000",
            Self::MultiLevelWildcard => "# is not the whole last level of the topic filter",
            Self::SingleLevelWildcard => "+ is not a whole level of the topic filter",
            Self::ShareName => "share name is empty, has a wildcard character or no topic filter",
        })
    }
}

impl std::error::Error for FilterError {}

/// Whether `topic` is a topic name: 1..=65,535 bytes without U+0000 and wildcard characters.
///
/// # Errors
/// The first rule it breaks.
pub fn validate_topic_name(topic: &str) -> Result<(), TopicError> {
    let bytes = topic.as_bytes();
    // [MQTT-4.7.3-1] [MQTT3-4.7.3-1] at least one character.
    if bytes.is_empty() {
        return Err(TopicError::Empty);
    }
    // [MQTT-4.7.3-3] [MQTT3-4.7.3-3] at most 65,535 bytes.
    if bytes.len() > MAX_LEN {
        return Err(TopicError::TooLong);
    }
    // [MQTT-4.7.3-2] [MQTT3-4.7.3-2] no null character.
    if contains_nul(bytes) {
        return Err(TopicError::Nul);
    }
    // [MQTT-4.7.0-1] [MQTT3-4.7.1-1] wildcards belong to filters.
    if contains_wildcard(bytes) {
        return Err(TopicError::Wildcard);
    }
    Ok(())
}

/// Whether `filter` is a topic filter. A shared subscription is not taken apart: see
/// [`SubscriptionFilter::parse`].
///
/// # Errors
/// The first rule it breaks.
pub fn validate_topic_filter(filter: &str) -> Result<(), FilterError> {
    let bytes = filter.as_bytes();
    // [MQTT-4.7.3-1] [MQTT3-4.7.3-1] at least one character.
    if bytes.is_empty() {
        return Err(FilterError::Empty);
    }
    // [MQTT-4.7.3-3] [MQTT3-4.7.3-3] at most 65,535 bytes.
    if bytes.len() > MAX_LEN {
        return Err(FilterError::TooLong);
    }
    // [MQTT-4.7.3-2] [MQTT3-4.7.3-2] no null character.
    if contains_nul(bytes) {
        return Err(FilterError::Nul);
    }
    if !contains_wildcard(bytes) {
        return Ok(());
    }
    let mut levels = bytes.split(|byte| *byte == b'/').peekable();
    while let Some(level) = levels.next() {
        // [MQTT-4.7.1-1] [MQTT3-4.7.1-2] `#` alone in the last level.
        if level.contains(&b'#') && (level.len() > 1 || levels.peek().is_some()) {
            return Err(FilterError::MultiLevelWildcard);
        }
        // [MQTT-4.7.1-2] [MQTT3-4.7.1-3] `+` alone in its level.
        if level.contains(&b'+') && level.len() > 1 {
            return Err(FilterError::SingleLevelWildcard);
        }
    }
    Ok(())
}

/// How the members of a shared subscription divide its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub enum SharedKind {
    /// `$share/<group>/<filter>`, of the standard: any member.
    Share,
    /// `$queue/<filter>`: as `$share` with one nameless group per filter.
    Queue,
    /// `$oshare/<group>/<filter>`: one publisher's messages keep to one member.
    OrderedShare,
}

impl SharedKind {
    /// The first level of a filter of this kind, with its separator.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Share => "$share/",
            Self::Queue => "$queue/",
            Self::OrderedShare => "$oshare/",
        }
    }
}

/// A topic filter as SUBSCRIBE carries it, taken apart:
/// `$share/<group>/<filter>`, `$queue/<filter>`, `$oshare/<group>/<filter>` or a plain filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SubscriptionFilter<'a> {
    /// Kind and group of a shared subscription; the group of [`SharedKind::Queue`] is `""`.
    pub shared: Option<(SharedKind, &'a str)>,
    /// The filter that topic names are matched with.
    pub filter: &'a str,
}

impl<'a> SubscriptionFilter<'a> {
    /// Takes `text` apart and checks all of it.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn parse(text: &'a str) -> Result<Self, FilterError> {
        // The prefix counts towards the length of what was received.
        if text.len() > MAX_LEN {
            return Err(FilterError::TooLong);
        }
        let (shared, filter) = if let Some(rest) = text.strip_prefix(SharedKind::Share.prefix()) {
            let (group, filter) = split_group(rest)?;
            (Some((SharedKind::Share, group)), filter)
        } else if let Some(filter) = text.strip_prefix(SharedKind::Queue.prefix()) {
            (Some((SharedKind::Queue, "")), filter)
        } else if let Some(rest) = text.strip_prefix(SharedKind::OrderedShare.prefix()) {
            let (group, filter) = split_group(rest)?;
            (Some((SharedKind::OrderedShare, group)), filter)
        } else {
            (None, text)
        };
        if shared.is_some() && filter.is_empty() {
            return Err(FilterError::ShareName);
        }
        validate_topic_filter(filter)?;
        Ok(Self { shared, filter })
    }
}

/// `<group>/<filter>`.
fn split_group(text: &str) -> Result<(&str, &str), FilterError> {
    // [MQTT-4.8.2-2] the share name ends at a separator, and a topic filter follows.
    let (group, filter) = text.split_once('/').ok_or(FilterError::ShareName)?;
    // [MQTT-4.8.2-1] a share name has at least one character,
    // [MQTT-4.8.2-2] and none of them is a wildcard character.
    if group.is_empty() || contains_wildcard(group.as_bytes()) {
        return Err(FilterError::ShareName);
    }
    if contains_nul(group.as_bytes()) {
        return Err(FilterError::Nul);
    }
    Ok((group, filter))
}

/// Whether a topic name matches a filter, both of them valid (5.0 §4.7). [MQTT-4.7.2-1] A wildcard in the first level
/// does not match `$`.
#[must_use]
pub fn filter_matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/b/c", "a/b", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "a/b", true),
            ("#", "$SYS/a", false),
            ("+/a", "$SYS/a", false),
            ("$SYS/#", "$SYS/a", true),
        ] {
            assert_eq!(filter_matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn topic_names() {
        // [MQTT-4.7.3-1] [MQTT3-4.7.3-1]
        assert_eq!(validate_topic_name(""), Err(TopicError::Empty));
        // [MQTT-4.7.3-2] [MQTT3-4.7.3-2]
        assert_eq!(validate_topic_name("a\0b"), Err(TopicError::Nul));
        // [MQTT-4.7.3-3] [MQTT3-4.7.3-3]
        assert_eq!(validate_topic_name(&"a".repeat(65_535)), Ok(()));
        assert_eq!(
            validate_topic_name(&"a".repeat(65_536)),
            Err(TopicError::TooLong)
        );
        // [MQTT-4.7.0-1] [MQTT3-4.7.1-1], at every position within and after an eight-byte word
        for len in 1..20 {
            let plain = "x/".repeat(10)[..len].to_owned();
            assert_eq!(validate_topic_name(&plain), Ok(()));
            for at in 0..len {
                for (bad, error) in [
                    ("+", TopicError::Wildcard),
                    ("#", TopicError::Wildcard),
                    ("\0", TopicError::Nul),
                ] {
                    let mut topic = plain.clone();
                    topic.replace_range(at..=at, bad);
                    assert_eq!(validate_topic_name(&topic), Err(error), "{topic:?}");
                }
            }
        }
        for good in [
            "/",
            "//",
            "a//b",
            " ",
            "$SYS/x",
            "é/ü/😀",
            "a b",
            "\u{FEFF}",
        ] {
            assert_eq!(validate_topic_name(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn no_character_but_plus_and_hash_is_a_wildcard() {
        for byte in 0..=255_u8 {
            assert_eq!(contains_wildcard(&[byte]), byte == b'+' || byte == b'#');
            assert_eq!(
                contains_wildcard(&[b'a', byte, 0, 0xFF, 0x80, b'+' - 1, b'$', 1, 2]),
                byte == b'+' || byte == b'#'
            );
            assert_eq!(contains_nul(&[byte; 9]), byte == 0);
        }
    }

    #[test]
    fn topic_filters() {
        let check =
            |filter: &str, expect| assert_eq!(validate_topic_filter(filter), expect, "{filter:?}");
        for good in [
            "#", "+", "/", "+/+", "/+", "a/+/b/#", "a", "a/#", "+/#", "//", "$SYS/#",
        ] {
            check(good, Ok(()));
        }
        // [MQTT-4.7.1-1] [MQTT3-4.7.1-2]
        for bad in ["a#", "a/#/b", "#/", "##", "a/b#", "#a", "+#"] {
            check(bad, Err(FilterError::MultiLevelWildcard));
        }
        // [MQTT-4.7.1-2] [MQTT3-4.7.1-3]
        for bad in ["a+", "+a", "a/b+/c", "++", "+/a+"] {
            check(bad, Err(FilterError::SingleLevelWildcard));
        }
        check("", Err(FilterError::Empty));
        check("a\0", Err(FilterError::Nul));
        check(&"a".repeat(65_536), Err(FilterError::TooLong));
    }

    #[test]
    fn shared_subscriptions() {
        let check = |text, expect: Result<(Option<(SharedKind, _)>, _), _>| {
            let parsed = SubscriptionFilter::parse(text).map(|found| (found.shared, found.filter));
            assert_eq!(parsed, expect, "{text:?}");
        };
        check("a/+", Ok((None, "a/+")));
        check("$share/g/a/#", Ok((Some((SharedKind::Share, "g")), "a/#")));
        check("$share/g//a", Ok((Some((SharedKind::Share, "g")), "/a")));
        check("$queue/a/b", Ok((Some((SharedKind::Queue, "")), "a/b")));
        check(
            "$oshare/g/#",
            Ok((Some((SharedKind::OrderedShare, "g")), "#")),
        );
        check("$shared/g/a", Ok((None, "$shared/g/a")));
        check("$share", Ok((None, "$share")));
        // [MQTT-4.8.2-1] the share name is not empty
        check("$share//a", Err(FilterError::ShareName));
        // [MQTT-4.8.2-2] no wildcard character, a separator and a filter behind it
        for bad in [
            "$share/+/a",
            "$share/g#/a",
            "$share/g",
            "$share/g/",
            "$share/",
            "$queue/",
            "$oshare/g/",
        ] {
            check(bad, Err(FilterError::ShareName));
        }
        check("$share/g/a#", Err(FilterError::MultiLevelWildcard));
        check("$share/\0/a", Err(FilterError::Nul));
    }
}
