//! So many clients a second, in steps. No I/O.

use std::time::Duration;

/// How often clients are sent away, and is looked whether what is waited for is so.
pub(crate) const STEP: Duration = Duration::from_millis(100);
const STEPS_PER_SECOND: u32 = 10;

/// Clients in a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PerSecond(pub(crate) u32);

/// How many clients are sent away in each step.
pub(crate) struct Pace {
    rate: PerSecond,
    rest: Tenths,
}

/// Tenths of clients that were too few for one.
struct Tenths(u32);

impl Pace {
    pub(crate) fn new(rate: PerSecond) -> Self {
        Self {
            rate,
            rest: Tenths(0),
        }
    }

    pub(crate) fn step(&mut self) -> usize {
        let tenths = self.rest.0.saturating_add(self.rate.0);
        self.rest = Tenths(tenths % STEPS_PER_SECOND);
        (tenths / STEPS_PER_SECOND) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_as_many_clients_as_is_set() {
        for per_second in [0, 1, 7, 200, 65_535] {
            let mut pace = Pace::new(PerSecond(per_second));
            let steps = (0..STEPS_PER_SECOND).map(|_| pace.step());
            assert_eq!(steps.sum::<usize>(), per_second as usize);
        }
    }
}
