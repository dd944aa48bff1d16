//! The settings of all brokers: the default ones, with queues that are never full.

use broker_core::classes::{Class, ClassLimits, ClassMatch, DiskBytes, Pattern};
use broker_core::{Authorization, Settings};
use mqtt_session::{ClassId, Policy, QueueFull};
use net_api::Rates;
use std::num::NonZero;
use std::sync::Arc;
use store_state::session::OfAnotherUser;
use store_state::{Limits, QueueLimits, QueueRetention, Retention};

/// What no run reaches.
const NEVER: u32 = 1_000_000;

pub(crate) fn guard() -> guard::Guard {
    guard::Guard::new(&config::Config::default().abuse)
}

/// The class that some clients attach as.
fn application() -> ClassId {
    ClassId::of("application")
}

/// How long messages are kept that wait for the class, where they are not for ever, in ms.
pub(crate) const KEPT_MS: u64 = 3_000;

/// How long a member of the shared group may be away before what waits for it goes to others.
/// Clients are seldom away for longer than a look at all queues takes.
const AWAY_MS: u64 = 200;

/// Messages wait without end, but those of members of the shared group that are away.
pub(crate) fn handover() -> Retention {
    Retention {
        handover_away_ms: NonZero::new(AWAY_MS),
        ..Retention::default()
    }
}

/// Some twenty messages may wait for the class, and those for [`KEPT_MS`] at most.
pub(crate) fn retention() -> Retention {
    let own = QueueRetention {
        age_ms: NonZero::new(KEPT_MS),
        class_bytes: NonZero::new(2_500),
        warn_ms: None,
    };
    Retention {
        classes: vec![(application(), own)],
        ..handover()
    }
}

pub(crate) fn settings() -> Settings {
    let policy = Policy {
        queue_messages: NEVER,
        queue_bytes: 1 << 40,
        queue_full: QueueFull::REFUSE,
        ..Policy::default()
    };
    let queue = QueueLimits {
        messages: policy.queue_messages,
        bytes: policy.queue_bytes,
        full: policy.queue_full,
        is_closed: false,
    };
    let limits = ClassLimits {
        policy,
        rates: Rates::default(),
        publishes_per_s: 0,
        subscription_bytes: 1 << 20,
        queue_disk_free: DiskBytes::default(),
    };
    // Some clients attach as those of a class do.
    let class = Class {
        id: application(),
        name: "application".into(),
        matching: ClassMatch {
            client_ids: ["*1", "*4", "*6"].map(Pattern::new).into(),
            ..ClassMatch::default()
        },
        limits: limits.clone(),
    };
    Settings {
        store_limits: Limits {
            queue,
            qos0: limits.policy.qos0_inbox,
            retained_messages: u64::from(NEVER),
            retained_bytes: 1 << 40,
            classes: [(class.id, queue)].into_iter().collect(),
        },
        retention: Arc::default(),
        beyond_limit: limits.policy.clone(),
        limits,
        classes: vec![class],
        allow_anonymous: Some(true),
        of_another_user: OfAnotherUser::Refuse,
        authorization: Authorization::new(
            authorization::Effect::Allow,
            false,
            16,
            authorization::Rules::default(),
        ),
        maximum_connect_size: 65_536,
        connect_timeout_ms: 10_000,
        handshake_timeout_ms: 5_000,
        hold_publisher_ms: 5_000,
        hold_unearned_ms: 0,
        connections: 0,
        unheard_connections: 1_000,
        connections_per_s: 0,
        sessions: 0,
        node_subscription_bytes: 1 << 30,
        node_wildcard_patterns: 1_000,
        node_user_share: 25,
        sys_interval_ms: 0,
        recheck: None,
        memory_high_water: 0,
        memory_refuse: 0,
    }
}
