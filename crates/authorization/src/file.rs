//! The language of rule files: one rule a line.
//!
//! ```text
//! EFFECT WHO [and WHO]… ACTIONS [FILTER]…
//! allow  user "ann" and address 10.0.0.0/8  publish,subscribe  plants/# eq:#
//! ```

use std::fmt;

use config::Network;

use crate::filter::Filter;
use crate::who::{Condition, Pattern};
use crate::{Actions, Decision, Effect, Rule, Rules};

/// Rules that a file may have.
///
/// Limit: rules | {} in a file of {MAX_FILE_BYTES}; {login::MAX_LOGIN_RULES} with {login::MAX_LOGIN_BYTES} of filters
/// for a login | refused
pub const MAX_RULES: usize = 100_000;

/// The longest rule file, in bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Mistakes after which nobody reads on.
const MAX_MISTAKES: usize = 100;

/// What is wrong with a line of a rule file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// From 1.
    pub line: u32,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl Rules {
    /// Reads a rule file. Empty lines, and lines that begin with `#`, are skipped.
    ///
    /// # Errors
    /// The first 100 mistakes, at least one.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        if text.len() > MAX_FILE_BYTES {
            let reason = format!("the file is longer than {MAX_FILE_BYTES} bytes");
            return Err(vec![Mistake { line: 1, reason }]);
        }
        Self::read(text.lines(), parse_rule)
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Reads lines, each with `parse`, which gets its number from 1 on and its text without blanks around it.
    pub(crate) fn read<L: AsRef<str>>(
        lines: impl IntoIterator<Item = L>,
        parse: fn(u32, &str) -> Result<Rule, String>,
    ) -> Result<Self, Vec<Mistake>> {
        let mut rules = Self::default();
        let mut mistakes = Vec::new();
        for (line, text) in (1..).zip(lines) {
            let text = text.as_ref().trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            match parse(line, text) {
                _ if rules.rules.len() == MAX_RULES => {
                    let reason = format!("there are more than {MAX_RULES} rules");
                    mistakes.push(Mistake { line, reason });
                    break;
                }
                Ok(rule) => rules.push(rule),
                Err(reason) => mistakes.push(Mistake { line, reason }),
            }
            if mistakes.len() == MAX_MISTAKES {
                break;
            }
        }
        if mistakes.is_empty() {
            Ok(rules)
        } else {
            Err(mistakes)
        }
    }
}

fn parse_rule(line: u32, text: &str) -> Result<Rule, String> {
    let mut words = words(text)?.into_iter();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let effect = effect(&next("allow or deny")?)?;
    let mut who = Vec::new();
    let actions = loop {
        let word = next("who is concerned")?;
        who.extend(match &*word {
            "all" => None,
            "anonymous" => Some(Condition::Anonymous),
            "user" => Some(Condition::User(Pattern::new(&next("the user name")?))),
            "client" => Some(Condition::Client(Pattern::new(&next(
                "the client identifier",
            )?))),
            "address" => Some(Condition::Address(networks(&next("the address")?)?)),
            _ => {
                return Err(format!(
                    "{word:?} is none of all, user, client, address, anonymous"
                ));
            }
        });
        let word = next("the action")?;
        if word != "and" {
            break actions(&word)?;
        }
    };
    let filters = words.map(|word| Filter::parse(&word));
    Ok(Rule {
        decision: Decision { effect, line },
        who: who.into(),
        actions,
        filters: filters.collect::<Result<_, _>>()?,
    })
}

pub(crate) fn effect(word: &str) -> Result<Effect, String> {
    Effect::parse(word).ok_or_else(|| format!("{word:?} is neither allow nor deny"))
}

pub(crate) fn actions(word: &str) -> Result<Actions, String> {
    Actions::parse(word).ok_or_else(|| {
        format!(
            "{word:?} is not all, or some of publish, subscribe, subscribe-only, receive, retain"
        )
    })
}

fn networks(words: &str) -> Result<Box<[Network]>, String> {
    let network =
        |word: &str| Network::new(word).ok_or_else(|| format!("{word:?} is no address or network"));
    words.split(',').map(|word| network(word.trim())).collect()
}

/// The words of a line, which blanks separate. A word in double quotes may contain blanks, and `"` and `\`
/// with a `\` before them.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(end);
                (word.to_owned(), behind)
            }
        };
        if !behind.is_empty() && !behind.starts_with(char::is_whitespace) {
            return Err("there is no blank behind a closing quotation mark".to_owned());
        }
        words.push(word);
        rest = behind.trim_start();
    }
    Ok(words)
}

/// What stands before the closing quotation mark, and behind it.
fn unquote(quoted: &str) -> Result<(String, &str), String> {
    let mut word = String::new();
    let mut rest = quoted.chars();
    while let Some(character) = rest.next() {
        match character {
            '"' => return Ok((word, rest.as_str())),
            '\\' => word.extend(rest.next()),
            character => word.push(character),
        }
    }
    Err("a quotation mark is not closed".to_owned())
}
