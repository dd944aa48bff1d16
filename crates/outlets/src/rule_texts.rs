//! The rules of an outlet, as the configuration has them.

use outlet_rules::Rules;
use serde::{Deserialize, Serialize};

/// The texts of the rules of an outlet, in the language jq.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuleTexts {
    /// Which messages go on; `None`: all.
    pub condition: Option<String>,
    /// What the target gets as payload; `None`: the payload.
    pub map: Option<String>,
}

impl RuleTexts {
    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.condition.is_none() && self.map.is_none()
    }

    /// `None`: there is none.
    pub(crate) fn compile(&self) -> Result<Option<Rules>, String> {
        let rules = Rules::compile(self.condition.as_deref(), self.map.as_deref());
        rules.map_err(|error| error.to_string())
    }
}
