//! What a node has counted in the last hour, a sample for each 10 s, in memory.
//!
//! Invariant: a sample stands at the place that its time gives it; what was not sampled is absent, never 0.

use std::borrow::Cow;

use admin::api::Counts;
use histogram::Snapshot;
use parking_lot::Mutex;

/// Between samples.
pub(crate) const STEP_MS: u64 = 10_000;

/// Samples that are kept: an hour.
const SAMPLES: usize = 360;

/// What a sample has, in the order of its values; behind these it has the drops of each reason.
const NAMES: [&str; 27] = [
    "connections",
    "sessions",
    "subscriptions",
    "retained_messages",
    "queued_messages",
    "queued_bytes",
    "messages_in_per_s",
    "messages_out_per_s",
    "bytes_in_per_s",
    "bytes_out_per_s",
    "connects_per_s",
    "connects_refused_per_s",
    "dropped_per_s",
    "unmatched_per_s",
    "cpu_cores",
    "memory_bytes",
    "disk_free_bytes",
    "publish_ack_p50_ms",
    "publish_ack_p99_ms",
    "publish_ack_max_ms",
    "delivery_p50_ms",
    "delivery_p99_ms",
    "delivery_max_ms",
    "log_sync_p99_ms",
    "log_sync_max_ms",
    "apply_p99_ms",
    "apply_max_ms",
];

/// Stands before the reason in the names of what was dropped for one.
const DROPPED: &str = "dropped_per_s.";

type Values = Box<[f32]>;

/// What is sampled.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) counts: Counts,
    /// CPU time of the process, in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk_free_bytes: Option<u64>,
    /// From PUBLISH to its acknowledgement, and to its receivers on this node.
    pub(crate) acknowledgements: Snapshot,
    pub(crate) deliveries: Snapshot,
    /// Syncs of the log, and what was applied to shards.
    pub(crate) syncs: Snapshot,
    pub(crate) applied: Snapshot,
    /// What was dropped, for every reason, in an order that does not change.
    pub(crate) dropped: Vec<(&'static str, u64)>,
}

/// The last hour.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Recorder>);

/// A part of it: values by name, the oldest first, and when the last sample ended, in ms.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Samples {
    pub(crate) end_ms: Option<u64>,
    pub(crate) series: Vec<(Cow<'static, str>, Vec<Option<f32>>)>,
}

impl History {
    /// A reading at a time of the cluster; it makes a sample with the one before it.
    pub(crate) fn record(&self, reading: Reading, now_ms: u64) {
        self.0.lock().handle_reading(reading, now_ms);
    }

    /// The samples that ended later than `since_ms`; `None`: all.
    pub(crate) fn samples(&self, since_ms: Option<u64>) -> Samples {
        self.0.lock().samples(since_ms)
    }
}

/// How long until a sample ends.
pub(crate) fn until_next_ms(now_ms: u64) -> u64 {
    STEP_MS - now_ms % STEP_MS
}

/// CPU time of this process so far.
pub(crate) fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name of the command, which may have spaces: the 12th and 13th are ticks in user and kernel mode.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = fields.split_ascii_whitespace().skip(11).take(2);
    let sum: f64 = ticks.by_ref().filter_map(|t| t.parse::<f64>().ok()).sum();
    sum / rustix::param::clock_ticks_per_second() as f64
}

#[derive(Debug, Default)]
struct Recorder {
    last: Option<(u64, Reading)>,
    /// A ring: the sample that ends at so many steps is at that, modulo [`SAMPLES`], with the number of the step.
    ring: Vec<Option<(u64, Values)>>,
    /// The step at which the last sample ended.
    end: Option<u64>,
}

impl Recorder {
    fn handle_reading(&mut self, reading: Reading, now_ms: u64) {
        let step = now_ms / STEP_MS;
        let values = self.last.as_ref().and_then(|(then_ms, before)| {
            let elapsed_ms = now_ms.saturating_sub(*then_ms);
            // A clock that was set back, or a process that stood still: what has happened belongs to no sample.
            let is_a_step = (STEP_MS / 2..=STEP_MS * 3 / 2).contains(&elapsed_ms);
            is_a_step.then(|| values(before, &reading, elapsed_ms as f64 / 1_000.0))
        });
        self.last = Some((now_ms, reading));
        self.keep(step, values);
    }

    fn keep(&mut self, step: u64, values: Option<Values>) {
        self.ring.resize(SAMPLES, None);
        let place = usize::try_from(step % SAMPLES as u64).expect("a remainder is small");
        if let Some(slot) = self.ring.get_mut(place) {
            *slot = values.map(|values| (step, values));
        }
        self.end = Some(step);
    }

    fn samples(&self, since_ms: Option<u64>) -> Samples {
        let since = since_ms.map_or(0, |since| since / STEP_MS + 1);
        let steps = match self.end {
            Some(end) => end.saturating_sub(SAMPLES as u64 - 1).max(since)..end + 1,
            None => 0..0,
        };
        let found = |step: u64| {
            let place = usize::try_from(step % SAMPLES as u64).ok()?;
            let (of, values) = self.ring.get(place)?.as_ref()?;
            (*of == step).then_some(values)
        };
        // Without those before the node has started.
        let known: Vec<Option<&Values>> = steps
            .map(found)
            .skip_while(|values| since_ms.is_none() && values.is_none())
            .collect();
        let values_at = |at: usize| {
            let values = known
                .iter()
                .map(|values| values.and_then(|values| values.get(at)).copied())
                // What a node cannot tell.
                .map(|value| value.filter(|value| value.is_finite()));
            values.collect()
        };
        let fixed = NAMES.iter().enumerate();
        let fixed = fixed.map(|(at, name)| (Cow::Borrowed(*name), values_at(at)));
        let reasons = self.last.iter().flat_map(|(_, reading)| &reading.dropped);
        let reasons = (NAMES.len()..).zip(reasons);
        let occurred = reasons
            .filter(|(_, (_, count))| *count != 0)
            .map(|(at, (reason, _))| (Cow::Owned(format!("{DROPPED}{reason}")), values_at(at)));
        Samples {
            end_ms: self.end.map(|end| end * STEP_MS),
            series: fixed.chain(occurred).collect(),
        }
    }
}

fn values(before: &Reading, now: &Reading, elapsed_s: f64) -> Values {
    let (was, is) = (&before.counts, &now.counts);
    let rate = |was: u64, is: u64| is.saturating_sub(was) as f64 / elapsed_s;
    let known = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
    let acknowledgements = now.acknowledgements.since(&before.acknowledgements);
    let deliveries = now.deliveries.since(&before.deliveries);
    let syncs = now.syncs.since(&before.syncs);
    let applied = now.applied.since(&before.applied);
    let ms = |times: &Snapshot, share: f64| {
        let time = times.quantile(share);
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
    };
    let fixed: [f64; NAMES.len()] = [
        is.connections as f64,
        is.sessions as f64,
        is.subscriptions as f64,
        is.retained_messages as f64,
        is.queued_messages as f64,
        is.queued_bytes as f64,
        rate(was.messages_in, is.messages_in),
        rate(was.messages_out, is.messages_out),
        rate(was.bytes_in, is.bytes_in),
        rate(was.bytes_out, is.bytes_out),
        rate(was.connects, is.connects),
        rate(was.connects_refused, is.connects_refused),
        rate(was.dropped, is.dropped),
        rate(was.unmatched, is.unmatched),
        (now.cpu_s - before.cpu_s).max(0.0) / elapsed_s,
        known(now.memory_bytes),
        known(now.disk_free_bytes),
        ms(&acknowledgements, 0.5),
        ms(&acknowledgements, 0.99),
        ms(&acknowledgements, 1.0),
        ms(&deliveries, 0.5),
        ms(&deliveries, 0.99),
        ms(&deliveries, 1.0),
        ms(&syncs, 0.99),
        ms(&syncs, 1.0),
        ms(&applied, 0.99),
        ms(&applied, 1.0),
    ];
    let reasons = before.dropped.iter().zip(&now.dropped);
    let dropped = reasons.map(|((_, was), (_, is))| rate(*was, *is));
    let all = fixed.into_iter().chain(dropped);
    all.map(|value| value as f32).collect()
}

#[cfg(test)]
mod tests {
    use histogram::{Histogram, Micros};

    use super::*;

    fn reading(messages_in: u64) -> Reading {
        Reading {
            counts: Counts {
                connections: 7,
                messages_in,
                ..Counts::default()
            },
            cpu_s: messages_in as f64 / 100.0,
            memory_bytes: Some(1 << 20),
            disk_free_bytes: None,
            dropped: vec![("expired", 0), ("queue_full_bytes", 2 * messages_in)],
            ..Reading::default()
        }
    }

    fn series(samples: &Samples, name: &str) -> Vec<Option<f32>> {
        let mut all = samples.series.iter();
        all.find(|(of, _)| of == name).unwrap().1.clone()
    }

    #[test]
    fn samples_are_means_over_their_time_and_what_was_not_sampled_is_absent() {
        let mut recorder = Recorder::default();
        let nothing = recorder.samples(None);
        assert_eq!(
            (nothing.end_ms, series(&nothing, "sessions")),
            (None, Vec::new())
        );
        let at = |step: u64| 1_000_000 + step * STEP_MS;
        recorder.handle_reading(reading(0), at(0));
        assert_eq!(series(&recorder.samples(None), "connections"), []);
        recorder.handle_reading(reading(100), at(1));
        recorder.handle_reading(reading(300), at(2) + 3);
        // The process stood still for a while.
        recorder.handle_reading(reading(900), at(5));
        recorder.handle_reading(reading(950), at(6));
        let all = recorder.samples(None);
        assert_eq!(all.end_ms, Some(at(6)));
        let rates = series(&all, "messages_in_per_s");
        assert_eq!(rates.len(), 6);
        assert_eq!(rates[0], Some(10.0));
        assert!((rates[1].unwrap() - 20.0).abs() < 0.1);
        assert_eq!(rates[2..5], [None; 3]);
        assert!((rates[5].unwrap() - 5.0).abs() < 0.1);
        assert_eq!(series(&all, "connections")[5], Some(7.0));
        assert!((series(&all, "cpu_cores")[0].unwrap() - 0.1).abs() < 0.001);
        // What it cannot tell.
        assert_eq!(series(&all, "disk_free_bytes"), [None; 6]);
        // Reasons for which something was dropped since the start.
        let names: Vec<&str> = all.series.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(
            names.get(NAMES.len()..),
            Some(&["dropped_per_s.queue_full_bytes"][..])
        );
        let dropped = series(&all, "dropped_per_s.queue_full_bytes");
        assert_eq!((dropped[0], dropped[3]), (Some(20.0), None));
        let later = recorder.samples(Some(at(5)));
        assert_eq!(series(&later, "connections"), [Some(7.0)]);
        assert_eq!(series(&recorder.samples(Some(at(6))), "connections"), []);
    }

    #[test]
    fn times_of_messages_are_those_of_their_sample() {
        let times = Histogram::default();
        let mut recorder = Recorder::default();
        let mut sample = |step: u64, taken: &[u64]| {
            let all = taken.iter().map(|us| Micros(*us));
            all.for_each(|time| times.record(time));
            let mut now = Reading::default();
            times.add_to(&mut now.deliveries);
            recorder.handle_reading(now, step * STEP_MS);
            recorder.samples(None)
        };
        sample(1, &[]);
        sample(2, &[1_000; 99]);
        sample(3, &[31_250]);
        let all = sample(4, &[]);
        let of = |name| series(&all, name);
        assert_eq!(of("delivery_p50_ms"), [Some(1.161), Some(31.25), None]);
        assert_eq!(of("delivery_max_ms"), [Some(1.161), Some(31.25), None]);
        assert_eq!(of("publish_ack_p99_ms"), [None; 3]);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut recorder = Recorder::default();
        for step in 0..1_000 {
            recorder.handle_reading(reading(step), step * STEP_MS);
        }
        let connections = series(&recorder.samples(None), "connections");
        assert_eq!(connections, [Some(7.0); SAMPLES]);
        // The clock was set back: what was kept of that time is not told twice.
        recorder.handle_reading(reading(1_000), 900 * STEP_MS);
        let connections = series(&recorder.samples(None), "connections");
        assert_eq!(connections.last(), Some(&None));
    }

    #[test]
    fn samples_end_at_round_times() {
        assert_eq!(until_next_ms(0), STEP_MS);
        assert_eq!(until_next_ms(STEP_MS - 1), 1);
    }
}
