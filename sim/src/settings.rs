//! The settings of all brokers: the default ones, with queues that are never full.

use broker_core::{Authorization, Settings};
use mqtt_session::{Policy, QueueFull};
use store_state::Limits;
use store_state::session::OfAnotherUser;

/// What no run reaches.
const NEVER: u32 = 1_000_000;

pub(crate) fn guard() -> guard::Guard {
    guard::Guard::new(&config::Config::default().abuse)
}

pub(crate) fn settings() -> Settings {
    let policy = Policy {
        queue_messages: NEVER,
        queue_bytes: 1 << 40,
        queue_full: QueueFull::REFUSE,
        ..Policy::default()
    };
    Settings {
        store_limits: Limits {
            queue_messages: policy.queue_messages,
            queue_bytes: policy.queue_bytes,
            queue_full: policy.queue_full,
            qos0: policy.qos0_inbox,
            retained_messages: u64::from(NEVER),
            retained_bytes: 1 << 40,
        },
        beyond_limit: policy.clone(),
        policy,
        allow_anonymous: Some(true),
        of_another_user: OfAnotherUser::Refuse,
        authorization: Authorization::new(
            authorization::Effect::Allow,
            false,
            16,
            authorization::Rules::default(),
        ),
        bytes_per_s_in: 0,
        bytes_per_s_out: 0,
        publishes_per_s: 0,
        maximum_connect_size: 65_536,
        connect_timeout_ms: 10_000,
        handshake_timeout_ms: 5_000,
        hold_publisher_ms: 5_000,
        hold_unearned_ms: 0,
        connections: 0,
        unheard_connections: 1_000,
        connections_per_s: 0,
        sessions: 0,
        session_subscription_bytes: 1 << 20,
        node_subscription_bytes: 1 << 30,
        node_wildcard_patterns: 1_000,
        node_user_share: 25,
        sys_interval_ms: 0,
        recheck: None,
        memory_high_water: 0,
        memory_refuse: 0,
    }
}
