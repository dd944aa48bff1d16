//! The configuration in the form that the event loops use.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use authorization::{Effect, Rules};
use broker_core::classes::{Class, ClassLimits, ClassMatch, DiskBytes, Pattern};
use broker_core::{Authorization, Settings};
use config::{
    AuthorizationConfig, ClientClassConfig, Config, DenyPublishV3, InboxQos0, Listed, MaximumQos,
    Permission, QueueFull, RetainConfig, RetainRuleConfig, SessionOfAnotherUser,
};
use mqtt_proto::QoS;
use mqtt_session::{ClassId, Policy, Qos0Inbox};
use net_api::{BytesPerSecond, Kind, Rates};
use rustix::process::{Resource, getrlimit};
use store_state::retain::{RetainedLimits, RetainedRule, RetainedRules};
use store_state::session::OfAnotherUser;
use store_state::{Limits, QueueLimits, QueueRetention, Retention};

/// One of so many connections may be one that has sent no CONNECT yet.
///
/// Limit: connections without CONNECT | 1/{} of {limits.node.connections}, or of the descriptors;
/// {limits.connection.connectTimeoutMs} each, {limits.connection.handshakeTimeoutMs} of it for handshakes | the
/// oldest of the address that has most are closed; behind a proxy that has not named its client, each counts alone;
/// those that have just come are left alone, {broker-core::awaiting::JUST_COME} of a loop at most
const UNHEARD_SHARE: u64 = 4;

/// So many may be there in any case, lest clients that connect at the same time close each other's
/// connections.
///
/// Limit: connections without CONNECT that a node takes in any case, however few it may have of all | {} | as for other
/// connections without CONNECT
const UNHEARD_LEAST: u64 = 64;

/// With it, the largest message is kept with the names that belong to it: topic, client, group.
const NAMES: usize = 4 * 65_536;

/// What a client may send at most, the stores can keep.
const _: () = assert!(config::LARGEST_PACKET as usize + NAMES <= store_state::api::REQUEST_LIMIT);

/// What a configuration and its rules come to.
pub(crate) fn settings(config: &Config, rules: Rules) -> Settings {
    let limits = &config.limits;
    let own = class_limits(config, limits);
    let classes: Vec<Class> = config
        .client_classes
        .iter()
        .map(|class| client_class(config, class))
        .collect();
    let queue = |limits: &ClassLimits| QueueLimits {
        messages: limits.policy.queue_messages,
        bytes: limits.policy.queue_bytes,
        full: limits.policy.queue_full,
        is_closed: false,
    };
    let policy = &own.policy;
    let store_limits = Limits {
        queue: queue(&own),
        qos0: policy.qos0_inbox,
        retained_messages: config.retain.max_messages,
        retained_bytes: config.retain.max_bytes,
        classes: classes
            .iter()
            .map(|class| (class.id, queue(&class.limits)))
            .collect(),
    };
    Settings {
        store_limits,
        retention: Arc::new(retention(config)),
        beyond_limit: Policy {
            queue_messages: u32::MAX,
            queue_bytes: u64::MAX,
            ..policy.clone()
        },
        limits: own,
        classes,
        allow_anonymous: config.allow_anonymous,
        of_another_user: match config.authentication.session_of_another_user {
            SessionOfAnotherUser::Refuse => OfAnotherUser::Refuse,
            SessionOfAnotherUser::NewSession => OfAnotherUser::Discard,
        },
        authorization: authorization(&config.authorization, rules),
        maximum_connect_size: limits
            .connection
            .maximum_connect_size
            .min(limits.connection.maximum_packet_size),
        connect_timeout_ms: millis(Some(limits.connection.connect_timeout)),
        handshake_timeout_ms: millis(Some(limits.connection.handshake_timeout)),
        hold_publisher_ms: millis(limits.connection.hold_publisher),
        hold_unearned_ms: millis(limits.connection.hold_unearned),
        connections: limits.node.connections.map_or(0, NonZero::get) as usize,
        unheard_connections: unheard_connections(limits.node.connections),
        connections_per_s: limits
            .node
            .connections_per_second
            .map_or(0, NonZero::get)
            .into(),
        sessions: limits.node.sessions as usize,
        node_subscription_bytes: limits.node.subscription_bytes,
        node_wildcard_patterns: limits.node.wildcard_patterns as usize,
        node_user_share: limits.node.user_share.into(),
        recheck: config.authentication.recheck,
        sys_interval_ms: millis(config.sys.interval),
        memory_high_water: limits.node.memory_high_water.map_or(0, NonZero::get),
        memory_refuse: limits.node.memory_refuse.map_or(0, NonZero::get),
    }
}

/// How long messages are kept in queues, and how many bytes.
fn retention(config: &Config) -> Retention {
    let ms = |seconds: u32| NonZero::new(u64::from(seconds) * 1_000);
    let of = |session: &config::SessionLimits, class_bytes| QueueRetention {
        age_ms: ms(session.queue_age),
        class_bytes,
        warn_ms: ms(session.queue_age_warn),
    };
    let class = |class: &ClientClassConfig| {
        let limits = class.limits.over(&config.limits);
        let name = class.name.as_deref().unwrap_or_default();
        (ClassId::of(name), of(&limits.session, class.queued_bytes))
    };
    Retention {
        device: of(&config.limits.session, None),
        handover_away_ms: ms(config.limits.session.shared_handover_away),
        classes: config.client_classes.iter().map(class).collect(),
        node_bytes: config.limits.node.queued_bytes,
        retained: retained_rules(&config.retain),
    }
}

/// Which retained messages are kept. What it needs was checked when the configuration was read.
pub(crate) fn retained_rules(retain: &RetainConfig) -> RetainedRules {
    let ms = |seconds: u32| NonZero::new(u64::from(seconds) * 1_000);
    let rule = |rule: &RetainRuleConfig| RetainedRule {
        filter: rule.topics.as_deref().unwrap_or_default().into(),
        limits: RetainedLimits {
            age_ms: ms(rule.max_age),
            messages: rule.max_messages,
            bytes: rule.max_bytes,
        },
    };
    RetainedRules {
        rules: retain.rules.iter().map(rule).collect(),
        age_ms: ms(retain.max_age),
    }
}

/// The limits of clients to which these apply.
fn class_limits(config: &Config, limits: &config::Limits) -> ClassLimits {
    ClassLimits {
        policy: policy(config, limits),
        rates: Rates {
            bytes_in: rate(limits.connection.bytes_per_second_in),
            bytes_out: rate(limits.connection.bytes_per_second_out),
        },
        publishes_per_s: limits
            .connection
            .publishes_per_second
            .map_or(0, NonZero::get)
            .into(),
        subscription_bytes: limits.session.subscription_bytes,
        queue_disk_free: DiskBytes(limits.session.queue_disk_free),
    }
}

fn rate(limit: Option<NonZero<u64>>) -> BytesPerSecond {
    BytesPerSecond(limit.map_or(0, NonZero::get))
}

/// A class of clients. What it needs was checked when the configuration was read.
pub(crate) fn client_class(config: &Config, class: &ClientClassConfig) -> Class {
    let name = class.name.as_deref().unwrap_or_default();
    let patterns = |listed: &Listed<String>| listed.iter().map(|text| Pattern::new(text)).collect();
    let matching = &class.matching;
    let kinds = Kind::ALL.into_iter();
    let is_listed = |kind: &Kind| matching.listener.iter().any(|name| name == kind.name());
    Class {
        id: ClassId::of(name),
        name: name.into(),
        matching: ClassMatch {
            users: patterns(&matching.user),
            client_ids: patterns(&matching.client_id),
            certificates: patterns(&matching.certificate),
            listeners: kinds.filter(is_listed).collect(),
        },
        limits: class_limits(config, &class.limits.over(&config.limits)),
    }
}

/// The rules of sessions to which these limits apply.
fn policy(config: &Config, limits: &config::Limits) -> Policy {
    let mqtt = &config.mqtt;
    Policy {
        maximum_qos: match mqtt.maximum_qos {
            MaximumQos::AtMostOnce => QoS::AtMostOnce,
            MaximumQos::AtLeastOnce => QoS::AtLeastOnce,
            MaximumQos::ExactlyOnce => QoS::ExactlyOnce,
        },
        retain_available: mqtt.retain_available,
        wildcard_subscription_available: mqtt.wildcard_subscription_available,
        shared_subscription_available: mqtt.shared_subscription_available,
        subscription_identifier_available: mqtt.subscription_identifier_available,
        topic_alias_maximum: mqtt.topic_alias_maximum,
        topic_alias_maximum_out: mqtt.topic_alias_maximum_out,
        keep_alive_maximum: mqtt.keep_alive_maximum_seconds.map_or(0, NonZero::get),
        session_expiry_maximum: mqtt.session_expiry_maximum_seconds,
        session_expiry_v3: mqtt.session_expiry_v3_seconds,
        response_information: mqtt.response_information.as_deref().map(Box::from),
        server_reference: mqtt.server_reference.as_deref().map(Box::from),
        check_payload_format: mqtt.check_payload_format,
        strict_client_id_v3_1: mqtt.strict_client_id_v3_1,
        receive_maximum: limits.connection.receive_maximum.get(),
        inflight_maximum: limits.connection.inflight_maximum.get(),
        maximum_packet_size: limits.connection.maximum_packet_size,
        client_id_length: limits.connection.client_id_length,
        topic_levels: limits.topic.levels,
        topic_length: limits.topic.length,
        queue_messages: limits.session.queue_messages,
        queue_bytes: limits.session.queue_bytes,
        queue_full: match limits.session.queue_full {
            QueueFull::DropOldest => mqtt_session::QueueFull::DropOldest,
            QueueFull::DropNewest => mqtt_session::QueueFull::DropNewest,
            QueueFull::Refuse => mqtt_session::QueueFull::Refuse {
                away_secs: limits.session.queue_full_away,
            },
        },
        subscriptions: limits.session.subscriptions,
        wildcard_patterns: limits.session.wildcard_patterns,
        qos0_inbox: match config.inbox.qos0 {
            InboxQos0::Offline => Qos0Inbox::Offline,
            InboxQos0::Always => Qos0Inbox::Always,
            InboxQos0::Never => Qos0Inbox::Never,
        },
    }
}

/// A share of the connections that there may be; if no limit is set, of what the system allows.
fn unheard_connections(connections: Option<NonZero<u32>>) -> usize {
    let all = connections.map_or_else(
        || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        |connections| connections.get().into(),
    );
    usize::try_from((all / UNHEARD_SHARE).max(UNHEARD_LEAST)).unwrap_or(usize::MAX)
}

fn millis(duration: Option<Duration>) -> u64 {
    duration.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

fn authorization(config: &AuthorizationConfig, rules: Rules) -> Authorization {
    let no_match = match config.no_match {
        Permission::Allow => Effect::Allow,
        Permission::Deny => Effect::Deny,
    };
    let disconnects_v3 = config.deny_publish_v3 == DenyPublishV3::Disconnect;
    Authorization::new(
        no_match,
        disconnects_v3,
        config.cache_entries as usize,
        rules,
    )
}
