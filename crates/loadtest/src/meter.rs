//! Times as distributions: of the whole measurement, and of what happened since somebody last looked.
//!
//! Invariant: what counts for the measurement is decided by when a message was due, whenever it arrives.

use std::ops::Range;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::workload::{Activity, Workload};

/// Times are recorded up to here; a longer one counts as this long.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// An empty distribution of ns with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    let empty = Histogram::new_with_max(LONGEST_NS, 3);
    empty.expect("3 digits up to this value are in range")
}

/// Which time matters most for a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Headline {
    /// From due to received by a subscriber.
    Deliver,
    /// From due to acknowledged.
    Acknowledge,
    /// From opening a connection to CONNACK.
    Connect,
}

impl Headline {
    /// Deliveries if somebody receives, acknowledgements if somebody publishes, else connects.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let mut publishes = false;
        for part in &workload.parts {
            match &part.activity {
                Activity::Messages(messages) if messages.topology.publishers() > 0 => {
                    if messages.topology.subscribers() > 0 {
                        return Self::Deliver;
                    }
                    publishes = true;
                }
                Activity::Wills(_) | Activity::Retained(_) => return Self::Deliver,
                Activity::Messages(_) | Activity::Background { .. } | Activity::Churn(_) => {}
            }
        }
        if publishes {
            Self::Acknowledge
        } else {
            Self::Connect
        }
    }

    /// As records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Acknowledge => "acknowledge",
            Self::Connect => "connect",
        }
    }
}

/// Times of the messages of one part.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    pub(crate) deliver: Histogram<u64>,
    pub(crate) acknowledge: Histogram<u64>,
    pub(crate) due_to_sent: Histogram<u64>,
    pub(crate) tool_lateness: Histogram<u64>,
}

impl Times {
    pub(crate) fn new() -> Self {
        Self {
            deliver: histogram(),
            acknowledge: histogram(),
            due_to_sent: histogram(),
            tool_lateness: histogram(),
        }
    }
}

/// Decides where a time is recorded.
#[derive(Debug)]
pub(crate) struct Meter {
    headline: Headline,
    /// Due times of the messages that count for the measurement.
    recorded_ns: Range<u64>,
    /// Headline times since [`Meter::take_interval`], whenever they were due.
    interval: Histogram<u64>,
    pub(crate) connect: Histogram<u64>,
    pub(crate) subscribe: Histogram<u64>,
}

impl Meter {
    pub(crate) fn new(headline: Headline) -> Self {
        Self {
            headline,
            recorded_ns: 0..0,
            interval: histogram(),
            connect: histogram(),
            subscribe: histogram(),
        }
    }

    /// Messages due in this time count, besides those of an interval before.
    pub(crate) fn measure(&mut self, due_ns: Range<u64>) {
        let start_ns = if self.recorded_ns.is_empty() {
            due_ns.start
        } else {
            self.recorded_ns.start
        };
        self.recorded_ns = start_ns..due_ns.end;
    }

    pub(crate) fn counts(&self, due_ns: u64) -> bool {
        self.recorded_ns.contains(&due_ns)
    }

    /// A message was received.
    pub(crate) fn deliver(&mut self, times: &mut Times, due_ns: u64, now_ns: u64) {
        let time = now_ns.saturating_sub(due_ns);
        if self.headline == Headline::Deliver {
            self.interval.saturating_record(time);
        }
        if self.counts(due_ns) {
            times.deliver.saturating_record(time);
        }
    }

    /// A message was acknowledged to the end.
    pub(crate) fn acknowledge(&mut self, times: &mut Times, due_ns: u64, now_ns: u64) {
        let time = now_ns.saturating_sub(due_ns);
        if self.headline == Headline::Acknowledge {
            self.interval.saturating_record(time);
        }
        if self.counts(due_ns) {
            times.acknowledge.saturating_record(time);
        }
    }

    /// A connection was accepted.
    pub(crate) fn connect(&mut self, opened_ns: u64, now_ns: u64) {
        let time = now_ns.saturating_sub(opened_ns);
        if self.headline == Headline::Connect {
            self.interval.saturating_record(time);
        }
        self.connect.saturating_record(time);
    }

    /// A subscription was granted.
    pub(crate) fn subscribe(&mut self, asked_ns: u64, now_ns: u64) {
        self.subscribe
            .saturating_record(now_ns.saturating_sub(asked_ns));
    }

    /// Headline times since the call before.
    pub(crate) fn take_interval(&mut self) -> Vec<(u64, u64)> {
        let buckets = buckets(&self.interval);
        self.interval.reset();
        buckets
    }
}

/// All buckets that are not empty, ascending: highest time in ns, count.
pub(crate) fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded
        .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
        .collect()
}

/// Adds what [`buckets`] told.
pub(crate) fn add_buckets(histogram: &mut Histogram<u64>, buckets: &[(u64, u64)]) {
    for &(ns, count) in buckets {
        histogram.saturating_record_n(ns, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_survives_the_way_to_the_coordinator() {
        let mut sent = histogram();
        for ns in [0, 1, 1_000, 123_456_789, LONGEST_NS * 2] {
            sent.saturating_record(ns);
        }
        let mut arrived = histogram();
        add_buckets(&mut arrived, &buckets(&sent));
        assert_eq!(arrived, sent);
    }

    #[test]
    fn when_a_message_was_due_decides_whether_it_counts() {
        let mut meter = Meter::new(Headline::Deliver);
        let mut times = Times::new();
        meter.measure(100..200);
        for due_ns in [99, 100, 199, 200] {
            meter.deliver(&mut times, due_ns, 250);
        }
        assert_eq!(times.deliver.len(), 2);
        assert_eq!(meter.take_interval().iter().map(|(_, n)| n).sum::<u64>(), 4);
        assert_eq!(meter.take_interval(), []);
    }
}
