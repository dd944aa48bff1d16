//! Heavy hitters: the names with the largest sums, in a table of a fixed size.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in
//! data streams", 2005): who is not in a full table takes the place of the one with the least sum, and takes that sum
//! over as what he may have had before. Whoever has more than a 256th of all is in the table.

use super::table::{Slot, Table};
use super::{Amount, Measure};

/// One of the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeavyHitter {
    /// The client or the topic; of a longer name, its first 256 bytes.
    pub name: Box<str>,
    /// What was counted of it: at least so much.
    pub counted: Amount,
    /// How much it may have had before it was counted, in the measure of its ranking.
    pub uncounted: Uncounted,
}

/// An amount in the measure of a ranking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uncounted(pub u64);

#[derive(Debug)]
pub(super) struct HeavyHitters {
    by: Measure,
    table: Table<Sums>,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    counted: Amount,
    uncounted: Uncounted,
}

impl Sums {
    fn all(&self, by: Measure) -> u64 {
        self.uncounted.0.saturating_add(self.counted.by(by))
    }
}

impl HeavyHitters {
    pub(super) fn by(by: Measure) -> Self {
        Self {
            by,
            table: Table::default(),
        }
    }

    pub(super) fn add(&mut self, name: &str, amount: Amount) {
        let by = self.by;
        match self.table.slot(name) {
            Slot::Taken(sums) => sums.counted.add(amount),
            Slot::Free(free) => {
                let sums = Sums {
                    counted: amount,
                    uncounted: Uncounted(free.least(|sums| sums.all(by)).unwrap_or(0)),
                };
                free.put(sums, |sums| sums.all(by));
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<HeavyHitter> {
        let rows = self.table.iter().map(|(name, sums)| HeavyHitter {
            name: name.into(),
            counted: sums.counted,
            uncounted: sums.uncounted,
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::NAMES;
    use super::super::{Bytes, Messages};
    use super::*;

    const ONE: Amount = Amount {
        messages: Messages(1),
        bytes: Bytes(100),
    };

    fn row(of: &HeavyHitters, name: &str) -> Option<HeavyHitter> {
        of.rows().into_iter().find(|row| *row.name == *name)
    }

    #[test]
    fn few_are_counted_all() {
        let mut first = HeavyHitters::by(Measure::Messages);
        for n in 0..NAMES {
            for _ in 0..=n {
                first.add(&n.to_string(), ONE);
            }
        }
        for n in 0..NAMES {
            let row = row(&first, &n.to_string()).unwrap();
            assert_eq!((row.counted.messages.0, row.uncounted.0), (n as u64 + 1, 0));
        }
    }

    #[test]
    fn who_has_more_than_a_256th_is_there_and_never_with_more_than_he_has() {
        let mut first = HeavyHitters::by(Measure::Messages);
        let heavy = 300;
        let light = 20_000;
        for n in 0..light {
            first.add(&format!("light-{n}"), ONE);
            if n % (light / heavy) == 0 {
                first.add("heavy", ONE);
            }
        }
        let all = light + heavy;
        assert!(heavy > all / NAMES);
        let found = row(&first, "heavy").unwrap();
        assert!(found.counted.messages.0 <= 304, "{found:?}");
        assert!(
            found.counted.messages.0 + found.uncounted.0 >= 300,
            "{found:?}"
        );
        assert!(found.uncounted.0 <= (all / NAMES) as u64, "{found:?}");
        assert_eq!(first.rows().len(), NAMES);
    }

    #[test]
    fn long_messages_count_by_their_bytes() {
        let mut first = HeavyHitters::by(Measure::Bytes);
        first.add("film", Amount::of_one(1_000_000));
        for n in 0..5_000 {
            first.add(&n.to_string(), ONE);
        }
        let film = row(&first, "film").unwrap();
        assert_eq!((film.counted.bytes.0, film.uncounted.0), (1_000_000, 0));
    }

    #[test]
    fn of_a_long_name_the_beginning_is_kept() {
        let mut first = HeavyHitters::by(Measure::Messages);
        let name = "ü".repeat(30_000);
        first.add(&name, ONE);
        first.add(&name, ONE);
        let [row] = first.rows().try_into().unwrap();
        assert!(name.starts_with(&*row.name) && row.name.len() <= 256);
        assert_eq!(row.counted.messages, Messages(2));
    }
}
