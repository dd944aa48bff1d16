//! `heraldmq user`, `user-group`, `rules`, `person`, `key`, `audit` and `control`: who may log in at a running broker and do what, by its
//! HTTP port.
//!
//! Invariant: a password is in no argument and on no terminal; a secret is printed only by the command that has it generated, and
//! hashes only by `control export --with-secrets`.
//!
//! Deliberately absent: what a record may hold, and whether rules are right; the broker says so. Files of passwords and rules; see
//! `passwd.rs` and `acl.rs`.

mod audit;
mod control;
mod export;
mod groups;
mod import;
mod keys;
mod people;
mod record;
mod rules;
mod users;

pub(crate) use audit::{AuditArguments, run as audit};
pub(crate) use control::{ControlArguments, run as control};
pub(crate) use groups::{UserGroupArguments, run as user_group};
pub(crate) use keys::{KeyArguments, run as key};
pub(crate) use people::{PersonArguments, run as person};
pub(crate) use rules::{RulesArguments, run as rules};
pub(crate) use users::{UserArguments, run as user};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 refused, or the node does not answer; 2 wrong command line; 3 not found; 5 somebody else has changed it meanwhile.";
