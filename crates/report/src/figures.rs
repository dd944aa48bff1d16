//! What follows from a record: sums over the broker's processes, shares, figures per message.
//!
//! Invariant: a figure that the record does not give is `None`, never 0 and never a division by 0.

use std::ops::RangeInclusive;

use crate::record::{
    Latencies, Latency, Phase, PublishedFigures, Record, Sample, Shards, SplitCount, SystemUsage,
    Usage,
};

/// CPU time in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
}

impl CpuTime {
    pub(crate) fn total_s(self) -> f64 {
        self.user_s + self.system_s
    }
}

impl From<&SystemUsage> for CpuTime {
    fn from(process: &SystemUsage) -> Self {
        Self {
            user_s: process.cpu_user_s,
            system_s: process.cpu_system_s,
        }
    }
}

/// Distributions of a record.
pub(crate) const KINDS: usize = 6;

/// One of the distributions of a record.
pub(crate) struct Kind<'a> {
    /// As `Record::headline` names it: the field of [`Latencies`].
    pub(crate) field: &'static str,
    /// As a person names it.
    pub(crate) title: &'static str,
    pub(crate) latency: Option<&'a Latency>,
}

impl<'a> Kind<'a> {
    fn new(field: &'static str, title: &'static str, latency: &'a Option<Latency>) -> Self {
        Self {
            field,
            title,
            latency: latency.as_ref(),
        }
    }
}

impl Latencies {
    /// All of them, in the order to show.
    pub(crate) fn kinds(&self) -> [Kind<'_>; KINDS] {
        [
            Kind::new("connect", "connect", &self.connect),
            Kind::new("subscribe", "subscribe", &self.subscribe),
            Kind::new("acknowledge", "publish → ack", &self.acknowledge),
            Kind::new("deliver", "publish → deliver", &self.deliver),
            Kind::new("tool_lateness", "tool lateness", &self.tool_lateness),
            Kind::new("due_to_sent", "due → sent", &self.due_to_sent),
        ]
    }
}

impl Record {
    /// Whether nobody publishes, so that the connections are what was measured.
    pub(crate) fn is_connections_only(&self) -> bool {
        self.asked_per_second == 0.0 && self.messages_per_second == 0.0
    }

    /// The latency that the reports would show; `None` also if `headline` names none.
    pub(crate) fn headline_kind(&self) -> Option<Kind<'_>> {
        let mut kinds = self.latencies.kinds().into_iter();
        kinds.find(|kind| kind.field == self.headline)
    }

    pub(crate) fn headline_latency(&self) -> Option<&Latency> {
        self.headline_kind()?.latency
    }

    pub(crate) fn connects_per_second(&self) -> Option<f64> {
        ratio(self.connections as f64, self.connect_seconds)
    }

    /// Of all the broker's processes during the measurement.
    pub(crate) fn broker_cpu(&self) -> Option<CpuTime> {
        let sum = |sum: CpuTime, process: CpuTime| CpuTime {
            user_s: sum.user_s + process.user_s,
            system_s: sum.system_s + process.system_s,
        };
        self.system.iter().map(CpuTime::from).reduce(sum)
    }

    pub(crate) fn tool_cpu(&self) -> CpuTime {
        CpuTime {
            user_s: self.tool_cpu_user_s,
            system_s: self.tool_cpu_system_s,
        }
    }

    /// Of the broker during the measurement, in percent of the whole machine.
    pub(crate) fn cpu_percent(&self) -> Option<f64> {
        self.percent_of_machine(self.broker_cpu()?.total_s(), self.seconds)
    }

    /// Of the broker while the clients connected, in percent of the whole machine.
    pub(crate) fn connecting_cpu_percent(&self) -> Option<f64> {
        let cpu_s = self.sum(|process| process.connecting_cpu_s)?;
        self.percent_of_machine(cpu_s, self.connect_seconds)
    }

    /// `None` if it is not known how many cores the machine has.
    pub(crate) fn percent_of_machine(&self, cpu_s: f64, seconds: f64) -> Option<f64> {
        ratio(cpu_s * 100.0, seconds * f64::from(self.machine.cores))
    }

    pub(crate) fn percent_of_core(&self, cpu: CpuTime) -> Option<f64> {
        ratio(cpu.total_s() * 100.0, self.seconds)
    }

    /// For each of the messages of `messages_per_second`.
    pub(crate) fn us_per_message(&self, cpu: CpuTime) -> Option<f64> {
        ratio(cpu.total_s() * 1e6, self.messages_per_second * self.seconds)
    }

    /// Of the broker at the end of the measurement.
    pub(crate) fn resident_bytes(&self) -> Option<f64> {
        self.sum(|process| process.resident_bytes as f64)
    }

    /// The samples of the measurement.
    fn measured(&self) -> impl Iterator<Item = &Sample> {
        let samples = self.samples.iter();
        samples.filter(|sample| sample.phase == Phase::Measure)
    }

    /// Per second of the measurement, of what each sample has.
    fn per_second(&self, figure: fn(&Sample) -> u64) -> Option<f64> {
        let (mut sum, mut seconds) = (0.0, 0.0);
        for sample in self.measured() {
            sum += figure(sample) as f64;
            seconds += sample.seconds;
        }
        ratio(sum, seconds)
    }

    /// Messages per second that publishers sent.
    pub(crate) fn sent_per_second(&self) -> Option<f64> {
        self.per_second(|sample| sample.sent)
    }

    /// Messages per second that subscribers received.
    pub(crate) fn received_per_second(&self) -> Option<f64> {
        self.per_second(|sample| sample.delivered)
    }

    /// Bytes per second that clients wrote: what the broker's network takes in, without TCP and IP.
    pub(crate) fn network_in(&self) -> Option<f64> {
        self.per_second(|sample| sample.bytes_out)
    }

    /// Bytes per second that clients read.
    pub(crate) fn network_out(&self) -> Option<f64> {
        self.per_second(|sample| sample.bytes_in)
    }

    /// The least and the most that samples of the measurement show.
    fn span(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<RangeInclusive<f64>> {
        let figures = self.measured().filter_map(figure);
        let both = figures.map(|figure| (figure, figure));
        let (least, most) =
            both.reduce(|(least, most), (low, high)| (least.min(low), most.max(high)))?;
        Some(least..=most)
    }

    /// Of the broker's memory during the measurement.
    pub(crate) fn resident_span(&self) -> Option<RangeInclusive<f64>> {
        self.span(|sample| sample.sum_of(|usage| Some(usage.resident_bytes as f64)))
    }

    /// Of the machine's load average during the measurement.
    pub(crate) fn machine_load_span(&self) -> Option<RangeInclusive<f64>> {
        self.span(|sample| sample.machine_load)
    }

    /// The busiest sample of the broker, in percent of the whole machine.
    pub(crate) fn cpu_percent_max(&self) -> Option<f64> {
        let percent = |sample: &Sample| {
            let cpu_s = sample.sum_of(|usage| Some(usage.cpu_user_s + usage.cpu_system_s))?;
            self.percent_of_machine(cpu_s, sample.seconds)
        };
        self.span(percent).map(|span| *span.end())
    }

    /// What the broker's memory grew by, for each connection.
    pub(crate) fn bytes_per_connection(&self) -> Option<f64> {
        let grown = |process: &SystemUsage| {
            let before = process.resident_bytes_before;
            process.resident_bytes.saturating_sub(before) as f64
        };
        ratio(self.sum(grown)?, self.connections as f64)
    }

    /// The shards when the first node told and when the last one did, with all splits between them.
    pub(crate) fn shards(&self) -> Option<(Shards, Shards)> {
        let mut told = self.samples.iter().filter_map(|sample| sample.shards);
        let first = told.next()?;
        let last = told.fold(first, |before, now| Shards {
            splits: SplitCount(before.splits.0 + now.splits.0),
            ..now
        });
        Some((first, last))
    }

    fn sum(&self, figure: fn(&SystemUsage) -> f64) -> Option<f64> {
        self.system
            .iter()
            .map(figure)
            .reduce(|sum, next| sum + next)
    }
}

impl PublishedFigures {
    /// Connections, scaled like the run.
    pub(crate) fn scaled_connections(&self) -> Option<f64> {
        Some(self.connections? as f64 * self.scaling.connections)
    }

    /// Messages per second, scaled like the run.
    pub(crate) fn scaled_messages_per_second(&self) -> Option<f64> {
        Some(self.messages_per_second? * self.scaling.connections * self.scaling.rate)
    }

    /// Connects per second, scaled like the run.
    pub(crate) fn scaled_connects_per_second(&self) -> Option<f64> {
        Some(self.connects_per_second? * self.scaling.rate)
    }

    /// Messages per second of each publisher, scaled like the run.
    pub(crate) fn scaled_rate(&self) -> Option<f64> {
        Some(self.load.rate? * self.scaling.rate)
    }

    /// Whose row it is, and how it was scaled.
    pub(crate) fn row_name(&self) -> String {
        let name = format!("published, {} {}", self.product, self.version);
        let size = self.scaling.connections * self.scaling.rate;
        if size >= 1.0 {
            return name;
        }
        let parts = (1.0 / size).round();
        match (size * parts - 1.0).abs() < 1e-9 {
            true => format!("{name}, scaled to 1/{parts:.0}"),
            false => format!("{name}, scaled to {size:.3}"),
        }
    }
}

impl Sample {
    /// The sum over the broker's processes; `None` if one of them does not say.
    pub(crate) fn sum_of<T: std::iter::Sum>(&self, figure: fn(&Usage) -> Option<T>) -> Option<T> {
        if self.system.is_empty() {
            return None;
        }
        self.system
            .iter()
            .map(|usage| usage.as_ref().and_then(figure))
            .sum()
    }
}

/// `None` where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0)
        .then(|| part / whole)
        .filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_record_of_nothing_has_no_figures() {
        let record = fixture::empty();
        let figures = [
            record.cpu_percent(),
            record.connecting_cpu_percent(),
            record.connects_per_second(),
            record.resident_bytes(),
            record.bytes_per_connection(),
            record.us_per_message(CpuTime::default()),
        ];
        assert_eq!(figures, [None; 6]);
        assert!(record.headline_latency().is_none());
    }

    #[test]
    fn shares_are_of_all_processes_and_all_cores() {
        let mut record = fixture::empty();
        record.machine.cores = 4;
        record.seconds = 10.0;
        record.messages_per_second = 1_000.0;
        record.connections = 100;
        let process = SystemUsage {
            name: "pid 1".to_owned(),
            cpu_user_s: 3.0,
            cpu_system_s: 1.0,
            connecting_cpu_s: 0.5,
            resident_bytes_before: 1_000,
            resident_bytes: 6_000,
            resident_bytes_max: 7_000,
        };
        record.system = vec![process.clone(), process];
        assert_eq!(record.cpu_percent(), Some(20.0));
        assert_eq!(record.resident_bytes(), Some(12_000.0));
        assert_eq!(record.bytes_per_connection(), Some(100.0));
        let cpu = record.broker_cpu().unwrap_or_default();
        assert_eq!(record.us_per_message(cpu), Some(800.0));
        assert_eq!(record.percent_of_core(cpu), Some(80.0));
    }

    #[test]
    fn a_ratio_is_finite_or_none() {
        assert_eq!(ratio(1.0, 4.0), Some(0.25));
        let wholes = [0.0, -0.5, f64::NAN, 5e-324];
        assert_eq!(wholes.map(|whole| ratio(1.0, whole)), [None; 4]);
    }

    #[test]
    fn a_process_that_could_not_be_read_leaves_no_sum() {
        let mut record = fixture::pairs("HeraldMQ 0.1", 1.0);
        let sample = &mut record.samples[0];
        sample.system = vec![Some(Usage::default()), Some(Usage::default())];
        assert_eq!(sample.sum_of(|usage| Some(usage.resident_bytes)), Some(0));
        sample.system[1] = None;
        assert_eq!(sample.sum_of(|usage| Some(usage.resident_bytes)), None);
    }
}
