//! Who a client is: authenticators, and the chain they are asked in.
//!
//! Purpose: [`Authentication`] answers whether a client may connect, as whom, with which rules, and until
//! when.
//!
//! Invariants: an authenticator that fails denies; why is in the log, never in an answer to the client.
//! Secrets appear in no log, metric or debug output, and are compared in constant time. No caller is
//! blocked: answers come from the threads of this crate.
//!
//! Deliberately absent: what the client may do (`authorization`), and who is shut out for what he did
//! before (the broker's `guard`).

mod acl;
mod authenticator;
mod chain;
mod control_users;
mod failure_log;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hash_threads;
mod http;
mod jwt;
mod password_file;
mod password_hash;
mod person;
mod postgres;
mod salted_sha;
mod scram;
mod scram_keys;
mod service;
mod tls_identity;
mod users;

use std::fmt;

pub use password_hash::{StoredAs, WeakHashes, stored_as, stored_as_with};
pub use person::fits;
pub use service::Authentication;
pub use users::{EditError, Storage, Users, UsersError, UsersFileError, with_user, without_user};

/// Why authentication cannot be set up: which authenticator, and what is wrong.
#[derive(Debug)]
pub struct OpenError(String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}
