//! What loops and stores say, as rows that nodes send each other.

use std::sync::Arc;
use std::time::Duration;

use broker_core::Settings;
use broker_core::inspect::{ClientDetail, ClientSummary, Life, SubscriptionDetail};
use config::OptionRow;
use inspection::{
    At, BigNumber, Client, ClientRow, ClientState, Connection, DecidedBy, Departure, HeldReason,
    ListenerCertificate, NodeId, PublisherHold, Queue, Session, Setting, SettingPart,
    SubscriptionRow, SubscriptionsOf, Verdict, WaitsFor, WillOf, few,
};
use mqtt_proto::SubscriptionFilter;
use mqtt_session::{ClassId, HeldBack, NEVER_EXPIRES};
use transport::CertificateFacts;

use crate::node::Node;

/// This node, as rows name it.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) node: NodeId,
    pub(super) name: String,
    /// What it is configured with.
    pub(super) settings: Arc<Settings>,
}

impl Own {
    /// The name of a class; `None`: it is not configured here.
    pub(super) fn class(&self, id: ClassId) -> Option<String> {
        match self.settings.class(id) {
            Some(class) => Some(class.name.to_string()),
            None => id.is_default().then(|| config::DEFAULT_CLASS.to_owned()),
        }
    }
}

pub(super) fn now(node: &Arc<Node>) -> At {
    At::unix_ms(node.rim.clock.now_ms())
}

pub(super) fn at(since_epoch: Duration) -> At {
    At::unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn certificate(facts: &CertificateFacts) -> ListenerCertificate {
    ListenerCertificate {
        subject: facts.subject.clone(),
        issuer: facts.issuer.clone(),
        names: facts.names.clone(),
        not_before: at(facts.not_before),
        not_after: at(facts.not_after),
    }
}

pub(super) fn state(life: Life) -> ClientState {
    match life {
        Life::Connecting => ClientState::Connecting,
        Life::Connected => ClientState::Connected,
        Life::Closing => ClientState::Closing,
        Life::Away => ClientState::Away,
    }
}

pub(super) fn client_row(own: &Own, summary: ClientSummary) -> ClientRow {
    let is_here = summary.life != Life::Away;
    ClientRow {
        state: state(summary.life),
        node: is_here.then_some(own.node),
        node_name: is_here.then(|| own.name.clone()),
        since: is_here.then(|| At::unix_ms(summary.connected_ms)),
        client_id: summary.client_id,
        user: summary.user,
        address: summary.address,
        durable: summary.durable,
        queue_messages: Some(summary.queued),
        held: summary
            .held
            .map(|held| self::held(own, summary.class, held)),
    }
}

/// How a client is held, with the option that limits it.
fn held(own: &Own, class: ClassId, held: broker_core::Held) -> PublisherHold {
    let settings = &own.settings;
    let (of_class, of_all) = (settings.limits_of(class), &settings.limits);
    // A class that sets a limit to what all have is not told from one that does not set it.
    let of_connection = |name: &str, value: u64, of_all: u64| {
        let class = own.class(class).filter(|_| value != of_all);
        let place = class.map(|class| format!("clientClasses[{class}]."));
        let option = format!("{}limits.connection.{name}", place.unwrap_or_default());
        (Some(option), Some(value))
    };
    let (option, limit) = match held.reason {
        broker_core::HeldReason::BytesPerSecond => {
            let (value, of_all) = (of_class.rates.bytes_in.0, of_all.rates.bytes_in.0);
            of_connection("bytesPerSecondIn", value, of_all)
        }
        broker_core::HeldReason::PublishesPerSecond => {
            let (value, of_all) = (of_class.publishes_per_s, of_all.publishes_per_s);
            of_connection("publishesPerSecond", value, of_all)
        }
        broker_core::HeldReason::Memory => {
            let value = settings.memory_high_water;
            let option = "limits.node.memoryHighWater".to_owned();
            (Some(option), (value != 0).then_some(value))
        }
        broker_core::HeldReason::SubscriberQueue | broker_core::HeldReason::DurableQueues => {
            let value = settings.hold_publisher_ms;
            of_connection("holdPublisherMs", value, value)
        }
        broker_core::HeldReason::Store
        | broker_core::HeldReason::OtherNodes
        | broker_core::HeldReason::ManyReceivers
        | broker_core::HeldReason::UnreadAnswers => (None, None),
    };
    PublisherHold {
        reason: match held.reason {
            broker_core::HeldReason::BytesPerSecond => HeldReason::BytesPerSecond,
            broker_core::HeldReason::PublishesPerSecond => HeldReason::PublishesPerSecond,
            broker_core::HeldReason::Memory => HeldReason::Memory,
            broker_core::HeldReason::Store => HeldReason::Store,
            broker_core::HeldReason::OtherNodes => HeldReason::OtherNodes,
            broker_core::HeldReason::SubscriberQueue => HeldReason::SubscriberQueue,
            broker_core::HeldReason::DurableQueues => HeldReason::DurableQueues,
            broker_core::HeldReason::ManyReceivers => HeldReason::ManyReceivers,
            broker_core::HeldReason::UnreadAnswers => HeldReason::UnreadAnswers,
        },
        option,
        limit,
        subscriber: held.subscriber.map(String::from),
        since: held.since.map(|since| At::unix_ms(since.0)),
        share_percent: f64::from(held.share.0) / 10.0,
    }
}

/// A client that is here. What the stores know beside is added by those who ask.
pub(super) fn client(own: &Own, detail: ClientDetail, now: At) -> Client {
    let ClientDetail {
        summary,
        connection,
        subscriptions,
        ..
    } = &detail;
    let is_here = summary.life != Life::Away;
    let connection = connection.as_ref().map(|connection| Connection {
        address: connection.address.clone(),
        listener: connection.listener.map(str::to_owned),
        version: connection.version.to_owned(),
        keep_alive_s: connection.keep_alive_s,
        connected_at: At::unix_ms(summary.connected_ms),
        receive_maximum: connection.window,
        maximum_packet_bytes: connection.maximum_packet_bytes,
        write_blocked: connection.write_blocked,
    });
    let rows = subscriptions.iter().cloned();
    let first = few(rows.map(|row| subscription_row(own, &summary.client_id, is_here, row)));
    Client {
        client_id: summary.client_id.clone(),
        user: summary.user.clone(),
        state: state(summary.life),
        node: is_here.then_some(own.node),
        node_name: is_here.then(|| own.name.clone()),
        connection,
        session: Some(Session {
            durable: summary.durable,
            expiry_s: expiry(detail.expiry_s),
            ends_at: None,
            since: is_here.then(|| At::unix_ms(summary.connected_ms)),
            shard: detail.shard,
            class: own.class(summary.class),
            epoch: detail.epoch.map(BigNumber::from),
        }),
        in_flight: Some(summary.in_flight),
        waits_for: detail.waits_for.map(|waits_for| match waits_for {
            HeldBack::ReceiveMaximum => WaitsFor::ReceiveMaximum,
            HeldBack::PacketIdentifiers => WaitsFor::PacketIdentifiers,
        }),
        queue: Some(Queue {
            oldest_at: None,
            messages: summary.queued,
            bytes: detail.queue_bytes,
            limit_messages: Some(summary.queue_limit),
            limit_bytes: Some(detail.queue_bytes_limit),
            full: Some(detail.queue_full.clone()),
        }),
        subscriptions: Some(SubscriptionsOf {
            count: detail.subscription_count,
            first,
        }),
        will: detail.will.as_ref().map(|will| WillOf {
            topic: will.topic.clone(),
            qos: will.qos as u8,
            retain: will.retain,
            delay_s: will.delay_s,
        }),
        holds_back: Vec::new(),
        held_by: Vec::new(),
        held: (summary.held.clone()).map(|held| self::held(own, summary.class, held)),
        last_departure: None,
        recent_drops: Vec::new(),
        as_of: now,
        partial: Vec::new(),
    }
}

pub(super) fn verdict(verdict: broker_core::Verdict) -> Verdict {
    Verdict {
        may: verdict.is_allowed,
        by: match verdict.by {
            broker_core::DecidedBy::Superuser => DecidedBy::Superuser,
            broker_core::DecidedBy::Login => DecidedBy::Login,
            broker_core::DecidedBy::List => DecidedBy::List,
            broker_core::DecidedBy::File => DecidedBy::File,
            broker_core::DecidedBy::NoMatch => DecidedBy::NoMatch,
        },
        line: verdict.line.map(u64::from),
    }
}

pub(super) fn departure(own: &Own, departure: broker_core::Departure) -> Departure {
    Departure {
        at: At::unix_ms(departure.at.0),
        node: own.node,
        node_name: own.name.clone(),
        reason: departure.reason.to_owned(),
        address: departure.address.map(String::from),
    }
}

pub(super) fn setting(row: &OptionRow) -> SettingPart {
    let is_set = |value: &String| value != "null";
    SettingPart {
        key: row.key.clone(),
        live: row.is_live,
        setting: Setting {
            value: Some(row.value.clone()).filter(is_set),
            origin: row.origin.word().to_owned(),
            place: row.origin.place(),
            at_restart: row.at_restart.clone(),
        },
    }
}

/// Seconds; `None`: without end.
pub(super) fn expiry(seconds: u32) -> Option<u32> {
    (seconds != NEVER_EXPIRES).then_some(seconds)
}

pub(super) fn subscription_row(
    own: &Own,
    client_id: &str,
    is_here: bool,
    subscription: SubscriptionDetail,
) -> SubscriptionRow {
    let (shared, filter) = shared_parts(&subscription.filter);
    SubscriptionRow {
        filter: filter.to_owned(),
        given_filter: subscription.filter.clone(),
        client_id: client_id.to_owned(),
        shared: shared.map(str::to_owned),
        qos: subscription.qos,
        no_local: subscription.no_local,
        retain_as_published: subscription.retain_as_published,
        identifier: subscription.identifier,
        node: is_here.then_some(own.node),
        node_name: is_here.then(|| own.name.clone()),
    }
}

/// The group's name of a shared subscription, which is empty for `$queue/`, and the topic filter.
pub(super) fn shared_parts(filter: &str) -> (Option<&str>, &str) {
    match SubscriptionFilter::parse(filter) {
        Ok(parsed) => (parsed.shared.map(|(_, group)| group), parsed.filter),
        Err(_) => (None, filter),
    }
}
