//! Users, groups and rules as a document: what `heraldmq control export` writes and `import` reads, and what other brokers keep,
//! read as such a document.
//!
//! Invariants: a document has hashes, never a password or a secret; reading one fails with where it is wrong, and never has a hash in
//! the error.
//!
//! Deliberately absent: the store (`store-state`), whether hashes can be read (`authentication`) and rules (`authorization`).

#![forbid(unsafe_code)]

mod audit;
mod document;
mod imported;

pub use audit::{
    AUDIT_FORMAT, AuditLine, Broken, FieldLine, Said, Verified, Verifier, hash_text, means_name,
    to_hex,
};
pub use document::{Document, Format, GroupEntry, UserEntry};
pub use imported::{Imported, LeftOut};
