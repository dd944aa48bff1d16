//! The samples of a run as comma-separated values, RFC 4180 with line feeds.
//!
//! Invariant: every line has as many fields as the header; what is not known is empty, not 0.

use std::borrow::Cow;

use crate::record::{Phase, Record, Sample, Shards, Usage};

/// A column and what of a sample or a process stands in it.
type Column<T> = (&'static str, fn(&T) -> Option<String>);

const OF_SAMPLE: [Column<Sample>; 14] = [
    ("at_s", |sample| text(sample.at_s)),
    ("seconds", |sample| text(sample.seconds)),
    ("phase", |sample| text(phase(sample.phase))),
    ("connections", |sample| text(sample.connections)),
    ("sent", |sample| text(sample.sent)),
    ("acknowledged", |sample| text(sample.acknowledged)),
    ("delivered", |sample| text(sample.delivered)),
    ("bytes_out", |sample| text(sample.bytes_out)),
    ("bytes_in", |sample| text(sample.bytes_in)),
    ("mean_ms", |sample| sample.mean_ms.and_then(text)),
    ("p99_ms", |sample| sample.p99_ms.and_then(text)),
    ("max_ms", |sample| sample.max_ms.and_then(text)),
    ("tool_cpu_s", |sample| text(sample.tool_cpu_s)),
    ("machine_load", |sample| sample.machine_load.and_then(text)),
];

/// Without the network: where only the namespace's traffic is known, processes that share one would count
/// it once each.
const OF_BROKER: [Column<Sample>; 5] = [
    ("broker_cpu_user_s", |sample| {
        sample.sum_of(|usage| Some(usage.cpu_user_s)).and_then(text)
    }),
    ("broker_cpu_system_s", |sample| {
        sample
            .sum_of(|usage| Some(usage.cpu_system_s))
            .and_then(text)
    }),
    ("broker_resident_bytes", |sample| {
        sample
            .sum_of(|usage| Some(u128::from(usage.resident_bytes)))
            .and_then(text)
    }),
    ("broker_threads", |sample| {
        sample
            .sum_of(|usage| usage.threads.map(u64::from))
            .and_then(text)
    }),
    ("broker_descriptors", |sample| {
        sample
            .sum_of(|usage| usage.descriptors.map(u64::from))
            .and_then(text)
    }),
];

/// Of the broker as a whole; empty for brokers without shards.
const OF_SHARDS: [Column<Shards>; 4] = [
    ("shards_session", |shards| text(shards.session.0)),
    ("shards_inbox", |shards| text(shards.inbox.0)),
    ("shards_retain", |shards| text(shards.retain.0)),
    ("splits", |shards| text(shards.splits.0)),
];

const OF_PROCESS: [Column<Usage>; 7] = [
    ("cpu_user_s", |usage| text(usage.cpu_user_s)),
    ("cpu_system_s", |usage| text(usage.cpu_system_s)),
    ("resident_bytes", |usage| text(usage.resident_bytes)),
    ("threads", |usage| usage.threads.and_then(text)),
    ("descriptors", |usage| usage.descriptors.and_then(text)),
    ("network_in_bytes", |usage| {
        usage.network_in_bytes.and_then(text)
    }),
    ("network_out_bytes", |usage| {
        usage.network_out_bytes.and_then(text)
    }),
];

/// A header and a line per sample: the sample, the broker's processes summed, its shards, then each process by itself,
/// in columns that begin with its name.
#[must_use]
pub fn samples_csv(record: &Record) -> String {
    let mut csv = String::new();
    push_line(&mut csv, header(record));
    for sample in &record.samples {
        let own = OF_SAMPLE.iter().chain(&OF_BROKER);
        let own = own.map(|(_, field)| field(sample).unwrap_or_default());
        let shards = OF_SHARDS.map(|(_, field)| {
            let shards = sample.shards.as_ref();
            shards.and_then(field).unwrap_or_default()
        });
        push_line(
            &mut csv,
            own.chain(shards).chain(of_processes(record, sample)),
        );
    }
    csv
}

fn header(record: &Record) -> impl Iterator<Item = String> {
    let own = OF_SAMPLE.iter().chain(&OF_BROKER);
    let own = own.map(|&(name, _)| name.to_owned());
    let of_processes = record
        .system
        .iter()
        .flat_map(|process| OF_PROCESS.map(|(name, _)| format!("{} {name}", process.name)));
    let shards = OF_SHARDS.map(|(name, _)| name.to_owned());
    own.chain(shards).chain(of_processes)
}

/// As many fields as the header has, however many processes the sample has.
fn of_processes(record: &Record, sample: &Sample) -> impl Iterator<Item = String> {
    (0..record.system.len()).flat_map(|index| {
        let usage = sample.system.get(index).and_then(Option::as_ref);
        OF_PROCESS.map(|(_, field)| usage.and_then(field).unwrap_or_default())
    })
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Connect => "connect",
        Phase::WarmUp => "warm-up",
        Phase::Measure => "measure",
        Phase::Drain => "drain",
    }
}

/// `Some`, so that fields that are always known stand in one table with those that may not be.
fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn push_line(csv: &mut String, fields: impl Iterator<Item = String>) {
    for (index, field) in fields.enumerate() {
        if index > 0 {
            csv.push(',');
        }
        csv.push_str(&quoted(&field));
    }
    csv.push('\n');
}

fn quoted(field: &str) -> Cow<'_, str> {
    if field.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn fields(line: &str) -> Vec<&str> {
        line.split(',').collect()
    }

    #[test]
    fn every_line_is_as_long_as_the_header() {
        let mut record = fixture::pairs("a", 1.0);
        record.samples[1].system = vec![None];
        record.samples[2].system = Vec::new();
        record.samples[3].system.push(None);
        let csv = samples_csv(&record);
        assert_eq!(csv.lines().count(), 1 + record.samples.len());
        for line in csv.lines() {
            assert_eq!(fields(line).len(), 14 + 5 + 4 + 7, "{line}");
        }
    }

    #[test]
    fn a_field_stands_below_its_name() {
        let mut record = fixture::pairs("a", 1.0);
        record.system.push(record.system[0].clone());
        let sample = &mut record.samples[0];
        sample.mean_ms = None;
        let usage = Usage {
            resident_bytes: 21,
            threads: None,
            ..Usage::default()
        };
        sample.system = vec![Some(usage), Some(usage)];
        let csv = samples_csv(&record);
        let mut lines = csv.lines().map(fields);
        let (header, first) = (lines.next().unwrap(), lines.next().unwrap());
        let value = |name: &str| first[header.iter().position(|&h| h == name).unwrap()];
        assert_eq!(value("phase"), "connect");
        assert_eq!(value("connections"), "500");
        assert_eq!(value("mean_ms"), "");
        assert_eq!(value("broker_resident_bytes"), "42");
        assert_eq!(value("broker_threads"), "");
        assert_eq!(value("pid 4242 (broker) resident_bytes"), "21");
    }

    #[test]
    fn shards_have_columns_that_are_empty_where_nobody_tells() {
        let csv = samples_csv(&fixture::splitting("a"));
        let mut lines = csv.lines().map(fields);
        let header = lines.next().unwrap();
        let rows: Vec<_> = lines.collect();
        let names = ["shards_session", "shards_inbox", "shards_retain", "splits"];
        let at = |second: usize| {
            names.map(|name| {
                let column = header.iter().position(|&h| h == name).unwrap();
                rows[second - 1][column]
            })
        };
        assert_eq!(at(14), ["1", "1", "1", "0"]);
        assert_eq!(at(15), ["1", "2", "1", "1"]);
        assert_eq!(at(20), [""; 4]);
    }

    #[test]
    fn no_sum_overflows() {
        let mut record = fixture::pairs("a", 1.0);
        let usage = Usage {
            resident_bytes: u64::MAX,
            threads: Some(u32::MAX),
            descriptors: Some(u32::MAX),
            ..Usage::default()
        };
        record.samples[0].system = vec![Some(usage), Some(usage)];
        let csv = samples_csv(&record);
        assert!(csv.contains(",36893488147419103230,8589934590,8589934590,"));
    }

    #[test]
    fn a_name_with_commas_and_quotes_is_one_field() {
        let mut record = fixture::pairs("a", 1.0);
        record.system[0].name = "pid 1 (\"a\", b)".to_owned();
        let csv = samples_csv(&record);
        let expected = "\"pid 1 (\"\"a\"\", b) threads\"";
        assert!(csv.contains(expected), "{csv}");
    }
}
