//! Groups of users, and the rules that hold for everybody.

use serde::{Deserialize, Serialize};

use crate::limit::{self, Invalid};

/// Which of the groups of a user comes first: the one with the larger number, and of those with the same the one whose name
/// comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct Priority(pub i32);

/// Rules that several users have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its place among the groups of a user.
    pub priority: Priority,
    /// Lines of the rule language without WHO.
    pub rules: Box<[Box<str>]>,
    /// Groups whose rules follow its own, in order. What these include does not count.
    pub includes: Box<[Box<str>]>,
    /// The class of clients of its users that have none of their own.
    pub class: Option<Box<str>>,
    /// For people.
    pub note: Box<str>,
}

/// The rules that hold for everybody who is not judged by those of a user or a group: lines of the rule language.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RuleList(pub Box<[Box<str>]>);

impl Group {
    /// Whether it can be kept under a name.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self, name: &str) -> Result<(), Invalid> {
        limit::name("name", name, limit::GROUP_NAME)?;
        limit::lines(&self.rules, limit::LINES)?;
        limit::groups("includes", &self.includes)?;
        if self.includes.iter().any(|group| **group == *name) {
            let what = "a group cannot include itself".to_owned();
            return Err(Invalid {
                field: "includes".into(),
                what,
            });
        }
        if let Some(class) = &self.class {
            limit::name("class", class, limit::TEXT)?;
        }
        limit::at_most("note", self.note.len(), limit::TEXT)?;
        limit::at_most("group", self.bytes(name), limit::RECORD)
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self, name: &str) -> usize {
        let texts = self.rules.iter().chain(&self.includes).chain(&self.class);
        let texts = texts.chain([&self.note]).map(|text| text.len());
        name.len() + texts.sum::<usize>()
    }
}

impl RuleList {
    /// Whether it can be kept.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self) -> Result<(), Invalid> {
        limit::lines(&self.0, limit::LIST_LINES)?;
        limit::at_most("rules", self.bytes(), limit::LIST)
    }

    /// Bytes of its lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|line| line.len()).sum()
    }
}
