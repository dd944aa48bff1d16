//! What somebody may do, and what knows it.

use control::Revision;

use super::Role;

/// What somebody may do who logs in with a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PersonStanding {
    /// The role.
    pub role: Role,
    /// Whether the audit may be read, whatever the role.
    pub audits: bool,
    /// Another password has to be chosen before anything else.
    pub must_change: bool,
    /// Logins before this revision of the control store do not count; 0 for people of a file.
    pub since: Revision,
    /// What knows the person.
    pub source: Source,
}

/// What knows somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file of this node, or nothing.
    File,
    /// The control store.
    Store,
}
