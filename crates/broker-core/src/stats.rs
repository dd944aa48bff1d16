//! What a loop counts of MQTT.

use authorization::Action;
use net_api::Counter;

use crate::backpressure::held_time::HeldReason;
use crate::publish::latency::LatencyStats;

/// Counters of one loop since the start.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct BrokerStats {
    /// Control packets received.
    pub packets_in: Counter,
    /// Control packets sent.
    pub packets_out: Counter,
    /// PUBLISH packets received, by QoS.
    pub publishes_in: [Counter; 3],
    /// PUBLISH packets sent.
    pub publishes_out: Counter,
    /// Payload bytes of PUBLISH packets received.
    pub publish_bytes_in: Counter,
    /// Publications that matched nobody.
    pub unmatched: Counter,
    /// CONNECT packets answered with success.
    pub connects: Counter,
    /// CONNECT packets refused.
    pub refused: Counter,
    /// Clients that have authenticated.
    pub logins: Counter,
    /// Clients whose credentials were wrong, or that no authenticator knew.
    pub logins_denied: Counter,
    /// Clients that were refused because an authenticator could not be asked.
    pub logins_failed: Counter,
    /// Connections closed before their CONNECT, by reason.
    pub closed_before_connect: [Counter; ClosedBeforeConnect::ALL.len()],
    /// Connections closed for a violation of the protocol.
    pub violations: Counter,
    /// Sessions taken over by a new connection.
    pub takeovers: Counter,
    /// CONNECT packets refused because a node that had the client did not answer in time.
    pub takeover_timeouts: Counter,
    /// Answers and pages of the store for connections that were over, or for another connection of the session.
    pub stale_answers: Counter,
    /// Connections broken after DISCONNECT, because its record took too long.
    pub disconnect_timeouts: Counter,
    /// CONNECTs refused because the client identifier has a session of another user.
    pub not_owner: Counter,
    /// Subscriptions taken back because rules have changed.
    pub revoked: Counter,
    /// Connections closed because the keep alive passed.
    pub keep_alive_timeouts: Counter,
    /// Denied by rules, by action.
    pub denied: [Counter; Action::ALL.len()],
    /// Will messages published.
    pub wills: Counter,
    /// Times a publisher was held back for a subscriber's full queue.
    pub holds: Counter,
    /// How long publishers were held back for durable sessions, in ms, as of the beginning of each hold.
    pub throttled_ms: Counter,
    /// How long connections have waited, in ms, by reason: of waits that are over, or were looked at since.
    pub held_ms: [Counter; HeldReason::ALL.len()],
    /// Publishers that subscribers of this loop hold back.
    pub holding: Counter,
    /// Times a subscriber held publishers back until the time for that was over.
    pub holds_expired: Counter,
    /// Messages whose publisher was not held back, for it had just waited in vain for another subscriber.
    pub holds_spared: Counter,
    /// Times a durable session began to wait for a packet identifier that its client keeps in use.
    pub identifier_waits: Counter,
    /// Reads put off because of the publish rate.
    pub throttled_publishes: Counter,
    /// Reads put off because memory is scarce.
    pub pressure_pauses: Counter,
    /// Reads put off because the store has enough to do.
    pub store_pauses: Counter,
    /// Reads put off because too much is on its way to another node.
    pub peer_pauses: Counter,
    /// Messages sent to other nodes.
    pub forwarded: Counter,
    /// Their bytes.
    pub forwarded_bytes: Counter,
    /// Messages that came from other nodes.
    pub from_peers: Counter,
    /// Their bytes.
    pub from_peers_bytes: Counter,
    /// Replays of retained messages that waited because too much passed them by.
    pub replay_pauses: Counter,
    /// SUBSCRIBE packets that waited for other nodes.
    pub route_waits: Counter,
    /// Questions to the store that are not answered.
    pub pending: Counter,
    /// Messages of which some receivers got theirs in a later turn.
    pub deliveries_put_off: Counter,
    /// Messages that wait until the members of shared groups are known.
    pub members_awaited: Counter,
    /// Receivers that still are to get theirs.
    pub deliveries_waiting: Counter,
    /// Times a publisher was held back until they had.
    pub delivery_holds: Counter,
    /// Bytes of the topic filters of the clients that are connected, and of sessions that linger.
    pub subscription_bytes: Counter,
    /// Filters of SUBSCRIBE packets that were refused.
    pub subscriptions_refused: Counter,
    /// Sessions that have ended and left something to their shared groups, which this loop hands over.
    pub legacies: Counter,
    /// Connections that other nodes take over and that are read to their end first.
    pub superseded: Counter,
    /// CONNECTs that wait until another one of the same client is answered.
    pub connects_waiting: Counter,
    /// Wills that could not be published and are asked for again.
    pub unpublished_wills: Counter,
    /// Sessions without a connection whose routes stay for a while.
    pub lingering: Counter,
    /// Sessions of this loop that the store has no record of.
    pub sessions: Counter,
    /// Topics looked up in the route index.
    pub cache_misses: Counter,
    /// Topics in the match cache.
    pub cached_topics: Counter,
    /// How long messages take.
    pub latency: LatencyStats,
}

impl BrokerStats {
    /// A connection has waited.
    pub(crate) fn count_held(&self, why: HeldReason, ms: u64) {
        if let Some(count) = self.held_ms.get(why as usize) {
            count.add(ms);
        }
    }

    /// A connection was closed before its CONNECT.
    pub(crate) fn count_closed_before_connect(&self, why: ClosedBeforeConnect) {
        if let Some(count) = self.closed_before_connect.get(why as usize) {
            count.add(1);
        }
    }
}

/// Why a connection was closed before its CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClosedBeforeConnect {
    /// Places have run out, and no address had more of them than its own.
    Address,
    /// Places have run out, and no address had two of them: it was the oldest of all.
    Node,
    /// Its CONNECT did not come in time.
    Timeout,
}

impl ClosedBeforeConnect {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Address, Self::Node, Self::Timeout];

    /// The reason's name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Node => "node",
            Self::Timeout => "timeout",
        }
    }
}

/// Sums one counter over all loops.
pub fn sum<'a>(
    stats: &'a [std::sync::Arc<BrokerStats>],
    pick: impl Fn(&'a BrokerStats) -> &'a Counter,
) -> u64 {
    stats.iter().map(|s| pick(s).get()).sum()
}
