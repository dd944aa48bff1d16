//! What clients may do: the rules of the node, those of each client, and the decisions that a loop
//! remembers.
//!
//! Invariants: deciding waits for nobody. A client for whom nothing is restricted costs one look, and no
//! memory.
//!
//! Deliberately absent: what rules say (`authorization`), and what becomes of what is denied
//! (`authorize.rs`).

use std::net::IpAddr;
use std::sync::Arc;

use authentication_api::Identity;
use authorization::{Action, Client, Decision, Effect, Rules};
use hashbrown::Equivalent;
use hashing::HashMap;

/// Decisions about longer topics are not remembered.
///
/// Limit: decisions that a loop remembers | {authorization.cacheEntries}, topics of {:bytes} | the older half is
/// forgotten; longer topics are judged each time
const REMEMBERED_TOPIC: usize = 256;

/// What the configuration says about rights.
#[derive(Clone, Debug)]
pub struct Authorization {
    rules: Arc<Rules>,
    /// Those of the control store for everybody, which come before those of the file.
    list: Arc<Rules>,
    no_match: Effect,
    /// Clients before 5.0 are disconnected for a publication that is denied.
    pub(crate) disconnects_v3: bool,
    /// Decisions that a loop remembers.
    pub(crate) remembered: usize,
    /// Whether anything but receiving could be denied to a client without rules of its own, …
    restricts: bool,
    /// … and whether receiving could.
    restricts_receive: bool,
}

impl Authorization {
    /// `no_match`: what happens when no rule says anything.
    pub fn new(no_match: Effect, disconnects_v3: bool, remembered: usize, rules: Rules) -> Self {
        let closed = no_match == Effect::Deny;
        Self {
            no_match,
            disconnects_v3,
            remembered,
            restricts: closed || !rules.is_empty(),
            restricts_receive: closed || rules.concern_receive(),
            rules: Arc::new(rules),
            list: Arc::default(),
        }
    }

    /// The same with these rules of the control store for everybody, in the place of those that there were.
    #[must_use]
    pub fn with_list(self, list: Arc<Rules>) -> Self {
        let closed = self.no_match == Effect::Deny;
        let all = [&self.rules, &list];
        Self {
            restricts: closed || all.iter().any(|rules| !rules.is_empty()),
            restricts_receive: closed || all.iter().any(|rules| rules.concern_receive()),
            list,
            ..self
        }
    }

    /// What is said of a client that nothing came with: the rules of the control store for everybody, those of the file, or
    /// what happens when none says anything.
    #[must_use]
    pub fn explain(&self, client: &Client<'_>, action: Action, topic: &str) -> Verdict {
        if let Some(decision) = self.list.decide(client, action, topic) {
            return Verdict::of(decision, DecidedBy::List);
        }
        let decision = self.rules.decide(client, action, topic);
        decision.map_or(
            Verdict {
                is_allowed: self.no_match == Effect::Allow,
                by: DecidedBy::NoMatch,
                line: None,
            },
            |decision| Verdict::of(decision, DecidedBy::File),
        )
    }

    /// What is said of a client that this comes with its login.
    #[must_use]
    pub fn explain_login(
        &self,
        identity: Identity,
        client_id: &str,
        address: Option<IpAddr>,
        (action, topic): (Action, &str),
    ) -> Verdict {
        Access::new(identity, address).explain(client_id, self, action, topic)
    }

    /// The rules of the file.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The rules of the control store for everybody.
    #[must_use]
    pub fn list(&self) -> &Arc<Rules> {
        &self.list
    }

    /// What happens when no rule says anything.
    #[must_use]
    pub fn no_match(&self) -> Effect {
        self.no_match
    }

    /// Whether an action could be denied to a client without rules of its own.
    pub(crate) fn restricts(&self, action: Action) -> bool {
        match action {
            Action::Receive => self.restricts_receive,
            Action::Publish | Action::Retain | Action::Subscribe => self.restricts,
        }
    }
}

/// What the rules say about a client's action, and what decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// What decides.
    pub by: DecidedBy,
    /// The rule's line in the file or the list, or its number among those of the login, from 1.
    pub line: Option<u32>,
}

/// What decides about a client's action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecidedBy {
    /// The login made the client one that may do everything.
    Superuser,
    /// A rule that came with the login.
    Login,
    /// A rule of the control store for everybody.
    List,
    /// A rule of the file.
    File,
    /// No rule says anything.
    NoMatch,
}

/// What decides about a client, beside the node's rules and its client identifier.
#[derive(Debug)]
pub(crate) struct Access {
    identity: Identity,
    address: Option<IpAddr>,
    /// What decisions about it are remembered by; 0: they are not.
    number: u64,
}

impl Access {
    pub(crate) fn new(identity: Identity, address: Option<IpAddr>) -> Self {
        Self {
            identity,
            address,
            number: 0,
        }
    }

    /// Whether what came with the login is what comes with this identity.
    pub(crate) fn has_rights_of(&self, identity: &Identity) -> bool {
        self.identity.is_superuser == identity.is_superuser && self.identity.rules == identity.rules
    }

    /// Whether an action could be denied.
    pub(crate) fn is_restricted(&self, node: &Authorization, action: Action) -> bool {
        let own = self.identity.rules.as_ref();
        let by_own = own.is_some_and(|own| action != Action::Receive || own.concern_receive());
        !self.identity.is_superuser && (by_own || node.restricts(action))
    }

    /// Whether a client may do something. For [`Action::Subscribe`] `topic` is a filter, without
    /// `$share/…/`.
    pub(crate) fn allows(
        &self,
        client_id: &str,
        node: &Authorization,
        action: Action,
        topic: &str,
    ) -> bool {
        self.explain(client_id, node, action, topic).is_allowed
    }

    /// The same with what decides.
    pub(crate) fn explain(
        &self,
        client_id: &str,
        node: &Authorization,
        action: Action,
        topic: &str,
    ) -> Verdict {
        if self.identity.is_superuser {
            return Verdict {
                is_allowed: true,
                by: DecidedBy::Superuser,
                line: None,
            };
        }
        let client = Client {
            client_id,
            username: self.identity.username.as_deref(),
            address: self.address,
        };
        let own = self.identity.rules.as_ref();
        match own.and_then(|rules| rules.decide(&client, action, topic)) {
            Some(decision) => Verdict::of(decision, DecidedBy::Login),
            None => node.explain(&client, action, topic),
        }
    }
}

impl Verdict {
    fn of(decision: Decision, by: DecidedBy) -> Self {
        Self {
            is_allowed: decision.effect == Effect::Allow,
            by,
            line: Some(decision.line),
        }
    }
}

/// The decisions that a loop remembers, in two halves: what is found in the old half moves to the young one;
/// when the young half is full, it becomes the old one, and what was in that is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    young: HashMap<Decided, bool>,
    old: HashMap<Decided, bool>,
    /// The number of the last access: none is used again.
    last: u64,
}

/// What was decided.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Decided {
    access: u64,
    action: Action,
    topic: Box<str>,
}

/// What is to be decided. Its hash is that of [`Decided`].
#[derive(Clone, Copy, Hash)]
struct Question<'a> {
    access: u64,
    action: Action,
    topic: &'a str,
}

impl Equivalent<Decided> for Question<'_> {
    fn equivalent(&self, decided: &Decided) -> bool {
        self.access == decided.access
            && self.action == decided.action
            && *self.topic == *decided.topic
    }
}

impl Decisions {
    /// An access whose decisions are to be remembered.
    pub(crate) fn access(&mut self, identity: Identity, address: Option<IpAddr>) -> Box<Access> {
        self.last += 1;
        Box::new(Access {
            number: self.last,
            ..Access::new(identity, address)
        })
    }

    /// As [`Access::allows`]. An access always asks with the same `client_id` and `node`, until
    /// [`Self::forget`].
    pub(crate) fn allows(
        &mut self,
        access: &Access,
        client_id: &str,
        node: &Authorization,
        action: Action,
        topic: &str,
    ) -> bool {
        let decide = || access.allows(client_id, node, action, topic);
        if access.number == 0 || topic.len() > REMEMBERED_TOPIC {
            return decide();
        }
        let question = Question {
            access: access.number,
            action,
            topic,
        };
        if let Some(allowed) = self.young.get(&question) {
            return *allowed;
        }
        let allowed = self.old.remove(&question).unwrap_or_else(decide);
        if self.young.len() >= node.remembered.div_ceil(2) {
            self.old = std::mem::take(&mut self.young);
        }
        let decided = Decided {
            access: access.number,
            action,
            topic: topic.into(),
        };
        self.young.insert(decided, allowed);
        allowed
    }

    /// The rules have changed.
    pub(crate) fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authorization::LoginRule;

    use super::*;

    fn node(no_match: Effect, rules: &str) -> Authorization {
        Authorization::new(no_match, false, 8, Rules::parse(rules).unwrap())
    }

    fn with_rules(rules: &[(&str, &str, &str)]) -> Identity {
        let rules = rules
            .iter()
            .map(|(effect, action, filter)| LoginRule::parse(effect, action, filter).unwrap());
        Identity {
            rules: Some(Arc::new(Rules::from_login(rules).unwrap())),
            ..Identity::default()
        }
    }

    #[test]
    fn own_rules_come_first_then_the_file_then_no_match() {
        let node = node(Effect::Deny, "allow all publish a\nallow all publish b");
        let own = with_rules(&[("deny", "publish", "a"), ("allow", "publish", "c")]);
        let superuser = Identity {
            is_superuser: true,
            ..own.clone()
        };
        let nobody = Identity::default();
        for (identity, allowed) in [(nobody, "ab"), (own, "bc"), (superuser, "abcd")] {
            let access = Access::new(identity, None);
            for topic in ["a", "b", "c", "d"] {
                let allows = access.allows("x", &node, Action::Publish, topic);
                assert_eq!(allows, allowed.contains(topic), "{access:?} {topic}");
            }
        }
    }

    #[test]
    fn a_verdict_names_what_decides() {
        let node = node(Effect::Deny, "allow all publish a\nallow all publish b");
        let own = with_rules(&[("deny", "publish", "a"), ("allow", "publish", "c")]);
        let superuser = Identity {
            is_superuser: true,
            ..own.clone()
        };
        use DecidedBy::{File, Login, NoMatch, Superuser};
        for (identity, topic, expected) in [
            (&own, "a", (false, Login, Some(1))),
            (&own, "b", (true, File, Some(2))),
            (&own, "c", (true, Login, Some(2))),
            (&own, "d", (false, NoMatch, None)),
            (&superuser, "d", (true, Superuser, None)),
        ] {
            let access = Access::new(identity.clone(), None);
            let said = access.explain("x", &node, Action::Publish, topic);
            let said = (said.is_allowed, said.by, said.line);
            assert_eq!(said, expected, "{topic}");
        }
    }

    #[test]
    fn the_list_comes_between_the_login_and_the_file() {
        let list = Rules::parse("deny all publish a\nallow all publish b").unwrap();
        let open = node(Effect::Allow, "allow all publish a\ndeny all publish c");
        let node = open.with_list(Arc::new(list));
        let own = with_rules(&[("allow", "publish", "own/#"), ("allow", "publish", "a")]);
        use DecidedBy::{File, List, Login, NoMatch};
        for (identity, topic, expected) in [
            (&Identity::default(), "a", (false, List, Some(1))),
            (&Identity::default(), "b", (true, List, Some(2))),
            (&Identity::default(), "c", (false, File, Some(2))),
            (&Identity::default(), "d", (true, NoMatch, None)),
            (&own, "a", (true, Login, Some(2))),
            (&own, "b", (true, List, Some(2))),
        ] {
            let said =
                Access::new(identity.clone(), None).explain("x", &node, Action::Publish, topic);
            let said = (said.is_allowed, said.by, said.line);
            assert_eq!(said, expected, "{topic}");
        }
    }

    #[test]
    fn a_list_restricts_as_a_file_does() {
        let list = |text: &str| Arc::new(Rules::parse(text).unwrap());
        let with = |text| node(Effect::Allow, "").with_list(list(text));
        assert!(with("deny all publish a").restricts(Action::Publish));
        assert!(!with("deny all publish a").restricts(Action::Receive));
        assert!(with("deny all receive a").restricts(Action::Receive));
        let again = with("deny all receive a").with_list(list(""));
        assert!(Action::ALL.iter().all(|action| !again.restricts(*action)));
    }

    #[test]
    fn only_what_could_be_denied_is_restricted() {
        let restricted = |no_match, rules: &str, identity: &Identity| {
            let node = node(no_match, rules);
            let access = Access::new(identity.clone(), None);
            Action::ALL.map(|action| access.is_restricted(&node, action))
        };
        let nobody = Identity::default();
        let own = with_rules(&[("deny", "publish", "a")]);
        let superuser = Identity {
            is_superuser: true,
            ..own.clone()
        };
        let publish = "deny all publish a";
        let but_receive = [true, true, true, false];
        use Effect::{Allow, Deny};
        assert_eq!(restricted(Allow, "", &nobody), [false; 4]);
        assert_eq!(restricted(Allow, publish, &nobody), but_receive);
        assert_eq!(
            restricted(Allow, "deny all subscribe a", &nobody),
            [true; 4]
        );
        assert_eq!(restricted(Deny, "", &nobody), [true; 4]);
        assert_eq!(restricted(Allow, "", &own), but_receive);
        assert_eq!(restricted(Deny, publish, &superuser), [false; 4]);
    }

    #[test]
    fn decisions_are_remembered_for_one_access_and_never_too_many() {
        let before = node(Effect::Deny, "allow client c publish #");
        let after = node(Effect::Deny, "");
        let mut decisions = Decisions::default();
        let first = decisions.access(Identity::default(), None);
        let second = decisions.access(Identity::default(), None);
        let long = "t".repeat(REMEMBERED_TOPIC + 1);
        for topic in ["t", &long] {
            assert!(decisions.allows(&first, "c", &before, Action::Publish, topic));
            assert!(!decisions.allows(&second, "d", &before, Action::Publish, topic));
            assert!(!decisions.allows(&first, "c", &before, Action::Subscribe, topic));
        }
        assert!(decisions.allows(&first, "c", &after, Action::Publish, "t"));
        assert!(!decisions.allows(&first, "c", &after, Action::Publish, &long));
        for number in 0..100 {
            let topic = format!("t/{number}");
            decisions.allows(&first, "c", &before, Action::Publish, &topic);
            // In use all the time, it is not forgotten.
            assert!(decisions.allows(&first, "c", &after, Action::Publish, "t"));
            assert!(decisions.young.len() + decisions.old.len() <= 8);
        }
        decisions.forget();
        assert!(!decisions.allows(&first, "c", &after, Action::Publish, "t"));
    }
}
