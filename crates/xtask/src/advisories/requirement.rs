//! Requirements on versions, as Cargo has them: `>= 0.8.6, < 0.9.0`.
//!
//! Deliberately absent: `~`, `*` and the rule that a version before a release only meets a requirement that names one: for
//! advisories such a version is as good as its number.

use std::str::FromStr;

use crate::version::Version;

/// Comparisons, all of which a version has to meet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirement(Vec<(Comparison, Version)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    AtMost,
    Above,
    Below,
    Exactly,
    Compatible,
}

/// Longer ones first.
const COMPARISONS: &[(&str, Comparison)] = &[
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
    ("=", Comparison::Exactly),
    ("^", Comparison::Compatible),
    ("", Comparison::Compatible),
];

impl Requirement {
    pub(crate) fn is_met_by(&self, version: &Version) -> bool {
        self.0.iter().all(|(comparison, bound)| match comparison {
            Comparison::AtLeast => version >= bound,
            Comparison::AtMost => version <= bound,
            Comparison::Above => version > bound,
            Comparison::Below => version < bound,
            Comparison::Exactly => version == bound,
            Comparison::Compatible => version >= bound && *version < bound.next_incompatible(),
        })
    }
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let comparison = |part: &str| {
            let part = part.trim();
            COMPARISONS.iter().find_map(|(sign, comparison)| {
                let version = part.strip_prefix(sign)?.trim();
                Some(version.parse().map(|version| (*comparison, version)))
            })
        };
        let parts = text.split(',').filter_map(comparison);
        parts.collect::<Result<_, String>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_is_met_as_cargo_has_it() {
        for (requirement, meets, fails) in [
            (">= 0.16.3", "0.16.3 0.17.0 1.0.0", "0.16.2 0.9.0"),
            ("< 0.10.0, >= 0.9.3", "0.9.3 0.9.10", "0.9.2 0.10.0 1.0.0"),
            ("<= 0.5.11", "0.5.11 0.4.0", "0.5.12"),
            ("> 1", "1.0.1 2.0.0", "1.0.0 0.9.0"),
            ("= 0.12.0", "0.12.0", "0.12.1"),
            ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"),
            ("0.3.7", "0.3.7 0.3.9", "0.4.0 0.3.6"),
            ("0.0.3", "0.0.3", "0.0.4"),
            (
                ">= 0.103.13, < 0.104.0-alpha.1",
                "0.103.16",
                "0.104.0-alpha.2 0.104.0",
            ),
            (">= 1.0.0", "1.0.0+build", "1.0.0-rc.1"),
        ] {
            let parsed: Requirement = requirement.parse().expect(requirement);
            for (versions, expect) in [(meets, true), (fails, false)] {
                for text in versions.split(' ') {
                    let version = text.parse().expect(text);
                    assert_eq!(parsed.is_met_by(&version), expect, "{text}: {requirement}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_requirement_is_an_error() {
        for text in ["", "~ 1.2", "*", ">= one", "1.2.3.4", ">= 1.0,"] {
            assert!(text.parse::<Requirement>().is_err(), "{text}");
        }
    }
}
