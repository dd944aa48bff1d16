//! The figures that the reports of other brokers print, row by row, as data/published-figures.csv has
//! them.
//!
//! Deliberately absent: corrections. Where a report contradicts itself, the row's note says so.

use std::sync::LazyLock;

use mqtt_proto::QoS;

const CSV: &str = include_str!("../data/published-figures.csv");

/// A row of a report. What the report leaves out is `None` or empty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// The report, and the machines it was made on.
    pub source: &'static str,
    /// The broker.
    pub product: &'static str,
    /// Of the broker.
    pub version: &'static str,
    /// The report's section; it says the topology and whether sessions are clean.
    pub section: &'static str,
    /// The name of the scenario. Not unique: a clean and a persistent section may share it.
    pub scenario: &'static str,
    /// Of publishing and of subscriptions.
    pub qos: Option<QoS>,
    /// Messages per second of each publisher.
    pub rate: Option<f64>,
    /// Bytes.
    pub payload_len: Option<usize>,
    /// Connections of all kinds.
    pub connections: Option<usize>,
    /// Messages per second delivered, or received by the broker if there are no subscribers.
    pub total_per_second: Option<f64>,
    /// Latency in ms.
    pub mean_ms: Option<f64>,
    /// Latency in ms.
    pub p99_ms: Option<f64>,
    /// Of each machine as a whole, in percent.
    pub cpu_percent: Option<f64>,
    /// GB, a figure or a span such as `5-10`.
    pub memory_gb: &'static str,
    /// What does not fit the columns.
    pub note: &'static str,
    /// Latency in ms; of TBMQ's report only.
    pub p95_ms: Option<f64>,
    /// From sending to acknowledgement in ms; of TBMQ's report only.
    pub acknowledge_mean_ms: Option<f64>,
    /// As `acknowledge_mean_ms`.
    pub acknowledge_p95_ms: Option<f64>,
}

/// All rows, in the order of the reports.
#[must_use]
pub fn published() -> &'static [Published] {
    static ROWS: LazyLock<Vec<Published>> =
        LazyLock::new(|| CSV.lines().skip(1).filter_map(row).collect());
    &ROWS
}

fn row(line: &'static str) -> Option<Published> {
    let fields: Vec<&str> = Fields(Some(line)).collect();
    let &[
        source,
        product,
        version,
        section,
        scenario,
        qos,
        rate,
        payload_len,
        connections,
        total_per_second,
        mean_ms,
        p99_ms,
        cpu_percent,
        memory_gb,
        note,
        ref others @ ..,
    ] = fields.as_slice()
    else {
        return None;
    };
    // Lines without figures for the last columns end before them.
    let other = |place: usize| others.get(place).and_then(|figure| figure.parse().ok());
    Some(Published {
        source,
        product,
        version,
        section,
        scenario,
        qos: qos.parse().ok().and_then(QoS::from_u8),
        rate: rate.parse().ok(),
        payload_len: payload_len.parse().ok(),
        connections: connections.parse().ok(),
        total_per_second: total_per_second.parse().ok(),
        mean_ms: mean_ms.parse().ok(),
        p99_ms: p99_ms.parse().ok(),
        cpu_percent: cpu_percent.parse().ok(),
        memory_gb,
        note,
        p95_ms: other(0),
        acknowledge_mean_ms: other(1),
        acknowledge_p95_ms: other(2),
    })
}

/// The fields of a line; one in quotes may contain commas, but no quotes.
struct Fields<'a>(Option<&'a str>);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let (field, after) = match rest.strip_prefix('"').and_then(|r| r.split_once('"')) {
            Some((quoted, after)) => (quoted, after.strip_prefix(',')),
            None => match rest.split_once(',') {
                Some((field, after)) => (field, Some(after)),
                None => (rest, None),
            },
        };
        self.0 = after;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_and_no_number_is_left_out() {
        assert_eq!(published().len(), CSV.lines().count() - 1);
        for (line, row) in CSV.lines().skip(1).zip(published()) {
            let fields: Vec<&str> = Fields(Some(line)).collect();
            let numbers = [
                row.qos.is_some(),
                row.rate.is_some(),
                row.payload_len.is_some(),
                row.connections.is_some(),
                row.total_per_second.is_some(),
                row.mean_ms.is_some(),
                row.p99_ms.is_some(),
                row.cpu_percent.is_some(),
            ];
            for (field, is_there) in fields[5..13].iter().zip(numbers) {
                assert_eq!(is_there, !field.is_empty(), "{field} in {line}");
            }
        }
    }

    #[test]
    fn quoted_fields_keep_their_commas() {
        let fields: Vec<&str> = Fields(Some(r#"a,"b, c",,"d, e""#)).collect();
        assert_eq!(fields, ["a", "b, c", "", "d, e"]);
    }
}
