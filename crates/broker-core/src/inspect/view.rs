//! A session as plain data.

use authentication_api::Identity;
use authorization::Action;
use guard::Source;
use mqtt_proto::{SubscriptionFilter, filter_matches};
use mqtt_session::{Subscription, Timestamp, class_of, maximum_packet_size, will_target};
use net_api::{Key, Kind};

use super::question::{ClientDetail, ClientSummary, ConnectionDetail, Life, SubscriptionDetail};
use crate::backpressure::held_time::HeldTimes;
use crate::clients::{Client, Clients, LoopIo};
use crate::rights::access::{Access, Verdict};
use crate::routes::MatchCache;
use crate::settings::Settings;
use crate::turn::{judged, version_name};

/// What a loop shows to an inspection.
pub(crate) struct View<'a> {
    pub(crate) index: usize,
    pub(crate) clients: &'a Clients,
    pub(crate) settings: &'a Settings,
    /// Of each listener, by its number.
    pub(crate) listener_kinds: &'a [Kind],
    /// Whether a listener, by its number, stands behind a proxy that says for whom it connects.
    pub(crate) is_proxied: &'a dyn Fn(u16) -> bool,
    /// Whose packets wait, or have within the last minute.
    pub(crate) held: &'a HeldTimes,
    pub(crate) cache: &'a MatchCache,
}

/// Subscriptions that a detail has.
const FIRST: usize = 20;

/// Where a client is in its life.
pub(super) fn life(client: &Client) -> Life {
    match client.connection {
        _ if client.rare.get().joining.is_some() => Life::Connecting,
        Some(_) if client.session.is_online() => Life::Connected,
        Some(_) => Life::Closing,
        None => Life::Away,
    }
}

pub(super) fn summary(
    view: &View<'_>,
    io: &impl LoopIo,
    key: Key,
    client: &Client,
) -> ClientSummary {
    let session = &client.session;
    let peer = client.connection.and_then(|id| io.peer(id));
    ClientSummary {
        client_id: session.client_id().to_owned(),
        user: client.confirmed_user().map(str::to_owned),
        life: life(client),
        connected_ms: client.came_us / 1_000,
        address: peer.map(|peer| peer.to_string()),
        durable: session.is_durable(),
        queued: session.queue_len() as u64,
        in_flight: session.in_flight() as u64,
        queue_limit: view
            .settings
            .policy_of(class_of(session))
            .queue_messages
            .into(),
        class: class_of(session),
        held: view.held.of(key, Timestamp(io.now_ms())),
    }
}

pub(super) fn detail(view: &View<'_>, io: &impl LoopIo, key: Key, client: &Client) -> ClientDetail {
    let session = &client.session;
    let policy = view.settings.policy_of(class_of(session));
    let stored = client.stored.as_ref();
    let inbox = stored.and_then(|stored| stored.inbox());
    let connection = client.connection.and_then(|id| {
        let kinds = view.listener_kinds;
        let listener = io.listener(id).map(usize::from);
        let kind = listener.and_then(|number| kinds.get(number));
        Some(ConnectionDetail {
            address: io.peer(id)?.to_string(),
            listener: kind.map(|kind| kind.name()),
            version: version_name(session.version()),
            keep_alive_s: session.keep_alive(),
            window: session.window(),
            maximum_packet_bytes: maximum_packet_size(session),
            write_blocked: io.is_write_blocked(id),
        })
    });
    ClientDetail {
        summary: summary(view, io, key, client),
        connection,
        expiry_s: session.session_expiry(),
        epoch: stored.map(|stored| stored.epoch().0),
        shard: inbox.map(|inbox| inbox.shard()),
        waits_for: session.held_back(),
        queue_bytes: session.queue_bytes(),
        queue_bytes_limit: policy.queue_bytes,
        queue_full: policy.queue_full.name().to_owned(),
        subscription_count: session.subscriptions().len() as u64,
        subscriptions: subscriptions(client, "", FIRST),
        will: will_target(session),
    }
}

pub(super) fn subscriptions(client: &Client, after: &str, limit: usize) -> Vec<SubscriptionDetail> {
    // Sorted by filter.
    let all = client.session.subscriptions();
    let first = match after {
        "" => 0,
        after => all.partition_point(|subscription| &*subscription.filter <= after),
    };
    let rest = all.get(first..).unwrap_or_default().iter();
    rest.take(limit).map(described).collect()
}

/// Those whose filters match a topic, the shared ones too.
pub(super) fn matching(client: &Client, topic: &str) -> Vec<SubscriptionDetail> {
    let all = client.session.subscriptions().iter();
    let matching =
        all.filter(|subscription| filter_matches(topic_filter(&subscription.filter), topic));
    matching.map(described).collect()
}

/// What the rules say about a client's action.
pub(super) fn verdict(
    view: &View<'_>,
    io: &impl LoopIo,
    client: &Client,
    action: Action,
    topic: &str,
) -> Verdict {
    let node = &view.settings.authorization;
    let client_id = client.session.client_id();
    match &client.access {
        Some(access) => access.explain(client_id, node, action, topic),
        // Nothing came with its login.
        None => {
            let address = client.connection.and_then(|id| {
                let listener = io.listener(id);
                judged(Source {
                    ip: io.peer(id)?.ip()?,
                    is_proxied: listener.is_some_and(|listener| (view.is_proxied)(listener)),
                })
            });
            Access::new(Identity::default(), address).explain(client_id, node, action, topic)
        }
    }
}

/// The topic filter without what makes it a shared one.
fn topic_filter(filter: &str) -> &str {
    SubscriptionFilter::parse(filter).map_or(filter, |parsed| parsed.filter)
}

fn described(subscription: &Subscription) -> SubscriptionDetail {
    let options = &subscription.options;
    SubscriptionDetail {
        filter: subscription.filter.to_string(),
        qos: options.qos as u8,
        no_local: options.no_local,
        retain_as_published: options.retain_as_published,
        identifier: subscription.id,
    }
}
