//! What has become of what another broker keeps.

use crate::document::Document;

/// What was read of files of another broker.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Imported {
    /// The records.
    pub document: Document,
    /// What has no equal, in the order of the file: nothing of it is left out without a word.
    pub left_out: Vec<LeftOut>,
}

/// Something that was not taken over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Where it stands: a line, or a path such as `roles[3].acls[0]`.
    pub at: String,
    /// What it is, and why it is left out.
    pub why: String,
}
