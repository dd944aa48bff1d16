//! What is kept of one client, and when its time is up.

use std::collections::BTreeMap;

use mqtt_session::{NEVER_EXPIRES, Timestamp};

use super::StoredWill;

/// A client's session, or its connection if that is all there is.
#[derive(Debug)]
pub(super) struct Record {
    /// Of the last connection.
    pub(super) epoch: u64,
    /// The epoch that the session began with.
    pub(super) incarnation: u64,
    /// Who has the connection; `None`: there is none.
    pub(super) owner: Option<Owner>,
    /// When the connection began, or if there is none, when it ended. Unix time in ms.
    pub(super) since: u64,
    /// The session expiry interval in seconds. Not 0 without a connection.
    pub(super) expiry: u32,
    /// Whether there may be an inbox: the interval was not 0 at some time.
    pub(super) inbox: bool,
    /// The user that the session belongs to; `None`: an anonymous client has made it, or it was made when users
    /// were not recorded.
    pub(super) user: Option<Box<str>>,
    /// The will that came with the last connection, as long as it is neither due nor discarded.
    pub(super) will: Option<Box<StoredWill>>,
}

/// A process that has a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) node: u64,
    pub(super) incarnation: u64,
}

impl Owner {
    /// Whether a later process of its node is among these: the highest incarnation of each node.
    pub(super) fn has_ended(self, nodes: &BTreeMap<u64, u64>) -> bool {
        let known = nodes.get(&self.node);
        known.is_some_and(|known| *known > self.incarnation)
    }
}

impl Record {
    /// Whether the session is another user's than this one.
    pub(super) fn is_of_another(&self, user: Option<&str>) -> bool {
        self.user.is_some() && self.user.as_deref() != user
    }

    /// When something is due without a connection: the will, or the end of the session.
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.owner.is_some() {
            return None;
        }
        // [MQTT-3.1.2-8] the will after its delay, but no later than the end of the session.
        match (self.will_due_at(), self.ends_at()) {
            (Some(will), Some(end)) => Some(will.min(end)),
            (will, end) => will.or(end),
        }
    }

    /// When the session ends, if it is without a connection till then.
    pub(super) fn ends_at(&self) -> Option<u64> {
        (self.expiry != NEVER_EXPIRES).then(|| self.after(self.expiry))
    }

    fn will_due_at(&self) -> Option<u64> {
        self.will.as_ref().map(|will| self.after(will.delay))
    }

    fn after(&self, seconds: u32) -> u64 {
        Timestamp(self.since).add_secs(seconds).0
    }
}
