//! Who would get a message, as far as this node knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::page::MissingReason;
use authorization::Action;
use broker_core::inspect::MatchingSession;
use broker_core::{Reason, SessionKey};
use inspection::{MatchCounts, MatchPart, Outcome, Part, QueueLimit, Receiver, SharedGroupRow};
use mqtt_proto::QoS;
use mqtt_session::{DropReason, Policy, Qos0Inbox, QueueFull};

use super::rows::{Own, shared_parts, state};
use super::{loops, rows, stores};
use crate::node::Node;

/// Receivers that one question looks at.
const LOOKED_AT: usize = 20_000;

/// Sessions that are connected here, groups of which this node knows members, and absent sessions of the inbox shards that
/// it leads.
pub(super) async fn here(
    node: &Arc<Node>,
    own: &Own,
    topic: &str,
    qos: u8,
    publisher: Option<&str>,
    limit: usize,
) -> Result<MatchPart, MissingReason> {
    let found = node.routes.find(topic);
    let mut part = MatchPart {
        counted_all: found.targets.len() <= LOOKED_AT,
        ..MatchPart::default()
    };
    // Whoever is connected is counted; of some the filter is looked up.
    let mut sessions: Vec<SessionKey> = Vec::new();
    for target in found.targets.iter().take(LOOKED_AT) {
        part.counts.delivered += 1;
        if sessions.len() < limit {
            sessions.push(target.session);
        }
    }
    let settings = Arc::clone(&node.settings.read());
    for session in loops::matching(node, sessions, topic).await? {
        let MatchingSession {
            summary,
            subscriptions,
            may_receive,
        } = session;
        let own_message = publisher == Some(&summary.client_id);
        let wanted = subscriptions
            .iter()
            .find(|of| shared_parts(&of.filter).0.is_none() && !(of.no_local && own_message));
        let Some(wanted) = wanted else {
            // No Local, or it has unsubscribed meanwhile.
            part.counts.delivered -= 1;
            continue;
        };
        let limit = queue_limit(settings.policy_of(summary.class));
        let full = full(limit, summary.queued);
        let is_denied = !may_receive.is_allowed;
        let is_dropped = full.is_dropped || is_denied;
        let outcome = match is_dropped {
            true => Outcome::Dropped,
            false => Outcome::Delivered,
        };
        let qos = wanted.qos.min(qos);
        if summary.durable && qos > 0 && !is_dropped {
            part.limits.insert(summary.client_id.clone(), limit);
        }
        let denied = Reason::Denied(Action::Receive);
        if is_dropped {
            part.counts.delivered -= 1;
            part.counts.dropped += 1;
        }
        part.receivers.push(Receiver {
            client_id: Some(summary.client_id),
            group: None,
            filter: wanted.filter.clone(),
            qos,
            node: Some(own.node),
            node_name: Some(own.name.clone()),
            state: Some(state(summary.life)),
            outcome,
            reason: match is_denied {
                true => Some(denied.as_str().to_owned()),
                false => full.reason(),
            },
            detail: full.detail.filter(|_| !is_denied),
            rule: is_denied.then(|| rows::verdict(may_receive)),
            members: None,
        });
    }
    for (group, members) in &found.groups {
        part.counts.groups += 1;
        if part.receivers.len() < limit {
            part.receivers.push(Receiver {
                client_id: None,
                group: Some(group.filter().to_owned()),
                filter: shared_parts(group.filter()).1.to_owned(),
                qos,
                node: None,
                node_name: None,
                state: None,
                outcome: Outcome::OneOf,
                reason: None,
                detail: None,
                rule: None,
                members: Some(members.len() as u64),
            });
        }
    }
    let left = limit.saturating_sub(part.receivers.len());
    let absent = stores::absent(node, topic, left);
    let qos0_waits = settings.limits.policy.qos0_inbox != Qos0Inbox::Never;
    let drops_qos0 = qos == QoS::AtMostOnce as u8 && !qos0_waits;
    let mut dropped = 0;
    for (mut receiver, queued, class) in absent.receivers {
        let full = full(queue_limit(settings.policy_of(class)), queued);
        if full.is_dropped {
            receiver.outcome = Outcome::Dropped;
            receiver.reason = full.reason();
        } else if drops_qos0 {
            receiver.outcome = Outcome::Dropped;
            receiver.reason = Some("qos0_offline".to_owned());
        }
        dropped += u64::from(receiver.outcome == Outcome::Dropped);
        receiver.detail = full.detail;
        receiver.qos = receiver.qos.min(qos);
        part.receivers.push(receiver);
    }
    part.counts.dropped += dropped;
    part.counts.queued += absent.count.saturating_sub(dropped);
    part.counted_all &= absent.counted_all;
    let listed = Part::new(part.receivers.into_iter(), limit);
    Ok(MatchPart {
        counted_all: part.counted_all && !listed.more,
        receivers: listed.rows,
        ..part
    })
}

/// What the length of a queue means for a message that comes now.
struct Full {
    is_dropped: bool,
    /// For people, if the queue is full.
    detail: Option<String>,
}

impl Full {
    fn reason(&self) -> Option<String> {
        let is_full = self.is_dropped;
        is_full.then(|| DropReason::QueueFullMessages.as_str().to_owned())
    }
}

fn queue_limit(policy: &Policy) -> QueueLimit {
    let makes_room = policy.queue_full == QueueFull::DropOldest;
    QueueLimit(policy.queue_messages.into(), makes_room)
}

fn full(QueueLimit(limit, makes_room): QueueLimit, waiting: u64) -> Full {
    if waiting < limit {
        return Full {
            is_dropped: false,
            detail: None,
        };
    }
    // What makes room is another message than this one.
    let what = if makes_room {
        "; the oldest makes room"
    } else {
        ""
    };
    Full {
        is_dropped: !makes_room,
        detail: Some(format!("{waiting} of {limit} messages wait{what}")),
    }
}

/// Connected receivers get a message from their queues in the stores, of which the leaders of their shards say how much waits there.
pub(super) fn weigh(part: &mut MatchPart, queues: &BTreeMap<String, u64>) {
    for receiver in &mut part.receivers {
        let client_id = receiver.client_id.as_ref();
        let waiting = client_id.and_then(|client_id| {
            let limit = part.limits.get(client_id)?;
            Some(full(*limit, *queues.get(client_id)?))
        });
        if let Some(full) = waiting.filter(|_| receiver.outcome == Outcome::Delivered) {
            if full.is_dropped {
                receiver.outcome = Outcome::Dropped;
                receiver.reason = full.reason();
                part.counts.delivered -= 1;
                part.counts.dropped += 1;
            }
            receiver.detail = full.detail.or(receiver.detail.take());
        }
    }
}

/// Shared groups of which this node knows members, in the order of their filters as they are given at SUBSCRIBE.
pub(super) fn groups(node: &Arc<Node>, after: &str) -> impl Iterator<Item = SharedGroupRow> {
    let mut groups = node.routes.groups();
    groups.retain(|group| group.filter() > after);
    groups.sort_by(|one, other| one.filter().cmp(other.filter()));
    groups.into_iter().map(|group| {
        let (members, online) = group.counts();
        let (name, filter) = shared_parts(group.filter());
        SharedGroupRow {
            given_filter: group.filter().to_owned(),
            group: name.unwrap_or_default().to_owned(),
            filter: filter.to_owned(),
            members: members as u64,
            online: online as u64,
        }
    })
}

/// The parts of several nodes. A group is known to each that has members of it, or that is told of it: it counts once.
pub(super) fn merge(parts: Vec<MatchPart>, limit: usize) -> MatchPart {
    let mut all = MatchPart {
        counted_all: true,
        ..MatchPart::default()
    };
    let mut groups: BTreeMap<String, Receiver> = BTreeMap::new();
    let mut most_groups = 0;
    for part in parts {
        let MatchCounts {
            delivered,
            queued,
            dropped,
            groups: count,
        } = part.counts;
        all.counts.delivered += delivered;
        all.counts.queued += queued;
        all.counts.dropped += dropped;
        most_groups = most_groups.max(count);
        all.counted_all &= part.counted_all;
        all.limits.extend(part.limits);
        for receiver in part.receivers {
            match &receiver.group {
                Some(group) => {
                    let known = groups.entry(group.clone());
                    let known = known.or_insert_with(|| receiver.clone());
                    known.members = known.members.max(receiver.members);
                }
                None => all.receivers.push(receiver),
            }
        }
    }
    all.counts.groups = most_groups.max(groups.len() as u64);
    all.receivers.sort_by(|one, other| {
        (one.outcome, &one.client_id).cmp(&(other.outcome, &other.client_id))
    });
    all.receivers.extend(groups.into_values());
    all.counted_all &= all.receivers.len() <= limit;
    all.receivers.truncate(limit);
    all
}
