//! /proc/pid/stat.

use std::time::Duration;

use crate::process::Cpu;

/// What is used of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    /// Only its entry is left, until its parent waits for it.
    pub(crate) ended: bool,
    pub(crate) parent: u32,
    /// Of its threads.
    pub(crate) own: Cpu,
    /// Of the children that it has waited for, and of those that these had waited for.
    pub(crate) children: Cpu,
    pub(crate) threads: u32,
    /// In clock ticks since the machine started: tells a process from a later one of the same identifier.
    pub(crate) started: u64,
}

impl Stat {
    /// `None` if it does not look as in proc(5).
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        // Field 2 is the command's name in parentheses and may itself have blanks and parentheses.
        let (_, from_third) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = from_third.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let ticks = |number| -> Option<Duration> { time(field(number)?.parse().ok()?) };
        Some(Self {
            ended: matches!(field(3)?, "Z" | "X"),
            parent: field(4)?.parse().ok()?,
            own: Cpu {
                user: ticks(14)?,
                system: ticks(15)?,
            },
            children: Cpu {
                user: ticks(16)?,
                system: ticks(17)?,
            },
            threads: field(20)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
        })
    }
}

fn time(ticks: u64) -> Option<Duration> {
    let per_second = rustix::param::clock_ticks_per_second();
    let nanoseconds = ticks % per_second * 1_000_000_000 / per_second;
    Some(Duration::new(
        ticks / per_second,
        u32::try_from(nanoseconds).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 75 30 2 20 0 4 0 99 1 1";

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let ticks = |count: f64| Duration::from_secs_f64(count / per_second);
        let expected = Stat {
            ended: false,
            parent: 1,
            own: Cpu {
                user: ticks(250.0),
                system: ticks(75.0),
            },
            children: Cpu {
                user: ticks(30.0),
                system: ticks(2.0),
            },
            threads: 4,
            started: 99,
        };
        assert_eq!(Stat::parse(STAT), Some(expected));
    }

    #[test]
    fn a_zombie_has_ended() {
        let zombie = STAT.replace(" S ", " Z ");
        assert!(Stat::parse(&zombie).unwrap().ended);
    }

    #[test]
    fn what_is_cut_off_or_no_number_is_refused() {
        for end in 0..STAT.find("99").unwrap() {
            assert_eq!(Stat::parse(&STAT[..end]), None, "{end}");
        }
        assert_eq!(Stat::parse(&STAT.replace("250", "x")), None);
    }
}
