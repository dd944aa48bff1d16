//! The clients whose messages are sent latest.

use histogram::Micros;

use super::Messages;
use super::table::{Slot, Table};

/// How long after PUBLISH messages were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delays {
    /// How many were measured.
    pub messages: Messages,
    /// Their delays together.
    pub sum: Micros,
    /// The longest one.
    pub longest: Micros,
}

impl Delays {
    /// One more.
    pub(crate) fn add(&mut self, delay: Micros) {
        self.join(Self {
            messages: Messages(1),
            sum: delay,
            longest: delay,
        });
    }

    /// Those of two loops, or of two times.
    pub fn join(&mut self, other: Self) {
        self.messages.0 = self.messages.0.saturating_add(other.messages.0);
        self.sum.0 = self.sum.0.saturating_add(other.sum.0);
        self.longest = self.longest.max(other.longest);
    }
}

/// Those with the longest delays: who has waited longest is there, whatever the others had.
#[derive(Debug, Default)]
pub(super) struct Slowest(Table<Delays>);

impl Slowest {
    pub(super) fn add(&mut self, client_id: &str, delays: Delays) {
        match self.0.slot(client_id) {
            Slot::Taken(known) => known.join(delays),
            Slot::Free(free) => {
                let least = free.least(|known| known.longest.0);
                if least.is_none_or(|least| delays.longest.0 > least) {
                    free.put(delays, |known| known.longest.0);
                }
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<(Box<str>, Delays)> {
        let rows = self.0.iter();
        rows.map(|(client_id, delays)| (client_id.into(), *delays))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::NAMES;
    use super::*;

    fn delay(delay_us: u64) -> Delays {
        let mut delays = Delays::default();
        delays.add(Micros(delay_us));
        delays
    }

    #[test]
    fn those_with_the_longest_delays_are_kept() {
        let mut slowest = Slowest::default();
        let all = 4 * NAMES as u64;
        for n in 0..all {
            // Each number once, in a mixed order.
            let delay_us = n * 7 % all;
            slowest.add(&delay_us.to_string(), delay(delay_us));
        }
        slowest.add("1023", delay(3));
        let mut rows = slowest.rows();
        rows.sort_by_key(|(_, delays)| delays.longest.0);
        let kept: Vec<u64> = rows.iter().map(|(_, delays)| delays.longest.0).collect();
        assert!(kept.iter().copied().eq(all - NAMES as u64..all));
        let (name, last) = rows.pop().unwrap();
        assert_eq!((&*name, last.messages.0, last.sum.0), ("1023", 2, 1_026));
    }
}
