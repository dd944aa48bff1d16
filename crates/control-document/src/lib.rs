//! Users, groups, rules, people and keys as a document: what `heraldmq control export` writes and `import` reads, and what other brokers keep,
//! read as such a document.
//!
//! Invariants: a document has hashes, never a password or a secret; reading one fails with where it is wrong, and never has a hash in
//! the error.
//!
//! What another broker keeps is read by `import`, from text; what has no equal here is listed, with its place and the reason.
//!
//! Deliberately absent: the store (`store-state`), whether hashes can be read (`authentication`) and rules (`authorization`).
//!
//! `document.rs`: the document. `section.rs`: its lists. `yaml.rs`: its text. `convert.rs`, `people.rs`: entries from and to records. `plan.rs`: what a document changes of
//! records. `export.rs`: all records as a text, in parts.

#![forbid(unsafe_code)]

mod audit;
mod convert;
mod document;
mod export;
mod import;
mod imported;
mod people;
mod plan;
mod section;
mod yaml;

pub use audit::{
    AUDIT_FORMAT, AuditLine, Broken, FieldLine, Said, Verified, Verifier, hash_text, means_name,
    to_hex,
};
pub use convert::{Reading, Whose, Wrong};
pub use document::{Document, Format, GroupEntry, Removals, UserEntry};
pub use export::Export;
pub use import::{
    Digest, EmqxHash, ImportError, SaltPosition, TableFormat, dynsec, emqx, emqx_acl, emqx_users,
    mosquitto, mosquitto_acl, password_file,
};
pub use imported::{Imported, LeftOut};
pub use people::{KeyEntry, KeyIdEntry, KeySecretEntry, PersonEntry, RoleEntry};
pub use plan::{Counts, Mode, Plan, Step, What, plan};
pub use section::Section;
pub use yaml::NotRead;
