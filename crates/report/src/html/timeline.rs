//! The charts of the reports: what the samples say over time.
//!
//! Invariant: runs that are overlaid begin where their load begins, however long their clients took to
//! connect.

use std::ops::Range;

use super::axis::{Axis, Unit};
use super::chart::{Chart, Drawing, Line, Mark, Weight};
use crate::figures::ratio;
use crate::record::{Phase, PublishedFigures, Record, Sample, ShardCount, Shards};
use crate::tables;
use text_table::units;

/// A published figure is drawn if it is at most so many times what was measured; beyond, it would press
/// the lines to the ground.
const LEVEL_REACH: f64 = 3.0;

/// A figure of a sample.
type Reading = fn(&Record, &Sample) -> Option<f64>;

/// What a chart shows of each record.
struct Graph {
    title: &'static str,
    /// Beside the title.
    per: &'static str,
    unit: Unit,
    thick: Reading,
    /// What else, and how the caption names it.
    thin: Option<(&'static str, Reading)>,
    published: fn(&PublishedFigures) -> Option<f64>,
}

const THROUGHPUT: Graph = Graph {
    title: "Throughput",
    per: "messages per second",
    unit: Unit::Count,
    thick: |record, sample| ratio(came_out(record, sample) as f64, sample.seconds),
    thin: Some(("sent", |_, sample| {
        ratio(sample.sent as f64, sample.seconds)
    })),
    published: |_| None,
};
const CONNECTIONS: Graph = Graph {
    title: "Connections",
    per: "connected and subscribed",
    unit: Unit::Count,
    thick: |_, sample| Some(sample.connections as f64),
    thin: None,
    published: |_| None,
};
const MEAN: Graph = Graph {
    title: "Mean latency",
    per: "",
    unit: Unit::Ms,
    thick: |_, sample| sample.mean_ms,
    thin: None,
    published: |row| row.mean_ms,
};
const P99: Graph = Graph {
    title: "p99 latency",
    per: "",
    unit: Unit::Ms,
    thick: |_, sample| sample.p99_ms,
    thin: None,
    published: |row| row.p99_ms,
};
const MAX: Graph = Graph {
    title: "Maximum latency",
    per: "",
    unit: Unit::Ms,
    thick: |_, sample| sample.max_ms,
    thin: None,
    published: |_| None,
};
const CPU: Graph = Graph {
    title: "CPU of the broker",
    per: "% of the machine",
    unit: Unit::Percent,
    thick: |record, sample| {
        let cpu_s = sample.sum_of(|usage| Some(usage.cpu_user_s + usage.cpu_system_s))?;
        record.percent_of_machine(cpu_s, sample.seconds)
    },
    thin: Some(("in the kernel", |record, sample| {
        let cpu_s = sample.sum_of(|usage| Some(usage.cpu_system_s))?;
        record.percent_of_machine(cpu_s, sample.seconds)
    })),
    published: |_| None,
};
const MEMORY: Graph = Graph {
    title: "Memory of the broker",
    per: "resident",
    unit: Unit::Bytes,
    thick: |_, sample| sample.sum_of(|usage| Some(usage.resident_bytes as f64)),
    thin: None,
    published: |_| None,
};

/// A store's line in the chart of shards.
type StoreLine = (Weight, &'static str, fn(&Shards) -> ShardCount);

const SHARDS: [StoreLine; 3] = [
    (Weight::Thick, "inbox", |shards| shards.inbox),
    (Weight::Thin, "session", |shards| shards.session),
    (Weight::Dashed, "retain", |shards| shards.retain),
];

/// The six charts of the runs of a scenario, and that of their shards if one of the brokers has them.
pub(super) fn drawings(records: &[&Record]) -> Vec<Drawing> {
    let runs: Vec<Run<'_>> = records.iter().map(|record| Run::of(record)).collect();
    let is_connections_only = records.iter().all(|record| record.is_connections_only());
    let first = if is_connections_only {
        CONNECTIONS
    } else {
        THROUGHPUT
    };
    let graphs = [first, MEAN, P99, MAX, CPU, MEMORY];
    let of_all = graphs.iter().map(|graph| graph.drawing(&runs));
    of_all.chain(shards(&runs)).collect()
}

/// The shards of each store; a gap where no node told.
fn shards(runs: &[Run<'_>]) -> Option<Drawing> {
    let told = || {
        let samples = runs.iter().flat_map(|run| run.samples);
        samples.filter_map(|sample| sample.shards)
    };
    let counts = told().flat_map(|shards| SHARDS.map(|(.., count)| count(&shards)));
    let most = counts.max()?;
    let line = |record, run: &Run<'_>, (weight, store, count): StoreLine| Line {
        record,
        weight,
        name: format!("{}, {store}", run.record.label),
        points: run
            .samples
            .iter()
            .map(|sample| Some((run.time(sample), f64::from(count(&sample.shards?).0))))
            .collect(),
    };
    let numbered = || runs.iter().enumerate();
    let marks = numbered().flat_map(|(record, run)| {
        let is_split = |sample: &&Sample| sample.shards.is_some_and(|shards| shards.splits.0 > 0);
        let splits = run.samples.iter().filter(is_split);
        splits.map(move |sample| Mark {
            record,
            at: run.time(sample),
        })
    });
    let chart = Chart {
        x: Axis::ending_at(runs.iter().map(Run::end).fold(0.0, f64::max), Unit::Seconds),
        y: Axis::up_to(f64::from(most.0), Unit::Count),
        lines: numbered()
            .flat_map(|(record, run)| SHARDS.map(|store| line(record, run, store)))
            .collect(),
        shades: shades(runs),
        levels: Vec::new(),
        marks: marks.collect(),
        pointed: Some(Unit::Count),
    };
    Some(Drawing {
        title: "Shards".to_owned(),
        unit: "of the broker".to_owned(),
        svg: chart.svg(),
        caption:
            "thick: inbox; thin: session; dashed: retain; marks below: splits that the broker \
                  decided on by itself"
                .to_owned(),
    })
}

/// What is shown of a record.
struct Run<'a> {
    record: &'a Record,
    /// Where connections are not what is measured, those of the time that they took are left out.
    samples: &'a [Sample],
    /// Of the record, where the chart begins.
    start_s: f64,
}

impl<'a> Run<'a> {
    fn of(record: &'a Record) -> Self {
        let is_shown =
            |sample: &Sample| record.is_connections_only() || sample.phase != Phase::Connect;
        // Behind the measurement nothing is sent any more, and rates fall to nothing.
        let is_measured = |sample: &Sample| sample.phase != Phase::Drain;
        let end = record.samples.iter().rposition(is_measured);
        let shown = end.map_or(&[][..], |end| &record.samples[..=end]);
        let first = shown.iter().position(is_shown);
        let samples = first.map_or(&[][..], |first| &shown[first..]);
        let start_s = samples
            .first()
            .map_or(0.0, |first| first.at_s - first.seconds);
        Self {
            record,
            samples,
            start_s,
        }
    }

    /// When the sample was taken, in seconds of the chart.
    fn time(&self, sample: &Sample) -> f64 {
        sample.at_s - self.start_s
    }

    fn end(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| self.time(last))
    }

    fn points(&self, reading: Reading) -> Vec<Option<(f64, f64)>> {
        let point = |sample| Some((self.time(sample), reading(self.record, sample)?));
        self.samples.iter().map(point).collect()
    }

    /// What each sample of the phase covers.
    fn spans(&self, phase: Phase) -> impl Iterator<Item = Range<f64>> {
        let samples = self.samples.iter();
        let of_phase = samples.filter(move |sample| sample.phase == phase);
        of_phase.map(|sample| {
            let end = self.time(sample);
            end - sample.seconds..end
        })
    }
}

/// What `Record::messages_per_second` counts: deliveries, or what the broker took where nobody subscribes.
/// At QoS 0 nobody confirms that, and what was sent is counted.
fn came_out(record: &Record, sample: &Sample) -> u64 {
    let is_confirmed = record.counts.acknowledged > 0 || record.messages_per_second == 0.0;
    match record.headline.as_str() {
        "deliver" => sample.delivered,
        _ if is_confirmed => sample.acknowledged,
        _ => sample.sent,
    }
}

impl Graph {
    fn drawing(&self, runs: &[Run<'_>]) -> Drawing {
        let lines = self.lines(runs);
        let figures = lines.iter().flat_map(|line| line.points.iter().flatten());
        let measured = figures.map(|&(_, figure)| figure).fold(0.0, f64::max);
        let published = self.published(runs).into_iter();
        let (within, beyond): (Vec<_>, Vec<_>) =
            published.partition(|&(_, level)| level <= measured * LEVEL_REACH);
        let levels: Vec<f64> = within.iter().map(|&(_, level)| level).collect();
        let largest = levels.iter().copied().fold(measured, f64::max);
        let chart = Chart {
            x: Axis::ending_at(runs.iter().map(Run::end).fold(0.0, f64::max), Unit::Seconds),
            y: Axis::up_to(largest, self.unit),
            lines,
            shades: shades(runs),
            levels,
            marks: Vec::new(),
            pointed: Some(self.unit),
        };
        Drawing {
            title: self.title.to_owned(),
            unit: self.per(runs),
            svg: chart.svg(),
            caption: self.caption(&within, &beyond),
        }
    }

    fn lines(&self, runs: &[Run<'_>]) -> Vec<Line> {
        let thick = std::iter::once((Weight::Thick, "", self.thick));
        let thin = self
            .thin
            .map(|(what, reading)| (Weight::Thin, what, reading));
        let readings = thick.chain(thin);
        let of_run = |(record, run): (usize, &Run<'_>)| {
            readings
                .clone()
                .map(move |(weight, what, reading)| Line {
                    record,
                    weight,
                    name: match what {
                        "" => run.record.label.clone(),
                        what => format!("{}, {what}", run.record.label),
                    },
                    points: run.points(reading),
                })
                .collect::<Vec<_>>()
        };
        runs.iter().enumerate().flat_map(of_run).collect()
    }

    /// Latencies say of what.
    fn per(&self, runs: &[Run<'_>]) -> String {
        match runs.first().and_then(|run| run.record.headline_kind()) {
            Some(kind) if self.unit == Unit::Ms => kind.title.to_owned(),
            _ => self.per.to_owned(),
        }
    }

    /// The published figures, each with its broker.
    fn published(&self, runs: &[Run<'_>]) -> Vec<(String, f64)> {
        let records: Vec<&Record> = runs.iter().map(|run| run.record).collect();
        let rows = tables::published(&records).into_iter();
        rows.filter_map(|row| {
            let figure = (self.published)(row)?;
            Some((format!("{} {}", row.product, row.version), figure))
        })
        .collect()
    }

    fn caption(&self, levels: &[(String, f64)], beyond: &[(String, f64)]) -> String {
        let thin = self.thin.map(|(what, _)| format!("thin: {what}"));
        let levels = levels
            .iter()
            .map(|(of, level)| format!("dashed: {of} as published, {} ms", units::ms(*level)));
        let beyond = beyond.iter().map(|(of, level)| {
            format!("{of} as published, off the chart: {} ms", units::ms(*level))
        });
        let parts: Vec<String> = thin.into_iter().chain(levels).chain(beyond).collect();
        parts.join("; ")
    }
}

/// What is not measured in all of the runs: the warm-up.
fn shades(runs: &[Run<'_>]) -> Vec<Range<f64>> {
    shade(runs, Phase::WarmUp).into_iter().collect()
}

/// From where the first run comes to the phase to where the last one leaves it.
fn shade(runs: &[Run<'_>], phase: Phase) -> Option<Range<f64>> {
    let spans = runs.iter().flat_map(|run| run.spans(phase));
    spans.reduce(|all, span| all.start.min(span.start)..all.end.max(span.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn time_begins_with_the_load_and_ends_with_the_measurement() {
        let record = fixture::pairs("a", 1.0);
        let run = Run::of(&record);
        let points = run.points(|_, sample| Some(sample.at_s));
        assert_eq!(points.first(), Some(&Some((1.0, 9.0))));
        // 10 s of warm-up and 60 of measurement.
        assert_eq!(run.end(), 70.0);
        assert_eq!(shades(&[run]), [0.0..10.0]);
    }

    #[test]
    fn time_begins_with_the_first_connect_if_nobody_publishes() {
        let record = fixture::idle();
        let run = Run::of(&record);
        let points = run.points(CONNECTIONS.thick);
        assert_eq!(points.first(), Some(&Some((1.0, 6_250.0))));
        assert_eq!(shades(&[run]), [8.0..18.0]);
        assert_eq!(drawings(&[&record])[0].title, "Connections");
    }

    #[test]
    fn where_nobody_subscribes_what_the_broker_took_comes_out() {
        let mut record = fixture::pairs("a", 1.0);
        let mut sample = record.samples[20].clone();
        (sample.sent, sample.acknowledged, sample.delivered) = (3, 2, 1);
        assert_eq!(came_out(&record, &sample), 1);
        record.headline = "acknowledge".to_owned();
        assert_eq!(came_out(&record, &sample), 3);
        record.counts.acknowledged = 9;
        assert_eq!(came_out(&record, &sample), 2);
    }

    #[test]
    fn a_broker_that_takes_or_delivers_nothing_has_no_throughput() {
        let mut record = fixture::pairs("a", 1.0);
        let mut sample = record.samples[20].clone();
        (sample.acknowledged, sample.delivered) = (0, 0);
        record.counts.delivered = 0;
        record.messages_per_second = 0.0;
        assert_eq!(came_out(&record, &sample), 0);
        record.headline = "acknowledge".to_owned();
        assert_eq!(came_out(&record, &sample), 0);
    }

    #[test]
    fn shards_have_a_chart_with_marks_and_a_gap_if_a_broker_tells() {
        let plain = fixture::pairs("a", 1.0);
        assert!(shards(&[Run::of(&plain)]).is_none());
        assert_eq!(drawings(&[&plain]).len(), 6);
        let record = fixture::splitting("b");
        let drawing = shards(&[Run::of(&plain), Run::of(&record)]).unwrap();
        assert_eq!(drawing.title, "Shards");
        let color = super::super::chart::css_color(1).to_uppercase();
        let strokes = |width: u32| {
            let width = format!("stroke-width=\"{width}\"");
            let in_color = |line: &&str| line.contains(&color) && line.contains(&width);
            drawing.svg.lines().filter(in_color).count()
        };
        // Two parts of the line of inboxes and of that of sessions, many dashes, and two splits.
        assert_eq!(
            [strokes(4), strokes(2), strokes(6)],
            [2, 2, 2],
            "{}",
            drawing.svg
        );
        assert!(strokes(3) > 10, "{}", drawing.svg);
        assert_eq!(drawings(&[&plain, &record]).len(), 7);
    }

    #[test]
    fn a_published_figure_far_above_is_only_said() {
        let mut record = fixture::pairs("a", 2.4);
        let captions = |record: &Record| P99.drawing(&[Run::of(record)]).caption;
        let near = captions(&record);
        assert!(
            near.contains("dashed: BifroMQ 2.1 as published, 24.11 ms"),
            "{near}"
        );
        record.published.as_mut().unwrap().p99_ms = Some(1_000.0);
        let far = captions(&record);
        assert!(far.contains("off the chart: 1000.0 ms"), "{far}");
        assert!(!far.contains("dashed"), "{far}");
    }
}
