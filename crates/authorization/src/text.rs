//! Rules as text, in the language of rule files.
//!
//! Invariant: what is written is read as the same rule.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::action::SUBSCRIBE_ONLY;
use crate::filter::Filter;
use crate::who::Condition;
use crate::{Action, Actions, Rule};

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.decision.effect.as_str())?;
        if self.who.is_empty() {
            f.write_str(" all")?;
        }
        for (n, condition) in self.who.iter().enumerate() {
            f.write_str(if n == 0 { " " } else { " and " })?;
            condition.fmt(f)?;
        }
        write!(f, " {}", self.actions)?;
        for filter in &self.filters {
            f.write_char(' ')?;
            filter.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Actions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("all");
        }
        // `publish` and `subscribe` are words for two actions each.
        let is_meant = |action: &Action| match action {
            Action::Publish | Action::Subscribe => self.contains(*action),
            Action::Retain => self.contains(*action) && !self.contains(Action::Publish),
            Action::Receive => self.contains(*action) && !self.contains(Action::Subscribe),
        };
        for (n, action) in Action::ALL.iter().filter(|one| is_meant(one)).enumerate() {
            f.write_str(if n == 0 { "" } else { "," })?;
            f.write_str(match action {
                Action::Subscribe if !self.contains(Action::Receive) => SUBSCRIBE_ONLY,
                action => action.as_str(),
            })?;
        }
        Ok(())
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(pattern) => write!(f, "user {}", Quoted(pattern.text())),
            Self::Client(pattern) => write!(f, "client {}", Quoted(pattern.text())),
            Self::Address(networks) => {
                f.write_str("address ")?;
                for (n, network) in networks.iter().enumerate() {
                    write!(f, "{}{network}", if n == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        // A word without blanks needs no quotation marks.
        if text.starts_with('"') || text.contains(char::is_whitespace) {
            return Quoted(&text).fmt(f);
        }
        f.write_str(&text)
    }
}

/// A word in quotation marks.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            if matches!(character, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(character)?;
        }
        f.write_char('"')
    }
}
