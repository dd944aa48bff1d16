//! When the messages of a queue came, without a time for each: some marks, each a sequence and the time at which it was given.
//!
//! Between two marks it is known that messages came between their times. The marks get farther apart as the queue lasts
//! longer: [`MARKS`] of them at most, so a time is known to about a tenth of the queue's age.
//!
//! Invariant: marks ascend. They answer people and propose, and decide nothing by themselves: replicas may have others.

use mqtt_session::Timestamp;

/// A sequence, and when it was given.
pub(in crate::inbox) type Mark = (u64, u64);

/// Marks of a queue at most.
pub(in crate::inbox) const MARKS: usize = 32;

/// Marks that are written at most: these, and that of the last message.
pub(in crate::inbox) const WRITTEN: usize = MARKS + 1;

/// The least between two marks, in ms.
const STEP_MS: u64 = 1_000;

/// The marks of a queue.
#[derive(Debug, Default)]
pub(in crate::inbox) struct Ages {
    marks: Vec<Mark>,
    /// Of the message that came last.
    last: Mark,
}

impl Ages {
    /// As they were written.
    pub(in crate::inbox) fn load(marks: Vec<Mark>) -> Option<Box<Self>> {
        let last = *marks.last()?;
        Some(Box::new(Self { marks, last }))
    }

    /// As they are to be written: with that of the last message.
    pub(in crate::inbox) fn to_write(&self) -> Vec<Mark> {
        let mut marks = self.marks.clone();
        if marks.last() != Some(&self.last) {
            marks.push(self.last);
        }
        marks
    }

    #[cfg(test)]
    fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// A message is queued; none is below `head`.
    pub(super) fn queued(&mut self, sequence: u64, now: Timestamp, head: u64) {
        // The clock of another leader may be behind.
        self.last = (sequence, now.0.max(self.last.1));
        let Some(&(_, last_ms)) = self.marks.last() else {
            self.marks.push(self.last);
            return;
        };
        if now.0 < last_ms.saturating_add(self.step_ms()) {
            return;
        }
        self.trim(head);
        if self.marks.len() >= MARKS {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.marks.push(self.last);
    }

    /// A 32nd of the time that the marks span: so they are 16 at least once they have been halved, and a gap is a tenth at most.
    fn step_ms(&self) -> u64 {
        let first_ms = self.marks.first().map_or(0, |(_, ms)| *ms);
        let last_ms = self.marks.last().map_or(0, |(_, ms)| *ms);
        (last_ms.saturating_sub(first_ms) / MARKS as u64).max(STEP_MS)
    }

    /// No message is queued below `head`: marks of those before it are of no use, but that of the first one at or before it.
    fn trim(&mut self, head: u64) {
        let before = self
            .marks
            .partition_point(|(sequence, _)| *sequence <= head);
        self.marks.drain(..before.saturating_sub(1));
    }

    /// The queue is empty.
    pub(super) fn clear(&mut self) {
        // Their place is kept: a queue may be empty after each message.
        self.marks.clear();
        self.last = (0, 0);
    }

    /// The time before which no message at `sequence` or behind it came; `None`: not known.
    pub(in crate::inbox) fn since(&self, sequence: u64) -> Option<Timestamp> {
        let before = self.marks.partition_point(|(of, _)| *of <= sequence);
        let (_, ms) = self.marks.get(before.checked_sub(1)?)?;
        Some(Timestamp(*ms))
    }

    /// A sequence below which all messages came at this time or before, the highest that is known; `None`: none is.
    pub(in crate::inbox) fn came_by(&self, time: Timestamp) -> Option<u64> {
        let by_then = self.marks.partition_point(|(_, ms)| *ms <= time.0);
        let mark = self.marks.get(by_then.checked_sub(1)?)?;
        let (sequence, _) = if self.last.1 <= time.0 {
            &self.last
        } else {
            mark
        };
        Some(sequence.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_to_a_tenth_however_long_a_queue_lasts() {
        let mut ages = Ages::default();
        assert_eq!(ages.since(1), None);
        let (begin, every_ms) = (1_000_000, 700);
        for sequence in 1..=200_000 {
            ages.queued(sequence, Timestamp(begin + sequence * every_ms), 1);
            assert!(ages.marks().len() <= MARKS);
            assert!(ages.marks().is_sorted());
        }
        let now = begin + 200_000 * every_ms;
        for sequence in [1, 2, 777, 100_000, 199_999, 200_000] {
            let came = begin + sequence * every_ms;
            let since = ages.since(sequence).expect("a mark").0;
            assert!(since <= came, "{sequence}: {since} is after {came}");
            assert!(
                came - since <= (now - begin) / 10,
                "{sequence}: {since}, {came}"
            );
        }
    }

    #[test]
    fn what_came_by_a_time_is_known_to_have() {
        let mut ages = Ages::default();
        assert_eq!(ages.came_by(Timestamp(u64::MAX)), None);
        for sequence in 1..=10_000_u64 {
            ages.queued(sequence, Timestamp(sequence * 100), 1);
        }
        let all = Timestamp(1_000_000);
        assert_eq!(ages.came_by(all), Some(10_001));
        let again = Ages::load(ages.to_write()).expect("marks");
        assert_eq!(again.came_by(all), Some(10_001));
        ages.queued(10_001, Timestamp(1_000_001), 1);
        ages.queued(10_002, Timestamp(1_000_000), 1);
        assert!(ages.came_by(all).expect("a mark") < 10_001);
        assert_eq!(ages.came_by(Timestamp(1_000_001)), Some(10_003));
        assert_eq!(ages.came_by(Timestamp(99)), None);
        assert_eq!(ages.came_by(Timestamp(100)), Some(2));
        for by in [5_000, 123_456, 999_999, 1_000_000] {
            let below = ages.came_by(Timestamp(by)).expect("a mark");
            assert!((below - 1) * 100 <= by, "{below} came after {by}");
            assert!(by - (below - 1) * 100 <= 100_000, "{below} at {by}");
        }
    }

    #[test]
    fn marks_of_what_is_gone_make_room() {
        let mut ages = Ages::default();
        for sequence in 1..=1_000 {
            // Ten are queued at a time.
            ages.queued(
                sequence,
                Timestamp(sequence * 1_000),
                sequence.saturating_sub(10),
            );
            let oldest = sequence.saturating_sub(10).max(1);
            let since = ages.since(oldest).expect("a mark").0;
            assert!(oldest * 1_000 - since <= 2_000, "{oldest}: {since}");
        }
        // Time goes back.
        ages.queued(1_001, Timestamp(5), 900);
        assert_eq!(ages.since(1_001), ages.since(1_000));
        ages.clear();
        assert_eq!(ages.since(1_001), None);
    }
}
