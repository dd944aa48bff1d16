//! Rules of a user or a group: lines of the language of rule files without WHO.
//!
//! ```text
//! EFFECT ACTIONS [FILTER]…
//! allow  publish,subscribe  plants/%u/# eq:#
//! ```

use crate::file::{self, Mistake};
use crate::filter::Filter;
use crate::{Actions, Decision, Rule, Rules};

/// Words that name a client in a rule file.
const WHO: [&str; 4] = ["user", "client", "address", "anonymous"];

impl Rules {
    /// Reads the lines of a user or a group, which concern every client that has these rules. Empty lines, and lines that begin
    /// with `#`, are skipped, and count in the numbers of the lines.
    ///
    /// # Errors
    /// The first 100 mistakes, at least one: a line that is no rule, a line with WHO, or more than [`MAX_RULES`](crate::MAX_RULES)
    /// rules.
    pub fn from_lines<L: AsRef<str>>(
        lines: impl IntoIterator<Item = L>,
    ) -> Result<Self, Vec<Mistake>> {
        Self::read(lines, parse_line)
    }
}

fn parse_line(line: u32, text: &str) -> Result<Rule, String> {
    let mut words = file::words(text)?.into_iter().peekable();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let effect = file::effect(&next("allow or deny")?)?;
    let word = next("the action")?;
    if WHO.contains(&&*word) {
        return Err(format!(
            "{word:?} says who is concerned, which a rule of a user or a group does not: it is ACTIONS and filters"
        ));
    }
    let actions = file::actions(&word)?;
    // `allow all publish x` of a rule file would allow everything on the topics `publish` and `x`.
    if let Some(second) = words
        .peek()
        .filter(|second| word == "all" && Actions::parse(second).is_some())
    {
        return Err(format!(
            "remove \"all\" if {second:?} is the action; if it is a topic, write \"eq:{second}\""
        ));
    }
    let filters = words.map(|word| Filter::parse(&word));
    Ok(Rule {
        decision: Decision { effect, line },
        who: Box::default(),
        actions,
        filters: filters.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Client};

    fn mistake(line: &str) -> String {
        let mistakes = Rules::from_lines([line]).expect_err(line);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes[0].to_string()
    }

    #[test]
    fn lines_without_who_concern_every_client() {
        let rules = Rules::from_lines([
            "# the plant",
            "allow publish plants/%u/#",
            "",
            " deny all eq:all",
            "allow subscribe,retain",
        ])
        .unwrap();
        let line = |username, action, topic| {
            let client = Client {
                client_id: "c",
                username,
                address: None,
            };
            rules.decide(&client, action, topic).map(|made| made.line)
        };
        assert_eq!(line(Some("ann"), Action::Publish, "plants/ann/x"), Some(2));
        assert_eq!(line(Some("ann"), Action::Publish, "plants/bob/x"), None);
        assert_eq!(line(None, Action::Publish, "all"), Some(4));
        assert_eq!(line(None, Action::Receive, "x"), Some(5));
    }

    #[test]
    fn a_line_with_who_is_a_mistake() {
        for word in ["user ann", "client \"*\"", "address ::1", "anonymous"] {
            let found = mistake(&format!("allow {word} publish x"));
            assert!(found.contains("says who is concerned"), "{found}");
        }
        let found = mistake("allow all publish,subscribe x");
        assert_eq!(
            found,
            "line 1: remove \"all\" if \"publish,subscribe\" is the action; if it is a topic, write \"eq:publish,subscribe\""
        );
        assert!(Rules::from_lines(["allow all eq:publish", "allow all x"]).is_ok());
    }

    #[test]
    fn all_mistakes_are_found_with_their_lines() {
        let lines = [
            "allow",
            "permit publish",
            "allow publish a",
            "deny send x",
            "allow all a#",
        ];
        let mistakes = Rules::from_lines(lines).unwrap_err();
        let found: Vec<u32> = mistakes.iter().map(|mistake| mistake.line).collect();
        assert_eq!(found, [1, 2, 4, 5]);
        assert_eq!(mistakes[0].reason, "the action is missing");
        assert_eq!(Rules::from_lines(vec!["x"; 1_000]).unwrap_err().len(), 100);
        assert!(Rules::from_lines(vec!["allow all"; crate::MAX_RULES + 1]).is_err());
    }
}
