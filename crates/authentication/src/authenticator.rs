//! What the chain asks: one authenticator, and its opinion about a client.

use std::{fmt, future::Future, pin::Pin};

use authentication_api::{Credentials, DatabaseUser, Denial, Identity};

/// One authenticator of the chain.
pub(crate) trait Authenticator: Send + Sync + fmt::Debug {
    /// Its kind and place, for logs, such as `jwt (2)`.
    fn name(&self) -> &str;

    /// Whether a user stands in a file of its own.
    fn has_user(&self, _username: &str) -> bool {
        false
    }

    /// Looks a user up again, without a password. An opinion to ignore: there is no such user.
    fn look_up<'a>(&'a self, _user: &'a DatabaseUser) -> Asked<'a> {
        Box::pin(std::future::ready(Opinion::Ignore))
    }

    /// What it says about a client.
    fn authenticate<'a>(&'a self, credentials: &'a Credentials) -> Asked<'a>;
}

/// An opinion that is being formed.
pub(crate) type Asked<'a> = Pin<Box<dyn Future<Output = Opinion> + Send + 'a>>;

/// What an authenticator says about a client.
#[derive(Debug)]
pub(crate) enum Opinion {
    /// It may connect.
    Allow(Box<Identity>),
    /// It may not, whoever comes next in the chain.
    Deny(Denial),
    /// It is not known here: the next is asked.
    Ignore,
    /// There is no answer; why, for the log, without secrets.
    Failed(String),
}
