//! What a rule finds.

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) rule: String,
    /// A crate, a crate and a type, or `docs`.
    pub(super) place: String,
    /// File, line and what is wrong there.
    pub(super) text: String,
}
