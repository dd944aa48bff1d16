//! Whom a rule concerns.

use config::Network;

use crate::Client;

/// What must hold for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// It has a confirmed user name, which the pattern matches.
    User(Pattern),
    /// The pattern matches its client identifier.
    Client(Pattern),
    /// It connects from one of these.
    Address(Box<[Network]>),
    /// It has no confirmed user name.
    Anonymous,
}

impl Condition {
    pub(crate) fn holds(&self, client: &Client<'_>) -> bool {
        match self {
            Self::User(pattern) => client.username.is_some_and(|name| pattern.matches(name)),
            Self::Client(pattern) => pattern.matches(client.client_id),
            Self::Address(networks) => client
                .address
                .is_some_and(|address| networks.iter().any(|n| n.contains(address))),
            Self::Anonymous => client.username.is_none(),
        }
    }

    /// The only user name for which it holds.
    pub(crate) fn named_user(&self) -> Option<&str> {
        match self {
            Self::User(pattern) => pattern.name(),
            _ => None,
        }
    }

    /// The only client identifier for which it holds.
    pub(crate) fn named_client(&self) -> Option<&str> {
        match self {
            Self::Client(pattern) => pattern.name(),
            _ => None,
        }
    }
}

/// A name in which each `*` stands for any text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Any text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// What it matches, if that is one name.
    fn name(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&self.0)
    }

    /// Whether it stands for a name. Takes time in proportion to the lengths of both.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return *self.0 == *name;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let inner = name
            .strip_prefix(first)
            .and_then(|name| name.strip_suffix(last));
        // The leftmost place of each part leaves the most room for the next.
        let end = middle.split('*').try_fold(inner, |left, part| {
            left?.split_once(part).map(|(_, right)| Some(right))
        });
        end.flatten().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let check = |pattern: &str, name: &str| Pattern::new(pattern).matches(name);
        for (pattern, name) in [
            ("*", ""),
            ("*", "a"),
            ("**", "a"),
            ("gw-*", "gw-"),
            ("gw-*", "gw-7"),
            ("*-7", "gw-7"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("a*a", "aa"),
            ("ä*ö", "äüö"),
            ("", ""),
        ] {
            assert!(check(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("gw-*", "gw"),
            ("gw-*", "xgw-1"),
            ("*-7", "gw-78"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("a*b*c", "ac"),
            ("ab", "abc"),
            ("", "a"),
        ] {
            assert!(!check(pattern, name), "{pattern} {name}");
        }
    }
}
