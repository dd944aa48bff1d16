//! What a client may do: rules, and which of them decides.
//!
//! Purpose: [`Rules`] reads a rule file (or rules that came with a login) and decides about a client's
//! action on a topic. The first rule that matches decides.
//!
//! Invariants: pure; deciding allocates nothing and takes time in proportion to the rules that could
//! concern the client. A file with any mistake is refused as a whole, with the line of each.
//!
//! Deliberately absent: reading files, remembering decisions (the broker's loops do), users and passwords.
//!
//! `file.rs`: the language of rule files. `lines.rs`: the same without WHO. `text.rs`: rules as text in it. `login.rs`: rules that come with a
//! login. `who.rs`: whom a rule concerns. `filter.rs`: which topics.

mod action;
mod file;
mod filter;
mod lines;
mod login;
mod text;
mod who;

use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;

pub use action::{Action, Actions};
pub use file::{MAX_FILE_BYTES, MAX_RULES, Mistake};
pub use login::{LoginRule, MAX_LOGIN_BYTES, MAX_LOGIN_RULES};
pub use who::Pattern;

use filter::Filter;
use who::Condition;

/// Who wants to do something.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Client identifier.
    pub client_id: &'a str,
    /// User name that authentication has confirmed, if any.
    pub username: Option<&'a str>,
    /// Where it connects from; `None` for a Unix domain socket.
    pub address: Option<IpAddr>,
}

/// What a rule says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The action is allowed.
    Allow,
    /// The action is denied.
    Deny,
}

impl Effect {
    /// The word for it in rules.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Allow, Self::Deny]
            .into_iter()
            .find(|effect| effect.as_str() == word)
    }
}

/// A rule that decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What it says.
    pub effect: Effect,
    /// Its line in the file, or its number among the rules of a login; from 1.
    pub line: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    decision: Decision,
    /// All must hold.
    who: Box<[Condition]>,
    actions: Actions,
    /// One must cover the topic. None: all topics.
    filters: Box<[Filter]>,
}

impl Rule {
    fn concerns(&self, client: &Client<'_>) -> bool {
        self.who.iter().all(|condition| condition.holds(client))
    }

    fn matches(&self, client: &Client<'_>, action: Action, topic: &str) -> bool {
        self.actions.contains(action)
            && self.concerns(client)
            && (self.filters.is_empty() || self.filters.iter().any(|f| f.covers(client, topic)))
    }
}

/// Rules in the order in which they count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Places in `rules`, ascending. A rule stands in one of the three: by the user it names, else by the
    /// client it names, else here.
    anybody: Vec<u32>,
    by_user: HashMap<Box<str>, Vec<u32>>,
    by_client: HashMap<Box<str>, Vec<u32>>,
    concern_receive: bool,
}

impl Rules {
    fn push(&mut self, rule: Rule) {
        let place = self.rules.len() as u32;
        self.concern_receive |= rule.actions.contains(Action::Receive);
        let user = rule.who.iter().find_map(Condition::named_user);
        let client = rule.who.iter().find_map(Condition::named_client);
        let places = match (user, client) {
            (Some(user), _) => self.by_user.entry(user.into()).or_default(),
            (None, Some(client)) => self.by_client.entry(client.into()).or_default(),
            (None, None) => &mut self.anybody,
        };
        places.push(place);
        self.rules.push(rule);
    }

    /// Which rule decides; `None`: none of them concerns this.
    ///
    /// For [`Action::Subscribe`] `topic` is a topic filter, without `$share/…/`: a rule matches if its
    /// filter covers all of that.
    #[must_use]
    pub fn decide(&self, client: &Client<'_>, action: Action, topic: &str) -> Option<Decision> {
        let mut candidates = self.candidates(client);
        candidates
            .find(|rule| rule.matches(client, action, topic))
            .map(|rule| rule.decision)
    }

    /// The rules whose conditions hold for a client, in the order in which they count: the line of each, and its
    /// text as a rule file has it.
    pub fn concerning<'a>(
        &'a self,
        client: &'a Client<'a>,
    ) -> impl Iterator<Item = (u32, String)> + 'a {
        let concerning = self.candidates(client).filter(|rule| rule.concerns(client));
        concerning.map(|rule| (rule.decision.line, rule.to_string()))
    }

    /// The rules that could concern a client, by the names that they are indexed by.
    fn candidates<'a>(&'a self, client: &Client<'_>) -> impl Iterator<Item = &'a Rule> + 'a {
        let mut places = [
            named(&self.by_user, client.username),
            named(&self.by_client, Some(client.client_id)),
            self.anybody.as_slice(),
        ];
        iter::from_fn(move || self.rules.get(take_first(&mut places)? as usize))
    }

    /// Whether any rule could concern [`Action::Receive`]: if not, deliveries need no look at the rules.
    #[must_use]
    pub fn concern_receive(&self) -> bool {
        self.concern_receive
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The rules for one name.
fn named<'a>(index: &'a HashMap<Box<str>, Vec<u32>>, name: Option<&str>) -> &'a [u32] {
    let places = name.and_then(|name| index.get(name));
    places.map_or(&[], Vec::as_slice)
}

/// Takes the lowest of the numbers that several ascending lists begin with.
fn take_first(lists: &mut [&[u32]]) -> Option<u32> {
    let list = lists
        .iter_mut()
        .filter(|list| !list.is_empty())
        .min_by_key(|list| list.first().copied())?;
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(*first)
}

#[cfg(test)]
mod tests;
