//! The tables of one run, or of several runs of a scenario: the same in the terminal and on the page.
//!
//! Invariant: a row says whose run it is, as soon as there are several.

use crate::figures::{CpuTime, KINDS, Kind};
use crate::record::{
    Columns, Latency, Load, PublishedFigures, Record, Setting, ShardCount, Shards,
};
use text_table::Table;
use text_table::units::{self, NONE};

/// Publishers that are shown at most; the record may have thousands.
const PUBLISHERS: usize = 10;

/// A column of the reports.
pub(crate) struct Column {
    pub(crate) header: &'static str,
    pub(crate) measured: fn(&Record) -> String,
    published: fn(&PublishedFigures) -> String,
}

const fn column(
    header: &'static str,
    measured: fn(&Record) -> String,
    published: fn(&PublishedFigures) -> String,
) -> Column {
    Column {
        header,
        measured,
        published,
    }
}

/// One that no report has.
const fn own_column(header: &'static str, measured: fn(&Record) -> String) -> Column {
    column(header, measured, |_| NONE.to_owned())
}

const TOTAL: Column = column(
    "total msg/s",
    |record| {
        let is_measured = !record.is_connections_only();
        let total = is_measured.then_some(record.messages_per_second);
        units::or_none(total, units::rate)
    },
    |row| units::or_none(row.scaled_messages_per_second(), units::rate),
);
const CONNECTIONS: Column = column(
    "connections",
    |record| units::count(record.connections),
    |row| units::or_none(row.scaled_connections(), units::rate),
);
const QOS: Column = column("QoS", |record| qos(&record.load), |row| qos(&row.load));
const PAYLOAD: Column = column(
    "payload",
    |record| payload(&record.load),
    |row| payload(&row.load),
);
const RATE: Column = column(
    "msg/s each",
    |record| units::or_none(record.load.rate, units::rate),
    |row| units::or_none(row.scaled_rate(), units::rate),
);
const CONNECTS: Column = column(
    "connects/s",
    |record| units::or_none(record.connects_per_second(), units::rate),
    |row| units::or_none(row.scaled_connects_per_second(), units::rate),
);
const MEAN: Column = column(
    "mean ms",
    |record| headline(record, |latency| latency.mean_ms),
    |row| units::or_none(row.mean_ms, units::ms),
);
const P95: Column = column(
    "p95 ms",
    |record| headline(record, |latency| latency.p95_ms),
    |row| units::or_none(row.p95_ms, units::ms),
);
const ACK_MEAN: Column = column(
    "ack mean ms",
    |record| acknowledge(record, |latency| latency.mean_ms),
    |row| units::or_none(row.acknowledge_mean_ms, units::ms),
);
const ACK_P95: Column = column(
    "ack p95 ms",
    |record| acknowledge(record, |latency| latency.p95_ms),
    |row| units::or_none(row.acknowledge_p95_ms, units::ms),
);
const P99: Column = column(
    "p99 ms",
    |record| headline(record, |latency| latency.p99_ms),
    |row| units::or_none(row.p99_ms, units::ms),
);
const MAX: Column = own_column("max ms", |record| {
    headline(record, |latency| latency.max_ms)
});
const CPU: Column = column(
    "CPU %",
    |record| units::or_none(record.cpu_percent(), units::one_decimal),
    published_cpu,
);
const CONNECTING_CPU: Column = column(
    "CPU %",
    |record| units::or_none(record.connecting_cpu_percent(), units::one_decimal),
    published_cpu,
);
const MEMORY: Column = column(
    "memory",
    |record| match record.resident_span() {
        Some(span) => units::span(&span, units::bytes),
        None => units::or_none(record.resident_bytes(), units::bytes),
    },
    |row| match row.memory_gb.as_str() {
        "" => NONE.to_owned(),
        memory => format!("{memory} GB"),
    },
);
const MEMORY_EACH: Column = own_column("KB each", |record| {
    let kilobytes = record.bytes_per_connection().map(|bytes| bytes / 1e3);
    units::or_none(kilobytes, units::one_decimal)
});
const LOST: Column = own_column("lost", |record| units::count(record.counts.lost));
const DUPLICATED: Column = own_column("duplicated", |record| {
    units::count(record.counts.duplicated)
});
const REORDERED: Column = own_column("reordered", |record| units::count(record.counts.reordered));
const CPU_PER_MESSAGE: Column = own_column("CPU µs/msg", |record| {
    us_per_message(record, record.broker_cpu().unwrap_or_default())
});

const OF_MESSAGES: [Column; 10] = [
    CONNECTIONS,
    QOS,
    PAYLOAD,
    RATE,
    TOTAL,
    MEAN,
    P99,
    MAX,
    CPU,
    MEMORY,
];
const OF_DELIVERY_AND_ACKNOWLEDGEMENT: [Column; 13] = [
    CONNECTIONS,
    QOS,
    PAYLOAD,
    RATE,
    TOTAL,
    MEAN,
    P95,
    ACK_MEAN,
    ACK_P95,
    P99,
    MAX,
    CPU,
    MEMORY,
];
const OF_FAULTS: [Column; 4] = [LOST, DUPLICATED, REORDERED, CPU_PER_MESSAGE];
const OF_CONNECTIONS: [Column; 8] = [
    CONNECTIONS,
    CONNECTS,
    MEAN,
    P99,
    MAX,
    CONNECTING_CPU,
    MEMORY,
    MEMORY_EACH,
];

/// What scenarios of all sorts have in common.
pub(crate) const OVERVIEW: [Column; 9] = [
    CONNECTIONS,
    TOTAL,
    MEAN,
    P99,
    MAX,
    MEMORY,
    LOST,
    DUPLICATED,
    REORDERED,
];

/// Asked for, measured and published, with the columns of the reports.
pub(crate) fn results(records: &[&Record]) -> Table {
    if is_connections_only(records) {
        results_in(records, OF_CONNECTIONS.iter())
    } else {
        results_in(records, of_messages(records).iter())
    }
}

/// As [`results`], with what the reports leave out.
pub(crate) fn wide_results(records: &[&Record]) -> Table {
    if is_connections_only(records) {
        results(records)
    } else {
        results_in(records, of_messages(records).iter().chain(&OF_FAULTS))
    }
}

/// The columns of the report that describes such loads.
fn of_messages(records: &[&Record]) -> &'static [Column] {
    let has_both = |record: &&Record| record.columns == Columns::DeliveryAndAcknowledgement;
    if records.iter().any(has_both) {
        &OF_DELIVERY_AND_ACKNOWLEDGEMENT
    } else {
        &OF_MESSAGES
    }
}

fn is_connections_only(records: &[&Record]) -> bool {
    records.iter().all(|record| record.is_connections_only())
}

fn results_in<'a>(records: &[&Record], columns: impl Iterator<Item = &'a Column> + Clone) -> Table {
    let headers = columns.clone().map(|column| column.header);
    let mut table = Table::new(std::iter::once("").chain(headers));
    if !is_connections_only(records) {
        let place = columns
            .clone()
            .position(|column| column.header == TOTAL.header);
        for asked in distinct(records.iter().map(|record| record.asked_per_second)) {
            let before = std::iter::repeat_n(String::new(), place.unwrap_or(0));
            let cells = before.chain([units::rate(asked)]);
            table.row(std::iter::once("asked for".to_owned()).chain(cells));
        }
    }
    for record in records {
        let cells = columns.clone().map(|column| (column.measured)(record));
        let name = format!("measured, {}", record.label);
        table.row(std::iter::once(name).chain(cells));
    }
    for row in published(records) {
        let cells = columns.clone().map(|column| (column.published)(row));
        table.row(std::iter::once(row.row_name()).chain(cells));
    }
    table
}

/// The different rows of reports that the records have.
pub(crate) fn published<'a>(records: &[&'a Record]) -> Vec<&'a PublishedFigures> {
    distinct(
        records
            .iter()
            .filter_map(|record| record.published.as_ref()),
    )
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// All distributions that have times, those of one kind beside each other.
pub(crate) fn latencies(records: &[&Record]) -> Table {
    let mut table = Table::new([
        "latency", "count", "mean ms", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms",
    ]);
    let kinds: Vec<[Kind<'_>; KINDS]> = records.iter().map(|r| r.latencies.kinds()).collect();
    for index in 0..KINDS {
        for (record, kinds) in records.iter().zip(&kinds) {
            let kind = &kinds[index];
            if let Some(latency) = kind.latency {
                table.row(latency_row(name(records, record, kind.title), latency));
            }
        }
    }
    table
}

fn latency_row(name: String, latency: &Latency) -> [String; 8] {
    [
        name,
        units::count(latency.count),
        units::ms(latency.mean_ms),
        units::ms(latency.p50_ms),
        units::ms(latency.p95_ms),
        units::ms(latency.p99_ms),
        units::ms(latency.p999_ms),
        units::ms(latency.max_ms),
    ]
}

/// Messages and bytes per second of the measurement, by what the clients have counted, also where the broker's network cannot
/// be told from others'; `None` if nothing was measured.
pub(crate) fn traffic(records: &[&Record]) -> Option<Table> {
    let mut table = Table::new([
        "traffic",
        "sent/s",
        "received/s",
        "sent + received/s",
        "network in/s",
        "network out/s",
    ]);
    let measured = records.iter().filter_map(|record| {
        let rates = record.sent_per_second().zip(record.received_per_second())?;
        Some((record, rates))
    });
    for (record, (sent, received)) in measured {
        table.row([
            name(records, record, "clients"),
            units::rate(sent),
            units::rate(received),
            units::rate(sent + received),
            units::or_none(record.network_in(), units::traffic),
            units::or_none(record.network_out(), units::traffic),
        ]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// What the broker took of its machine during the measurement, as EMQX's report has it; `None` if it was not watched.
pub(crate) fn resources(records: &[&Record]) -> Option<Table> {
    let mut table = Table::new([
        "resources",
        "CPU user %",
        "CPU system %",
        "CPU max %",
        "load",
        "memory",
        "network in/s",
        "network out/s",
    ]);
    let watched = records
        .iter()
        .filter_map(|record| Some((record, record.broker_cpu()?)));
    for (record, cpu) in watched {
        let percent = |cpu_s: f64| record.percent_of_machine(cpu_s, record.seconds);
        let memory = record.resident_span();
        let load = record.machine_load_span();
        table.row([
            name(records, record, "broker"),
            units::or_none(percent(cpu.user_s), units::one_decimal),
            units::or_none(percent(cpu.system_s), units::one_decimal),
            units::or_none(record.cpu_percent_max(), units::one_decimal),
            load.map_or_else(
                || NONE.to_owned(),
                |span| units::span(&span, units::one_decimal),
            ),
            memory.map_or_else(|| NONE.to_owned(), |span| units::span(&span, units::bytes)),
            units::or_none(record.network_in(), units::traffic),
            units::or_none(record.network_out(), units::traffic),
        ]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// The shards at the begin and the end of each run whose broker tells; `None` if none does.
pub(crate) fn shards(records: &[&Record]) -> Option<Table> {
    let mut table = Table::new(["whole run", "session", "inbox", "retain", "own splits"]);
    let told = |record: &&Record| Some((name(records, record, "shards"), record.shards()?));
    for (name, (first, last)) in records.iter().filter_map(told) {
        let span = |of: fn(&Shards) -> ShardCount| {
            let (first, last) = (u64::from(of(&first).0), u64::from(of(&last).0));
            if first == last {
                units::count(last)
            } else {
                format!("{} → {}", units::count(first), units::count(last))
            }
        };
        table.row([
            name,
            span(|shards| shards.session),
            span(|shards| shards.inbox),
            span(|shards| shards.retain),
            units::count(last.splits.0),
        ]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// Messages and broken connections, warm-up and drain included.
pub(crate) fn counts(records: &[&Record]) -> Table {
    let mut table = Table::new([
        "whole run",
        "sent",
        "acknowledged",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
        "stray",
        "disconnects",
    ]);
    for record in records {
        let counts = &record.counts;
        let cells = [
            counts.sent,
            counts.acknowledged,
            counts.delivered,
            counts.lost,
            counts.duplicated,
            counts.reordered,
            counts.stray,
            counts.disconnects,
        ];
        let name = name(records, record, "messages");
        table.row(std::iter::once(name).chain(cells.map(units::count)));
    }
    table
}

/// CPU time of each process of the broker, and of the tool, during the measurement.
pub(crate) fn cpu(records: &[&Record]) -> Table {
    let mut table = Table::new(["CPU", "user s", "system s", "% of a core", "µs per message"]);
    for record in records {
        let mut row = |process: &str, cpu: CpuTime| {
            table.row([
                name(records, record, process),
                units::two_decimals(cpu.user_s),
                units::two_decimals(cpu.system_s),
                units::or_none(record.percent_of_core(cpu), units::one_decimal),
                us_per_message(record, cpu),
            ]);
        };
        for process in &record.system {
            row(&process.name, CpuTime::from(process));
        }
        if record.system.len() > 1 {
            row(
                "broker, all processes",
                record.broker_cpu().unwrap_or_default(),
            );
        }
        row(&tool_name(record), record.tool_cpu());
    }
    table
}

fn tool_name(record: &Record) -> String {
    match record.workers {
        0 | 1 => "this tool".to_owned(),
        workers => format!("this tool, {workers} processes"),
    }
}

/// The publishers that fared worst; `None` if all fared well.
pub(crate) fn publishers(records: &[&Record]) -> Option<Table> {
    let mut table = Table::new([
        "worst publishers",
        "sent",
        "acknowledged",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
    ]);
    for record in records {
        for publisher in record.publishers.iter().take(PUBLISHERS) {
            let cells = [
                publisher.sent,
                publisher.acknowledged,
                publisher.delivered,
                publisher.lost,
                publisher.duplicated,
                publisher.reordered,
            ];
            let name = name(records, record, &format!("number {}", publisher.publisher));
            table.row(std::iter::once(name).chain(cells.map(units::count)));
        }
    }
    (!table.rows().is_empty()).then_some(table)
}

/// The parts of loads that have several; `None` if none has.
pub(crate) fn parts(records: &[&Record]) -> Option<Table> {
    let mut table = Table::new([
        "part",
        "asked msg/s",
        "sent",
        "acknowledged",
        "delivered",
        "lost",
        "duplicated",
        "reordered",
        "mean ms",
        "p99 ms",
        "max ms",
    ]);
    for record in records {
        for part in &record.parts {
            let counts = &part.counts;
            let latency = part.deliver.as_ref().or(part.acknowledge.as_ref());
            let ms = |figure: fn(&Latency) -> f64| units::or_none(latency.map(figure), units::ms);
            table.row([
                name(records, record, &part.name),
                units::rate(part.asked_per_second),
                units::count(counts.sent),
                units::count(counts.acknowledged),
                units::count(counts.delivered),
                units::count(counts.lost),
                units::count(counts.duplicated),
                units::count(counts.reordered),
                ms(|latency| latency.mean_ms),
                ms(|latency| latency.p99_ms),
                ms(|latency| latency.max_ms),
            ]);
        }
    }
    (!table.rows().is_empty()).then_some(table)
}

/// What was set and where it ran, a column per record.
pub(crate) fn circumstances(records: &[&Record]) -> Table {
    let labels = records.iter().map(|record| record.label.as_str());
    let mut table = Table::new(std::iter::once("").chain(labels));
    let all: Vec<Vec<Setting>> = records.iter().map(|r| r.circumstances()).collect();
    let names = all.iter().flatten().map(|setting| setting.name.as_str());
    for name in distinct(names) {
        let values = all.iter().map(|settings| value(settings, name));
        table.row(std::iter::once(name).chain(values));
    }
    table
}

/// What is set under the name, or that nothing is.
pub(crate) fn value<'a>(settings: &'a [Setting], name: &str) -> &'a str {
    let found = settings.iter().find(|setting| setting.name == name);
    found.map_or(NONE, |setting| &setting.value)
}

impl Record {
    /// The settings, followed by the machine and the tool in the same form.
    pub(crate) fn circumstances(&self) -> Vec<Setting> {
        let machine = &self.machine;
        let others = [
            ("started at", self.started_at.clone()),
            ("tool", self.tool.clone()),
            ("load processes", self.workers.to_string()),
            ("CPU", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", units::bytes(machine.memory_bytes as f64)),
            ("kernel", machine.kernel.clone()),
            ("congestion control", machine.congestion_control.clone()),
        ];
        let others = others.map(|(name, value)| Setting {
            name: name.to_owned(),
            value,
        });
        self.settings.iter().cloned().chain(others).collect()
    }
}

/// Of a row that there is for each record.
fn name(records: &[&Record], record: &Record, what: &str) -> String {
    if records.len() > 1 {
        format!("{what}, {}", record.label)
    } else {
        what.to_owned()
    }
}

fn headline(record: &Record, figure: fn(&Latency) -> f64) -> String {
    units::or_none(record.headline_latency().map(figure), units::ms)
}

fn qos(load: &Load) -> String {
    load.qos
        .map_or_else(|| NONE.to_owned(), |qos| qos.0.to_string())
}

fn payload(load: &Load) -> String {
    load.payload.map_or_else(
        || NONE.to_owned(),
        |bytes| format!("{} B", units::count(bytes.0)),
    )
}

fn acknowledge(record: &Record, figure: fn(&Latency) -> f64) -> String {
    let latency = record.latencies.acknowledge.as_ref();
    units::or_none(latency.map(figure), units::ms)
}

fn us_per_message(record: &Record, cpu: CpuTime) -> String {
    units::or_none(record.us_per_message(cpu), units::two_decimals)
}

fn published_cpu(row: &PublishedFigures) -> String {
    units::or_none(row.cpu_percent, units::one_decimal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_published_row_that_two_runs_share_stands_once() {
        let (a, b) = (fixture::pairs("a", 1.0), fixture::pairs("b", 2.0));
        let table = results(&[&a, &b]);
        let names: Vec<&str> = table.rows().iter().map(|row| row[0].as_str()).collect();
        assert_eq!(
            names,
            [
                "asked for",
                "measured, a",
                "measured, b",
                "published, BifroMQ 2.1, scaled to 1/4"
            ]
        );
    }

    #[test]
    fn delivery_and_acknowledgement_stand_beside_those_of_their_report() {
        let mut record = fixture::pairs("a", 1.0);
        record.columns = Columns::DeliveryAndAcknowledgement;
        record.latencies.acknowledge = record.latencies.deliver.clone();
        if let Some(published) = &mut record.published {
            published.p95_ms = Some(295.0);
            published.acknowledge_mean_ms = Some(23.0);
            published.acknowledge_p95_ms = Some(55.0);
        }
        let table = results(&[&record]).to_string();
        let cells = |name: &str| -> Vec<String> {
            let line = table.lines().find_map(|line| line.strip_prefix(name));
            let cells = line.unwrap_or_default().split_whitespace();
            cells.map(str::to_owned).skip(6).take(4).collect()
        };
        assert_eq!(
            cells("measured, a"),
            ["0.620", "0.930", "0.620", "0.930"],
            "{table}"
        );
        assert_eq!(
            cells("published, BifroMQ 2.1, scaled to 1/4"),
            ["3.22", "295.0", "23.00", "55.00"],
            "{table}"
        );
    }

    #[test]
    fn each_row_says_whose_it_is_if_there_are_several() {
        let (a, b) = (fixture::pairs("a", 1.0), fixture::pairs("b", 2.0));
        assert_eq!(counts(&[&a]).rows()[0][0], "messages");
        assert_eq!(counts(&[&a, &b]).rows()[1][0], "messages, b");
        let latencies = latencies(&[&a, &b]);
        let names = latencies.rows().iter().map(|row| row[0].as_str());
        let firsts: Vec<&str> = names.take(3).collect();
        assert_eq!(firsts, ["connect, a", "connect, b", "subscribe, a"]);
    }

    #[test]
    fn what_only_one_of_the_runs_has_set_is_shown() {
        let (a, mut b) = (fixture::pairs("a", 1.0), fixture::pairs("b", 1.0));
        b.settings.remove(0);
        let table = circumstances(&[&a, &b]);
        assert_eq!(table.rows()[0], ["target", "127.0.0.1:1883", NONE]);
    }

    #[test]
    fn processes_of_a_broker_are_summed() {
        let mut record = fixture::pairs("a", 1.0);
        let names = |record: &Record| {
            let table = cpu(&[record]);
            table
                .rows()
                .iter()
                .map(|row| row[..2].join(" "))
                .collect::<Vec<_>>()
        };
        let tool = "this tool, 2 processes 12.50";
        assert_eq!(names(&record), ["pid 4242 (broker) 31.00", tool]);
        record.system.push(record.system[0].clone());
        let several = names(&record);
        assert_eq!(several[2..], ["broker, all processes 62.00", tool]);
    }

    #[test]
    fn no_more_than_ten_publishers_are_shown() {
        let mut record = fixture::pairs("a", 2.0);
        record.publishers = vec![record.publishers[0]; 11];
        assert_eq!(publishers(&[&record]).unwrap().rows().len(), PUBLISHERS);
        record.publishers.clear();
        assert!(publishers(&[&record]).is_none());
    }
}
