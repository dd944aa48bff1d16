//! Actions that change no record and are in the audit all the same: a drain, a ban, a login.

use serde::{Deserialize, Serialize};

use crate::by::By;
use crate::field::Field;
use crate::limit::{self, Invalid};
use crate::user::UnixMs;

/// Notes of one operation.
pub(crate) const MOST: usize = 512;
/// Fields of a note.
const FIELDS: usize = 16;

/// What somebody has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditNote {
    /// When it was done, by the clock of the node that was asked.
    pub at: UnixMs,
    /// Who has done it.
    pub by: By,
    /// What, such as `nodes.drain`.
    pub action: Box<str>,
    /// To what; empty: the action says it.
    pub target: Box<str>,
    /// What else is to be known.
    pub fields: Box<[Field]>,
}

impl AuditNote {
    /// Whether it can be kept.
    ///
    /// # Errors
    /// What is wrong with it first.
    pub fn check(&self) -> Result<(), Invalid> {
        self.by.check()?;
        limit::name("action", &self.action, limit::TEXT)?;
        limit::at_most("target", self.target.len(), limit::USER_NAME)?;
        limit::at_most("fields", self.fields.len(), FIELDS)?;
        for field in &self.fields {
            limit::name("field", &field.name, limit::TEXT)?;
            for value in [&field.before, &field.after].into_iter().flatten() {
                limit::at_most("field", value.len(), limit::LINE)?;
            }
        }
        Ok(())
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let fields = self.fields.iter();
        let fields =
            fields.map(|field| field.name.len() + text(&field.before) + text(&field.after));
        self.by.name.len() + self.action.len() + self.target.len() + fields.sum::<usize>()
    }
}
