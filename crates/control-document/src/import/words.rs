//! Words of the rule language.

use mqtt_proto::{SharedKind, validate_topic_filter};

/// What makes a filter stand for itself only.
const EXACT: &str = "eq:";

/// The longest line that is made, in bytes, unless one filter is longer: the control store takes 4,096.
const LINE: usize = 4_000;

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Allow,
    Deny,
}

impl Effect {
    pub(super) fn of(allows: bool) -> Self {
        match allows {
            true => Self::Allow,
            false => Self::Deny,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Why a rule is left out, and what that means.
    pub(super) fn left_out(self, why: &str) -> String {
        match self {
            Self::Allow => format!("{why}; clients may do less than there"),
            Self::Deny => format!("{why}; it denies, so clients may do more than there"),
        }
    }
}

/// What `%c` and `%u` are in a topic filter of another broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Percent {
    /// The names of the client and the user, as here.
    Names,
    /// Characters like others, which have no equal here.
    Text,
}

/// The word for a topic filter, or why there is none.
pub(super) fn filter(text: &str, percent: Percent) -> Result<String, String> {
    check(text, percent)?;
    if !text.starts_with(EXACT) {
        return Ok(word(text));
    }
    match text.contains(['+', '#']) {
        true => {
            Err("a filter with wildcards that begins with \"eq:\" cannot be written".to_owned())
        }
        false => Ok(word(&format!("{EXACT}{text}"))),
    }
}

/// The word for a topic filter that stands for itself, not for what it matches.
pub(super) fn exact(text: &str, percent: Percent) -> Result<String, String> {
    check(text, percent)?;
    Ok(word(&format!("{EXACT}{text}")))
}

fn check(text: &str, percent: Percent) -> Result<(), String> {
    validate_topic_filter(text).map_err(|error| format!("{text:?} is no topic filter: {error}"))?;
    if text.contains(char::is_control) {
        return Err(format!("{text:?} has a control character"));
    }
    let kinds = [
        SharedKind::Share,
        SharedKind::Queue,
        SharedKind::OrderedShare,
    ];
    if let Some(kind) = kinds.iter().find(|kind| text.starts_with(kind.prefix())) {
        let prefix = kind.prefix();
        return Err(format!(
            "{text:?}: rules are about what follows {prefix}…, for shared subscriptions too"
        ));
    }
    if percent == Percent::Text && (text.contains("%c") || text.contains("%u")) {
        return Err(format!(
            "{text:?}: %c and %u always stand for the names of the client and the user"
        ));
    }
    Ok(())
}

/// A word for a topic filter, in quotation marks if it needs them.
fn word(text: &str) -> String {
    match text.starts_with('"') || text.contains(char::is_whitespace) {
        true => quoted(text),
        false => text.to_owned(),
    }
}

/// A word in quotation marks.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The word for one name of a user or client, or why there is none.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(format!("{text:?}: `*` always stands for any text"));
    }
    pattern(text)
}

/// The word for a name in which `*` stands for any text.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    match text.contains(char::is_control) {
        true => Err(format!("{text:?} has a control character")),
        false => Ok(quoted(text)),
    }
}

/// Rules with these words in front, for all of the filters: one, or several if it would be too long.
pub(super) fn lines(front: &str, filters: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for filter in filters {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + filter.len() <= LINE => {
                line.push(' ');
                line.push_str(filter);
            }
            _ => lines.push(format!("{front} {filter}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_words_that_are_read_as_the_same() {
        let filter = |text| filter(text, Percent::Names);
        assert_eq!(filter("a/+/%u/#").unwrap(), "a/+/%u/#");
        assert_eq!(filter("a b").unwrap(), "\"a b\"");
        assert_eq!(filter("a\\b c").unwrap(), "\"a\\\\b c\"");
        assert_eq!(filter("\"a").unwrap(), "\"\\\"a\"");
        assert_eq!(filter("eq:a").unwrap(), "eq:eq:a");
        assert_eq!(exact("#", Percent::Text).unwrap(), "eq:#");
        for bad in ["", "a#", "eq:a/#", "$share/g/a", "a\nb"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
        assert!(super::filter("a/%u", Percent::Text).is_err());
        assert_eq!(super::filter("a/%d", Percent::Text).unwrap(), "a/%d");
    }

    #[test]
    fn a_line_with_many_filters_becomes_several() {
        let filters: Vec<String> = (0..1_000).map(|n| format!("topic/{n}")).collect();
        let lines = lines("allow all publish", &filters);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= LINE));
        let words: usize = lines.iter().map(|line| line.split(' ').count() - 3).sum();
        assert_eq!(words, filters.len());
        assert!(super::lines("allow all publish", &[]).is_empty());
    }
}
