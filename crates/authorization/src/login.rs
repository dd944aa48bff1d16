//! Rules that come with a login: claims of a token, a server's answer, rows of a database.

use crate::filter::Filter;
use crate::{Actions, Decision, Effect, Rule, Rules};

/// Rules that may come with a login.
pub const MAX_LOGIN_RULES: usize = 10_000;

/// Bytes that the filters of a login's rules may have together.
pub const MAX_LOGIN_BYTES: usize = 1 << 20;

/// A rule about the client that logs in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginRule {
    /// What it says.
    pub effect: Effect,
    /// About what.
    pub actions: Actions,
    /// The topics, as in a rule file: also with `%c`, `%u` and `eq:`.
    pub filter: String,
}

impl LoginRule {
    /// Reads `allow` or `deny`, and actions as in a rule file (`publish`, `subscribe`, `all`, …).
    ///
    /// # Errors
    /// Which word is unknown.
    pub fn parse(permission: &str, action: &str, filter: &str) -> Result<Self, String> {
        let effect = Effect::parse(permission)
            .ok_or_else(|| format!("the permission {permission:?} is neither allow nor deny"))?;
        let actions =
            Actions::parse(action).ok_or_else(|| format!("the action {action:?} is unknown"))?;
        Ok(Self {
            effect,
            actions,
            filter: filter.to_owned(),
        })
    }
}

impl Rules {
    /// Makes rules for one client, in their order.
    ///
    /// # Errors
    /// The first filter that is none, or too many rules.
    pub fn from_login(rules: impl IntoIterator<Item = LoginRule>) -> Result<Self, String> {
        let mut made = Self::default();
        let mut bytes = 0;
        for (line, rule) in (1..).zip(rules) {
            bytes += rule.filter.len();
            if made.rules.len() == MAX_LOGIN_RULES || bytes > MAX_LOGIN_BYTES {
                return Err(format!(
                    "more than {MAX_LOGIN_RULES} rules, or {MAX_LOGIN_BYTES} bytes of topic filters"
                ));
            }
            let filter =
                Filter::parse(&rule.filter).map_err(|reason| format!("rule {line}: {reason}"))?;
            let effect = rule.effect;
            made.push(Rule {
                decision: Decision { effect, line },
                who: Box::default(),
                actions: rule.actions,
                filters: Box::new([filter]),
            });
        }
        Ok(made)
    }

    /// The same rules, and a last one that denies everything that none of them allows or denies, whatever the
    /// topic begins with.
    #[must_use]
    pub fn or_deny(mut self) -> Self {
        let line = self.rules.len() as u32 + 1;
        let effect = Effect::Deny;
        self.push(Rule {
            decision: Decision { effect, line },
            who: Box::default(),
            actions: Actions::ALL,
            filters: Box::default(),
        });
        self
    }
}
