//! How many findings of a rule a place may have: a number that only gets lower.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::finding::Finding;

/// Where the numbers are.
pub(super) const RATCHET: &str = "crates/xtask/ratchet.csv";

/// So many findings are shown one by one where a place has too many; more are named by the command that lists them.
const SHOWN: usize = 10;

/// Numbers by rule and place; none stands for 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ratchet(BTreeMap<(String, String), usize>);

impl Ratchet {
    /// The numbers of these findings.
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut counts = BTreeMap::new();
        for finding in findings {
            *counts
                .entry((finding.rule.clone(), finding.place.clone()))
                .or_default() += 1;
        }
        Self(counts)
    }

    /// Reads lines of rule, place and number, below a line of names.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut counts = BTreeMap::new();
        for (index, line) in text.lines().enumerate().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let row = match cells.as_slice() {
                [rule, place, count] => count.parse().ok().map(|count| (rule, place, count)),
                _ => None,
            };
            let Some((rule, place, count)) = row else {
                let line = index + 1;
                return Err(format!(
                    "{RATCHET}:{line}: a rule, a place and a number are expected\n"
                ));
            };
            counts.insert(((*rule).to_owned(), (*place).to_owned()), count);
        }
        Ok(Self(counts))
    }

    pub(super) fn render(&self) -> String {
        let mut text = "rule,place,count\n".to_owned();
        for ((rule, place), count) in &self.0 {
            let _ = writeln!(text, "{rule},{place},{count}");
        }
        text
    }

    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// The lower of both numbers everywhere.
    pub(super) fn lowered(&self, today: &Self) -> Self {
        let lower = self.0.iter().filter_map(|(key, allowed)| {
            let count = today.0.get(key).copied().unwrap_or(0).min(*allowed);
            (count > 0).then(|| (key.clone(), count))
        });
        Self(lower.collect())
    }

    /// What differs, a line each.
    pub(super) fn compare(&self, findings: &[Finding]) -> Vec<String> {
        let today = Self::of(findings);
        let mut wrong = Vec::new();
        let mut keys: Vec<&(String, String)> = self.0.keys().chain(today.0.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (rule, place) = key;
            let allowed = self.0.get(key).copied().unwrap_or(0);
            let count = today.0.get(key).copied().unwrap_or(0);
            if count < allowed {
                wrong.push(format!(
                    "{rule} in {place}: {count}, and the ratchet says {allowed}; lower it: cargo run -p xtask -- check --update"
                ));
            } else if count > allowed {
                let mut here = findings
                    .iter()
                    .filter(|finding| finding.rule == *rule && finding.place == *place);
                if allowed == 0 && count <= SHOWN {
                    wrong.extend(here.map(|finding| format!("{rule}: {}", finding.text)));
                } else {
                    // Where some are known, nothing tells which one is new.
                    let example = here.next().filter(|_| allowed == 0);
                    let example =
                        example.map_or(String::new(), |finding| format!("; one: {}", finding.text));
                    wrong.push(format!(
                        "{rule} in {place}: {count}, at most {allowed}{example}; all of them: cargo run -p xtask -- check --list '{rule}' '{place}'"
                    ));
                }
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text = "rule,place,count\nb,a,2\nc d,docs,1\n";
        let ratchet = Ratchet::parse(text).expect("it is one");
        assert_eq!(ratchet.render(), text);
        assert_eq!(ratchet.total(), 3);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for line in ["a,b", "a,b,c", "a,b,1,2", "a,b,-1"] {
            let outcome = Ratchet::parse(&format!("rule,place,count\n{line}\n"));
            assert!(
                outcome.is_err_and(|error| error.contains("csv:2:")),
                "{line}"
            );
        }
    }

    fn found(rule: &str, place: &str, count: usize) -> Vec<Finding> {
        let finding = |number| Finding {
            rule: rule.to_owned(),
            place: place.to_owned(),
            text: format!("b.rs:{number}"),
        };
        (1..=count).map(finding).collect()
    }

    #[test]
    fn a_place_of_crate_and_type_is_read_and_named() {
        let ratchet = Ratchet::parse("rule,place,count\nmethods,a B,11\n").expect("it is one");
        let command = "all of them: cargo run -p xtask -- check --list 'methods' 'a B'";
        assert_eq!(ratchet.compare(&found("methods", "a B", 11)), [""; 0]);
        assert_eq!(
            ratchet.compare(&found("methods", "a B", 12)),
            [format!("methods in a B: 12, at most 11; {command}")]
        );
        assert_eq!(
            ratchet.compare(&found("methods", "a B", 10)),
            [
                "methods in a B: 10, and the ratchet says 11; lower it: cargo run -p xtask -- check --update"
            ]
        );
    }

    #[test]
    fn what_is_new_and_much_is_shown_by_one() {
        let none = Ratchet::parse("rule,place,count\n").expect("it is one");
        assert_eq!(
            none.compare(&found("a", "b", 11)),
            [
                "a in b: 11, at most 0; one: b.rs:1; all of them: cargo run -p xtask -- check --list 'a' 'b'"
            ]
        );
        assert_eq!(
            none.compare(&found("a", "b", 2)),
            ["a: b.rs:1", "a: b.rs:2"]
        );
    }

    #[test]
    fn the_lower_number_stays() {
        let ratchet = Ratchet::parse("rule,place,count\na,x,2\nb,x,2\nc,x,2\n").expect("it is one");
        let today = Ratchet::parse("rule,place,count\na,x,1\nb,x,3\nd,x,1\n").expect("it is one");
        assert_eq!(
            ratchet.lowered(&today).render(),
            "rule,place,count\na,x,1\nb,x,2\n"
        );
    }
}
