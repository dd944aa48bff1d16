//! The books of a part with publishers and subscribers: what was sent, acknowledged and delivered.
//!
//! Invariant: counts are of the whole run; only times are of the measurement.

use std::ops::{AddAssign, Sub};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::meter::{Meter, Times};
use crate::payload::Template;
use crate::topology::{Slice, Topology};
use crate::verify::{Findings, Run, Stamp, Verifier};

/// Counts so far, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.delivered += other.delivered;
    }
}

/// The running books of a worker's slice of a part. Publishers and subscribers go by their numbers in the
/// whole part.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) totals: Totals,
    pub(crate) times: Times,
    /// Publishers that may have room for more.
    pub(crate) freed: Vec<usize>,
    slice: Slice,
    /// By publisher of the slice: how many messages it has sent.
    sent: Vec<u32>,
    /// By publisher of the slice: how many were acknowledged.
    acknowledged: Vec<u32>,
    /// By publisher of the slice: one more than the highest number that any subscriber received. Later
    /// messages cover for lost ones, so that a loss does not shrink a window for ever.
    arrived: Vec<u32>,
    /// Deliveries that the messages sent should cause, at all workers' subscribers.
    expected: u64,
    /// By publisher of the slice: receivers of each message.
    receivers: Vec<u32>,
    verifier: Verifier,
    /// When the messages were due that do not say it themselves: wills. By publisher and sequence.
    unsaid_due_ns: HashMap<(u32, u32), u64>,
    /// What due times in stamps count from.
    epoch_ns: u64,
    run: Run,
    /// What payloads are, if not a binary stamp and zeros.
    template: Option<Template>,
}

impl Traffic {
    pub(crate) fn new(topology: &Topology, slice: Slice, run: Run, epoch_ns: u64) -> Self {
        let publishers = slice.publishers.len();
        Self {
            totals: Totals::default(),
            times: Times::new(),
            freed: Vec::new(),
            sent: vec![0; publishers],
            acknowledged: vec![0; publishers],
            arrived: vec![0; publishers],
            expected: 0,
            receivers: topology.receivers_of(slice.publishers.clone()),
            verifier: Verifier::new(topology, &slice),
            unsaid_due_ns: HashMap::new(),
            slice,
            epoch_ns,
            run,
            template: None,
        }
    }

    /// With payloads of a template.
    pub(crate) fn with_template(self, template: Option<Template>) -> Self {
        Self { template, ..self }
    }

    /// Writes the payload of the message with a stamp.
    pub(crate) fn write_payload(&self, stamp: Stamp, payload: &mut [u8]) {
        match (&self.template, payload.first_chunk_mut()) {
            (Some(template), _) => template.write(stamp, payload),
            (None, Some(start)) => *start = stamp.to_bytes(),
            (None, None) => unreachable!("payloads have room for a stamp"),
        }
    }

    fn read_payload(&self, payload: &[u8]) -> Option<Stamp> {
        match &self.template {
            Some(template) => template.read(payload),
            None => Stamp::from_payload(payload),
        }
    }

    fn offset(&self, publisher: usize) -> usize {
        publisher - self.slice.publishers.start
    }

    /// Books that the tool has come round to a message.
    pub(crate) fn look(&mut self, meter: &Meter, due_ns: u64, now_ns: u64) {
        if meter.counts(due_ns) {
            let lateness = now_ns.saturating_sub(due_ns);
            self.times.tool_lateness.saturating_record(lateness);
        }
    }

    /// Books a message that is being sent, and returns its stamp.
    pub(crate) fn send(
        &mut self,
        meter: &Meter,
        publisher: usize,
        due_ns: u64,
        now_ns: u64,
    ) -> Stamp {
        let stamp = self.next_stamp(publisher, due_ns);
        let offset = self.offset(publisher);
        self.sent[offset] += 1;
        self.totals.sent += 1;
        self.expected += u64::from(self.receivers[offset]);
        if meter.counts(due_ns) {
            let lag = now_ns.saturating_sub(due_ns);
            self.times.due_to_sent.saturating_record(lag);
        }
        stamp
    }

    /// Books a message whose stamp was written before it was due: a will.
    pub(crate) fn send_unsaid(&mut self, meter: &Meter, publisher: usize, due_ns: u64) {
        let stamp = self.send(meter, publisher, due_ns, due_ns);
        self.unsaid_due_ns
            .insert((stamp.publisher, stamp.sequence), due_ns);
    }

    /// The stamp of the message that a publisher sends next.
    pub(crate) fn next_stamp(&self, publisher: usize, due_ns: u64) -> Stamp {
        self.stamp(publisher, self.sent[self.offset(publisher)], due_ns)
    }

    /// The stamp of any of a publisher's messages.
    pub(crate) fn stamp(&self, publisher: usize, sequence: u32, due_ns: u64) -> Stamp {
        Stamp {
            publisher: publisher as u32,
            sequence,
            run: self.run,
            due_ns: due_ns.saturating_sub(self.epoch_ns),
        }
    }

    /// Books that a publisher's message was acknowledged to the end.
    pub(crate) fn acknowledge(
        &mut self,
        meter: &mut Meter,
        publisher: usize,
        due_ns: u64,
        now_ns: u64,
    ) {
        let offset = self.offset(publisher);
        self.acknowledged[offset] += 1;
        self.totals.acknowledged += 1;
        self.freed.push(publisher);
        meter.acknowledge(&mut self.times, due_ns, now_ns);
    }

    /// Books that a subscriber received a message.
    pub(crate) fn arrive(
        &mut self,
        meter: &mut Meter,
        subscriber: usize,
        payload: &[u8],
        now_ns: u64,
    ) {
        let stamp = self.read_payload(payload);
        if stamp.is_some_and(|stamp| stamp.run != self.run) {
            // It was left in a session, which has outlasted an earlier run.
            return;
        }
        self.totals.delivered += 1;
        let Some(stamp) = stamp else {
            self.verifier.stray();
            return;
        };
        if self.verifier.arrive(subscriber, stamp).is_none() {
            return;
        }
        let publisher = stamp.publisher as usize;
        if self.slice.publishers.contains(&publisher) {
            let offset = self.offset(publisher);
            let arrived = &mut self.arrived[offset];
            if stamp.sequence >= *arrived {
                *arrived = stamp.sequence.saturating_add(1);
                self.freed.push(publisher);
            }
        }
        let unsaid = match self.unsaid_due_ns.is_empty() {
            true => None,
            false => self
                .unsaid_due_ns
                .remove(&(stamp.publisher, stamp.sequence)),
        };
        let due_ns = unsaid.unwrap_or_else(|| stamp.due_ns.saturating_add(self.epoch_ns));
        meter.deliver(&mut self.times, due_ns, now_ns);
    }

    /// Messages of a publisher that no subscriber of this worker has received, later ones aside.
    pub(crate) fn undelivered(&self, publisher: usize) -> usize {
        let offset = self.offset(publisher);
        self.sent[offset].saturating_sub(self.arrived[offset]) as usize
    }

    /// Deliveries that the messages sent by this worker should cause at all workers' subscribers.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Messages received, duplicates aside.
    pub(crate) fn distinct(&self) -> u64 {
        self.verifier.distinct()
    }

    /// By publisher of the slice.
    pub(crate) fn sent(&self) -> &[u32] {
        &self.sent
    }

    /// By publisher of the slice.
    pub(crate) fn acknowledged(&self) -> &[u32] {
        &self.acknowledged
    }

    /// What went wrong; `sent` is by publisher of the whole part.
    pub(crate) fn findings(&self, sent: &[u32]) -> Findings {
        self.verifier.findings(sent)
    }
}
