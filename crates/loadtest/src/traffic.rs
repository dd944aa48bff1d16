//! The books of a run: what was sent, acknowledged and delivered, and how long it took.
//!
//! Invariant: counts are of the whole run; latencies only of messages that were due in
//! the recorded interval, whenever they arrive.

use std::ops::{Range, Sub};

use hdrhistogram::Histogram;

use crate::client::Event;
use crate::scenario::Topology;
use crate::verify::{Faults, Stamp, Verifier};

/// Latencies are recorded up to here; a longer one counts as this long.
const LONGEST_NS: u64 = 600_000_000_000;

/// Counts so far, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Handed to the publishers' connections.
    pub sent: u64,
    /// Acknowledged to the end, above QoS 0.
    pub acknowledged: u64,
    /// Received by subscribers, duplicates included.
    pub delivered: u64,
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            acknowledged: self.acknowledged - earlier.acknowledged,
            delivered: self.delivered - earlier.delivered,
        }
    }
}

/// What came of a run. Times in ns.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of the whole run.
    pub totals: Totals,
    /// Of the whole run.
    pub faults: Faults,
    /// From due to received by a subscriber. In a closed loop a message is due when it is sent.
    pub delivery: Histogram<u64>,
    /// From due to acknowledged to the end; empty at QoS 0.
    pub acknowledgement: Histogram<u64>,
    /// From due to sent: what the tool itself, or a full in-flight window, added.
    pub lag: Histogram<u64>,
    /// From due to the moment the tool looked at the message: what the tool alone added. Empty in a
    /// closed loop.
    pub lateness: Histogram<u64>,
    /// From opening a connection to its being accepted, and subscribed if it is to be.
    pub connecting: Histogram<u64>,
}

/// The running books.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) totals: Totals,
    /// Clients that are connected and subscribed.
    pub(crate) ready: usize,
    /// When this turn began; arrivals of a turn share it.
    pub(crate) now_ns: u64,
    /// Publishers that may have room for more.
    pub(crate) freed: Vec<usize>,
    /// By publisher: how many messages it has sent.
    sent: Vec<u32>,
    /// By publisher: one more than the highest number that any subscriber received. Later messages
    /// cover for lost ones, so that a loss does not shrink a window for ever.
    arrived: Vec<u32>,
    /// Deliveries that the messages sent should cause.
    expected: u64,
    receivers_per_message: u64,
    subscribers: usize,
    verifier: Verifier,
    /// Due times of the messages whose latencies count.
    recorded_ns: Range<u64>,
    delivery: Histogram<u64>,
    acknowledgement: Histogram<u64>,
    lag: Histogram<u64>,
    lateness: Histogram<u64>,
    /// By client: when it was opened.
    opened_ns: Vec<u64>,
    connecting: Histogram<u64>,
}

impl Traffic {
    pub(crate) fn new(topology: &Topology) -> Self {
        let publishers = topology.publishers();
        Self {
            totals: Totals::default(),
            ready: 0,
            now_ns: 0,
            freed: Vec::new(),
            sent: vec![0; publishers],
            arrived: vec![0; publishers],
            expected: 0,
            receivers_per_message: topology.receivers_per_message(),
            subscribers: topology.subscribers(),
            verifier: Verifier::new(topology),
            recorded_ns: 0..0,
            delivery: histogram(),
            acknowledgement: histogram(),
            lag: histogram(),
            lateness: histogram(),
            opened_ns: Vec::new(),
            connecting: histogram(),
        }
    }

    /// Books that the next client is being opened.
    pub(crate) fn open(&mut self, now_ns: u64) {
        self.opened_ns.push(now_ns);
    }

    /// Books that the tool has come round to a message.
    pub(crate) fn look(&mut self, due_ns: u64, now_ns: u64) {
        if self.recorded_ns.contains(&due_ns) {
            self.lateness
                .saturating_record(now_ns.saturating_sub(due_ns));
        }
    }

    /// Messages due in this time count, besides those of an interval before.
    pub(crate) fn record(&mut self, due_ns: Range<u64>) {
        let start_ns = if self.recorded_ns.is_empty() {
            due_ns.start
        } else {
            self.recorded_ns.start
        };
        self.recorded_ns = start_ns..due_ns.end;
    }

    /// Books a message that is being sent, and returns its stamp.
    pub(crate) fn send(&mut self, publisher: usize, due_ns: u64, now_ns: u64) -> Stamp {
        let sequence = self.sent[publisher];
        self.sent[publisher] += 1;
        self.totals.sent += 1;
        self.expected += self.receivers_per_message;
        if self.recorded_ns.contains(&due_ns) {
            self.lag.saturating_record(now_ns.saturating_sub(due_ns));
        }
        Stamp {
            publisher: publisher as u32,
            sequence,
            due_ns,
        }
    }

    /// Books what client number `index` tells.
    pub(crate) fn handle(&mut self, index: usize, event: Event<'_>) {
        match event {
            Event::Ready => {
                self.ready += 1;
                let opened_ns = self.opened_ns.get(index).copied().unwrap_or(self.now_ns);
                self.connecting
                    .saturating_record(self.now_ns.saturating_sub(opened_ns));
            }
            Event::Acknowledged(due_ns) => {
                self.totals.acknowledged += 1;
                self.freed.push(index - self.subscribers);
                if self.recorded_ns.contains(&due_ns) {
                    self.acknowledgement
                        .saturating_record(self.now_ns.saturating_sub(due_ns));
                }
            }
            Event::Message(payload) => self.arrive(index, payload),
        }
    }

    fn arrive(&mut self, subscriber: usize, payload: &[u8]) {
        self.totals.delivered += 1;
        let Some(stamp) = Stamp::from_payload(payload) else {
            self.verifier.stray();
            return;
        };
        if self.verifier.arrive(subscriber, stamp).is_none() {
            return;
        }
        let publisher = stamp.publisher as usize;
        if stamp.sequence >= self.arrived[publisher] {
            self.arrived[publisher] = stamp.sequence.saturating_add(1);
            self.freed.push(publisher);
        }
        if self.recorded_ns.contains(&stamp.due_ns) {
            self.delivery
                .saturating_record(self.now_ns.saturating_sub(stamp.due_ns));
        }
    }

    /// Messages of a publisher that no subscriber has received, later ones aside.
    pub(crate) fn undelivered(&self, publisher: usize) -> usize {
        self.sent[publisher].saturating_sub(self.arrived[publisher]) as usize
    }

    /// Whether all that was sent has arrived everywhere.
    pub(crate) fn is_complete(&self) -> bool {
        self.verifier.distinct() >= self.expected
    }

    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            totals: self.totals,
            faults: self.verifier.faults(&self.sent),
            delivery: self.delivery.clone(),
            acknowledgement: self.acknowledgement.clone(),
            lag: self.lag.clone(),
            lateness: self.lateness.clone(),
            connecting: self.connecting.clone(),
        }
    }
}

/// Three significant digits: about 200 KB.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, 3).expect("3 digits up to this value are in range")
}
