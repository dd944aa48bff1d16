//! Bans and failed logins, as nodes tell each other of them.

use std::num::NonZero;

use serde::{Deserialize, Serialize};

/// Whom a ban concerns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BanSubject {
    /// A client identifier.
    Client(Box<str>),
    /// A user name.
    User(Box<str>),
    /// An address or a network, such as 192.0.2.0/24.
    Address(Box<str>),
}

/// That a ban was made or lifted. Of several changes for one subject the one with the latest time counts, and of these
/// the one with the highest number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BanChange {
    /// Whom it concerns.
    pub subject: BanSubject,
    /// When it was made or lifted, in ms of Unix time, and the ban's number.
    pub version: (u64, u64),
    /// `None`: it was lifted, or has ended.
    pub banned: Option<Banned>,
}

/// What a ban says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Banned {
    /// Why, in the operator's words.
    pub reason: Box<str>,
    /// When it ends, in ms of Unix time. `None`: when it is lifted.
    pub expires_ms: Option<u64>,
}

/// Logins of an address that have failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedLogins {
    /// The address, or the network that counts as one.
    pub address: Box<str>,
    /// The user name that they gave.
    pub user: Option<Box<str>>,
    /// How many.
    pub count: NonZero<u32>,
}

/// What nodes tell each other of those who are shut out: bans, and logins that have failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Bans {
    /// Hashes of all changes that the sender knows, in parts by their subjects; the same on all nodes that know the
    /// same. Who knows others answers with these.
    Digest(Vec<u64>),
    /// Changes, in no order.
    Changes(Vec<BanChange>),
    /// Logins that have failed at the sender since it told so last.
    FailedLogins(Vec<FailedLogins>),
}
