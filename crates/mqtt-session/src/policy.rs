//! The server's settings that a session obeys.
//!
//! A session keeps none of them: the current policy is an argument of each call, so that a reload
//! applies at once. What CONNACK promised a client for its network connection (Receive Maximum,
//! Topic Alias Maximum) stays as promised until the client reconnects.

use mqtt_proto::{QoS, ReasonCode, SubscriptionFilter, SubscriptionOptions};

/// A session expiry interval that never passes.
pub const NEVER_EXPIRES: u32 = u32::MAX;

/// What happens to a QoS 1 or 2 message that finds the session's queue full. A QoS 0 message that
/// finds it full is always the one to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueFull {
    /// The oldest waiting messages make room.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
    /// The arriving message is dropped, and a publisher of QoS 1 or 2 whose message it is learns of it
    /// from the reason code of its acknowledgement (5.0), if the session is a durable one, and its client is
    /// connected or has not been away for longer than this.
    Refuse {
        /// In seconds, from the first message that came while the client was away; [`NEVER_EXPIRES`]: without end.
        away_secs: u32,
    },
}

impl QueueFull {
    /// A word for people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DropOldest => "drop_oldest",
            Self::DropNewest => "drop_newest",
            Self::Refuse { .. } => "refuse",
        }
    }

    /// However long the client has been away.
    pub const REFUSE: Self = Self::Refuse {
        away_secs: NEVER_EXPIRES,
    };
}

/// Whether QoS 0 messages are stored for persistent sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Qos0Inbox {
    /// Stored while the client is offline, delivered directly while it is online.
    Offline,
    /// As `Offline`, and through the durable inbox also while the client is online. In memory, where
    /// this session lives, the two are the same.
    Always,
    /// Not stored: dropped while the client is offline.
    Never,
}

/// Limits and abilities of the server towards one client.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The highest QoS of messages and subscriptions.
    pub maximum_qos: QoS,
    /// Whether retained messages are supported.
    pub retain_available: bool,
    /// Whether topic filters may have wildcards.
    pub wildcard_subscription_available: bool,
    /// Whether shared subscriptions are supported.
    pub shared_subscription_available: bool,
    /// Whether subscription identifiers are supported.
    pub subscription_identifier_available: bool,
    /// The most topic aliases that a client may set; 0: none.
    pub topic_alias_maximum: u16,
    /// The most topic aliases used towards a client; 0: none.
    pub topic_alias_maximum_out: u16,
    /// The longest keep alive of MQTT 5.0 clients in seconds; 0: whatever the client asks. Older
    /// clients cannot be told another value and keep theirs.
    pub keep_alive_maximum: u16,
    /// The longest session expiry interval in seconds; [`NEVER_EXPIRES`]: no limit.
    pub session_expiry_maximum: u32,
    /// The session expiry interval in seconds of MQTT 3.1 and 3.1.1 sessions with clean session 0.
    pub session_expiry_v3: u32,
    /// Response Information for clients that ask for it.
    pub response_information: Option<Box<str>>,
    /// The server named to clients that are sent elsewhere.
    pub server_reference: Option<Box<str>>,
    /// Whether a payload that claims to be UTF-8 is checked.
    pub check_payload_format: bool,
    /// Whether client identifiers of MQTT 3.1 have 23 characters at most, as that version says.
    pub strict_client_id_v3_1: bool,
    /// The most inbound QoS 1 and 2 publications in flight; at least 1.
    pub receive_maximum: u16,
    /// The most outbound QoS 1 and 2 publications in flight; less if the client's Receive Maximum is.
    pub inflight_maximum: u16,
    /// The largest inbound packet in bytes. The session announces it; whoever reads the socket
    /// enforces it.
    pub maximum_packet_size: u32,
    /// The longest client identifier in bytes.
    pub client_id_length: u16,
    /// The most levels of a topic name or filter.
    pub topic_levels: u16,
    /// The longest topic name or filter in bytes.
    pub topic_length: u16,
    /// The most messages that wait for one session; those in flight are limited by their window.
    pub queue_messages: u32,
    /// The most bytes of messages that wait or are in flight for one session. A message shared with
    /// other sessions counts in each.
    pub queue_bytes: u64,
    /// What happens at these two limits.
    pub queue_full: QueueFull,
    /// The most subscriptions of one session.
    pub subscriptions: u32,
    /// The most patterns of `+` in the filters of one session; see [`pattern_of`](crate::pattern_of).
    pub wildcard_patterns: u32,
    /// Whether QoS 0 messages are stored.
    pub qos0_inbox: Qos0Inbox,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            maximum_qos: QoS::ExactlyOnce,
            retain_available: true,
            wildcard_subscription_available: true,
            shared_subscription_available: true,
            subscription_identifier_available: true,
            topic_alias_maximum: 64,
            topic_alias_maximum_out: 16,
            keep_alive_maximum: 0,
            session_expiry_maximum: NEVER_EXPIRES,
            session_expiry_v3: NEVER_EXPIRES,
            response_information: None,
            server_reference: None,
            check_payload_format: false,
            strict_client_id_v3_1: false,
            receive_maximum: 1024,
            inflight_maximum: 128,
            maximum_packet_size: 2_097_152,
            client_id_length: 60_000,
            topic_levels: 128,
            topic_length: 4_096,
            queue_messages: 10_000,
            queue_bytes: 16_777_216,
            queue_full: QueueFull::DropNewest,
            subscriptions: 10_000,
            wildcard_patterns: 64,
            qos0_inbox: Qos0Inbox::Offline,
        }
    }
}

impl Policy {
    /// The filter without its `$share/` prefix, and the options to grant, for a filter that some session subscribes to. What
    /// that session has already is not looked at.
    ///
    /// # Errors
    /// The reason code for this filter in SUBACK.
    pub fn admit_filter<'f>(
        &self,
        filter: &'f str,
        options: SubscriptionOptions,
    ) -> Result<(SubscriptionFilter<'f>, SubscriptionOptions), ReasonCode> {
        // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        let parsed =
            SubscriptionFilter::parse(filter).map_err(|_| ReasonCode::TopicFilterInvalid)?;
        if !self.admits_topic(parsed.filter) {
            return Err(ReasonCode::TopicFilterInvalid);
        }
        if parsed.shared.is_some() && !self.shared_subscription_available {
            return Err(ReasonCode::SharedSubscriptionsNotSupported);
        }
        // [MQTT3-3.8.3-2]
        if !self.wildcard_subscription_available && parsed.filter.contains(['+', '#']) {
            return Err(ReasonCode::WildcardSubscriptionsNotSupported);
        }
        // [MQTT-3.2.2-10] a higher QoS is asked for in vain, not in error.
        let qos = options.qos.min(self.maximum_qos);
        Ok((parsed, SubscriptionOptions { qos, ..options }))
    }

    /// Whether a topic name or filter is within the limits of length and levels.
    #[must_use]
    pub fn admits_topic(&self, topic: &str) -> bool {
        if topic.len() > usize::from(self.topic_length) {
            return false;
        }
        let levels = usize::from(self.topic_levels);
        // A topic has at most as many levels as bytes plus one, so most need no count.
        topic.len() < levels || topic.bytes().filter(|byte| *byte == b'/').count() < levels
    }
}
