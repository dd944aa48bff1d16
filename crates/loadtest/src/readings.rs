//! The books of those who come to read retained messages.
//!
//! A *reading* begins when a reader is accepted and is complete when it has received every topic's message
//! once. A reader that leaves is not asked to before.
//!
//! Deliberately absent: order, which the standard does not promise between topics.

use std::ops::Range;

use crate::meter::{Meter, Times};
use crate::traffic::Totals;
use crate::verify::{Findings, Stamp, Tally};

/// A reader's present reading.
#[derive(Clone, Debug, Default)]
struct Reading {
    began_ns: u64,
    /// One bit for each topic.
    got: Vec<u64>,
    /// Bits set in `got`.
    count: usize,
    /// The first reading comes while others still connect, and is not counted.
    is_counted: bool,
}

/// The running books of a worker's readers, who go by their numbers in the whole part.
#[derive(Debug)]
pub(crate) struct Readings {
    pub(crate) totals: Totals,
    pub(crate) times: Times,
    topics: usize,
    first_reader: usize,
    readers: Vec<Reading>,
    expected: u64,
    distinct: u64,
    duplicated: u64,
    stray: u64,
}

impl Readings {
    pub(crate) fn new(topics: usize, readers: Range<usize>) -> Self {
        Self {
            totals: Totals::default(),
            times: Times::new(),
            topics,
            first_reader: readers.start,
            readers: vec![Reading::default(); readers.len()],
            expected: 0,
            distinct: 0,
            duplicated: 0,
            stray: 0,
        }
    }

    /// A reader has been accepted and subscribes.
    pub(crate) fn begin(&mut self, reader: usize, is_counted: bool, now_ns: u64) {
        let reading = &mut self.readers[reader - self.first_reader];
        reading.began_ns = now_ns;
        reading.got.clear();
        reading.got.resize(self.topics.div_ceil(64), 0);
        reading.count = 0;
        reading.is_counted = is_counted;
        if is_counted {
            self.expected += self.topics as u64;
        }
    }

    /// Whether a reader has all that it came for.
    pub(crate) fn is_complete(&self, reader: usize) -> bool {
        let reading = &self.readers[reader - self.first_reader];
        !reading.is_counted || reading.count == self.topics
    }

    pub(crate) fn arrive(&mut self, meter: &mut Meter, reader: usize, payload: &[u8], now_ns: u64) {
        let reading = &mut self.readers[reader - self.first_reader];
        if !reading.is_counted {
            return;
        }
        self.totals.delivered += 1;
        let stamp = Stamp::from_payload(payload);
        let topic = stamp.map(|stamp| stamp.publisher as usize);
        let Some(topic) = topic.filter(|&topic| topic < self.topics) else {
            self.stray += 1;
            return;
        };
        let (word, bit) = (topic / 64, 1 << (topic % 64));
        if reading.got[word] & bit != 0 {
            self.duplicated += 1;
            return;
        }
        reading.got[word] |= bit;
        reading.count += 1;
        self.distinct += 1;
        meter.deliver(&mut self.times, reading.began_ns, now_ns);
    }

    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    pub(crate) fn distinct(&self) -> u64 {
        self.distinct
    }

    /// All readers' faults, as if of one publisher.
    pub(crate) fn findings(&self) -> Findings {
        let tally = Tally {
            delivered: self.totals.delivered,
            lost: self.expected - self.distinct,
            duplicated: self.duplicated,
            reordered: 0,
        };
        let mut findings = Findings::default();
        findings.tallies.push(tally);
        findings.stray = self.stray;
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Headline;
    use crate::verify::Run;

    #[test]
    fn a_reading_is_complete_when_every_topic_came() {
        let mut readings = Readings::new(70, 3..4);
        let mut meter = Meter::new(Headline::Deliver);
        let mut arrive = |readings: &mut Readings, topic| {
            let stamp = Stamp {
                publisher: topic,
                sequence: 0,
                run: Run::default(),
                due_ns: 0,
            };
            readings.arrive(&mut meter, 3, &stamp.to_bytes(), 1);
        };
        readings.begin(3, false, 0);
        arrive(&mut readings, 0);
        assert!(readings.is_complete(3));
        readings.begin(3, true, 0);
        for topic in 0..69 {
            arrive(&mut readings, topic);
        }
        for topic in [0, 70] {
            arrive(&mut readings, topic);
        }
        assert!(!readings.is_complete(3));
        let expected = Tally {
            delivered: 71,
            lost: 1,
            duplicated: 1,
            reordered: 0,
        };
        assert_eq!(readings.findings().tallies, [expected]);
        assert_eq!(readings.findings().stray, 1);
        arrive(&mut readings, 69);
        assert!(readings.is_complete(3));
        assert_eq!(readings.findings().tallies[0].lost, 0);
    }
}
