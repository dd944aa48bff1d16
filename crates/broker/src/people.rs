//! The people of a file who may use the HTTP API with a user name and a password.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use admin::{People, Role};
use authentication::{Users, UsersFileError};
use config::HttpConfig;

/// Users of `http.userFile`, and the roles of `http.operators` and `http.administrators`; the others are viewers.
pub(crate) struct ConfiguredPeople {
    users: Users,
    operators: BTreeSet<String>,
    administrators: BTreeSet<String>,
}

impl ConfiguredPeople {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or it has not all users that the configuration gives a role.
    pub(crate) fn read(path: &Path, config: &HttpConfig) -> Result<Self, ReadError> {
        let people = Self {
            users: Users::read_file(path).map_err(ReadError::File)?,
            operators: config.operators.iter().cloned().collect(),
            administrators: config.administrators.iter().cloned().collect(),
        };
        let mut named = people.operators.iter().chain(&people.administrators);
        match named.find(|user| !people.users.has(user)) {
            Some(user) => Err(ReadError::NoUser(user.clone())),
            None => Ok(people),
        }
    }
}

/// Why the users cannot be used.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file cannot be.
    File(UsersFileError),
    /// A role is given to somebody whom the file does not have.
    NoUser(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoUser(user) => write!(
                f,
                "http.operators or http.administrators names {user:?}, whom it does not have"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl People for ConfiguredPeople {
    fn role(&self, user: &str) -> Option<Role> {
        let role = match user {
            user if self.administrators.contains(user) => Role::Administrator,
            user if self.operators.contains(user) => Role::Operator,
            _ => Role::Viewer,
        };
        self.users.has(user).then_some(role)
    }

    fn all(&self) -> Vec<(String, Role)> {
        let names = self.users.names();
        let with_role = names.filter_map(|name| Some((name.to_owned(), self.role(name)?)));
        let mut all: Vec<_> = with_role.collect();
        all.sort();
        all
    }

    fn has_password(&self, user: &str, password: &[u8]) -> bool {
        self.users.check(user, password) == Some(true)
    }
}

impl fmt::Debug for ConfiguredPeople {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfiguredPeople")
    }
}
