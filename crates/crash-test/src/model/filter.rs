//! Which topics a filter matches; written without the broker's router, which is judged by it.

/// Whether a filter, shared or not, matches a topic (5.0 §4.7). Topics with `$` in front do not occur.
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let own = match filter.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or("", |(_, own)| own),
        None => filter,
    };
    let mut topic = topic.split('/');
    for level in own.split('/') {
        match (level, topic.next()) {
            // The parent level matches too.
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(name)) if level == name => {}
            _ => return false,
        }
    }
    topic.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards_match_whole_levels() {
        for (filter, topic, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/c", false),
            ("a", "a/b", false),
            ("a/b", "a", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("+/b", "a/b", true),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "a/b", true),
            ("a/#", "b", false),
            ("$share/g/a/#", "a/b", true),
            ("$share/g/a", "g/a", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }
}
