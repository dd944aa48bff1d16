//! What came of a suite, on the terminal.

use report::{Latency, PublishedFigures, Record};
use text_table::{Table, units::counted};

const NONE: &str = "-";

/// A run that a broker played, or failed to play.
pub(super) enum Row {
    Measured(Box<Record>),
    /// The scenario and the broker.
    Failed(String, String),
}

impl Row {
    fn scenario(&self) -> &str {
        match self {
            Self::Measured(record) => &record.scenario,
            Self::Failed(scenario, _) => scenario,
        }
    }
}

/// A row per run, and below the runs of a scenario what its report published.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "scenario",
        "broker",
        "connections",
        "msg/s",
        "mean ms",
        "p99 ms",
        "max ms",
        "CPU µs/msg",
        "memory",
        "lost",
    ]);
    for of_scenario in rows.chunk_by(|one, next| one.scenario() == next.scenario()) {
        let mut published = None;
        for row in of_scenario {
            match row {
                Row::Measured(record) => {
                    table.row(measured(record));
                    published = published.or(record.published.as_ref());
                }
                Row::Failed(scenario, broker) => {
                    table.row([scenario.as_str(), broker, "failed"]);
                }
            }
        }
        if let Some(figures) = published {
            table.row(as_published(of_scenario[0].scenario(), figures));
        }
    }
    table
}

/// The run in a line.
pub(super) fn sentence(record: &Record) -> String {
    let p99 = headline(record).map_or_else(String::new, |latency| {
        format!(", p99 {:.2} ms", latency.p99_ms)
    });
    format!(
        "{}, {:.0} msg/s{p99}, {} lost",
        counted(record.connections, "connection", "connections"),
        record.messages_per_second,
        record.counts.lost
    )
}

/// What the broker needed, where it was watched and messages came out.
pub(super) fn cpu_us_per_message(record: &Record) -> Option<f64> {
    let messages = record.messages_per_second * record.seconds;
    let used = record.system.iter();
    let used_s: f64 = used.map(|one| one.cpu_user_s + one.cpu_system_s).sum();
    (!record.system.is_empty() && messages > 0.0).then(|| used_s * 1e6 / messages)
}

fn measured(record: &Record) -> [String; 10] {
    let latency = headline(record);
    let ms = |figure: fn(&Latency) -> f64| or_none(latency.map(figure), 2);
    let resident_bytes = record.system.iter().map(|one| one.resident_bytes);
    let memory = match record.system.as_slice() {
        [] => NONE.to_owned(),
        _ => format!("{:.1} MB", resident_bytes.sum::<u64>() as f64 / 1e6),
    };
    let is_loaded = record.asked_per_second > 0.0 || record.messages_per_second > 0.0;
    [
        record.scenario.clone(),
        record.label.clone(),
        record.connections.to_string(),
        or_none(is_loaded.then_some(record.messages_per_second), 0),
        ms(|latency| latency.mean_ms),
        ms(|latency| latency.p99_ms),
        ms(|latency| latency.max_ms),
        or_none(cpu_us_per_message(record), 1),
        memory,
        record.counts.lost.to_string(),
    ]
}

fn as_published(scenario: &str, figures: &PublishedFigures) -> [String; 10] {
    let memory = match figures.memory_gb.as_str() {
        "" => NONE.to_owned(),
        gb => format!("{gb} GB"),
    };
    [
        scenario.to_owned(),
        format!("published, {} {}", figures.product, figures.version),
        or_none(figures.connections.map(|count| count as f64), 0),
        or_none(figures.messages_per_second, 0),
        or_none(figures.mean_ms, 2),
        or_none(figures.p99_ms, 2),
        NONE.to_owned(),
        NONE.to_owned(),
        memory,
        NONE.to_owned(),
    ]
}

/// The latency that the scenario's report would show.
fn headline(record: &Record) -> Option<&Latency> {
    let latencies = &record.latencies;
    match record.headline.as_str() {
        "deliver" => latencies.deliver.as_ref(),
        "acknowledge" => latencies.acknowledge.as_ref(),
        "connect" => latencies.connect.as_ref(),
        _ => None,
    }
}

fn or_none(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::record;
    use super::*;

    #[test]
    fn each_broker_has_a_row_and_the_report_one_below_them() {
        let mut watched = record("a");
        watched.published = Some(PublishedFigures {
            source: String::new(),
            product: "B".to_owned(),
            version: "1".to_owned(),
            section: String::new(),
            connections: Some(4_000),
            messages_per_second: None,
            connects_per_second: None,
            mean_ms: Some(3.2),
            p99_ms: None,
            cpu_percent: None,
            memory_gb: "5".to_owned(),
            note: String::new(),
            p95_ms: None,
            acknowledge_mean_ms: None,
            acknowledge_p95_ms: None,
            load: report::Load::default(),
            scaling: report::Scaling::default(),
        });
        watched.latencies.deliver = Some(Latency {
            count: 1,
            mean_ms: 0.25,
            p50_ms: 0.0,
            p95_ms: 0.0,
            p99_ms: 1.5,
            p999_ms: 0.0,
            max_ms: 2.0,
            buckets_ns: Vec::new(),
        });
        let mut unwatched = record("b");
        unwatched.system.clear();
        let rows = [
            Row::Measured(Box::new(watched)),
            Row::Measured(Box::new(unwatched)),
            Row::Failed("s".to_owned(), "c".to_owned()),
        ];
        let text = table(&rows).to_string();
        let cells = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let lines: Vec<Vec<String>> = text.lines().skip(1).map(cells).collect();
        let of_a = "s a 40 1000 0.25 1.50 2.00 15.0 12.0 MB 3";
        assert_eq!(lines[0].join(" "), of_a);
        assert_eq!(lines[1].join(" "), "s b 40 1000 - - - - - 3");
        assert_eq!(lines[2].join(" "), "s c failed");
        let published = "s published, B 1 4000 - 3.20 - - - 5 GB -";
        assert_eq!(lines[3].join(" "), published);
        assert_eq!(lines.len(), 4);
    }
}
