//! What a node has counted in the last hour, a sample for each 10 s, in memory.
//!
//! Invariant: a sample stands at the place that its time gives it; what was not sampled is absent, never 0.

use admin::api::Counts;
use parking_lot::Mutex;

/// Between samples.
pub(crate) const STEP_MS: u64 = 10_000;

/// Samples that are kept: an hour.
const SAMPLES: usize = 360;

/// What a sample has, in the order of its values.
const NAMES: [&str; 17] = [
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
];

type Values = [f32; NAMES.len()];

/// What is sampled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) counts: Counts,
    /// CPU time of the process, in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk_free_bytes: Option<u64>,
}

/// The last hour.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Recorder>);

/// A part of it: values by name, the oldest first, and when the last sample ended, in ms.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Samples {
    pub(crate) end_ms: Option<u64>,
    pub(crate) series: Vec<(&'static str, Vec<Option<f32>>)>,
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
        let before = self.last.replace((now_ms, reading));
        let Some((then_ms, before)) = before else {
            return self.keep(step, None);
        };
        let elapsed_s = now_ms.saturating_sub(then_ms) as f64 / 1_000.0;
        // A clock that was set back, or a process that stood still: what has happened belongs to no sample.
        let is_a_step = (STEP_MS / 2..=STEP_MS * 3 / 2).contains(&now_ms.saturating_sub(then_ms));
        let values = is_a_step.then(|| values(&before, &reading, elapsed_s));
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
        let series = NAMES.iter().enumerate().map(|(at, name)| {
            let values = known
                .iter()
                .map(|values| values.and_then(|values| values.get(at)).copied())
                // What a node cannot tell.
                .map(|value| value.filter(|value| value.is_finite()));
            (*name, values.collect())
        });
        Samples {
            end_ms: self.end.map(|end| end * STEP_MS),
            series: series.collect(),
        }
    }
}

fn values(before: &Reading, now: &Reading, elapsed_s: f64) -> Values {
    let (was, is) = (&before.counts, &now.counts);
    let rate = |was: u64, is: u64| is.saturating_sub(was) as f64 / elapsed_s;
    let known = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
    [
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
    ]
    .map(|value| value as f32)
}

#[cfg(test)]
mod tests {
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
        }
    }

    fn series(samples: &Samples, name: &str) -> Vec<Option<f32>> {
        let mut all = samples.series.iter();
        all.find(|(of, _)| *of == name).unwrap().1.clone()
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
        let later = recorder.samples(Some(at(5)));
        assert_eq!(series(&later, "connections"), [Some(7.0)]);
        assert_eq!(series(&recorder.samples(Some(at(6))), "connections"), []);
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
