//! What a loop counts of MQTT.

use authorization::Action;
use net::{Counter, LoopStats};

/// Counters of one loop since the start.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BrokerStats {
    /// Control packets received.
    pub(crate) packets_in: Counter,
    /// Control packets sent.
    pub(crate) packets_out: Counter,
    /// PUBLISH packets received, by QoS.
    pub(crate) publishes_in: [Counter; 3],
    /// PUBLISH packets sent.
    pub(crate) publishes_out: Counter,
    /// Payload bytes of PUBLISH packets received.
    pub(crate) publish_bytes_in: Counter,
    /// Publications that matched nobody.
    pub(crate) unmatched: Counter,
    /// CONNECT packets answered with success.
    pub(crate) connects: Counter,
    /// CONNECT packets refused.
    pub(crate) refused: Counter,
    /// Clients that have authenticated.
    pub(crate) logins: Counter,
    /// Clients whose credentials were wrong, or that no authenticator knew.
    pub(crate) logins_denied: Counter,
    /// Clients that were refused because an authenticator could not be asked.
    pub(crate) logins_failed: Counter,
    /// Connections closed before their CONNECT, because too many had sent none.
    pub(crate) unheard_closed: Counter,
    /// Connections closed for a violation of the protocol.
    pub(crate) violations: Counter,
    /// Sessions taken over by a new connection.
    pub(crate) takeovers: Counter,
    /// CONNECT packets refused because a node that had the client did not answer in time.
    pub(crate) takeover_timeouts: Counter,
    /// Connections broken after DISCONNECT, because its record took too long.
    pub(crate) disconnect_timeouts: Counter,
    /// CONNECTs refused because the client identifier has a session of another user.
    pub(crate) not_owner: Counter,
    /// Subscriptions taken back because rules have changed.
    pub(crate) revoked: Counter,
    /// Connections closed because the keep alive passed.
    pub(crate) keep_alive_timeouts: Counter,
    /// Denied by rules, by action.
    pub(crate) denied: [Counter; Action::ALL.len()],
    /// Will messages published.
    pub(crate) wills: Counter,
    /// Times a publisher was held back for a subscriber's full queue.
    pub(crate) holds: Counter,
    /// Publishers that subscribers of this loop hold back.
    pub(crate) holding: Counter,
    /// Times a subscriber held publishers back until the time for that was over.
    pub(crate) holds_expired: Counter,
    /// Messages whose publisher was not held back, for it had just waited in vain for another subscriber.
    pub(crate) holds_spared: Counter,
    /// Reads put off because of the publish rate.
    pub(crate) throttled_publishes: Counter,
    /// Reads put off because memory is scarce.
    pub(crate) pressure_pauses: Counter,
    /// Reads put off because the store has enough to do.
    pub(crate) store_pauses: Counter,
    /// Reads put off because too much is on its way to another node.
    pub(crate) peer_pauses: Counter,
    /// Messages sent to other nodes.
    pub(crate) forwarded: Counter,
    /// Their bytes.
    pub(crate) forwarded_bytes: Counter,
    /// Messages that came from other nodes.
    pub(crate) from_peers: Counter,
    /// Their bytes.
    pub(crate) from_peers_bytes: Counter,
    /// Replays of retained messages that waited because too much passed them by.
    pub(crate) replay_pauses: Counter,
    /// SUBSCRIBE packets that waited for other nodes.
    pub(crate) route_waits: Counter,
    /// Questions to the store that are not answered.
    pub(crate) pending: Counter,
    /// Messages of which some receivers got theirs in a later turn.
    pub(crate) deliveries_put_off: Counter,
    /// Messages that wait until the members of shared groups are known.
    pub(crate) members_awaited: Counter,
    /// Receivers that still are to get theirs.
    pub(crate) deliveries_waiting: Counter,
    /// Times a publisher was held back until they had.
    pub(crate) delivery_holds: Counter,
    /// Bytes of the topic filters of the clients that are connected, and of sessions that linger.
    pub(crate) subscription_bytes: Counter,
    /// Filters of SUBSCRIBE packets that were refused.
    pub(crate) subscriptions_refused: Counter,
    /// Sessions that have ended and left something to their shared groups, which this loop hands over.
    pub(crate) legacies: Counter,
    /// Connections that other nodes take over and that are read to their end first.
    pub(crate) superseded: Counter,
    /// CONNECTs that wait until another one of the same client is answered.
    pub(crate) connects_waiting: Counter,
    /// Wills that could not be published and are asked for again.
    pub(crate) unpublished_wills: Counter,
    /// Sessions without a connection whose routes stay for a while.
    pub(crate) lingering: Counter,
    /// Sessions of this loop that the store has no record of.
    pub(crate) sessions: Counter,
    /// Topics looked up in the route index.
    pub(crate) cache_misses: Counter,
    /// Topics in the match cache.
    pub(crate) cached_topics: Counter,
}

/// Sums one counter over all loops.
pub(crate) fn sum<'a>(
    stats: &'a [std::sync::Arc<BrokerStats>],
    pick: impl Fn(&'a BrokerStats) -> &'a Counter,
) -> u64 {
    stats.iter().map(|s| pick(s).get()).sum()
}

/// Sums one counter of the event loops.
pub(crate) fn sum_net<'a>(
    stats: &'a [std::sync::Arc<LoopStats>],
    pick: impl Fn(&'a LoopStats) -> &'a Counter,
) -> u64 {
    stats.iter().map(|s| pick(s).get()).sum()
}
