//! Which topics a rule concerns.

use mqtt_proto::{SharedKind, validate_topic_filter};

use crate::Client;

/// What makes a filter stand for itself only.
const EXACT: &str = "eq:";

/// A topic filter, in which `%c` and `%u` stand for the client identifier and the user name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    text: Box<str>,
    /// How much of it everything begins with that it covers, in bytes.
    prefix: usize,
    /// It covers itself, not what it matches.
    exact: bool,
    /// There may be `%c` or `%u` in it.
    substitutes: bool,
}

impl Filter {
    /// Reads a filter, with `eq:` before it or not.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (text, exact) = match text.strip_prefix(EXACT) {
            Some(text) => (text, true),
            None => (text, false),
        };
        validate_topic_filter(text).map_err(|error| format!("{text:?}: {error}"))?;
        if let Some(kind) = SHARED.iter().find(|kind| text.starts_with(kind.prefix())) {
            return Err(format!(
                "{text:?}: rules are about what follows {}…",
                kind.prefix()
            ));
        }
        // Both match every topic name that does not begin with `$`.
        let text = if text == "+/#" && !exact { "#" } else { text };
        Ok(Self {
            text: text.into(),
            prefix: literal(text, exact).len(),
            exact,
            substitutes: text.contains('%'),
        })
    }

    /// As it is read.
    pub(crate) fn to_text(&self) -> String {
        let before = if self.exact { EXACT } else { "" };
        format!("{before}{}", self.text)
    }

    /// Whether it matches all topic names that `asked` does, which may be a topic name or a filter.
    pub(crate) fn covers(&self, client: &Client<'_>, asked: &str) -> bool {
        // As in MQTT, a wildcard at the beginning does not match `$` [MQTT-4.7.2-1], and neither do names
        // of clients and users there: nobody is to get $SYS by calling himself that.
        if asked.starts_with('$') && !self.text.starts_with('$') {
            return false;
        }
        // Most rules end here, at the cost of one comparison.
        if !asked.starts_with(self.text.get(..self.prefix).unwrap_or_default()) {
            return false;
        }
        let mut asked = asked.split('/');
        for level in self.text.split('/') {
            let covered = match (level, asked.next()) {
                ("#", _) if !self.exact => return true,
                ("+", Some(asked)) if !self.exact => asked != "#",
                (level, Some(asked)) if self.substitutes => expands_to(level, asked, client),
                (level, asked) => asked == Some(level),
            };
            if !covered {
                return false;
            }
        }
        asked.next().is_none()
    }
}

const SHARED: [SharedKind; 3] = [
    SharedKind::Share,
    SharedKind::Queue,
    SharedKind::OrderedShare,
];

/// What stands before the first wildcard or name to be filled in. `a/#` covers `a`.
fn literal(text: &str, exact: bool) -> &str {
    let special: &[char] = if exact { &['%'] } else { &['%', '+', '#'] };
    let (before, behind) = text.split_at(text.find(special).unwrap_or(text.len()));
    match behind.chars().next() {
        Some('#') => before.trim_end_matches('/'),
        _ => before,
    }
}

/// Whether a level is `asked` when the names are filled in.
fn expands_to(mut level: &str, mut asked: &str, client: &Client<'_>) -> bool {
    while let Some((before, name)) = level.split_once('%') {
        let (before, value, rest) = if let Some(rest) = name.strip_prefix('c') {
            (before, fit(client.client_id), rest)
        } else if let Some(rest) = name.strip_prefix('u') {
            (before, client.username.and_then(fit), rest)
        } else {
            (before, Some("%"), name)
        };
        let left = asked
            .strip_prefix(before)
            .and_then(|asked| asked.strip_prefix(value?));
        let Some(left) = left else {
            return false;
        };
        (level, asked) = (rest, left);
    }
    level == asked
}

/// A name that is one level and no wildcard. Any other would widen the rule that it is filled into.
fn fit(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.contains(['/', '+', '#'])).then_some(name)
}
