//! Which counts of a node are alarms: messages dropped, queues that are full, publishers that wait. It knows neither clock
//! nor counters.
//!
//! Invariant: an alarm begins when its count has been at its threshold for [`LASTS`] without a break, and ends when it has
//! been below for [`QUIET`] without a break. A threshold of 0 ends the alarm at once.
//!
//! Deliberately absent: the thresholds (`attention` in the configuration), and when the alarm began (`record.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use config::AttentionConfig;

use super::Found;

/// How long a count is at its threshold before it is an alarm.
const LASTS: Duration = Duration::from_secs(5);

/// How long it is below before it is none any more.
const QUIET: Duration = Duration::from_secs(15);

/// The time over which drops are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Between the counts of drops that are kept.
const SLICE: Duration = Duration::from_secs(5);

/// How many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count(pub(crate) u64);

/// Publishers that have waited for much of the last minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) publishers: Count,
    /// Whether these are only those that were looked at.
    pub(crate) is_least: bool,
    /// Why most of them wait.
    pub(crate) reason: &'static str,
}

/// What the node counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// Messages dropped since the start, for every reason, in an order that does not change.
    pub(crate) dropped: Vec<(&'static str, u64)>,
    pub(crate) full_queues: Count,
    pub(crate) waiting: Option<Waiting>,
}

/// Which of the three are raised.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    /// Drops since the start as of some times of the last minute, and of one before.
    dropped: VecDeque<(Duration, Vec<u64>)>,
    dropping: Steady,
    queues_full: Steady,
    publishers_held: Steady,
}

impl Attention {
    /// What the node has counted at a time since its start; the alarms of these counts.
    pub(crate) fn handle_seen(
        &mut self,
        seen: &Seen,
        thresholds: &AttentionConfig,
        now: Duration,
    ) -> Vec<Found> {
        let drops_per_s = u64::from(thresholds.drops_per_second);
        let full_queues = u64::from(thresholds.full_queues);
        let publishers_held = u64::from(thresholds.publishers_held);
        let drops = self.drops_of_the_minute(&seen.dropped, now);
        let sum: u64 = drops.iter().map(|(_, count)| count).sum();
        let waiting = seen.waiting.map_or(0, |waiting| waiting.publishers.0);
        let is = |count: u64, threshold: u64| threshold > 0 && count >= threshold;
        let dropping = is(sum, drops_per_s.saturating_mul(MINUTE.as_secs()));
        let found = [
            self.dropping
                .handle(dropping.then(|| of_drops(sum, &drops)), drops_per_s, now)
                .map(|detail| ("dropping", detail)),
            self.queues_full
                .handle(
                    is(seen.full_queues.0, full_queues).then(|| of_queues(seen.full_queues)),
                    full_queues,
                    now,
                )
                .map(|detail| ("queues_full", detail)),
            self.publishers_held
                .handle(
                    is(waiting, publishers_held)
                        .then(|| seen.waiting.as_ref().map(of_waiting))
                        .flatten(),
                    publishers_held,
                    now,
                )
                .map(|detail| ("publishers_held", detail)),
        ];
        let found = found.into_iter().flatten();
        found
            .map(|(name, detail)| Found {
                name,
                subject: String::new(),
                detail,
            })
            .collect()
    }

    fn drops_of_the_minute(
        &mut self,
        dropped: &[(&'static str, u64)],
        now: Duration,
    ) -> Vec<(&'static str, u64)> {
        let is_due = |(at, _): &(Duration, Vec<u64>)| now.saturating_sub(*at) >= SLICE;
        if self.dropped.back().is_none_or(is_due) {
            let counts = dropped.iter().map(|(_, count)| *count);
            self.dropped.push_back((now, counts.collect()));
        }
        let is_before = |(at, _): &(Duration, Vec<u64>)| now.saturating_sub(*at) >= MINUTE;
        while self.dropped.get(1).is_some_and(is_before) {
            self.dropped.pop_front();
        }
        let (_, before) = self
            .dropped
            .front()
            .expect("one was pushed if there was none");
        let since = dropped.iter().zip(before);
        since
            .map(|((reason, count), before)| (*reason, count.saturating_sub(*before)))
            .collect()
    }
}

fn of_drops(sum: u64, drops: &[(&'static str, u64)]) -> String {
    let per_s = |count: u64| count / MINUTE.as_secs();
    let most = drops.iter().max_by_key(|(_, count)| *count);
    let (reason, count) = most.expect("what was dropped has a reason");
    let (noun, verb) = match per_s(sum) {
        1 => ("message", "was"),
        _ => ("messages", "were"),
    };
    format!(
        "{} {noun} per second {verb} dropped in the last minute, most often ({} per second) with the reason {reason}",
        per_s(sum),
        per_s(*count)
    )
}

fn of_queues(Count(full): Count) -> String {
    match full {
        1 => "the queue of 1 session is full: messages for it are dropped or refused".to_owned(),
        _ => format!(
            "the queues of {full} sessions are full: messages for them are dropped or refused"
        ),
    }
}

fn of_waiting(waiting: &Waiting) -> String {
    let least = if waiting.is_least { "at least " } else { "" };
    let (noun, verb) = match waiting.publishers.0 {
        1 => ("publisher", "has"),
        _ => ("publishers", "have"),
    };
    format!(
        "{least}{} {noun} {verb} waited for more than half of the last minute, most often with the reason {}",
        waiting.publishers.0, waiting.reason
    )
}

/// An alarm that does not flap.
#[derive(Debug, Default)]
struct Steady {
    /// What is said of it while it is raised.
    raised: Option<String>,
    /// Since when it is otherwise than it was.
    differs_since: Option<Duration>,
}

impl Steady {
    /// `found`: what is said of it if the count is at its threshold now. Returns the same if it is raised.
    fn handle(&mut self, found: Option<String>, threshold: u64, now: Duration) -> Option<String> {
        if threshold == 0 {
            *self = Self::default();
            return None;
        }
        let is_as_before = found.is_some() == self.raised.is_some();
        if is_as_before {
            self.differs_since = None;
            self.raised = found;
        } else {
            let since = *self.differs_since.get_or_insert(now);
            let lasts = if found.is_some() { LASTS } else { QUIET };
            if now.saturating_sub(since) >= lasts {
                self.differs_since = None;
                self.raised = found;
            }
        }
        self.raised.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: AttentionConfig = AttentionConfig {
        drops_per_second: 2,
        full_queues: 1,
        publishers_held: 3,
    };

    /// Counts, and the time in seconds. It is looked each second.
    #[derive(Default)]
    struct Script {
        attention: Attention,
        queue_full: u64,
        expired: u64,
        full_queues: u64,
        waiting: u64,
        now: u64,
    }

    impl Script {
        fn look(&mut self, thresholds: &AttentionConfig) -> Vec<Found> {
            let seen = Seen {
                dropped: vec![("queue_full", self.queue_full), ("expired", self.expired)],
                full_queues: Count(self.full_queues),
                waiting: (self.waiting > 0).then_some(Waiting {
                    publishers: Count(self.waiting),
                    is_least: false,
                    reason: "memory",
                }),
            };
            let now = Duration::from_secs(self.now);
            self.now += 1;
            self.attention.handle_seen(&seen, thresholds, now)
        }

        /// The names at the last of so many looks.
        fn looks(&mut self, seconds: u64) -> Vec<&'static str> {
            let mut names = Vec::new();
            for _ in 0..seconds {
                names = self.look(&ALL).iter().map(|found| found.name).collect();
            }
            names
        }
    }

    #[test]
    fn drops_are_an_alarm_until_the_minute_and_the_quiet_time_are_over() {
        let mut script = Script {
            // Of before: they are not of this minute.
            queue_full: 1_000_000,
            ..Script::default()
        };
        assert!(script.looks(90).is_empty());
        script.queue_full += 119;
        assert!(script.looks(20).is_empty());
        (script.queue_full, script.expired) = (script.queue_full + 600, 61);
        assert!(script.looks(5).is_empty());
        let found = script.look(&ALL);
        assert_eq!(found[0].name, "dropping");
        assert_eq!(
            found[0].detail,
            "13 messages per second were dropped in the last minute, most often (11 per second) with the reason queue_full"
        );
        assert_eq!(script.looks(60), ["dropping"]);
        assert!(script.looks(25).is_empty());
    }

    #[test]
    fn few_counts_of_drops_are_kept() {
        let mut script = Script::default();
        script.looks(10_000);
        assert!(script.attention.dropped.len() <= 14);
    }

    #[test]
    fn what_changes_each_second_is_no_alarm_and_one_that_is_raised_stays() {
        let mut script = Script::default();
        for second in 0..60 {
            script.full_queues = second % 2;
            assert!(script.looks(1).is_empty());
        }
        script.full_queues = 2;
        assert_eq!(script.looks(6), ["queues_full"]);
        for second in 0..60 {
            script.full_queues = u64::from(second % 14 == 0);
            assert_eq!(script.looks(1), ["queues_full"]);
        }
        script.full_queues = 0;
        assert_eq!(script.looks(10), ["queues_full"]);
        assert!(script.looks(20).is_empty());
    }

    #[test]
    fn publishers_that_wait_are_an_alarm_from_the_threshold_on() {
        let mut script = Script {
            waiting: 2,
            ..Script::default()
        };
        assert!(script.looks(60).is_empty());
        script.waiting = 3;
        assert_eq!(script.looks(6), ["publishers_held"]);
        let said = script.look(&ALL);
        assert_eq!(
            said[0].detail,
            "3 publishers have waited for more than half of the last minute, most often with the reason memory"
        );
    }

    #[test]
    fn a_threshold_of_0_ends_an_alarm_at_once() {
        let mut script = Script {
            full_queues: 1,
            waiting: 9,
            ..Script::default()
        };
        assert_eq!(script.looks(6), ["queues_full", "publishers_held"]);
        let without = AttentionConfig {
            drops_per_second: 0,
            full_queues: 0,
            publishers_held: 0,
        };
        assert!(script.look(&without).is_empty());
    }
}
