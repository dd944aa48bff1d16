//! How long messages are retained, how many, and how many bytes.
//!
//! No replica goes by these: whoever leads a shard proposes what is removed ([`RetainOp::Remove`](super::RetainOp::Remove)).

use std::num::NonZero;

use mqtt_proto::filter_matches;

/// Which retained messages are kept. The first rule whose filter matches a topic is that of its message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetainedRules {
    /// The rules, in this order.
    pub rules: Vec<RetainedRule>,
    /// How long a message of no rule is kept, in ms; `None`: for ever.
    pub age_ms: Option<NonZero<u64>>,
}

/// How many messages of some topics are retained, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedRule {
    /// The topic filter. As in a subscription, `#` and `+` at its beginning do not match topics that begin with `$`.
    pub filter: Box<str>,
    /// What is kept.
    pub limits: RetainedLimits,
}

/// What is kept of the messages of a rule; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetainedLimits {
    /// How long a message is kept, in ms.
    pub age_ms: Option<NonZero<u64>>,
    /// Messages that a node keeps.
    pub messages: Option<NonZero<u64>>,
    /// Accounted bytes of the messages that a node keeps.
    pub bytes: Option<NonZero<u64>>,
}

/// Before topics between the broker and its outlets.
const INTERNAL: &str = "$hmq/";

impl RetainedRules {
    /// Whether a topic is in no rule, and its message is kept for ever: people have not published it, and a pause of an outlet that
    /// ended by its age would end unseen.
    #[must_use]
    pub fn is_exempt(topic: &str) -> bool {
        topic.starts_with(INTERNAL)
    }

    /// Whether all messages are kept.
    #[must_use]
    pub fn keep_all(&self) -> bool {
        let has_limits = |rule: &RetainedRule| rule.limits != RetainedLimits::default();
        self.age_ms.is_none() && !self.rules.iter().any(has_limits)
    }

    /// The place of the rule of a topic among [`RetainedRules::rules`]; that behind the last one: it has none.
    #[must_use]
    pub fn place_of(&self, topic: &str) -> usize {
        let mut filters = self.rules.iter();
        let found = filters.position(|rule| filter_matches(&rule.filter, topic));
        found.unwrap_or(self.rules.len())
    }

    /// What the rule at a place keeps.
    #[must_use]
    pub fn limits_at(&self, place: usize) -> RetainedLimits {
        let own = self.rules.get(place).map(|rule| rule.limits);
        own.unwrap_or(RetainedLimits {
            age_ms: self.age_ms,
            ..RetainedLimits::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rule = |filter: &str, age| RetainedRule {
            filter: filter.into(),
            limits: RetainedLimits {
                age_ms: NonZero::new(age),
                ..RetainedLimits::default()
            },
        };
        let rules = RetainedRules {
            rules: vec![rule("a/+", 0), rule("a/#", 5), rule("#", 7)],
            age_ms: NonZero::new(9),
        };
        let age = |topic| rules.limits_at(rules.place_of(topic)).age_ms;
        assert_eq!(age("a/b"), None, "a rule without limits keeps all");
        assert_eq!(age("a/b/c"), NonZero::new(5));
        assert_eq!(age("x"), NonZero::new(7));
        assert_eq!(age("$x/y"), NonZero::new(9));
        assert!(RetainedRules::is_exempt("$hmq/outlet/lake/paused"));
        assert!(!RetainedRules::is_exempt("$hmqx") && !RetainedRules::is_exempt("hmq/x"));
        assert!(!rules.keep_all());
        let none = RetainedRules {
            rules: vec![rule("a/+", 0)],
            age_ms: None,
        };
        assert!(none.keep_all());
    }
}
