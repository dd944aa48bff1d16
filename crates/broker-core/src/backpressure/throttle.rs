//! How long a publisher is held back for durable sessions that are filling up.
//!
//! These cannot say when they have drained, so their publisher is held back for a moment each time that an inbox shard
//! answers that they are filling up. What such moments come to is bounded by time that the publisher has to its credit:
//!
//! - If others receive its messages as well, wherever they are, a tenth of its time, and `holdUnearnedMs` once.
//! - If durable sessions that are filling up are the only receivers, nobody else waits: a tenth of its time,
//!   `holdPublisherMs` once, and [`EARNED`] more for each message that they took. So a session that takes
//!   thousands of messages in a second is never overrun, and one that takes few costs little more than the tenth.
//!
//! | State | Input | Next | Effect |
//! |---|---|---|---|
//! | free | publication, nobody is filling up | free | – |
//! | free | publication, somebody is filling up; there is credit | paused | paused until a time |
//! | free | publication, somebody is filling up; no credit | free | spared, counted |
//! | paused | publication | paused | – |
//! | paused | timer | free | goes on |
//!
//! Invariant: credit is never below 0, and no more than its limit.

use std::time::Duration;

use mqtt_session::Timestamp;

/// How long a publisher is held back each time.
const MOMENT: Duration = Duration::from_millis(20);

/// What a message earns that durable sessions took which are filling up and are its only receivers.
///
/// Limit: the time that durable sessions which fill up hold one publisher back | if others receive its messages:
/// {limits.connection.holdUnearnedMs}, then one part in {PART}; else {limits.connection.holdPublisherMs}, then one
/// part in {PART} and {} a message | it is not held; what does not fit is dropped
const EARNED: Duration = Duration::from_micros(400);

/// The part of its time that a publisher is held back for at most in the long run: one in so many.
const PART: u32 = 10;

/// Who gets a publication, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Receivers {
    /// Sessions that no inbox queues it for, or members of shared groups.
    pub(crate) others: bool,
    /// Durable sessions.
    pub(crate) durable: usize,
    /// Of these, those that are connected and filling up.
    pub(crate) filling: usize,
}

impl Receivers {
    /// An inbox shard has answered.
    pub(crate) fn answered(&mut self, durable: u32, filling: u32) {
        self.durable = self.durable.saturating_add(durable as usize);
        self.filling = self.filling.saturating_add(filling as usize);
    }

    /// Who is filling up; `None`: nobody.
    fn pressure(self) -> Option<Pressure> {
        match self.filling {
            0 => None,
            filling if self.others || self.durable > filling => Some(Pressure::AmongOthers),
            _ => Some(Pressure::Alone),
        }
    }
}

/// Durable sessions that get a publication are filling up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pressure {
    /// They are its only receivers.
    Alone,
    /// Others get it too.
    AmongOthers,
}

/// The settings that it obeys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `holdPublisherMs`; 0: nobody is held back.
    pub(crate) longest: Duration,
    /// `holdUnearnedMs`.
    pub(crate) unearned: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing.
    None,
    /// The publisher is held back until this time.
    PauseUntil(Timestamp),
    /// It is not, for it has been for as long as it may be.
    Spared,
}

/// A publisher's part in it.
#[derive(Debug)]
pub(crate) struct Throttle {
    is_paused: bool,
    /// When the credits were as they are.
    at: Timestamp,
    /// Credit for messages that others receive as well.
    among_others: Duration,
    /// Credit for messages that only durable sessions receive.
    alone: Duration,
}

impl Throttle {
    /// Of a publisher that nobody has held back lately.
    pub(crate) fn new(now: Timestamp, bounds: Bounds) -> Self {
        Self {
            is_paused: false,
            at: now,
            among_others: bounds.unearned,
            alone: bounds.longest,
        }
    }

    /// A publication is kept by all who are to keep it.
    pub(crate) fn handle_publication(
        &mut self,
        receivers: Receivers,
        now: Timestamp,
        bounds: Bounds,
    ) -> Step {
        self.pass_time(now, bounds);
        let pressure = receivers
            .pressure()
            .filter(|_| bounds.longest > Duration::ZERO);
        let Some(pressure) = pressure else {
            return Step::None;
        };
        if pressure == Pressure::Alone {
            self.alone = (self.alone + EARNED).min(bounds.longest);
        }
        if self.is_paused {
            return Step::None;
        }
        let credit = match pressure {
            Pressure::Alone => self.alone,
            Pressure::AmongOthers => self.among_others,
        };
        if credit < MOMENT.min(bounds.longest) {
            return Step::Spared;
        }
        self.among_others = self.among_others.saturating_sub(MOMENT);
        self.alone = self.alone.saturating_sub(MOMENT);
        self.is_paused = true;
        Step::PauseUntil(Timestamp(now.0 + MOMENT.as_millis() as u64))
    }

    /// The time of [`Step::PauseUntil`] has come. False: it is not held back.
    pub(crate) fn handle_timer(&mut self) -> bool {
        std::mem::take(&mut self.is_paused)
    }

    /// Whether it is as a new one would be.
    pub(crate) fn is_idle(&self, bounds: Bounds) -> bool {
        let is_full = self.among_others >= bounds.unearned && self.alone >= bounds.longest;
        !self.is_paused && is_full
    }

    fn pass_time(&mut self, now: Timestamp, bounds: Bounds) {
        let passed = Duration::from_millis(now.saturating_since(self.at));
        self.at = self.at.max(now);
        let credit = passed / PART;
        self.among_others = (self.among_others + credit).min(MOMENT.max(bounds.unearned));
        self.alone = (self.alone + credit).min(bounds.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        longest: Duration::from_secs(5),
        unearned: Duration::from_millis(80),
    };

    const ALONE: Receivers = Receivers {
        others: false,
        durable: 2,
        filling: 2,
    };

    const OTHERS: Receivers = Receivers {
        others: true,
        durable: 1,
        filling: 1,
    };

    /// Publishes to `receivers` each `every_ms` that it is not held, for a time; the time that it was held.
    fn held_for(receivers: impl Fn(u64) -> Receivers, every_ms: u64, time_ms: u64) -> u64 {
        let mut throttle = Throttle::new(Timestamp(0), BOUNDS);
        let (mut now, mut held) = (0, 0);
        while now < time_ms {
            match throttle.handle_publication(receivers(now), Timestamp(now), BOUNDS) {
                Step::PauseUntil(Timestamp(until)) => {
                    held += until - now;
                    now = until;
                    assert!(throttle.handle_timer() && !throttle.handle_timer());
                }
                Step::None | Step::Spared => now += every_ms,
            }
        }
        held
    }

    #[test]
    fn among_others_a_slow_session_costs_a_tenth() {
        let held = held_for(|_| OTHERS, 1, 60_000);
        assert!((6_000..=6_080).contains(&held), "{held}");
        let not_all = |_| Receivers {
            others: false,
            durable: 3,
            filling: 2,
        };
        assert_eq!(held_for(not_all, 1, 60_000), held);
    }

    #[test]
    fn so_does_one_that_hovers() {
        let hovers = |now: u64| Receivers {
            filling: usize::from(now % 50 < 25),
            ..OTHERS
        };
        assert!(held_for(hovers, 1, 60_000) <= 80 + 6_000);
    }

    #[test]
    fn alone_it_costs_what_it_earns_besides() {
        let slow = held_for(|_| ALONE, 100, 60_000);
        assert!((10_000..=11_500).contains(&slow), "{slow}");
        // It takes a message each ms that its publisher is not held.
        let quick = held_for(|_| ALONE, 1, 60_000);
        assert!((20_000..=27_000).contains(&quick), "{quick}");
    }

    #[test]
    fn nobody_is_held_without_need() {
        let mut throttle = Throttle::new(Timestamp(0), BOUNDS);
        let nobody = Receivers::default();
        assert_eq!(
            throttle.handle_publication(nobody, Timestamp(1), BOUNDS),
            Step::None
        );
        assert!(throttle.is_idle(BOUNDS));
        let none = Bounds {
            longest: Duration::ZERO,
            unearned: Duration::ZERO,
        };
        assert_eq!(
            throttle.handle_publication(ALONE, Timestamp(2), none),
            Step::None
        );
    }

    #[test]
    fn credit_comes_back_with_time() {
        let mut throttle = Throttle::new(Timestamp(0), BOUNDS);
        for n in 0..4 {
            let step = throttle.handle_publication(OTHERS, Timestamp(0), BOUNDS);
            assert_eq!(step, Step::PauseUntil(Timestamp(20)), "{n}");
            assert_eq!(
                throttle.handle_publication(OTHERS, Timestamp(0), BOUNDS),
                Step::None
            );
            throttle.handle_timer();
        }
        let spared = throttle.handle_publication(OTHERS, Timestamp(199), BOUNDS);
        assert_eq!(spared, Step::Spared);
        let held = throttle.handle_publication(OTHERS, Timestamp(200), BOUNDS);
        assert_eq!(held, Step::PauseUntil(Timestamp(220)));
        throttle.handle_timer();
        assert!(!throttle.is_idle(BOUNDS));
        throttle.handle_publication(Receivers::default(), Timestamp(2_000), BOUNDS);
        assert!(throttle.is_idle(BOUNDS));
    }
}
