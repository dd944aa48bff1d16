//! Deliveries that are put off: a message with many receivers is given to some of them in each turn. A shared group
//! is a receiver (`to_groups.rs`).
//!
//! The rest of its receivers wait in a queue of its publisher, and so does what the publisher sends next: each
//! receiver gets the messages of a publisher in their order. The queues of several publishers take turns, and
//! messages of other publishers do not wait for them. A publisher whose messages wait is held back, in whichever
//! loop or node it is, until its queue is empty.
//!
//! At the limit of messages that wait, a message is delivered in the turn in which it comes, behind what waits of
//! its publisher.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hashing::HashMap;
use mqtt_session::ApplicationMessage;

use crate::backpressure::hold::tell_node;
use crate::clients::{BetweenLoops, ClientLoop, LoopIo, Timer};
use crate::key::Publisher;
use crate::publish::rest::{Rest, ToGroups};
use crate::retained::grace::UnderWay;
use crate::rim::Rim;
use crate::routes::MatchSet;
use crate::share::units;

/// Receivers that one message is given to before it is looked whether the turn has done enough.
const PIECE: usize = 256;

/// Receivers that one message is given to in the turn in which it comes.
const AT_ONCE: usize = 2_048;

/// Receivers that are served in each turn of those that wait.
const IN_A_TURN: usize = 2_048;

/// Messages that may wait, and their bytes.
const MESSAGES: usize = 65_536;
const BYTES: usize = 64 << 20;

/// Messages of one publisher that may wait before it is held back, if they have few receivers.
const FEW: usize = 64;

/// Deliveries that are worth a unit of work of the loop: what is written to each receiver is charged when it is
/// written.
const PER_UNIT: usize = 4;

/// A message that some of its receivers are still to get.
#[derive(Debug)]
pub(crate) struct Waiting {
    message: Arc<ApplicationMessage>,
    set: Arc<MatchSet>,
    /// Those receivers, among the targets of the match.
    range: Range<usize>,
    /// They are among its shared groups instead.
    groups: Option<Box<ToGroups>>,
    /// Of a RETAIN message, until all receivers have got it.
    _retaining: Option<UnderWay>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |to| to.bytes());
        self.message.body.heap_len() + groups
    }
}

/// Takes receivers off the front of a range, as many as make a piece.
fn next_piece(range: &mut Range<usize>) -> Range<usize> {
    let end = range.end.min(range.start + PIECE);
    let piece = range.start..end;
    range.start = end;
    piece
}

/// What waits of one publisher.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The publisher is held back.
    holds: bool,
}

/// The deliveries that a loop has put off.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    queues: HashMap<u64, Queue>,
    /// The publishers that have a queue, in their order.
    turns: VecDeque<u64>,
    /// Messages in all queues, their bytes, and receivers that are still to get theirs.
    messages: usize,
    bytes: usize,
    receivers: usize,
}

impl Deliveries {
    /// A message for which no receiver is left may wait as well, for its order.
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    fn is_full(&self) -> bool {
        self.messages >= MESSAGES || self.bytes >= BYTES
    }

    /// Whether messages of a publisher wait.
    fn has(&self, publisher: u64) -> bool {
        self.queues.contains_key(&publisher)
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

    fn count(&mut self, waiting: &Waiting) {
        self.messages += 1;
        self.bytes += waiting.bytes();
        self.receivers += waiting.range.len();
    }

    /// Puts a message behind those of its publisher. True: the publisher is to be held back from now on.
    fn put(&mut self, waiting: Waiting) -> bool {
        let publisher = waiting.message.publisher;
        self.count(&waiting);
        let queue = self.queue(publisher);
        let is_long = waiting.range.len() > PIECE || queue.waiting.len() >= FEW;
        queue.waiting.push_back(waiting);
        is_long && !std::mem::replace(&mut queue.holds, true)
    }

    /// Puts a message before all others of its publisher: one that was taken out of its queue.
    fn put_back(&mut self, waiting: Waiting) {
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
    fn take_next(&mut self) -> Option<Waiting> {
        let publisher = *self.turns.front()?;
        let waiting = self.take(publisher)?;
        self.turns.rotate_left(1);
        Some(waiting)
    }

    /// Takes out the next message of a publisher.
    fn take(&mut self, publisher: u64) -> Option<Waiting> {
        let waiting = self.queues.get_mut(&publisher)?.waiting.pop_front()?;
        self.messages -= 1;
        self.bytes -= waiting.bytes();
        self.receivers -= waiting.range.len();
        Some(waiting)
    }

    /// Forgets the queue of a publisher if nothing waits in it. True: the publisher is held back no longer.
    fn close(&mut self, publisher: u64) -> bool {
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

impl<R: Rim> ClientLoop<R> {
    /// Gives a message to targets of this loop; to some of them later, if they are many or there is enough to do
    /// in this turn.
    pub(crate) fn deliver_range(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &Arc<MatchSet>,
        mut range: Range<usize>,
    ) {
        if !self.deliveries.has(message.publisher) {
            let at_once = range.start + AT_ONCE;
            while !range.is_empty() && range.start < at_once && !io.has_done_enough() {
                let piece = next_piece(&mut range);
                self.deliver_piece(io, message, set, piece);
            }
            if range.is_empty() {
                return;
            }
        }
        self.put_off(io, message, set, range, None);
    }

    /// Gives a message to the rest of the groups of its match, in later turns.
    pub(crate) fn put_off_groups(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        rest: Rest,
    ) {
        let Rest { set, range, to } = rest;
        // It waits for members behind earlier messages that will.
        let is_behind = to.served.is_some() && self.deliveries.has(message.publisher);
        if range.is_empty() && !is_behind {
            self.groups_done(io, message, to);
        } else {
            self.put_off(io, message, &set, range, Some(Box::new(to)));
        }
    }

    fn put_off(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &Arc<MatchSet>,
        range: Range<usize>,
        groups: Option<Box<ToGroups>>,
    ) {
        let is_full = self.deliveries.is_full();
        if self.deliveries.is_empty() {
            io.arm(io.now_ms(), Timer::Deliveries.to_bits());
        }
        self.stats.deliveries_put_off.add(1);
        let holds = self.deliveries.put(Waiting {
            message: Arc::clone(message),
            set: Arc::clone(set),
            range,
            groups,
            _retaining: message.retain.then(|| self.node.retaining.begin()),
        });
        if holds {
            self.hold_for_deliveries(io, message.publisher, true);
        }
        if is_full {
            self.deliver_all_of(io, message.publisher);
        }
        self.count_waiting();
    }

    fn deliver_piece(
        &mut self,
        io: &mut impl LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &MatchSet,
        range: Range<usize>,
    ) {
        let work = units(range.len().div_ceil(PER_UNIT));
        io.charge(work);
        self.deliver_targets(io, message, set, range);
    }

    /// A turn's share of what waits.
    pub(crate) fn go_on_delivering(&mut self, io: &mut impl LoopIo) {
        let mut receivers = 0;
        while receivers < IN_A_TURN
            && let Some(waiting) = self.deliveries.take_next()
        {
            // One without receivers is looked at as well.
            receivers += self.deliver_next(io, waiting).max(1);
        }
        self.count_waiting();
        if !self.deliveries.is_empty() {
            io.arm(io.now_ms(), Timer::Deliveries.to_bits());
        }
    }

    /// All that waits of a publisher, at once.
    fn deliver_all_of(&mut self, io: &mut impl LoopIo, publisher: u64) {
        while let Some(waiting) = self.deliveries.take(publisher) {
            self.deliver_next(io, waiting);
        }
    }

    /// Gives a message that was taken out of the queue of its publisher to a piece of its receivers: how many these
    /// are.
    fn deliver_next(&mut self, io: &mut impl LoopIo, mut waiting: Waiting) -> usize {
        let piece = next_piece(&mut waiting.range);
        let receivers = piece.len();
        let Waiting {
            message,
            set,
            groups,
            ..
        } = &mut waiting;
        match groups {
            None => self.deliver_piece(io, message, set, piece),
            Some(to) => self.deliver_to_next_groups(io, message, set, piece, to),
        }
        if !waiting.range.is_empty() {
            self.deliveries.put_back(waiting);
            return receivers;
        }
        if let Some(to) = waiting.groups {
            self.groups_done(io, &waiting.message, *to);
        }
        self.end_queue(io, waiting.message.publisher);
        receivers
    }

    fn end_queue(&mut self, io: &mut impl LoopIo, publisher: u64) {
        if self.deliveries.close(publisher) {
            self.hold_for_deliveries(io, publisher, false);
        }
    }

    fn count_waiting(&self) {
        let receivers = self.deliveries.receivers;
        self.stats.deliveries_waiting.set(receivers as u64);
    }

    /// Has a publisher held back, or let go.
    fn hold_for_deliveries(&mut self, io: &mut impl LoopIo, publisher: u64, hold: bool) {
        if hold {
            self.stats.delivery_holds.add(1);
        }
        match Publisher::from_bits(publisher) {
            // At once: the next of its messages may be among those that are handled now.
            Some(Publisher::Here(publisher)) if hold && publisher.loop_index() == self.index => {
                self.held(publisher.key(), None);
            }
            Some(Publisher::Here(publisher)) => {
                // By mail also within this loop: a publisher that is let go handles what was kept of it.
                let mail = if hold {
                    BetweenLoops::Hold(publisher, None)
                } else {
                    BetweenLoops::Release(publisher)
                };
                io.send(publisher.loop_index(), mail.into());
            }
            Some(Publisher::Elsewhere(publisher)) => {
                // If that is lost, so is what the node knows of the hold.
                tell_node(&self.node, publisher, hold);
            }
            // The broker itself, or a will.
            None => {}
        }
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
