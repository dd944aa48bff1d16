//! CPU time of processes that come and go.
//!
//! Invariant: what was used never shrinks, and the time of a child that ended counts once.
//!
//! When a process ends and its parent waits for it, the kernel moves its time to the parent's time of
//! children. Where the parent does not wait (it ignores SIGCHLD, or has itself ended) the kernel forgets
//! the time, and what the last reading saw of it stays counted here.

use std::collections::BTreeMap;

use crate::process::{Cpu, Stat};

/// The CPU time of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    /// Identifier and start, which together no two processes have.
    pub(super) process: (u32, u64),
    pub(super) own: Cpu,
    /// Of children that it has waited for.
    pub(super) children: Cpu,
}

impl Times {
    pub(super) fn of(pid: u32, stat: &Stat) -> Self {
        Self {
            process: (pid, stat.started),
            own: stat.own,
            children: stat.children,
        }
    }

    fn all(&self) -> Cpu {
        self.own + self.children
    }
}

/// What was used by all that were ever told of.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    used: Cpu,
    last: BTreeMap<(u32, u64), Times>,
    /// Time of processes that the last reading missed for the first time, and that no parent's time of
    /// children had grown by yet: the parent was read just before its child ended.
    awaited: Cpu,
}

impl Account {
    pub(super) fn used(&self) -> Cpu {
        self.used
    }

    /// `now` are all that exist now; those told of before and missing now have ended.
    pub(super) fn update(&mut self, now: impl Iterator<Item = Times>) {
        let mut ended = std::mem::take(&mut self.last);
        let mut from_children = Cpu::default();
        for times in now {
            match ended.remove(&times.process) {
                Some(before) => {
                    self.used += times.own - before.own;
                    from_children += times.children - before.children;
                }
                None => self.used += times.all(),
            }
            self.last.insert(times.process, times);
        }
        let missed = ended
            .values()
            .fold(Cpu::default(), |sum, times| sum + times.all());
        let counted = self.awaited + missed;
        self.used += from_children - counted;
        // The parents of those missed now are up to date at the next reading, so nothing is awaited longer.
        self.awaited = (counted - from_children).min(missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    fn cpu(milliseconds: u64) -> Cpu {
        Cpu {
            user: Duration::from_millis(milliseconds),
            system: Duration::from_millis(2 * milliseconds),
        }
    }

    fn process(pid: u32, own: u64, children: u64) -> Times {
        Times {
            process: (pid, 0),
            own: cpu(own),
            children: cpu(children),
        }
    }

    /// What is used after each reading.
    fn used<const N: usize>(readings: [&[Times]; N]) -> [Cpu; N] {
        let mut account = Account::default();
        readings.map(|reading| {
            account.update(reading.iter().copied());
            account.used()
        })
    }

    #[test]
    fn all_that_is_new_counts_whole() {
        let readings = used([
            &[process(1, 10, 5)],
            &[process(1, 20, 5), process(2, 100, 1)],
        ]);
        assert_eq!(readings, [cpu(15), cpu(126)]);
    }

    #[test]
    fn a_child_that_was_waited_for_counts_once() {
        let readings = used([
            &[process(1, 10, 0), process(2, 100, 0)],
            &[process(1, 10, 130)],
            &[process(1, 11, 130)],
        ]);
        assert_eq!(readings, [cpu(110), cpu(140), cpu(141)]);
    }

    #[test]
    fn a_child_that_ends_after_its_parent_was_read_counts_once() {
        let readings = used([
            &[process(1, 10, 0), process(2, 100, 0)],
            &[process(1, 10, 0)],
            &[process(1, 10, 130)],
        ]);
        assert_eq!(readings, [cpu(110), cpu(110), cpu(140)]);
    }

    #[test]
    fn a_child_that_nobody_waits_for_keeps_what_was_seen() {
        let readings = used([
            &[process(1, 10, 0), process(2, 100, 0)],
            &[process(1, 10, 0)],
            &[process(1, 10, 0)],
            // Another child's time, which must not pass for that of the first.
            &[process(1, 10, 50)],
        ]);
        assert_eq!(readings, [cpu(110), cpu(110), cpu(110), cpu(160)]);
    }

    #[test]
    fn a_child_that_came_and_went_between_readings_counts() {
        let readings = used([&[process(1, 10, 0)], &[process(1, 10, 70)]]);
        assert_eq!(readings, [cpu(10), cpu(80)]);
    }

    #[test]
    fn an_identifier_used_again_is_another_process() {
        let again = Times {
            process: (2, 7),
            ..process(2, 3, 0)
        };
        let readings = used([
            &[process(1, 0, 0), process(2, 100, 0)],
            &[process(1, 0, 100), again],
        ]);
        assert_eq!(readings, [cpu(100), cpu(103)]);
    }
}
