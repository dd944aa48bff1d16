//! What other brokers keep, read as documents.
//!
//! Invariants: what a reader cannot express is left out and said, and an error or a remark never has a hash or a password in it. A
//! line of rules that comes out is one that `authorization` reads. Time and memory are proportional to the length of the text.
//!
//! Deliberately absent: files (a caller reads them, and limits their length), and whether a hash can be read (`authentication`).

mod dynsec;
mod emqx_acl;
mod emqx_users;
mod erlang;
mod json;
mod mosquitto_acl;
mod password_file;
mod words;

use std::fmt;

use crate::document::Document;
use crate::imported::{Imported, LeftOut};

pub use dynsec::dynsec;
pub use emqx_acl::emqx_acl;
pub use emqx_users::{Digest, EmqxHash, SaltPosition, TableFormat, emqx_users};
pub use mosquitto_acl::mosquitto_acl;
pub use password_file::password_file;

/// Why a file of another broker cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    /// Where: a line such as `line 3`, or a path such as `clients[3].roles`. In front of it, where several files are read at once,
    /// which file: `passwords, line 3`.
    pub at: String,
    /// What is wrong, without hashes and passwords.
    pub reason: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.reason)
    }
}

impl std::error::Error for ImportError {}

impl ImportError {
    fn new(at: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            reason: reason.into(),
        }
    }

    fn in_line(line: usize, reason: impl Into<String>) -> Self {
        Self::new(format!("line {line}"), reason)
    }

    fn of_file(mut self, name: &str) -> Self {
        self.at = format!("{name}, {}", self.at);
        self
    }
}

/// The password file and the access control list of Mosquitto, either or both: [`password_file`], then [`mosquitto_acl`] for its users.
/// Places begin with `passwords, ` or `acl, `.
///
/// # Errors
/// The first mistake of one of the files.
pub fn mosquitto(
    passwords: Option<&str>,
    acl: Option<&str>,
    accept_weak_hashes: bool,
) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    if let Some(text) = passwords {
        const NAME: &str = "passwords";
        let read = password_file(text, accept_weak_hashes).map_err(|error| error.of_file(NAME))?;
        imported.document = read.document;
        imported.note(NAME, read.left_out);
    }
    if let Some(text) = acl {
        const NAME: &str = "acl";
        let users = std::mem::take(&mut imported.document.users);
        let read = mosquitto_acl(text, users.into()).map_err(|error| error.of_file(NAME))?;
        imported.document = read.document;
        imported.note(NAME, read.left_out);
    }
    Ok(imported)
}

/// The users and the `acl.conf` of EMQX, either or both: [`emqx_users`] and [`emqx_acl`]. Places begin with `users, ` or `acl, `.
///
/// # Errors
/// The first mistake of one of the files.
pub fn emqx(
    users: Option<(&str, TableFormat, &EmqxHash)>,
    acl: Option<&str>,
    accept_weak_hashes: bool,
) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    if let Some((text, format, hash)) = users {
        const NAME: &str = "users";
        let read = emqx_users(text, format, hash, accept_weak_hashes);
        let read = read.map_err(|error| error.of_file(NAME))?;
        imported.document = read.document;
        imported.note(NAME, read.left_out);
    }
    if let Some(text) = acl {
        const NAME: &str = "acl";
        let read = emqx_acl(text).map_err(|error| error.of_file(NAME))?;
        imported.document = Document {
            rules: read.document.rules,
            ..imported.document
        };
        imported.note(NAME, read.left_out);
    }
    Ok(imported)
}

impl Imported {
    fn leave_out(&mut self, at: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(LeftOut {
            at: at.into(),
            why: why.into(),
        });
    }

    fn note(&mut self, file: &str, left_out: Vec<LeftOut>) {
        let of_file = left_out.into_iter().map(|left| LeftOut {
            at: format!("{file}, {}", left.at),
            why: left.why,
        });
        self.left_out.extend(of_file);
    }
}
