//! Two runs side by side, as text.
//!
//! Invariant: what makes the runs unlike stands above their figures.

use std::collections::BTreeSet;

use crate::figures::ratio;
use crate::record::{Counts, Latency, Record};
use crate::tables;
use text_table::Table;
use text_table::units::{self, NONE};

/// A figure of a distribution.
type Part = (&'static str, fn(&Latency) -> f64);

const PARTS: [Part; 6] = [
    ("mean", |latency| latency.mean_ms),
    ("p50", |latency| latency.p50_ms),
    ("p95", |latency| latency.p95_ms),
    ("p99", |latency| latency.p99_ms),
    ("p99.9", |latency| latency.p999_ms),
    ("max", |latency| latency.max_ms),
];

/// One of the counts.
type Count = (&'static str, fn(&Counts) -> u64);

const COUNTS: [Count; 8] = [
    ("sent", |counts| counts.sent),
    ("acknowledged", |counts| counts.acknowledged),
    ("delivered", |counts| counts.delivered),
    ("lost", |counts| counts.lost),
    ("duplicated", |counts| counts.duplicated),
    ("reordered", |counts| counts.reordered),
    ("stray", |counts| counts.stray),
    ("disconnects", |counts| counts.disconnects),
];

/// A row per figure: of `a`, of `b`, and `b` relative to `a`. On top stands what differs in the scenario,
/// the settings and the machines.
#[must_use]
pub fn compare(a: &Record, b: &Record) -> String {
    let mut text = String::new();
    if a.scenario != b.scenario {
        text += &format!(
            "warning: the scenarios differ, {} and {}: their figures say little beside each other\n\n",
            a.scenario, b.scenario
        );
    }
    let differences = differences(a, b);
    if !differences.rows().is_empty() {
        text += &format!("{differences}\n");
    }
    text += &figures(a, b).to_string();
    text
}

fn header(first: &str, a: &Record, b: &Record) -> [String; 3] {
    [
        first.to_owned(),
        format!("a: {}", a.label),
        format!("b: {}", b.label),
    ]
}

fn differences(a: &Record, b: &Record) -> Table {
    let mut table = Table::new(header("differs", a, b));
    let (of_a, of_b) = (a.circumstances(), b.circumstances());
    let mut seen = BTreeSet::new();
    for setting in of_a.iter().chain(&of_b) {
        let name = setting.name.as_str();
        let (in_a, in_b) = (tables::value(&of_a, name), tables::value(&of_b, name));
        if seen.insert(name) && in_a != in_b {
            table.row([name, in_a, in_b]);
        }
    }
    if a.reading != b.reading {
        table.row(["read as", &a.reading, &b.reading]);
    }
    table
}

/// Figures of two records, a row each.
struct Rows<'a> {
    a: &'a Record,
    b: &'a Record,
    table: Table,
}

impl Rows<'_> {
    /// Nothing if neither record has the figure.
    fn add(&mut self, name: &str, text: fn(f64) -> String, of: impl Fn(&Record) -> Option<f64>) {
        let (in_a, in_b) = (of(self.a), of(self.b));
        if in_a.is_some() || in_b.is_some() {
            self.table.row([
                name.to_owned(),
                units::or_none(in_a, text),
                units::or_none(in_b, text),
                relative(in_a, in_b),
            ]);
        }
    }

    fn add_rates(&mut self) {
        self.add("asked msg/s", units::rate, |r| Some(r.asked_per_second));
        self.add("total msg/s", units::rate, |r| Some(r.messages_per_second));
        self.add("connections", units::rate, |r| Some(r.connections as f64));
        self.add("connects/s", units::rate, Record::connects_per_second);
    }

    fn add_latencies(&mut self) {
        // The distributions are the same in all records, whether they have times or not.
        for (index, kind) in self.a.latencies.kinds().into_iter().enumerate() {
            for (part, of) in PARTS {
                self.add(&format!("{}, {part} ms", kind.title), units::ms, |r| {
                    r.latencies.kinds()[index].latency.map(of)
                });
            }
        }
    }

    fn add_usage(&mut self) {
        self.add("CPU %", units::one_decimal, Record::cpu_percent);
        self.add(
            "CPU %, connecting",
            units::one_decimal,
            Record::connecting_cpu_percent,
        );
        self.add("CPU µs per message", units::two_decimals, |r| {
            r.us_per_message(r.broker_cpu()?)
        });
        self.add("memory", units::bytes, Record::resident_bytes);
        self.add("KB per connection", units::one_decimal, |r| {
            r.bytes_per_connection().map(|bytes| bytes / 1e3)
        });
        self.add("tool, CPU % of a core", units::one_decimal, |r| {
            r.percent_of_core(r.tool_cpu())
        });
        self.add("tool, CPU µs per message", units::two_decimals, |r| {
            r.us_per_message(r.tool_cpu())
        });
    }

    /// At the end of the run.
    fn add_shards(&mut self) {
        let shards = |record: &Record| record.shards().map(|(_, last)| last);
        self.add("session shards", units::rate, |r| {
            Some(f64::from(shards(r)?.session.0))
        });
        self.add("inbox shards", units::rate, |r| {
            Some(f64::from(shards(r)?.inbox.0))
        });
        self.add("retain shards", units::rate, |r| {
            Some(f64::from(shards(r)?.retain.0))
        });
        self.add("own splits", units::rate, |r| {
            Some(shards(r)?.splits.0 as f64)
        });
    }

    fn add_counts(&mut self) {
        for (name, of) in COUNTS {
            self.add(name, units::rate, |r| Some(of(&r.counts) as f64));
        }
    }
}

fn figures(a: &Record, b: &Record) -> Table {
    let [first, of_a, of_b] = header("", a, b);
    let table = Table::new([first, of_a, of_b, "b to a".to_owned()]);
    let mut rows = Rows { a, b, table };
    rows.add_rates();
    rows.add_latencies();
    rows.add_usage();
    rows.add_shards();
    rows.add_counts();
    rows.table
}

/// `b` as a change of `a` in percent, or as a multiple from twice and below half.
fn relative(a: Option<f64>, b: Option<f64>) -> String {
    let (Some(a), Some(b)) = (a, b) else {
        return NONE.to_owned();
    };
    if a == b {
        return "=".to_owned();
    }
    match ratio(b, a) {
        None => NONE.to_owned(),
        Some(times) if (times - 1.0).abs() < 0.0005 => "≈".to_owned(),
        Some(times) if (0.5..2.0).contains(&times) => format!("{:+.1} %", (times - 1.0) * 100.0),
        Some(times) => format!("×{times:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn line<'a>(text: &'a str, name: &str) -> &'a str {
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    }

    #[test]
    fn b_is_shown_relative_to_a() {
        assert_eq!(relative(Some(100.0), Some(88.0)), "-12.0 %");
        assert_eq!(relative(Some(1.0), Some(2.5)), "×2.50");
        assert_eq!(relative(Some(4.0), Some(1.0)), "×0.25");
        assert_eq!(relative(Some(1e6), Some(1e6 + 1.0)), "≈");
        assert_eq!(relative(Some(0.0), Some(0.0)), "=");
        assert_eq!(relative(Some(0.0), Some(3.0)), NONE);
        assert_eq!(relative(None, Some(3.0)), NONE);
    }

    #[test]
    fn every_figure_has_a_row() {
        let (a, b) = (fixture::pairs("a", 1.0), fixture::pairs("b", 2.0));
        let text = compare(&a, &b);
        assert!(
            line(&text, "publish → deliver, p99 ms").ends_with("×4.00"),
            "{text}"
        );
        assert!(
            line(&text, "CPU µs per message").ends_with("×2.00"),
            "{text}"
        );
        assert!(line(&text, "sent").ends_with("="), "{text}");
        assert!(line(&text, "KB per connection").contains("12.2"), "{text}");
        assert_eq!(line(&text, "publish → ack"), "", "{text}");
    }

    #[test]
    fn shards_have_rows_if_one_of_the_brokers_tells() {
        let (a, b) = (fixture::pairs("a", 1.0), fixture::splitting("b"));
        let cells = |text: &str, name: &str| {
            let cells = line(text, name).split_whitespace().skip(2);
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        let text = compare(&a, &b);
        assert_eq!(cells(&text, "inbox shards"), [NONE, "3", NONE], "{text}");
        assert_eq!(cells(&text, "own splits"), [NONE, "2", NONE], "{text}");
        assert_eq!(line(&compare(&a, &a), "inbox shards"), "");
    }

    #[test]
    fn what_differs_stands_on_top() {
        let (a, mut b) = (fixture::pairs("a", 1.0), fixture::pairs("b", 2.0));
        b.machine.kernel = "Linux 6.12".to_owned();
        let text = compare(&a, &b);
        assert!(text.starts_with("differs"), "{text}");
        let cells: Vec<&str> = line(&text, "queue").split_whitespace().collect();
        assert_eq!(cells, ["queue", "4096", "1000"], "{text}");
        assert!(line(&text, "kernel").ends_with("Linux 6.12"), "{text}");
        assert_eq!(line(&text, "target"), "", "{text}");
    }

    #[test]
    fn different_scenarios_are_warned_of() {
        let a = fixture::pairs("a", 1.0);
        assert!(!compare(&a, &a).contains("warning"));
        assert!(compare(&a, &fixture::idle()).starts_with("warning: the scenarios differ"));
    }
}
