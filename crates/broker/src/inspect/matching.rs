//! Who would get a message, as far as this node knows.

use std::sync::Arc;

use admin::api::{MatchCounts, Outcome, Receiver, SharedGroupRow};
use admin::page::{self, MissingReason};
use broker_core::SessionKey;
use mqtt_proto::QoS;
use mqtt_session::Qos0Inbox;

use super::question::MatchPart;
use super::rows::{Own, shared_parts, state};
use super::{loops, stores};
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
    for (_, summary, matching) in loops::matching(node, sessions, topic).await? {
        let own_message = publisher == Some(&summary.client_id);
        let wanted = matching
            .iter()
            .find(|of| shared_parts(&of.filter).0.is_none() && !(of.no_local && own_message));
        let Some(wanted) = wanted else {
            // No Local, or it has unsubscribed meanwhile.
            part.counts.delivered -= 1;
            continue;
        };
        let is_full = summary.queued >= summary.queue_limit;
        let (outcome, reason) = match is_full {
            true => (Outcome::Dropped, Some("queue_full_messages")),
            false => (Outcome::Delivered, None),
        };
        if is_full {
            part.counts.delivered -= 1;
            part.counts.dropped += 1;
        }
        let detail = is_full.then(|| {
            format!(
                "{} of {} messages wait",
                summary.queued, summary.queue_limit
            )
        });
        part.receivers.push(Receiver {
            client_id: Some(summary.client_id),
            group: None,
            filter: wanted.filter.clone(),
            qos: wanted.qos.min(qos),
            node: Some(own.node),
            node_name: Some(own.name.clone()),
            state: Some(state(summary.life)),
            outcome,
            reason: reason.map(str::to_owned),
            detail,
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
                members: Some(members.len() as u64),
            });
        }
    }
    let left = limit.saturating_sub(part.receivers.len());
    let absent = stores::absent(node, topic, left);
    let qos0_waits = node.settings.read().policy.qos0_inbox != Qos0Inbox::Never;
    let drops_qos0 = qos == QoS::AtMostOnce as u8 && !qos0_waits;
    let mut full = 0;
    for receiver in absent.receivers {
        let receiver = match receiver.outcome {
            Outcome::Queued if drops_qos0 => Receiver {
                outcome: Outcome::Dropped,
                reason: Some("qos0_offline".to_owned()),
                ..receiver
            },
            _ => receiver,
        };
        full += u64::from(receiver.outcome == Outcome::Dropped);
        part.receivers.push(Receiver {
            qos: receiver.qos.min(qos),
            ..receiver
        });
    }
    part.counts.dropped += full;
    part.counts.queued += absent.count.saturating_sub(full);
    part.counted_all &= absent.counted_all;
    Ok(part)
}

/// Shared groups of which this node knows members, in the order of their filters and then names.
pub(super) fn groups(node: &Arc<Node>, after: &str, limit: usize) -> Vec<SharedGroupRow> {
    let key = |filter: &str| {
        let (group, filter) = shared_parts(filter);
        page::join(filter, group.unwrap_or_default())
    };
    let all = node.routes.groups().into_iter();
    let mut rows: Vec<_> = all
        .map(|group| (key(group.filter()), group))
        .filter(|(key, _)| after.is_empty() || key.as_str() > after)
        .collect();
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rows = rows.into_iter().take(limit).map(|(_, group)| {
        let (members, online) = group.counts();
        let (name, filter) = shared_parts(group.filter());
        SharedGroupRow {
            group: name.unwrap_or_default().to_owned(),
            filter: filter.to_owned(),
            members: members as u64,
            online: online as u64,
        }
    });
    rows.collect()
}

/// The parts of several nodes. A group is known to each that has members of it, or that is told of it: it counts once.
pub(super) fn merge(parts: Vec<MatchPart>, limit: usize) -> MatchPart {
    let mut all = MatchPart {
        counted_all: true,
        ..MatchPart::default()
    };
    let mut groups: std::collections::BTreeMap<String, Receiver> = Default::default();
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
