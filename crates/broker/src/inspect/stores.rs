//! What the shards say that this node leads.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker_core::inspect::SubscriptionDetail;
use inspection::{
    At, ClientPart, ClientRow, ClientState, InboxPart, LedShard, NodeId, Outcome, Queue, Receiver,
    RecordPart, ShardHolds, SubscriptionRow, few,
};
use mqtt_session::ClassId;
use store_state::CorrelationId;
use store_state::api::StoreId;
use store_state::inbox::StoredSubscription;
use store_state::inbox::inspect::InboxSummary;
use store_state::session::SessionOp;
use store_state::session::inspect::SessionSummary;

use super::rows::{self, Own};
use super::wire::ToWire as _;
use crate::control::{load_status, split_status};
use crate::node::Node;

/// Subscriptions of an inbox that are part of what is known of a client.
const FIRST: usize = 20;

/// Sessions of a shard that are looked at for who gets a message.
const LOOKED_AT: usize = 20_000;

/// Records of clients.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// In the order of identifiers.
    pub(super) rows: Vec<ClientRow>,
    /// The first and the last slot of each range of the session store that they speak for.
    pub(super) covered: Vec<(u16, u16)>,
}

/// The first records behind `after` whose clients' identifiers begin with `prefix`.
pub(super) fn records(
    node: &Arc<Node>,
    after: Option<&str>,
    prefix: &str,
    limit: usize,
) -> Records {
    let page = node.store().inspect().sessions(after, prefix, limit);
    let covered = page.covered.iter().map(|range| (range.first, range.last));
    Records {
        covered: covered.collect(),
        rows: page.rows.into_iter().map(record_row).collect(),
    }
}

fn record_row(record: SessionSummary) -> ClientRow {
    let state = match record.node {
        Some(_) => ClientState::Connected,
        None => ClientState::Away,
    };
    ClientRow {
        client_id: record.client.as_ref().to_owned(),
        user: record.user.map(String::from),
        state,
        node: record.node.map(NodeId),
        node_name: None,
        since: Some(At::unix_ms(record.since_ms)),
        address: None,
        durable: record.durable,
        queue_messages: None,
        held: None,
    }
}

/// What the shards know of a client that it belongs to.
pub(super) fn client(node: &Arc<Node>, client_id: &str) -> ClientPart {
    let inspect = node.store().inspect();
    let record = inspect.session(client_id);
    let (shard, inbox) = inspect.inbox(client_id);
    let leads_record = record.is_here();
    let leads_inbox = inbox.is_here();
    let record = record.found().map(|record| RecordPart {
        node: record.node.map(NodeId),
        user: record.user.map(String::from),
        since_ms: record.since_ms,
        expiry_s: record.expiry_s,
        epoch: record.epoch,
        durable: record.durable,
    });
    let own = Own {
        node: NodeId(node.store().node()),
        name: String::new(),
        settings: Arc::clone(&node.settings.read()),
    };
    let queue = |inbox: &InboxSummary| {
        let policy = own.settings.policy_of(inbox.class);
        Queue {
            messages: inbox.messages,
            bytes: inbox.bytes,
            limit_messages: Some(policy.queue_messages.into()),
            limit_bytes: Some(policy.queue_bytes),
            full: Some(policy.queue_full.name().to_owned()),
            oldest_at: inbox.oldest_since.map(|since| At::unix_ms(since.0)),
        }
    };
    let inbox = inbox.found().map(|inbox| InboxPart {
        shard,
        queue: queue(&inbox),
        subscriptions: inbox.subscriptions,
        first: few(subscriptions(node, client_id, "", FIRST)
            .into_iter()
            .flatten()),
        class: own.class(inbox.class),
    });
    ClientPart {
        leads_record,
        record,
        leads_inbox,
        inbox,
        ..ClientPart::default()
    }
}

/// Subscriptions of a durable session behind a filter; `None`: its inbox is not led here, or there is none.
pub(super) fn subscriptions(
    node: &Arc<Node>,
    client_id: &str,
    after: &str,
    limit: usize,
) -> Option<Vec<SubscriptionRow>> {
    let store = node.store();
    let all = store.inspect().subscriptions(client_id, after, limit);
    let all = all.found()?;
    let own = Own {
        node: NodeId(node.store().node()),
        name: String::new(),
        settings: Arc::clone(&node.settings.read()),
    };
    let row = |subscription: StoredSubscription| {
        let detail = SubscriptionDetail {
            filter: subscription.filter.into(),
            qos: subscription.options.qos as u8,
            no_local: subscription.options.no_local,
            retain_as_published: subscription.options.retain_as_published,
            identifier: Some(subscription.id).filter(|id| *id != 0),
        };
        rows::subscription_row(&own, client_id, false, detail)
    };
    Some(all.into_iter().map(row).collect())
}

/// How many messages wait for these clients, of those whose inboxes are led here.
pub(super) fn queues(node: &Arc<Node>, client_ids: &[String]) -> BTreeMap<String, u64> {
    let inspect = node.store().inspect();
    let waiting = client_ids.iter().filter_map(|client_id| {
        let (_, inbox) = inspect.inbox(client_id);
        Some((client_id.clone(), inbox.found()?.messages))
    });
    waiting.collect()
}

/// What the shards hold that this node leads.
pub(super) fn led(node: &Arc<Node>) -> Vec<LedShard> {
    let decisions = node.store().splits().decisions();
    let loads = node.store().shards();
    let holdings = node.store().inspect().holdings().into_iter();
    let led = holdings.map(|holding| {
        let of = decisions
            .iter()
            .find(|of| (of.store, of.shard) == (holding.store, holding.shard));
        let is_of_clients = matches!(holding.store, StoreId::Session | StoreId::Inbox);
        LedShard {
            store: admin::cluster::StoreName::from(holding.store).to_wire(),
            shard: holding.shard.into(),
            content: ShardHolds {
                sessions: is_of_clients.then_some(holding.entries),
                messages: holding.messages,
                bytes: holding.bytes,
            },
            decision: of.cloned().map(split_status).to_wire(),
            load: loads
                .iter()
                .find(|of| (of.store, of.shard) == (holding.store, holding.shard))
                .and_then(|of| of.load)
                .map(load_status)
                .to_wire(),
        }
    });
    led.collect()
}

/// Absent sessions that would get a message.
#[derive(Debug)]
pub(super) struct Absent {
    /// Each with how many messages wait for it, and its class.
    pub(super) receivers: Vec<(Receiver, u64, ClassId)>,
    /// All of them, with those that are not listed.
    pub(super) count: u64,
    pub(super) counted_all: bool,
}

/// Those of the inbox shards that this node leads.
pub(super) fn absent(node: &Arc<Node>, topic: &str, limit: usize) -> Absent {
    let found = node.store().inspect().would_queue(topic, limit, LOOKED_AT);
    let receivers = found.first.into_iter().map(|session| {
        let receiver = Receiver {
            client_id: Some(session.client.into()),
            group: None,
            filter: session.filter.into(),
            qos: session.qos,
            node: None,
            node_name: None,
            state: Some(ClientState::Away),
            outcome: Outcome::Queued,
            reason: None,
            detail: None,
            rule: None,
            members: None,
        };
        (receiver, session.queued, session.class)
    });
    Absent {
        receivers: receivers.collect(),
        count: found.count,
        counted_all: found.counted_all,
    }
}

/// Has the session of a client that is away ended. Nobody is told when it is.
pub(super) fn end(node: &Arc<Node>, client_id: &str, epoch: u64) {
    let op = SessionOp::End {
        client: client_id.into(),
        epoch,
    };
    node.store().session(client_id, CorrelationId::NONE, op);
}
