//! What people can look up in a session shard.

use std::sync::Arc;

use mqtt_session::Timestamp;

use super::SessionMachine;
use super::record::Record;

/// A client's record, without its will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSummary {
    /// The client identifier.
    pub client: Arc<str>,
    /// Of the last connection.
    pub epoch: u64,
    /// The node that has the connection; `None`: there is none.
    pub node: Option<u64>,
    /// When the connection began, or if there is none, when it ended. Unix time in ms.
    pub since_ms: u64,
    /// The session expiry interval in seconds.
    pub expiry_s: u32,
    /// Whether there may be an inbox.
    pub durable: bool,
    /// The user that the session belongs to.
    pub user: Option<Box<str>>,
}

impl SessionSummary {
    fn new(client: &Arc<str>, record: &Record) -> Self {
        Self {
            client: Arc::clone(client),
            epoch: record.epoch,
            node: record.owner.map(|owner| owner.node),
            since_ms: record.since,
            expiry_s: record.expiry,
            durable: record.inbox,
            user: record.user.clone(),
        }
    }
}

/// Sessions whose clients have been away since before a time, to the hour.
#[must_use]
pub fn away_before(machine: &SessionMachine, at: Timestamp) -> usize {
    machine.records.away_before(at.0)
}

/// The record of a client.
#[must_use]
pub fn summary(machine: &SessionMachine, client: &str) -> Option<SessionSummary> {
    let record = machine.records.get(client)?;
    Some(SessionSummary::new(&client.into(), record))
}

/// The first `limit` records, in the order of the bytes of client identifiers, behind `after` whose identifiers begin with
/// `prefix`. In proportion to `limit`.
#[must_use]
pub fn page(
    machine: &SessionMachine,
    after: Option<&str>,
    prefix: &str,
    limit: usize,
) -> Vec<SessionSummary> {
    let records = machine.records.page(after, prefix);
    records
        .take(limit)
        .map(|(client, record)| SessionSummary::new(client, record))
        .collect()
}
