//! What goes into the audit besides changes of records.

use std::fmt;

use control::{AuditNote, Means};

/// Something that is in the audit as a sum: how often somebody has done it within a minute.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Often {
    /// What, such as `publish`.
    pub action: String,
    /// Who.
    pub name: String,
    /// How that was shown.
    pub means: Means,
    /// From where.
    pub address: Option<String>,
}

/// Who takes what is to be in the audit. Nothing here waits.
pub trait Trail: fmt::Debug + Send + Sync + 'static {
    /// The node that answers, as the audit names it.
    fn node(&self) -> control::Node;

    /// Adds what somebody has done, in a moment.
    fn note(&self, note: AuditNote);

    /// The same of what is counted.
    fn count(&self, often: Often);
}
