//! The name of a node, for people.

use std::fmt;

use crate::declare::Spec;
use crate::setting::{Setting, put};

/// What people call a node: 1 to 63 letters, digits, `-`, `_` and `.`. Nothing goes by it: nodes know each other by their
/// identifiers, and two may have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    const LONGEST: usize = 63;

    /// `None`: the text is no such name.
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=Self::LONGEST).contains(&text.len()) && text.bytes().all(is_allowed);
        fits.then(|| Self(text.to_owned()))
    }

    /// The name that a host's name makes: without what a name of a node may not have, and cut at its length.
    pub fn of_host(host: &str) -> Option<Self> {
        let kept = host
            .chars()
            .filter(|c| u8::try_from(*c).is_ok_and(is_allowed));
        Self::new(&kept.take(Self::LONGEST).collect::<String>())
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Setting for Option<NodeName> {
    fn take(&mut self, text: &str, _: &Spec) -> bool {
        put(
            self,
            if text.is_empty() {
                Some(None)
            } else {
                NodeName::new(text).map(Some)
            },
        )
    }
    fn show(&self, _: &Spec) -> Option<String> {
        self.as_ref().map(ToString::to_string)
    }
    fn expected(&self, _: &Spec) -> String {
        format!(
            "1 to {} letters, digits, `-`, `_` and `.`",
            NodeName::LONGEST
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["a", "mqtt-1.example_x", &"x".repeat(63)] {
            assert_eq!(
                NodeName::new(good).map(|name| name.0).as_deref(),
                Some(good)
            );
        }
        for bad in ["", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert_eq!(NodeName::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_hosts_name_is_cut_to_one() {
        let name = |host: &str| NodeName::of_host(host).map(|name| name.0);
        assert_eq!(name("rack 1\u{e4}").as_deref(), Some("rack1"));
        assert_eq!(name(&"x".repeat(80)), Some("x".repeat(63)));
        assert_eq!(name(" "), None);
    }
}
