//! `/users`, `/groups`, `/rules`, `/people`, `/keys`, `/audit`, `/control`: who may log in and do what, changed while the cluster runs.
//!
//! Invariant: no answer, log line or event has a password, a hash or a secret, but the one answer to the request that has
//! generated the secret, and exports that an administrator asks for with secrets, which have hashes.
//!
//! `asked.rs`: what all changes have in common. `current.rs`: reads that have to see a change. `judge.rs`: what the store would say, and `effects.rs`: whom a change would
//! disconnect, for dry runs. `export.rs` and `import.rs`: all records as a document.

mod asked;
pub(super) mod audit;
mod current;
mod effects;
pub(super) mod export;
pub(super) mod groups;
pub(super) mod import;
mod judge;
pub(super) mod keys;
pub(super) mod people;
mod proof;
pub(super) mod rules;
pub(super) mod status;
pub(super) mod users;

pub(super) use asked::failed_change;
pub(super) use import::{IMPORT, LARGEST_IMPORT};
pub(super) use people::{hashed, long_enough};
pub(super) use rules::{LARGEST_RULES, RULES};
