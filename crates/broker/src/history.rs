//! What a node has counted in the last hour, a sample for each 10 s, in memory.
//!
//! Invariant: a sample stands at the place that its time gives it; what was not sampled is absent, never 0.

mod ring;

use std::borrow::Cow;

use admin::api::{Counts, ShardName};
use histogram::Snapshot;
use parking_lot::Mutex;
use ring::Ring;
use store::ShardLoad;

/// Between samples.
pub(crate) const STEP_MS: u64 = 10_000;

/// What a sample has, in the order of its values; behind these it has the drops of each reason.
const NAMES: [&str; 28] = [
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
    "shards_cpu_cores",
];

/// Stands before the reason in the names of what was dropped for one.
const DROPPED: &str = "dropped_per_s.";

/// What a sample has of a shard that the node leads, in the order of its values.
const SHARD_NAMES: [&str; 4] = ["cpu_cores", "requests_per_s", "wait_ms", "log_bytes_per_s"];

type ShardValues = (ShardName, [f32; SHARD_NAMES.len()]);

#[derive(Clone, Debug)]
struct Sample {
    /// Of [`NAMES`], and of each reason.
    values: Box<[f32]>,
    /// Of [`SHARD_NAMES`], for each shard that the node led when the sample ended.
    shards: Box<[ShardValues]>,
}

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
    /// The load of each shard that the node leads: means of the last ten seconds.
    pub(crate) shards: Vec<(ShardName, ShardLoad)>,
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

    /// How many samples are kept, and about how many bytes they take.
    pub(crate) fn held(&self) -> (usize, usize) {
        let recorder = self.0.lock();
        let samples = recorder.samples.since(None);
        let each = |sample: &&Sample| {
            size_of::<(u64, Sample)>() + size_of_val(&*sample.values) + size_of_val(&*sample.shards)
        };
        let bytes = samples.iter().flatten().map(each).sum();
        (samples.len(), bytes)
    }

    /// The samples that ended later than `since_ms`; `None`: all.
    pub(crate) fn samples(&self, since_ms: Option<u64>) -> Samples {
        self.0.lock().samples(since_ms)
    }

    /// The same for the load of a shard: values are absent while another node leads it.
    pub(crate) fn samples_of(&self, shard: ShardName, since_ms: Option<u64>) -> Samples {
        self.0.lock().samples_of(shard, since_ms)
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
    samples: Ring<Sample>,
}

impl Recorder {
    fn handle_reading(&mut self, reading: Reading, now_ms: u64) {
        let sample = self.last.as_ref().and_then(|(then_ms, before)| {
            let elapsed_ms = now_ms.saturating_sub(*then_ms);
            // A clock that was set back, or a process that stood still: what has happened belongs to no sample.
            let is_a_step = (STEP_MS / 2..=STEP_MS * 3 / 2).contains(&elapsed_ms);
            is_a_step.then(|| Sample {
                values: values(before, &reading, elapsed_ms as f64 / 1_000.0),
                shards: reading.shards.iter().map(shard_values).collect(),
            })
        });
        self.last = Some((now_ms, reading));
        self.samples.keep(now_ms / STEP_MS, sample);
    }

    fn samples(&self, since_ms: Option<u64>) -> Samples {
        let known = self.known(since_ms);
        let values_at = |at: usize| column(&known, |sample| sample.values.get(at).copied());
        let fixed = NAMES.iter().enumerate();
        let fixed = fixed.map(|(at, name)| (Cow::Borrowed(*name), values_at(at)));
        let reasons = self.last.iter().flat_map(|(_, reading)| &reading.dropped);
        let reasons = (NAMES.len()..).zip(reasons);
        let occurred = reasons
            .filter(|(_, (_, count))| *count != 0)
            .map(|(at, (reason, _))| (Cow::Owned(format!("{DROPPED}{reason}")), values_at(at)));
        Samples {
            end_ms: self.end_ms(),
            series: fixed.chain(occurred).collect(),
        }
    }

    fn samples_of(&self, shard: ShardName, since_ms: Option<u64>) -> Samples {
        let known = self.known(since_ms);
        let values_at = |at: usize| {
            column(&known, |sample| {
                let mut led = sample.shards.iter();
                let (_, values) = led.find(|(of, _)| *of == shard)?;
                values.get(at).copied()
            })
        };
        let names = SHARD_NAMES.iter().enumerate();
        let series = names.map(|(at, name)| (Cow::Borrowed(*name), values_at(at)));
        Samples {
            end_ms: self.end_ms(),
            series: series.collect(),
        }
    }

    fn known(&self, since_ms: Option<u64>) -> Vec<Option<&Sample>> {
        self.samples.since(since_ms.map(|since| since / STEP_MS))
    }

    fn end_ms(&self) -> Option<u64> {
        self.samples.end().map(|end| end * STEP_MS)
    }
}

/// One value of each sample; `None`: there is no sample, or the node cannot tell.
fn column(known: &[Option<&Sample>], value: impl Fn(&Sample) -> Option<f32>) -> Vec<Option<f32>> {
    let values = known.iter().map(|sample| sample.and_then(&value));
    values
        .map(|value| value.filter(|value| value.is_finite()))
        .collect()
}

fn shard_values((shard, load): &(ShardName, ShardLoad)) -> ShardValues {
    let requests = load.requests.0;
    let wait_ms = match requests {
        0 => f64::NAN,
        _ => load.wait.as_secs_f64() * 1_000.0 / requests as f64,
    };
    let values = [
        load.cpu().as_secs_f64(),
        requests as f64,
        wait_ms,
        load.log_bytes.0 as f64,
    ];
    (*shard, values.map(|value| value as f32))
}

fn values(before: &Reading, now: &Reading, elapsed_s: f64) -> Box<[f32]> {
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
        now.shards
            .iter()
            .map(|(_, load)| load.cpu().as_secs_f64())
            .sum(),
    ];
    let reasons = before.dropped.iter().zip(&now.dropped);
    let dropped = reasons.map(|((_, was), (_, is))| rate(*was, *is));
    let all = fixed.into_iter().chain(dropped);
    all.map(|value| value as f32).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admin::cluster::StoreName;
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
    fn the_load_of_a_shard_is_told_by_the_node_that_leads_it() {
        let shard = |shard| ShardName {
            store: StoreName::Inbox,
            shard,
        };
        let led = |number: u64, cpu_ms: u64| {
            let load = ShardLoad {
                apply: Duration::from_millis(cpu_ms),
                wait: Duration::from_millis(30),
                requests: store::Rate(cpu_ms / 100),
                ..ShardLoad::default()
            };
            (shard(number), load)
        };
        let mut recorder = Recorder::default();
        let readings = [
            vec![],
            vec![led(0, 0), led(7, 200)],
            // 7 is led by another one.
            vec![led(0, 500)],
            vec![led(0, 100), led(7, 300)],
        ];
        for (step, shards) in (0..).zip(readings) {
            let reading = Reading {
                shards,
                ..Reading::default()
            };
            recorder.handle_reading(reading, step * STEP_MS);
        }
        let of_7 = recorder.samples_of(shard(7), None);
        assert_eq!(of_7.end_ms, Some(3 * STEP_MS));
        let names: Vec<&str> = of_7.series.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names, SHARD_NAMES);
        let cpu = series(&of_7, "cpu_cores");
        assert_eq!(cpu, [Some(0.2), None, Some(0.3)]);
        assert_eq!(series(&of_7, "wait_ms"), [Some(15.0), None, Some(10.0)]);
        let requests = |since_ms| {
            let of_0 = recorder.samples_of(shard(0), since_ms);
            series(&of_0, "requests_per_s")
        };
        assert_eq!(requests(Some(STEP_MS)), [Some(5.0), Some(1.0)]);
        assert_eq!(requests(None), [Some(0.0), Some(5.0), Some(1.0)]);
        // Nobody has asked for anything, so nobody has waited.
        let waited = series(&recorder.samples_of(shard(0), None), "wait_ms");
        assert_eq!(waited[0], None);
        let nobody = recorder.samples_of(shard(9), None);
        assert_eq!(series(&nobody, "cpu_cores"), [None; 3]);
        let together = series(&recorder.samples(None), "shards_cpu_cores");
        assert_eq!(together, [Some(0.2), Some(0.5), Some(0.4)]);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut recorder = Recorder::default();
        for step in 0..1_000 {
            recorder.handle_reading(reading(step), step * STEP_MS);
        }
        let connections = series(&recorder.samples(None), "connections");
        assert_eq!(connections, [Some(7.0); 360]);
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
