//! What administrators change while a cluster runs: users, groups, the rules that hold for everybody, and the people and keys that may
//! do so.
//!
//! Purpose: the records as they stand in log entries and tables, what they may hold, what a change of them is, and the audit
//! of changes.
//!
//! Invariants: a record holds text and hashes, never a password or a secret; what a node makes of it (compiled rules, parsed
//! hashes) is nothing that replicas have to agree on. Whatever [`check`](User::check) lets pass is bounded. Formats are part
//! of logs: a field is only added behind the others, by a level.
//!
//! Deliberately absent: applying changes (`store-state`), judging logins (`authentication`) and rules (`authorization`).
//!
//! Read next: [`Change`], then [`User`].

#![forbid(unsafe_code)]

mod audit;
mod by;
mod change;
mod field;
mod group;
mod limit;
mod note;
mod number;
mod person;
mod stored;
mod user;

pub use audit::{Audited, ChainHash, EntryNumber, Recorded, Subject};
pub use by::{Address, By, Means};
pub use change::{Change, Expect, Put, Reason, Refused, Target, check, check_notes};
pub use field::Field;
pub use group::{Group, Priority, RuleList};
pub use limit::{Bounds, Invalid};
pub use note::AuditNote;
pub use number::{ChangeId, Count, Incarnation, Node, Revision};
pub use person::{ApiKey, KeyId, KeySecret, Person, Role};
pub use stored::{
    Changed, GroupsByName, KeysById, Named, PeopleByName, Records, Stored, UsersByName,
};
pub use user::{Hash, UnixMs, User, Verifier};
