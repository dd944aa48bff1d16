//! User names and passwords, looked up in a file.

use std::{path::Path, sync::Arc};

use authentication_api::{Credentials, Denial, Identity, Secret, Source};

use crate::{
    authenticator::{Asked, Authenticator, Opinion},
    hash_threads::HashThreads,
    users::Users,
};

/// Asks a file that was read.
#[derive(Debug)]
pub(crate) struct PasswordFile {
    name: String,
    users: Arc<Users>,
    hashes: HashThreads,
}

impl PasswordFile {
    pub(crate) fn open(
        name: String,
        file: Option<&Path>,
        hashes: HashThreads,
    ) -> Result<Self, String> {
        Ok(Self {
            name,
            users: Arc::new(Users::read(file)?),
            hashes,
        })
    }

    async fn opinion(&self, credentials: &Credentials) -> Opinion {
        let (Some(username), Some(password)) = (&credentials.username, &credentials.password)
        else {
            return Opinion::Ignore;
        };
        let users = Arc::clone(&self.users);
        let (name, password) = (username.clone(), Secret::new(password.bytes()));
        let check = move || users.check(&name, password.bytes());
        match self.hashes.run(check).await {
            Ok(Some(true)) => Opinion::Allow(Box::new(Identity {
                username: Some(username.clone()),
                source: Source::PasswordFile,
                ..Identity::default()
            })),
            Ok(Some(false)) => Opinion::Deny(Denial::WrongPassword),
            Ok(None) => Opinion::Ignore,
            Err(error) => Opinion::Failed(format!("a password could not be checked: {error}")),
        }
    }
}

impl Authenticator for PasswordFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_user(&self, username: &str) -> bool {
        self.users.has(username)
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a> {
        Box::pin(self.opinion(credentials))
    }
}
