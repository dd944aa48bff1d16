//! Who would get a message, as far as this node knows.

use std::sync::Arc;

use admin::page::MissingReason;
use authorization::Action;
use broker_core::inspect::MatchingSession;
use broker_core::{Reason, SessionKey};
use inspection::merge::full;
use inspection::{MatchPart, Outcome, Part, QueueLimit, Receiver};
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
                false => full.is_dropped.then(reason_of_full),
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
            receiver.reason = Some(reason_of_full());
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

/// Why a message is dropped that comes to a full queue.
pub(super) fn reason_of_full() -> String {
    DropReason::QueueFullMessages.as_str().to_owned()
}

fn queue_limit(policy: &Policy) -> QueueLimit {
    let makes_room = policy.queue_full == QueueFull::DropOldest;
    QueueLimit(policy.queue_messages.into(), makes_room)
}
