//! Who would get a message.

use std::collections::BTreeMap;

use crate::{MatchCounts, MatchPart, Outcome, QueueLimit, Receiver};

/// What the length of a queue means for a message that comes now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Full {
    /// The message would not wait there.
    pub is_dropped: bool,
    /// For people, if the queue is full.
    pub detail: Option<String>,
}

/// The same for a queue that may have so many messages and has `waiting`.
#[must_use]
pub fn full(QueueLimit(limit, makes_room): QueueLimit, waiting: u64) -> Full {
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
/// `reason`: of a drop because a queue is full.
pub fn weigh(part: &mut MatchPart, queues: &BTreeMap<String, u64>, reason: &str) {
    for receiver in &mut part.receivers {
        let client_id = receiver.client_id.as_ref();
        let waiting = client_id.and_then(|client_id| {
            let limit = part.limits.get(client_id)?;
            Some(full(*limit, *queues.get(client_id)?))
        });
        if let Some(full) = waiting.filter(|_| receiver.outcome == Outcome::Delivered) {
            if full.is_dropped {
                receiver.outcome = Outcome::Dropped;
                receiver.reason = Some(reason.to_owned());
                part.counts.delivered = part.counts.delivered.saturating_sub(1);
                part.counts.dropped = part.counts.dropped.saturating_add(1);
            }
            receiver.detail = full.detail.or(receiver.detail.take());
        }
    }
}

/// The parts of several nodes. A group is known to each that has members of it, or that is told of it: it counts once.
#[must_use]
pub fn matching(parts: Vec<MatchPart>, limit: usize) -> MatchPart {
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
        all.counts.delivered = all.counts.delivered.saturating_add(delivered);
        all.counts.queued = all.counts.queued.saturating_add(queued);
        all.counts.dropped = all.counts.dropped.saturating_add(dropped);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(client_id: Option<&str>, group: Option<&str>, members: Option<u64>) -> Receiver {
        Receiver {
            client_id: client_id.map(str::to_owned),
            group: group.map(str::to_owned),
            filter: "a".to_owned(),
            qos: 1,
            node: None,
            node_name: None,
            state: None,
            outcome: match group {
                Some(_) => Outcome::OneOf,
                None => Outcome::Delivered,
            },
            reason: None,
            detail: None,
            rule: None,
            members,
        }
    }

    fn part(receivers: Vec<Receiver>, delivered: u64) -> MatchPart {
        MatchPart {
            receivers,
            counts: MatchCounts {
                delivered,
                groups: 1,
                ..MatchCounts::default()
            },
            counted_all: true,
            limits: [("b".to_owned(), QueueLimit(2, false))].into(),
        }
    }

    #[test]
    fn a_group_of_several_nodes_counts_once_and_numbers_do_not_overflow() {
        let one = part(
            vec![
                receiver(Some("b"), None, None),
                receiver(None, Some("g"), Some(1)),
            ],
            u64::MAX,
        );
        let other = part(
            vec![
                receiver(Some("a"), None, None),
                receiver(None, Some("g"), Some(3)),
            ],
            1,
        );
        let all = matching(vec![one, other], 9);
        let names: Vec<_> = all
            .receivers
            .iter()
            .map(|of| (of.client_id.as_deref(), of.group.as_deref(), of.members))
            .collect();
        assert_eq!(
            names,
            [
                (Some("a"), None, None),
                (Some("b"), None, None),
                (None, Some("g"), Some(3))
            ]
        );
        assert_eq!((all.counts.delivered, all.counts.groups), (u64::MAX, 1));
        assert!(all.counted_all);
    }

    #[test]
    fn a_full_queue_drops_what_is_connected_unless_the_oldest_makes_room() {
        for (makes_room, waiting, outcome, delivered) in [
            (false, 1, Outcome::Delivered, 0),
            (false, 2, Outcome::Dropped, 0),
            (true, 2, Outcome::Delivered, 0),
        ] {
            // The count is one that its node has got wrong.
            let mut part = part(vec![receiver(Some("b"), None, None)], delivered);
            part.limits
                .insert("b".to_owned(), QueueLimit(2, makes_room));
            weigh(&mut part, &[("b".to_owned(), waiting)].into(), "full");
            let receiver = &part.receivers[0];
            assert_eq!(receiver.outcome, outcome, "{makes_room} {waiting}");
            let is_dropped = outcome == Outcome::Dropped;
            assert_eq!(receiver.reason.is_some(), is_dropped);
            assert_eq!(receiver.detail.is_some(), waiting == 2);
            assert_eq!(part.counts.dropped, u64::from(is_dropped));
        }
    }
}
