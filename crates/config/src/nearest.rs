//! The known name nearest to a mistyped one.

use crate::problem::Nearest;

/// Longest name that is compared, in characters; what is longer is no mistyping, and comparing it
/// would take long.
const LONGEST: usize = 128;

/// Finds the entry of `known` nearest to `unknown`; both are paths with `.` between their parts.
///
/// A name in the same group comes first, since that is where typing errors happen; then one that
/// has the same last part in another group, for keys put in the wrong place.
pub(crate) fn nearest(unknown: &str, known: &[&str]) -> Nearest {
    let case = known.iter().find(|name| name.eq_ignore_ascii_case(unknown));
    if let Some(name) = case {
        return Nearest::OtherCase((*name).to_owned());
    }
    let clipped: String = unknown.chars().take(LONGEST).collect();
    let unknown = clipped.as_str();
    let (group, last) = split(unknown);
    let rank = |name: &str| {
        let (other_group, other_last) = split(name);
        let edits = distance(last, other_last);
        let near = edits <= tolerance(last);
        let step = match (other_group == group, near, edits == 0) {
            (true, true, _) => 0,
            (false, _, true) => 1,
            _ if distance(unknown, name) <= tolerance(unknown) => 2,
            (_, true, _) => 3,
            _ => 4,
        };
        (step, distance(unknown, name))
    };
    match known.iter().map(|name| (rank(name), *name)).min() {
        Some(((4, _), name)) => Nearest::Remote(name.to_owned()),
        Some((_, name)) => Nearest::Similar(name.to_owned()),
        None => Nearest::Remote(String::new()),
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// Letter case does not count: it is the cheapest mistake of all.
fn distance(one: &str, two: &str) -> usize {
    strsim::damerau_levenshtein(&one.to_ascii_lowercase(), &two.to_ascii_lowercase())
}

/// How many edits still look like a mistyping.
fn tolerance(text: &str) -> usize {
    (text.chars().count() / 3).clamp(1, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "dataDir",
        "limits",
        "limits.connection",
        "limits.connection.receiveMaximum",
        "limits.node.connections",
        "mqtt.maximumQos",
    ];

    fn check(unknown: &str, expect: Nearest) {
        assert_eq!(nearest(unknown, &KNOWN), expect, "{unknown}");
    }

    #[test]
    fn a_mistyped_name_is_found_in_its_group() {
        check(
            "limits.conection",
            Nearest::Similar("limits.connection".to_owned()),
        );
        check("limit", Nearest::Similar("limits".to_owned()));
    }

    #[test]
    fn a_name_in_the_wrong_group_is_found_by_its_last_part() {
        check("maximumQos", Nearest::Similar("mqtt.maximumQos".to_owned()));
        check(
            "limits.node.maximumqos",
            Nearest::Similar("mqtt.maximumQos".to_owned()),
        );
    }

    #[test]
    fn only_letter_case_is_said_to_be_so() {
        check("datadir", Nearest::OtherCase("dataDir".to_owned()));
    }

    #[test]
    fn something_is_named_even_if_nothing_is_near() {
        check("xyzzy", Nearest::Remote("limits".to_owned()));
    }
}
