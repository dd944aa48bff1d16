//! What a shard drops from its queues so that no class and no node has more than it may.
//!
//! A message that is too old is dropped. If the queues of a class that a node keeps have too many bytes, each shard that the
//! node leads drops its share of what is too much, in proportion to what it has: the oldest messages of the queue with the
//! most bytes, [`AT_ONCE`] of them, and then again of the one that has the most by then. If all queues of the node have too
//! many, the default class drops first, then the other ones from the last to the first: so devices, which come and go in any
//! number, cannot push out what waits for a class that somebody has chosen.
//!
//! Replicas of a shard on several nodes are limited by each of these; as only the leader drops, and only its share, what is too
//! much is dropped once. After a shard has dropped for that reason, it does so again only when all others have been looked at.
//!
//! Deliberately absent: what messages weigh, one by one; a queue's mean counts, and the next look corrects it.

use std::ops::Range;

use mqtt_session::ClassId;
use store_state::Retention;
use store_state::inbox::{InboxId, RetentionLimit};

use crate::retention::found::{Found, LargeQueue, Overdue, QueuedBytes};
use crate::retention::held::HeldBytes;

/// Messages that one operation drops at most: what else the shard has to do comes in between.
pub(super) const AT_ONCE: u64 = 2_048;

/// Operations that follow one look at most.
const MOST: usize = 256;

/// An operation that drops messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trim {
    pub(super) inbox: InboxId,
    pub(super) sequences: Range<u64>,
    pub(super) limit: RetentionLimit,
}

impl Trim {
    pub(super) fn is_for_bytes(&self) -> bool {
        self.limit == RetentionLimit::Bytes
    }
}

/// What is dropped after a look, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) trims: Vec<Trim>,
    /// More is to be dropped than one look is followed by.
    pub(super) has_more: bool,
}

impl Plan {
    fn push(&mut self, trim: Trim) {
        self.has_more |= self.trims.len() == MOST;
        if !self.has_more {
            self.trims.push(trim);
        }
    }

    fn age(&mut self, Overdue { inbox, sequences }: &Overdue) {
        let parts = sequences.clone().step_by(AT_ONCE as usize);
        let mut trims = parts.map(|from| Trim {
            inbox: *inbox,
            sequences: from..sequences.end.min(from + AT_ONCE),
            limit: RetentionLimit::Age,
        });
        while !self.has_more
            && let Some(trim) = trims.next()
        {
            self.push(trim);
        }
    }

    /// Drops about so many bytes from the largest of these queues. Says how many that are.
    fn shrink(&mut self, queues: &mut [LargeQueue], bytes: u64) -> u64 {
        let mut left = bytes;
        let largest = |queues: &mut [LargeQueue]| {
            let droppable = queues.iter_mut().enumerate();
            let droppable = droppable.filter(|(_, queue)| !queue.droppable.is_empty());
            let largest = droppable.max_by_key(|(_, queue)| queue.bytes);
            largest.map(|(place, _)| place)
        };
        while left > 0
            && !self.has_more
            && let Some(place) = largest(queues)
        {
            let queue = &mut queues[place];
            let mean = (queue.bytes.0 / queue.messages.0.max(1)).max(1);
            let first = queue.droppable.start;
            let count = left.div_ceil(mean).min(AT_ONCE);
            let end = queue.droppable.end.min(first + count);
            let dropped = (end - first) * mean;
            queue.droppable.start = end;
            queue.bytes.0 = queue.bytes.0.saturating_sub(dropped);
            queue.messages.0 = queue.messages.0.saturating_sub(end - first);
            left = left.saturating_sub(dropped);
            self.push(Trim {
                inbox: queue.inbox,
                sequences: first..end,
                limit: RetentionLimit::Bytes,
            });
        }
        bytes - left
    }
}

/// What a shard that this node leads drops by what was found there, and by what all queues have that the node keeps, if that
/// is known.
pub(super) fn plan(found: &Found, held: Option<&HeldBytes>, rules: &Retention) -> Plan {
    let mut plan = Plan::default();
    for overdue in &found.overdue {
        plan.age(overdue);
    }
    if let Some(held) = held {
        plan.limit_bytes(found, held, rules);
    }
    plan
}

impl Plan {
    fn limit_bytes(&mut self, found: &Found, held: &HeldBytes, rules: &Retention) {
        let excess = excess(held, rules);
        for class in &found.classes {
            let of_class = excess.iter().find(|of| of.class == class.class);
            let share = of_class.map_or(0, |of| share(of.excess.0, class.bytes.0, of.bytes.0));
            self.shrink(&mut class.largest.clone(), share);
        }
    }
}

/// What the queues of a class have, and how much of that is too much.
struct Excess {
    class: ClassId,
    bytes: QueuedBytes,
    excess: QueuedBytes,
}

/// What is too much in each class: by its own limit, and by that of the node. What the node has too much, the default class has
/// first, with classes that are not configured, and then the others from the last to the first.
fn excess(held: &HeldBytes, rules: &Retention) -> Vec<Excess> {
    let own = |&(class, bytes): &(ClassId, QueuedBytes)| {
        let most = rules.of(class).class_bytes;
        let excess = most.map_or(0, |most| bytes.0.saturating_sub(most.get()));
        Excess {
            class,
            bytes,
            excess: QueuedBytes(excess),
        }
    };
    let mut classes: Vec<Excess> = held.classes.iter().map(own).collect();
    classes.sort_by_key(|of| {
        let place = rules.classes.iter().position(|(id, _)| *id == of.class);
        place.map_or(0, |place| rules.classes.len() - place)
    });
    let of_node = rules
        .node_bytes
        .map_or(0, |most| held.node.0.saturating_sub(most.get()));
    let gone: u64 = classes.iter().map(|of| of.excess.0).sum();
    let mut left = of_node.saturating_sub(gone);
    for of in &mut classes {
        let more = left.min(of.bytes.0 - of.excess.0);
        of.excess.0 += more;
        left -= more;
    }
    classes
}

/// The part of an excess that falls to a shard, by its bytes and all bytes. Rounded up: the last byte goes, too.
fn share(excess: u64, own: u64, all: u64) -> u64 {
    let part = (u128::from(excess) * u128::from(own)).div_ceil(u128::from(all.max(1)));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use store_state::QueueRetention;

    use super::*;
    use crate::retention::found::{ClassQueues, QueuedMessages, WaitingSessions};

    fn inbox(number: u64) -> InboxId {
        InboxId::new(1, number)
    }

    /// A queue whose messages have 100 bytes each, and of which none has been sent.
    fn queue(number: u64, messages: u32) -> LargeQueue {
        let messages = u64::from(messages);
        LargeQueue {
            client_id: number.to_string().into(),
            class: ClassId::DEFAULT,
            messages: QueuedMessages(messages),
            bytes: QueuedBytes(messages * 100),
            oldest: None,
            rates: None,
            inbox: inbox(number),
            droppable: 1..messages + 1,
        }
    }

    fn class(class: u32, mut largest: Vec<LargeQueue>) -> ClassQueues {
        largest.sort_by_key(|queue| std::cmp::Reverse(queue.bytes));
        ClassQueues {
            class: ClassId(class),
            sessions: WaitingSessions(largest.len() as u64),
            messages: QueuedMessages(0),
            bytes: QueuedBytes(largest.iter().map(|queue| queue.bytes.0).sum()),
            oldest: None,
            largest,
            ..ClassQueues::default()
        }
    }

    fn rules(class_bytes: u64, node_bytes: u64) -> Retention {
        let own = QueueRetention {
            class_bytes: NonZero::new(class_bytes),
            ..QueueRetention::default()
        };
        Retention {
            device: QueueRetention::default(),
            handover_away_ms: None,
            classes: vec![(ClassId(7), own)],
            node_bytes: NonZero::new(node_bytes),
            ..Retention::default()
        }
    }

    /// Inbox and first sequence that stays.
    fn trims(plan: &Plan, limit: RetentionLimit) -> Vec<(u64, u64)> {
        assert!(plan.trims.iter().all(|trim| trim.limit == limit));
        let all = plan.trims.iter();
        all.map(|trim| (trim.inbox.number.0, trim.sequences.end))
            .collect()
    }

    #[test]
    fn what_is_too_old_goes_in_parts() {
        let found = Found {
            overdue: vec![
                Overdue {
                    inbox: inbox(1),
                    sequences: 5..6,
                },
                Overdue {
                    inbox: inbox(2),
                    sequences: 10..5_000,
                },
            ],
            ..Found::default()
        };
        let plan = plan(&found, None, &Retention::default());
        let expected = [(1, 6), (2, 2_058), (2, 4_106), (2, 5_000)];
        assert_eq!(trims(&plan, RetentionLimit::Age), expected);
        assert!(!plan.has_more);
    }

    #[test]
    fn one_look_is_followed_by_so_much_at_most() {
        let found = Found {
            overdue: vec![Overdue {
                inbox: inbox(1),
                sequences: 1..10_000_000,
            }],
            ..Found::default()
        };
        let plan = plan(&found, None, &Retention::default());
        assert_eq!(plan.trims.len(), MOST);
        assert!(plan.has_more);
    }

    #[test]
    fn a_class_that_has_too_much_drops_of_its_largest_queue() {
        let found = Found {
            classes: vec![
                class(0, vec![queue(1, 100_000)]),
                class(7, vec![queue(2, 5_000), queue(3, 4_000), queue(4, 10)]),
            ],
            ..Found::default()
        };
        let bytes = |classes: [(u32, u64); 2]| HeldBytes {
            node: QueuedBytes(99_000_000),
            classes: classes
                .map(|(of, bytes)| (ClassId(of), QueuedBytes(bytes)))
                .to_vec(),
        };
        let held = bytes([(0, 10_000_000), (7, 901_000)]);
        let within = plan(&found, Some(&held), &rules(901_000, 0));
        assert_eq!(within.trims, []);
        // 301,000 bytes too many: of the largest, then of the other one, which is the largest by then.
        let over = plan(&found, Some(&held), &rules(600_000, 0));
        let expected = [(2, 2_049), (3, 963)];
        assert_eq!(trims(&over, RetentionLimit::Bytes), expected);
        // Half of the class is in shards that others lead, or in other ones.
        let held = bytes([(0, 10_000_000), (7, 1_802_000)]);
        let shared = plan(&found, Some(&held), &rules(1_601_800, 0));
        assert_eq!(trims(&shared, RetentionLimit::Bytes), [(2, 1_002)]);
    }

    #[test]
    fn a_node_that_has_too_much_drops_of_the_largest_queues_of_devices_first() {
        let found = Found {
            classes: vec![
                class(0, vec![queue(1, 3_000), queue(5, 100)]),
                class(7, vec![queue(2, 2_900)]),
            ],
            ..Found::default()
        };
        let held = HeldBytes {
            node: QueuedBytes(600_000),
            classes: vec![
                (ClassId(0), QueuedBytes(310_000)),
                (ClassId(7), QueuedBytes(290_000)),
            ],
        };
        let devices = plan(&found, Some(&held), &rules(0, 300_000));
        let expected = [(1, 2_049), (1, 3_001)];
        assert_eq!(trims(&devices, RetentionLimit::Bytes), expected);
        // If that is not enough, the other class.
        let all = plan(&found, Some(&held), &rules(0, 280_000));
        let expected = [(1, 2_049), (1, 3_001), (5, 101), (2, 101)];
        assert_eq!(trims(&all, RetentionLimit::Bytes), expected);
        // Half of the devices' queues are in shards of others: these drop the other half.
        let more = HeldBytes {
            node: QueuedBytes(910_000),
            classes: vec![
                (ClassId(0), QueuedBytes(620_000)),
                (ClassId(7), QueuedBytes(290_000)),
            ],
        };
        let half = plan(&found, Some(&more), &rules(0, 890_000));
        assert_eq!(trims(&half, RetentionLimit::Bytes), [(1, 101)]);
        // What the class drops is dropped of what the node has.
        let of_class = plan(&found, Some(&held), &rules(250_000, 560_000));
        assert_eq!(trims(&of_class, RetentionLimit::Bytes), [(2, 401)]);
    }

    #[test]
    fn what_may_have_been_sent_stays() {
        let mut sent = queue(1, 1_000);
        sent.droppable.start = sent.droppable.end;
        let found = Found {
            classes: vec![class(7, vec![sent, queue(2, 10)])],
            ..Found::default()
        };
        let held = HeldBytes {
            node: QueuedBytes(101_000),
            classes: vec![(ClassId(7), QueuedBytes(101_000))],
        };
        let plan = plan(&found, Some(&held), &rules(1, 0));
        assert_eq!(trims(&plan, RetentionLimit::Bytes), [(2, 11)]);
    }
}
