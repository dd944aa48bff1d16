//! Deliveries that are put off: a message with many receivers is given to some of them in each turn.
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

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use mqtt_session::ApplicationMessage;

use super::hold::tell_node;
use super::share::units;
use super::{ClientLoop, LoopIo, Mail, Timer};
use crate::grace::UnderWay;
use crate::key::Publisher;
use crate::routes::MatchSet;

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
pub(super) struct Waiting {
    message: Arc<ApplicationMessage>,
    set: Arc<MatchSet>,
    /// Those receivers, among the targets of the match.
    range: Range<usize>,
    /// Of a RETAIN message, until all receivers have got it.
    _retaining: Option<UnderWay>,
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
pub(super) struct Deliveries {
    queues: HashMap<u64, Queue, RandomState>,
    /// The publishers that have a queue, in their order.
    turns: VecDeque<u64>,
    /// Messages in all queues, their bytes, and receivers that are still to get theirs.
    messages: usize,
    bytes: usize,
    receivers: usize,
}

impl Deliveries {
    fn is_empty(&self) -> bool {
        self.receivers == 0
    }

    fn is_full(&self) -> bool {
        self.messages >= MESSAGES || self.bytes >= BYTES
    }

    /// Whether messages of a publisher wait.
    fn has(&self, publisher: u64) -> bool {
        !self.is_empty() && self.queues.contains_key(&publisher)
    }

    /// Puts a message behind those of its publisher. True: the publisher is to be held back from now on.
    fn put(&mut self, waiting: Waiting) -> bool {
        let publisher = waiting.message.publisher;
        self.messages += 1;
        self.bytes += waiting.message.body.heap_len();
        self.receivers += waiting.range.len();
        let queue = self.queues.entry(publisher).or_insert_with(|| {
            self.turns.push_back(publisher);
            Queue::default()
        });
        let is_long = waiting.range.len() > PIECE || queue.waiting.len() >= FEW;
        queue.waiting.push_back(waiting);
        is_long && !std::mem::replace(&mut queue.holds, true)
    }

    /// The next receivers, of the publisher whose turn it is.
    fn next_piece(&mut self) -> Option<Waiting> {
        let publisher = *self.turns.front()?;
        let piece = self.take(publisher)?;
        self.turns.rotate_left(1);
        Some(piece)
    }

    /// The next receivers of what waits of a publisher.
    fn take(&mut self, publisher: u64) -> Option<Waiting> {
        let queue = self.queues.get_mut(&publisher)?;
        let first = queue.waiting.front_mut()?;
        let end = first.range.end.min(first.range.start + PIECE);
        let piece = Waiting {
            message: Arc::clone(&first.message),
            set: Arc::clone(&first.set),
            range: first.range.start..end,
            _retaining: None,
        };
        first.range.start = end;
        if first.range.is_empty() {
            queue.waiting.pop_front();
            self.messages -= 1;
            self.bytes -= piece.message.body.heap_len();
        }
        self.receivers -= piece.range.len();
        Some(piece)
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

impl ClientLoop {
    /// Gives a message to targets of this loop; to some of them later, if they are many or there is enough to do
    /// in this turn.
    pub(super) fn deliver_range(
        &mut self,
        io: &mut LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &Arc<MatchSet>,
        mut range: Range<usize>,
    ) {
        let is_behind = self.deliveries.has(message.publisher);
        if !is_behind {
            let at_once = range.start + AT_ONCE;
            while !range.is_empty() && range.start < at_once && !io.has_done_enough() {
                let end = range.end.min(range.start + PIECE);
                self.deliver_piece(io, message, set, range.start..end);
                range.start = end;
            }
            if range.is_empty() {
                return;
            }
        }
        if self.deliveries.is_full() {
            self.deliver_all_of(io, message.publisher);
            self.deliver_piece(io, message, set, range);
            return;
        }
        if self.deliveries.is_empty() {
            io.arm(io.now_ms(), Timer::Deliveries.to_bits());
        }
        self.stats.deliveries_put_off.add(1);
        let holds = self.deliveries.put(Waiting {
            message: Arc::clone(message),
            set: Arc::clone(set),
            range,
            _retaining: message.retain.then(|| self.node.retaining.begin()),
        });
        if holds {
            self.hold_for_deliveries(io, message.publisher, true);
        }
        self.count_waiting();
    }

    fn deliver_piece(
        &mut self,
        io: &mut LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &MatchSet,
        range: Range<usize>,
    ) {
        let work = units(range.len().div_ceil(PER_UNIT));
        io.charge(work);
        self.deliver_targets(io, message, set, range);
    }

    /// A turn's share of what waits.
    pub(super) fn go_on_delivering(&mut self, io: &mut LoopIo) {
        let mut receivers = 0;
        while receivers < IN_A_TURN
            && let Some(Waiting {
                message,
                set,
                range,
                ..
            }) = self.deliveries.next_piece()
        {
            receivers += range.len();
            self.deliver_piece(io, &message, &set, range);
            self.end_queue(io, message.publisher);
        }
        self.count_waiting();
        if !self.deliveries.is_empty() {
            io.arm(io.now_ms(), Timer::Deliveries.to_bits());
        }
    }

    /// All that waits of a publisher, at once.
    fn deliver_all_of(&mut self, io: &mut LoopIo, publisher: u64) {
        while let Some(Waiting {
            message,
            set,
            range,
            ..
        }) = self.deliveries.take(publisher)
        {
            self.deliver_piece(io, &message, &set, range);
        }
        self.end_queue(io, publisher);
        self.count_waiting();
    }

    fn end_queue(&mut self, io: &mut LoopIo, publisher: u64) {
        if self.deliveries.close(publisher) {
            self.hold_for_deliveries(io, publisher, false);
        }
    }

    fn count_waiting(&self) {
        let receivers = self.deliveries.receivers;
        self.stats.deliveries_waiting.set(receivers as u64);
    }

    /// Has a publisher held back, or let go.
    fn hold_for_deliveries(&mut self, io: &mut LoopIo, publisher: u64, hold: bool) {
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
                    Mail::Hold(publisher, None)
                } else {
                    Mail::Release(publisher)
                };
                io.send(publisher.loop_index(), mail);
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
            _retaining: None,
        }
    }

    /// Publisher, topic and receivers of all pieces, in the order in which they are delivered.
    fn drain(deliveries: &mut Deliveries) -> Vec<(u64, String, Range<usize>)> {
        let mut pieces = Vec::new();
        while let Some(piece) = deliveries.next_piece() {
            let publisher = piece.message.publisher;
            deliveries.close(publisher);
            pieces.push((publisher, piece.message.body.topic().into(), piece.range));
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
    fn who_publishes_to_few_is_held_back_when_many_messages_wait() {
        let mut deliveries = Deliveries::default();
        let held: Vec<bool> = (0..FEW + 2)
            .map(|_| deliveries.put(waiting(1, "a", 0..1)))
            .collect();
        assert_eq!(held.iter().position(|held| *held), Some(FEW));
        assert_eq!(held.iter().filter(|held| **held).count(), 1);
        while deliveries.next_piece().is_some() {}
        assert!(deliveries.close(1));
        assert!(!deliveries.close(1));
    }
}
