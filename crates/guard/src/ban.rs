//! One ban, and the form in which it stands in the file and in the HTTP API.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Network;
use serde::{Deserialize, Serialize};

use crate::changes::{Lifted, Version};

/// Somebody who is not let in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Ban {
    /// Its number, unique among all bans of the node, and of its cluster.
    pub id: u64,
    /// Whom it concerns.
    pub subject: Subject,
    /// Why, in the operator's words.
    pub reason: String,
    /// When it was made, in ms of Unix time.
    pub created_ms: u64,
    /// When it ends, in ms of Unix time. `None`: when it is removed.
    pub expires_ms: Option<u64>,
}

/// Whom a ban concerns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// A client identifier.
    Client(Box<str>),
    /// A user name.
    User(Box<str>),
    /// Addresses.
    Address(Network),
}

impl Subject {
    /// From the fields of a request, of which exactly one must be there.
    ///
    /// # Errors
    /// A sentence about what is wrong.
    pub fn new(
        client: Option<String>,
        user: Option<String>,
        address: Option<&str>,
    ) -> Result<Self, String> {
        match (client, user, address) {
            (Some(client), None, None) => Ok(Self::Client(client.into())),
            (None, Some(user), None) => Ok(Self::User(user.into())),
            (None, None, Some(address)) => network(address).map(Self::Address).ok_or_else(|| {
                format!("\"{address}\" is no address and no network such as 192.0.2.0/24")
            }),
            _ => Err("a ban names one of client, user and address".to_owned()),
        }
    }
}

/// A single address may be an IPv4-mapped one, which counts as IPv4.
fn network(text: &str) -> Option<Network> {
    let single = text.parse::<IpAddr>().ok();
    single.map_or_else(
        || Network::new(text),
        |address| Some(Network::around(address, u8::MAX)),
    )
}

impl Ban {
    pub(crate) fn counts(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|at| now_ms < at)
    }

    pub(crate) fn version(&self) -> Version {
        (self.created_ms, self.id)
    }
}

/// A ban as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default)]
    reason: String,
    created: String,
    expires: Option<String>,
}

impl From<Ban> for Record {
    fn from(ban: Ban) -> Self {
        let mut record = Self {
            id: ban.id,
            client: None,
            user: None,
            address: None,
            reason: ban.reason,
            created: time_text(ban.created_ms),
            expires: ban.expires_ms.map(time_text),
        };
        match ban.subject {
            Subject::Client(name) => record.client = Some(name.into()),
            Subject::User(name) => record.user = Some(name.into()),
            Subject::Address(network) => record.address = Some(network.to_string()),
        }
        record
    }
}

impl TryFrom<Record> for Ban {
    type Error = String;

    fn try_from(record: Record) -> Result<Self, String> {
        Ok(Self {
            id: record.id,
            subject: Subject::new(record.client, record.user, record.address.as_deref())?,
            reason: record.reason,
            created_ms: time(&record.created)?,
            expires_ms: record.expires.as_deref().map(time).transpose()?,
        })
    }
}

/// The number of a ban.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Number(u64);

/// A lifted ban as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiftedRecord {
    id: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    lifted: String,
}

impl From<Lifted> for LiftedRecord {
    fn from(lifted: Lifted) -> Self {
        let (at_ms, id) = lifted.version;
        let mut record = Self {
            id: Number(id),
            client: None,
            user: None,
            address: None,
            lifted: time_text(at_ms),
        };
        match lifted.subject {
            Subject::Client(name) => record.client = Some(name.into()),
            Subject::User(name) => record.user = Some(name.into()),
            Subject::Address(network) => record.address = Some(network.to_string()),
        }
        record
    }
}

impl TryFrom<LiftedRecord> for Lifted {
    type Error = String;

    fn try_from(record: LiftedRecord) -> Result<Self, String> {
        Ok(Self {
            subject: Subject::new(record.client, record.user, record.address.as_deref())?,
            version: (time(&record.lifted)?, record.id.0),
        })
    }
}

/// RFC 3339.
fn time_text(unix_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(unix_ms);
    humantime::format_rfc3339_millis(time).to_string()
}

fn time(text: &str) -> Result<u64, String> {
    let at = humantime::parse_rfc3339(text).map_err(|error| format!("\"{text}\": {error}"))?;
    unix_ms(at).ok_or_else(|| format!("\"{text}\" is before 1970"))
}

fn unix_ms(at: SystemTime) -> Option<u64> {
    u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}
