//! The queues of deliveries that are put off, one for each publisher.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hashing::HashMap;
use mqtt_session::ApplicationMessage;

use crate::publish::rest::ToGroups;
use crate::publish::retained_order::RetainedOrder;
use crate::retained::grace::UnderWay;
use crate::routes::MatchSet;
use crate::stats::BrokerStats;

/// Receivers that one message is given to before it is looked whether the turn has done enough.
const PIECE: usize = 256;

/// Receivers that one message is given to in the turn in which it comes.
///
/// Limit: receivers of a message, a shared group being one, that get it in a turn | {} at once,
/// {distribute::IN_A_TURN} of those that wait | they wait for a later turn, and hold their publisher back
pub(super) const AT_ONCE: usize = 2_048;

/// Messages that may wait, and their bytes.
///
/// Limit: messages with receivers that wait | {} or {BYTES:bytes} a loop | delivered in the turn in which they come
const MESSAGES: usize = 65_536;

const BYTES: usize = 64 << 20;

/// Messages of one publisher that may wait before it is held back, if they have few receivers.
const FEW: usize = 64;

/// A message that some of its receivers are still to get.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) message: Arc<ApplicationMessage>,
    pub(super) set: Arc<MatchSet>,
    /// Those receivers, among the targets of the match.
    pub(super) range: Range<usize>,
    /// They are among its shared groups instead.
    pub(super) groups: Option<Box<ToGroups>>,
    /// Of a RETAIN message, until all receivers have got it.
    pub(super) _retaining: Option<UnderWay>,
}

impl Waiting {
    fn is_retained_for_sessions(&self) -> bool {
        self.message.retain && self.groups.is_none()
    }

    pub(super) fn bytes(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |to| to.bytes());
        self.message.body.heap_len() + groups
    }
}

/// Takes receivers off the front of a range, as many as make a piece.
pub(super) fn next_piece(range: &mut Range<usize>) -> Range<usize> {
    let end = range.end.min(range.start + PIECE);
    let piece = range.start..end;
    range.start = end;
    piece
}

/// What waits of one publisher.
#[derive(Debug, Default)]
struct Queue {
    pub(super) waiting: VecDeque<Waiting>,
    /// The publisher is held back.
    pub(super) holds: bool,
}

/// The deliveries that a loop has put off.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    queues: HashMap<u64, Queue>,
    /// How many RETAIN messages of a topic wait, and in whose queue: those of one publisher at a time.
    retained: HashMap<Box<[u8]>, (u64, usize)>,
    /// What other loops deliver.
    pub(crate) elsewhere: RetainedOrder,
    /// The publishers that have a queue, in their order.
    pub(super) turns: VecDeque<u64>,
    /// Messages in all queues, their bytes, and receivers that are still to get theirs.
    pub(super) messages: usize,
    pub(super) bytes: usize,
    pub(super) receivers: usize,
}

impl Deliveries {
    /// A message for which no receiver is left may wait as well, for its order.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages >= MESSAGES || self.bytes >= BYTES
    }

    /// Shows how many receivers are still to get theirs.
    pub(super) fn count_waiting(&self, stats: &BrokerStats) {
        stats.deliveries_waiting.set(self.receivers as u64);
    }

    /// Whether messages of a publisher wait.
    pub(super) fn has(&self, publisher: u64) -> bool {
        self.queues.contains_key(&publisher)
    }

    /// The publisher whose messages have to be delivered before this one: RETAIN messages of a topic reach each receiver
    /// in their order, whoever publishes them.
    pub(super) fn before(&self, message: &ApplicationMessage) -> Option<u64> {
        if !message.retain || self.retained.is_empty() {
            return None;
        }
        let (publisher, _) = *self.retained.get(message.body.topic_bytes())?;
        (publisher != message.publisher).then_some(publisher)
    }

    /// The next of the groups that a message of a publisher gets in the turn in which it comes: the first ones in
    /// any case, unless its messages wait.
    pub(crate) fn next_at_once(
        &self,
        publisher: u64,
        left: &mut Range<usize>,
        has_done_enough: bool,
    ) -> Option<Range<usize>> {
        let most = if has_done_enough { PIECE } else { AT_ONCE };
        let goes_on = left.start < left.end.min(most) && !self.has(publisher);
        goes_on.then(|| next_piece(left))
    }

    pub(super) fn count(&mut self, waiting: &Waiting) {
        self.messages += 1;
        self.bytes += waiting.bytes();
        self.receivers += waiting.range.len();
        if waiting.is_retained_for_sessions() {
            let topic = waiting.message.body.topic_bytes();
            let of_topic = self.retained.entry(topic.into());
            let (_, count) = of_topic.or_insert((waiting.message.publisher, 0));
            *count += 1;
        }
    }

    /// Puts a message behind those of its publisher. True: the publisher is to be held back from now on.
    pub(super) fn put(&mut self, waiting: Waiting) -> bool {
        let publisher = waiting.message.publisher;
        self.count(&waiting);
        let queue = self.queue(publisher);
        let is_long = waiting.range.len() > PIECE || queue.waiting.len() >= FEW;
        queue.waiting.push_back(waiting);
        is_long && !std::mem::replace(&mut queue.holds, true)
    }

    /// Puts a message before all others of its publisher: one that was taken out of its queue.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.count(&waiting);
        let queue = self.queue(waiting.message.publisher);
        queue.waiting.push_front(waiting);
    }

    fn queue(&mut self, publisher: u64) -> &mut Queue {
        self.queues.entry(publisher).or_insert_with(|| {
            self.turns.push_back(publisher);
            Queue::default()
        })
    }

    /// Takes out the next message, of the publisher whose turn it is.
    pub(super) fn take_next(&mut self) -> Option<Waiting> {
        let publisher = *self.turns.front()?;
        let waiting = self.take(publisher)?;
        self.turns.rotate_left(1);
        Some(waiting)
    }

    /// Takes out the next message of a publisher.
    pub(super) fn take(&mut self, publisher: u64) -> Option<Waiting> {
        let waiting = self.queues.get_mut(&publisher)?.waiting.pop_front()?;
        self.messages -= 1;
        self.bytes -= waiting.bytes();
        self.receivers -= waiting.range.len();
        let topic = waiting.message.body.topic_bytes();
        if waiting.is_retained_for_sessions()
            && let Some((_, count)) = self.retained.get_mut(topic)
        {
            *count -= 1;
            if *count == 0 {
                self.retained.remove(topic);
            }
        }
        Some(waiting)
    }

    /// Forgets the queue of a publisher if nothing waits in it. True: the publisher is held back no longer.
    pub(super) fn close(&mut self, publisher: u64) -> bool {
        let is_empty = |queue: &Queue| queue.waiting.is_empty();
        if !self.queues.get(&publisher).is_some_and(is_empty) {
            return false;
        }
        if self.turns.back() == Some(&publisher) {
            self.turns.pop_back();
        } else {
            self.turns.retain(|other| *other != publisher);
        }
        self.queues
            .remove(&publisher)
            .is_some_and(|queue| queue.holds)
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use super::*;
    use crate::publish::rest::Which;
    use crate::routes::Routes;

    fn waiting(publisher: u64, name: &str, receivers: Range<usize>) -> Waiting {
        Waiting {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new(name, b""),
                qos: QoS::AtMostOnce,
                retain: false,
                publisher,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            set: Arc::new(Routes::with_seed(1).find(name)),
            range: receivers,
            groups: None,
            _retaining: None,
        }
    }

    /// Publisher, topic and receivers of all pieces, in the order in which they are delivered.
    fn drain(deliveries: &mut Deliveries) -> Vec<(u64, String, Range<usize>)> {
        let mut pieces = Vec::new();
        while let Some(mut waiting) = deliveries.take_next() {
            let publisher = waiting.message.publisher;
            let topic = waiting.message.body.topic().into();
            pieces.push((publisher, topic, next_piece(&mut waiting.range)));
            if !waiting.range.is_empty() {
                deliveries.put_back(waiting);
            }
            deliveries.close(publisher);
        }
        pieces
    }

    #[test]
    fn publishers_take_turns_and_each_keeps_its_order() {
        let mut deliveries = Deliveries::default();
        assert!(deliveries.put(waiting(1, "a", 0..600)));
        assert!(!deliveries.put(waiting(1, "b", 0..2)));
        assert!(deliveries.put(waiting(2, "c", 5..300)));
        assert_eq!(deliveries.receivers, 600 + 2 + 295);
        let piece = |publisher, name: &str, range| (publisher, name.to_owned(), range);
        let expected = [
            piece(1, "a", 0..256),
            piece(2, "c", 5..261),
            piece(1, "a", 256..512),
            piece(2, "c", 261..300),
            piece(1, "a", 512..600),
            piece(1, "b", 0..2),
        ];
        assert_eq!(drain(&mut deliveries), expected);
        assert!(
            deliveries.is_empty() && deliveries.queues.is_empty() && deliveries.turns.is_empty()
        );
    }

    #[test]
    fn a_retained_message_goes_behind_one_of_another_publisher_to_the_same_topic() {
        let mut deliveries = Deliveries::default();
        let message = |publisher, name: &str, retain| {
            let mut waiting = waiting(publisher, name, 0..600);
            waiting.message = Arc::new(ApplicationMessage {
                retain,
                ..(*waiting.message).clone()
            });
            waiting
        };
        let before = |deliveries: &Deliveries, publisher, name: &str, retain| {
            deliveries.before(&message(publisher, name, retain).message)
        };
        deliveries.put(message(1, "a", true));
        deliveries.put(message(1, "a", true));
        deliveries.put(message(1, "b", false));
        assert_eq!(before(&deliveries, 2, "a", true), Some(1));
        // Its own queue keeps its order, and who does not retain has none with others.
        assert_eq!(before(&deliveries, 1, "a", true), None);
        assert_eq!(before(&deliveries, 2, "a", false), None);
        assert_eq!(before(&deliveries, 2, "b", true), None);
        let first = deliveries.take(1).unwrap();
        assert_eq!(before(&deliveries, 2, "a", true), Some(1));
        deliveries.put_back(first);
        assert_eq!(drain(&mut deliveries).len(), 9);
        assert_eq!(before(&deliveries, 2, "a", true), None);
    }

    #[test]
    fn many_groups_of_a_message_wait_and_so_do_those_of_the_next() {
        let mut deliveries = Deliveries::default();
        let at_once = |deliveries: &Deliveries, groups, has_done_enough| {
            let mut left = 0..groups;
            while deliveries
                .next_at_once(1, &mut left, has_done_enough)
                .is_some()
            {}
            left
        };
        assert_eq!(at_once(&deliveries, 70_000, false), AT_ONCE..70_000);
        assert_eq!(at_once(&deliveries, 70_000, true), PIECE..70_000);
        assert_eq!(at_once(&deliveries, 1, true), 1..1);
        assert_eq!(at_once(&deliveries, 0, false), 0..0);

        let to_groups = |name: &str, groups, served: Option<Vec<u32>>| Waiting {
            groups: Some(Box::new(ToGroups {
                which: Which::All,
                but: Box::default(),
                once: None,
                publication: None,
                served,
            })),
            ..waiting(1, name, groups)
        };
        // It has no receivers left, and waits for members that are not known: what comes later is behind it.
        deliveries.put(to_groups("c", 0..0, Some(Vec::new())));
        assert_eq!(at_once(&deliveries, 1, false), 0..1);
        assert_eq!(drain(&mut deliveries), [(1, "c".to_owned(), 0..0)]);
        assert_eq!(at_once(&deliveries, 1, false), 1..1);

        assert!(deliveries.put(to_groups("a", AT_ONCE..3_000, Some(vec![0; 9]))));
        assert_eq!(at_once(&deliveries, 1, false), 0..1);
        deliveries.put(to_groups("b", 0..1, None));
        deliveries.put(waiting(1, "b", 0..1));
        deliveries.put(to_groups("c", 0..0, Some(Vec::new())));
        let piece = |name: &str, range| (1, name.to_owned(), range);
        let expected = [
            piece("a", 2_048..2_304),
            piece("a", 2_304..2_560),
            piece("a", 2_560..2_816),
            piece("a", 2_816..3_000),
            piece("b", 0..1),
            piece("b", 0..1),
            piece("c", 0..0),
        ];
        assert_eq!(drain(&mut deliveries), expected);
        assert!(deliveries.is_empty());
        assert_eq!((deliveries.bytes, deliveries.receivers), (0, 0));
        assert_eq!(at_once(&deliveries, 1, false), 1..1);
    }

    #[test]
    fn who_publishes_to_few_is_held_back_when_many_messages_wait() {
        let mut deliveries = Deliveries::default();
        let held: Vec<bool> = (0..FEW + 2)
            .map(|_| deliveries.put(waiting(1, "a", 0..1)))
            .collect();
        assert_eq!(held.iter().position(|held| *held), Some(FEW));
        assert_eq!(held.iter().filter(|held| **held).count(), 1);
        while deliveries.take_next().is_some() {}
        assert!(deliveries.close(1));
        assert!(!deliveries.close(1));
    }
}
