//! Deliveries that are put off: a message with many receivers is given to some of them in each turn. A shared group
//! is a receiver (`to_groups.rs`).
//!
//! The rest of its receivers wait in a queue of its publisher, and so does what the publisher sends next: each
//! receiver gets the messages of a publisher in their order. The queues of several publishers take turns, and
//! messages of other publishers do not wait for them. A publisher whose messages wait is held back, in whichever
//! loop or node it is, until its queue is empty.
//!
//! Receivers get the RETAIN messages of one topic in the order in which they come, of whichever publishers: when another
//! publisher has one waiting, its queue is delivered first, in the same turn.
//!
//! At the limit of messages that wait, a message is delivered in the turn in which it comes, behind what waits of
//! its publisher.

use std::ops::Range;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;

use crate::backpressure::held_time::HeldReason;
use crate::backpressure::hold::tell_node;
use crate::clients::{BetweenLoops, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::key::Publisher;
use crate::publish::deliveries::{AT_ONCE, Waiting, next_piece};
use crate::publish::rest::{Rest, ToGroups};
use crate::rim::Rim;
use crate::routes::MatchSet;
use crate::share::units;

/// Receivers that are served in each turn of those that wait.
const IN_A_TURN: usize = 2_048;

/// Deliveries that are worth a unit of work of the loop: what is written to each receiver is charged when it is
/// written.
const PER_UNIT: usize = 4;

impl<R: Rim> ClientLoop<R> {
    /// Gives a message to targets of this loop; to some of them later, if they are many or there is enough to do
    /// in this turn.
    pub(crate) fn deliver_range(
        &mut self,
        io: &mut impl LoopIo,
        message: Arc<ApplicationMessage>,
        set: &Arc<MatchSet>,
        mut range: Range<usize>,
    ) {
        if let Some(publisher) = self.deliveries.before(&message) {
            self.deliver_all_of(io, publisher);
            self.deliveries.count_waiting(&self.base.stats);
        }
        if !self.deliveries.has(message.publisher) {
            let at_once = range.start + AT_ONCE;
            while !range.is_empty() && range.start < at_once && !io.has_done_enough() {
                let piece = next_piece(&mut range);
                if range.is_empty() {
                    return self.deliver_piece(io, message, set, piece);
                }
                self.deliver_piece(io, Arc::clone(&message), set, piece);
            }
            if range.is_empty() {
                return;
            }
        }
        self.put_off(io, &message, set, range, None);
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
        self.base.stats.deliveries_put_off.add(1);
        let holds = self.deliveries.put(Waiting {
            message: Arc::clone(message),
            set: Arc::clone(set),
            range,
            groups,
            _retaining: message.retain.then(|| self.base.node.retaining.begin()),
        });
        if holds {
            self.hold_for_deliveries(io, message.publisher, true);
        }
        if is_full {
            self.deliver_all_of(io, message.publisher);
        }
        self.deliveries.count_waiting(&self.base.stats);
    }

    fn deliver_piece(
        &mut self,
        io: &mut impl LoopIo,
        message: Arc<ApplicationMessage>,
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
        self.deliveries.count_waiting(&self.base.stats);
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
            None => self.deliver_piece(io, Arc::clone(message), set, piece),
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

    /// Has a publisher held back, or let go.
    fn hold_for_deliveries(&mut self, io: &mut impl LoopIo, publisher: u64, hold: bool) {
        if hold {
            self.base.stats.delivery_holds.add(1);
        }
        match Publisher::from_bits(publisher) {
            // At once: the next of its messages may be among those that are handled now.
            Some(Publisher::Here(publisher))
                if hold && publisher.loop_index() == self.base.index =>
            {
                let (parts, mut turn) = self.turn(io);
                parts.backpressure.handle_held(
                    &mut turn,
                    publisher.key(),
                    HeldReason::ManyReceivers,
                    None,
                );
            }
            Some(Publisher::Here(publisher)) => {
                // By a message also within this loop: a publisher that is let go handles what was kept of it.
                let mail = if hold {
                    BetweenLoops::Hold(publisher, None)
                } else {
                    BetweenLoops::Release(publisher)
                };
                io.send(publisher.loop_index(), mail.into());
            }
            Some(Publisher::Elsewhere(publisher)) => {
                // If that is lost, so is what the node knows of the hold.
                tell_node(&self.base.node, publisher, hold);
            }
            // The broker itself, or a will.
            None => {}
        }
    }
}
