//! Who publishes when.
//!
//! Invariant: of a publisher that has no room for a message, nothing is in the queue; it is tried again when an
//! acknowledgement, or room in its socket, may have made some. What is due meanwhile keeps its time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mqtt_proto::QoS;

use super::{Moment, State, Worker};
use crate::client::{Client, ClientError, Outgoing};
use crate::endless::counts::Count;
use crate::endless::order::{Activity, Names, Order, Publishing};
use crate::endless::payload::{Message, Payload, Sequence, UnixTime};

/// How many messages a publisher has sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Sent(u32);

#[derive(Debug)]
struct Publisher {
    /// Where to; known when it has been ready once.
    topic: Option<Box<str>>,
    /// When its next message is due.
    next: Moment,
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
            next: Moment(0),
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
            let ready = |index: &usize| self.slots[*index].state == State::Ready;
            for index in (0..count).filter(ready).collect::<Vec<_>>() {
                let phase_ns = every_ns as f64 * (index as f64 / count as f64);
                self.start_publishing(index, now.after(phase_ns as u64));
            }
        }
    }

    /// No more messages are sent from now on.
    pub(in crate::endless) fn stop_publishing(&mut self) {
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

    /// Messages that were due and wait.
    pub(super) fn waiting(&self, now: Moment) -> u64 {
        let of_one = |publishers: &Publishers| {
            let every_ns = every_ns(publishing(&self.order.activity)).max(1);
            let blocked = publishers.all.iter().filter(|p| p.is_blocked);
            blocked.map(|p| now.since(p.next) / every_ns + 1).sum()
        };
        self.publishers.as_ref().map_or(0, of_one)
    }

    pub(super) fn next_message(&self) -> Option<Moment> {
        let queue = &self.publishers.as_ref()?.queue;
        queue.peek().map(|&Reverse((due, ..))| due)
    }

    pub(super) fn has_freed(&self) -> bool {
        let publishers = self.publishers.as_ref();
        publishers.is_some_and(|publishers| !publishers.freed.is_empty())
    }

    /// A client that is ready publishes from `from` on. What was due while it was away is left out.
    pub(super) fn start_publishing(&mut self, index: usize, from: Moment) {
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
            publisher.next = publisher.next.max(from);
            let entry = (publisher.next, index, visits);
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
            if let Err(error) = self.publish(index, sequence, due) {
                self.fail(index, &error, now);
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
        if publisher.next > now {
            let entry = (publisher.next, index, slot.visits);
            publishers.queue.push(Reverse(entry));
            return None;
        }
        publisher.is_blocked = !has_room(client, publishing);
        if publisher.is_blocked {
            return None;
        }
        let message = (publisher.sent.0, publisher.next);
        // After 4 billion messages the numbers begin again.
        publisher.sent = Sent(publisher.sent.0.wrapping_add(1));
        publisher.next = publisher.next.after(every_ns(publishing));
        Some(message)
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

/// Whether a client may send another message.
fn has_room(client: &Client, publishing: &Publishing) -> bool {
    let in_flight = client.unacknowledged();
    let window = publishing.in_flight.map_or(usize::MAX, usize::from);
    client.has_room(publishing.qos) && (publishing.qos == QoS::AtMostOnce || in_flight < window)
}
