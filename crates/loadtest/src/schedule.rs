//! When messages are due: all publishers together at an even pace, each in its turn.
//!
//! Invariant: due times depend on the start and the rate alone, never on when somebody looked.

/// An open-loop schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    start_ns: u64,
    gap_ns: f64,
    publishers: usize,
    taken: u64,
}

impl Schedule {
    /// `per_second` messages of all `publishers` together, the first due at `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64, per_second: f64, publishers: usize) -> Self {
        Self {
            start_ns,
            gap_ns: 1e9 / per_second,
            publishers,
            taken: 0,
        }
    }

    /// When the next message is due. A product and not a sum, so that errors do not add up.
    #[must_use]
    pub fn next_due_ns(&self) -> u64 {
        self.start_ns + (self.taken as f64 * self.gap_ns) as u64
    }

    /// The next message if it is due before `before_ns`: its publisher and due time.
    pub fn take(&mut self, before_ns: u64) -> Option<(usize, u64)> {
        let due_ns = self.next_due_ns();
        if due_ns >= before_ns {
            return None;
        }
        let publisher = (self.taken % self.publishers as u64) as usize;
        self.taken += 1;
        Some((publisher, due_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_evenly_spread_and_publishers_take_turns() {
        let mut schedule = Schedule::new(1_000, 3_000_000.0, 2);
        let taken: Vec<_> = std::iter::from_fn(|| schedule.take(2_700)).collect();
        let expected = [
            (0, 1_000),
            (1, 1_333),
            (0, 1_666),
            (1, 2_000),
            (0, 2_333),
            (1, 2_666),
        ];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_late_look_finds_all_that_was_due() {
        let mut schedule = Schedule::new(0, 10_000.0, 500);
        let second = 1_000_000_000;
        assert_eq!(std::iter::from_fn(|| schedule.take(second)).count(), 10_000);
        assert_eq!(schedule.next_due_ns(), second);
        assert_eq!(schedule.take(second), None);
    }

    #[test]
    fn rates_below_one_per_second_work() {
        let mut schedule = Schedule::new(0, 0.5, 1);
        assert_eq!(schedule.take(1), Some((0, 0)));
        assert_eq!(schedule.next_due_ns(), 2_000_000_000);
    }
}
