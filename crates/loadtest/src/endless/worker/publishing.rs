//! Who publishes when.
//!
//! Invariant: of a publisher that has no room for a message, nothing is in the queue; it is tried again when an
//! acknowledgement, or room in its socket, may have made some. What is due meanwhile keeps its time, also while the
//! client has no connection: it is sent when there is one. A publisher only knows when its next message is due, so
//! that waiting messages take no memory. At each moment, what was due is sent or counted as not sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mqtt_proto::QoS;

use super::{Moment, State, Worker};
use crate::client::{Client, ClientError, Outgoing};
use crate::endless::counts::{Count, Counts};
use crate::endless::order::{Activity, Names, Order, Publishing};
use crate::endless::payload::{Message, Payload, Sequence, UnixTime};

/// How many messages a publisher has sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Sent(u32);

/// When messages of a publisher are due.
#[derive(Clone, Copy, Debug)]
struct Due {
    first: Moment,
    /// The first one that is not sent.
    next: Moment,
}

#[derive(Debug)]
struct Publisher {
    /// Where to; known when it has been ready once.
    topic: Option<Box<str>>,
    /// When its first message is due, and the next one that is not sent. `None`: nothing is due before the client is
    /// connected.
    due: Option<Due>,
    sent: Sent,
    /// There was no room for a message.
    is_blocked: bool,
    /// All its messages are sent and acknowledged.
    is_finished: bool,
}

/// The publishers of a worker, by slot.
#[derive(Debug)]
pub(super) struct Publishers {
    all: Vec<Publisher>,
    /// When whose next message is due, at which of its connections.
    queue: BinaryHeap<Reverse<(Moment, usize, usize)>>,
    /// Those that were blocked and may have room.
    freed: Vec<usize>,
    is_begun: bool,
    is_stopped: bool,
    finished: usize,
    payload: Vec<u8>,
}

impl Publishers {
    pub(super) fn new(publishing: &Publishing, count: usize) -> Self {
        let publisher = || Publisher {
            topic: None,
            due: None,
            sent: Sent(0),
            is_blocked: false,
            is_finished: false,
        };
        Self {
            all: std::iter::repeat_with(publisher).take(count).collect(),
            queue: BinaryHeap::new(),
            freed: Vec::new(),
            is_begun: !publishing.waits_for_all,
            is_stopped: false,
            finished: 0,
            payload: Vec::new(),
        }
    }
}

/// What is published, and by whom.
fn publishing(activity: &Activity) -> &Publishing {
    match activity {
        Activity::Publish(publishing) => publishing,
        Activity::Connect | Activity::Subscribe { .. } => {
            unreachable!("only publishers are asked what they publish")
        }
    }
}

fn every_ns(publishing: &Publishing) -> u64 {
    u64::try_from(publishing.every.as_nanos()).unwrap_or(u64::MAX)
}

impl Worker {
    /// Lets those publish that have waited for all to be connected, spread over the time between two messages.
    pub(in crate::endless) fn begin(&mut self) {
        if let Some(publishers) = &mut self.publishers
            && !std::mem::replace(&mut publishers.is_begun, true)
        {
            let every_ns = every_ns(publishing(&self.order.activity));
            let (now, count) = (Moment::now(), self.slots.len());
            for (index, publisher) in publishers.all.iter_mut().enumerate() {
                let phase_ns = every_ns as f64 * (index as f64 / count as f64);
                publisher.first_due(now.after(phase_ns as u64));
            }
            let ready = |index: &usize| self.slots[*index].state == State::Ready;
            for index in (0..count).filter(ready).collect::<Vec<_>>() {
                self.start_publishing(index, now);
            }
        }
    }

    /// No more messages are sent from now on.
    pub(in crate::endless) fn stop_publishing(&mut self) {
        let now = Moment::now();
        // What is due now and finds room is no leftover.
        self.publish_due(now);
        self.flush(now);
        self.send_freed(now);
        // Clients that are connected again afterwards were without a connection when it mattered.
        let mut counts = self.counts;
        self.count_due(&mut counts, now);
        self.counts = counts;
        self.ended = Some(now);
        if let Some(publishers) = &mut self.publishers {
            publishers.is_stopped = true;
        }
    }

    /// Whether everything that was sent has left, and is acknowledged to the end. Costs a look at each client.
    pub(in crate::endless) fn is_drained(&self) -> bool {
        let mut clients = self.slots.iter().filter(|slot| slot.state == State::Ready);
        clients.all(|slot| {
            let drained = |client: &Client| client.unacknowledged() == 0 && !client.has_output();
            slot.client.as_ref().is_none_or(drained)
        })
    }

    /// Whether all publishers have sent as much as they are to, and know that it has arrived.
    pub(in crate::endless) fn is_finished(&self) -> bool {
        let publishers = self.publishers.as_ref();
        publishers.is_some_and(|publishers| publishers.finished == publishers.all.len())
    }

    /// Counts the messages that were due until `now`, and those of them that are not sent.
    pub(super) fn count_due(&self, counts: &mut Counts, now: Moment) {
        for (publisher, slot) in self.publishers.iter().flat_map(|p| &p.all).zip(&self.slots) {
            let publishing = publishing(&self.order.activity);
            counts[Count::Due] += publisher.due_until(now, publishing);
            let not_sent = match slot.state {
                State::Ready => Count::NotSentFull,
                State::New | State::Connecting | State::Away => Count::NotSentAway,
            };
            counts[not_sent] += publisher.not_sent(now, publishing);
        }
    }

    pub(super) fn next_message(&self) -> Option<Moment> {
        let queue = &self.publishers.as_ref()?.queue;
        queue.peek().map(|&Reverse((due, ..))| due)
    }

    pub(super) fn has_freed(&self) -> bool {
        let publishers = self.publishers.as_ref();
        publishers.is_some_and(|publishers| !publishers.freed.is_empty())
    }

    /// A client that is ready publishes what was due while it was away, and what is due from now on. If nothing was due
    /// yet, its first message is due now.
    pub(super) fn start_publishing(&mut self, index: usize, now: Moment) {
        let number = self.number(index);
        let visits = self.slots[index].visits;
        if let Some(publishers) = &mut self.publishers
            && publishers.is_begun
        {
            let publisher = &mut publishers.all[index];
            if publisher.topic.is_none() {
                let topic = &publishing(&self.order.activity).topic;
                publisher.topic = Some(
                    topic
                        .text(self.order.clients.names(number).identity())
                        .into(),
                );
            }
            publisher.is_blocked = false;
            let entry = (publisher.first_due(now).next, index, visits);
            publishers.queue.push(Reverse(entry));
        }
    }

    pub(super) fn publish_due(&mut self, now: Moment) {
        while let Some(publishers) = &mut self.publishers
            && let Some(&Reverse((due, index, visits))) = publishers.queue.peek()
            && due <= now
        {
            publishers.queue.pop();
            if self.slots[index].visits == visits {
                self.publish_next(index, now);
            }
        }
    }

    /// A client may have room for a message that waits, or be at its end.
    pub(super) fn free(&mut self, index: usize) {
        if let (Some(publishers), Some(client)) = (&mut self.publishers, &self.slots[index].client)
        {
            let publishing = publishing(&self.order.activity);
            let publisher = &mut publishers.all[index];
            if publisher.is_blocked && has_room(client, publishing) {
                publisher.is_blocked = false;
                publishers.freed.push(index);
            }
            let is_drained = client.unacknowledged() == 0 && !client.has_output();
            if publisher.is_at_limit(publishing) && is_drained && !publisher.is_finished {
                publisher.is_finished = true;
                publishers.finished += 1;
            }
        }
    }

    pub(super) fn send_freed(&mut self, now: Moment) {
        let freed = self
            .publishers
            .as_mut()
            .map(|p| std::mem::take(&mut p.freed));
        for index in freed.unwrap_or_default() {
            self.publish_next(index, now);
        }
    }

    /// Publishes what is due of a publisher, as far as there is room, and queues its next message.
    fn publish_next(&mut self, index: usize, now: Moment) {
        while let Some((sequence, due)) = self.take_next(index, now) {
            match self.publish(index, sequence, due) {
                Ok(()) => self.times.send.saturating_record(now.since(due)),
                Err(error) => {
                    self.take_back(index, due);
                    self.fail(index, &error, now);
                }
            }
        }
    }

    /// The next message of a publisher if it is due and there is room for it: its place and when it was due.
    fn take_next(&mut self, index: usize, now: Moment) -> Option<(u32, Moment)> {
        let slot = &self.slots[index];
        let publishing = publishing(&self.order.activity);
        let publishers = self.publishers.as_mut()?;
        let client = slot
            .client
            .as_ref()
            .filter(|_| slot.state == State::Ready)?;
        let publisher = &mut publishers.all[index];
        if publishers.is_stopped || publisher.is_at_limit(publishing) {
            return None;
        }
        let next = publisher.first_due(now).next;
        if next > now {
            publishers.queue.push(Reverse((next, index, slot.visits)));
            return None;
        }
        publisher.is_blocked = !has_room(client, publishing);
        if publisher.is_blocked {
            return None;
        }
        let message = (publisher.sent.0, next);
        // After 4 billion messages the numbers begin again.
        publisher.sent = Sent(publisher.sent.0.wrapping_add(1));
        publisher.set_next(next.after(every_ns(publishing)));
        Some(message)
    }

    /// A message that was taken could not be sent; it is the next one again.
    fn take_back(&mut self, index: usize, due: Moment) {
        if let Some(publishers) = &mut self.publishers {
            let publisher = &mut publishers.all[index];
            publisher.sent = Sent(publisher.sent.0.wrapping_sub(1));
            publisher.set_next(due);
        }
    }

    fn publish(&mut self, index: usize, sequence: u32, due: Moment) -> Result<(), ClientError> {
        let number = self.number(index);
        let publishing = publishing(&self.order.activity);
        if let (Some(publishers), Some(client)) =
            (&mut self.publishers, &mut self.slots[index].client)
        {
            let payload = &mut publishers.payload;
            write_payload(payload, &self.order, number, sequence, self.clock.time(due));
            client.publish(&Outgoing {
                topic: publishers.all[index].topic(),
                qos: publishing.qos,
                retain: publishing.retain,
                payload,
                due_ns: due.0,
                sequence,
            })?;
            self.counts[Count::Sent] += 1;
            self.touched.push(index);
        }
        Ok(())
    }

    /// Sends messages again that an earlier connection did not get acknowledged.
    pub(super) fn resend(&mut self, index: usize, now: Moment) {
        let number = self.number(index);
        let (order, clock) = (&self.order, self.clock);
        let publishing = publishing(&order.activity);
        let mut resent = Ok(());
        if let (Some(publishers), Some(client)) = (&self.publishers, &mut self.slots[index].client)
        {
            let message = Outgoing {
                topic: publishers.all[index].topic(),
                qos: publishing.qos,
                retain: publishing.retain,
                payload: &[],
                due_ns: 0,
                sequence: 0,
            };
            resent = client.resend(&message, |sequence, due_ns| {
                let mut payload = Vec::new();
                let due = clock.time(Moment(due_ns));
                write_payload(&mut payload, order, number, sequence, due);
                payload
            });
            self.touched.push(index);
        }
        if let Err(error) = resent {
            self.fail(index, &error.into(), now);
        }
    }
}

impl Publisher {
    /// When its messages are due; from `from` on if nothing was due yet.
    fn first_due(&mut self, from: Moment) -> Due {
        let new = Due {
            first: from,
            next: from,
        };
        *self.due.get_or_insert(new)
    }

    fn set_next(&mut self, next: Moment) {
        if let Some(due) = &mut self.due {
            due.next = next;
        }
    }

    /// Messages that were due until `now`.
    fn due_until(&self, now: Moment, publishing: &Publishing) -> u64 {
        let count = self
            .due
            .map_or(0, |due| due_from(due.first, now, publishing));
        publishing
            .limit
            .map_or(count, |limit| count.min(u64::from(limit)))
    }

    /// Of those, messages that are not sent.
    fn not_sent(&self, now: Moment, publishing: &Publishing) -> u64 {
        let count = self
            .due
            .map_or(0, |due| due_from(due.next, now, publishing));
        let left = publishing
            .limit
            .map(|limit| limit.saturating_sub(self.sent.0));
        left.map_or(count, |left| count.min(u64::from(left)))
    }

    fn is_at_limit(&self, publishing: &Publishing) -> bool {
        publishing.limit.is_some_and(|limit| self.sent.0 >= limit)
    }

    fn topic(&self) -> &str {
        let topic = self.topic.as_deref();
        topic.expect("a publisher has a topic before it sends anything")
    }
}

fn write_payload(
    payload: &mut Vec<u8>,
    order: &Order,
    number: usize,
    sequence: u32,
    due: UnixTime,
) {
    let content = &publishing(&order.activity).payload;
    let names = match content {
        Payload::Template(_) => order.clients.names(number),
        Payload::Sized(_) | Payload::Fixed(_) => Names::default(),
    };
    let message = Message {
        identity: names.identity(),
        sequence: Sequence(sequence),
        due,
    };
    content.write(payload, message);
}

/// Messages that are due from `first` until `now`, both included.
fn due_from(first: Moment, now: Moment, publishing: &Publishing) -> u64 {
    match first <= now {
        true => now.since(first) / every_ns(publishing).max(1) + 1,
        false => 0,
    }
}

/// Whether a client may send another message.
fn has_room(client: &Client, publishing: &Publishing) -> bool {
    let in_flight = client.unacknowledged();
    let window = publishing.in_flight.map_or(usize::MAX, usize::from);
    client.has_room(publishing.qos) && (publishing.qos == QoS::AtMostOnce || in_flight < window)
}
