//! Scenarios by name or by file: choosing one and its size, listing them, and saying how one is read.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use loadtest::workload::Login;
use loadtest::{Plan, Published, Workload, published, tbmq};
use mqtt_proto::ProtocolVersion;
use text_table::{Table, units::counted};

use super::parts;
use super::premises;
use super::quantity::read_from_text;
use super::workload_file::WorkloadFile;
use crate::failure::Failure;

/// Of files: our own workloads, and groups as TBMQ's tests list them.
const EXTENSIONS: [&str; 3] = ["yml", "yaml", "json"];

/// A scenario and its size.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Chosen {
    /// The scenario's name in its report, as `heraldmq bench list` shows it, or a workload file (.yml),
    /// or the publisher and subscriber groups of a test of TBMQ (.json).
    #[arg(value_name = "SCENARIO")]
    pub(super) name: String,
    /// The subscriber groups of a test of TBMQ (.json), if SCENARIO has its publisher groups; or the other way
    /// round.
    #[arg(value_name = "FILE")]
    pub(super) second: Option<String>,
    /// Share of the connections of the report or the file.
    #[arg(long, value_name = "1/N", default_value = "1")]
    pub(super) scale: Share,
    /// Share of each publisher's message rate, and of the connect rate.
    #[arg(long, value_name = "1/N", default_value = "1")]
    pub(super) rate_scale: Share,
}

/// A part of a whole, above 0 and at most 1, as it was written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Share {
    text: String,
    pub(super) value: f64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            text: "1".to_owned(),
            value: 1.0,
        }
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = match text.split_once('/') {
            Some((part, whole)) => part
                .parse()
                .ok()
                .zip(whole.parse().ok())
                .map(|(part, whole): (f64, f64)| part / whole),
            None => text.parse().ok(),
        };
        let value = value.filter(|&value| value > 0.0 && value <= 1.0);
        let value = value.ok_or("expected a share such as 1/100 or 0.01, above 0 and at most 1")?;
        let text = text.to_owned();
        Ok(Self { text, value })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

read_from_text!(Share);

/// What is to be played, in the size that was asked for.
#[derive(Clone, Debug)]
pub(super) enum Scenario {
    /// One of the reports.
    Named(Box<Plan>),
    /// What a file says.
    File {
        /// The workload's.
        name: String,
        /// How its clients connect is not settled yet.
        workload: Workload,
        /// How long to measure, if the file says so.
        duration: Option<Duration>,
        /// Sentences about what is played otherwise than the file may mean it.
        notes: Vec<String>,
    },
}

impl Scenario {
    /// What records call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Named(plan) => plan.to_string(),
            Self::File { name, .. } => name.clone(),
        }
    }

    /// The load to play.
    pub(super) fn workload(&self, login: Login) -> Workload {
        match self {
            Self::Named(plan) => plan.workload(login),
            Self::File { workload, .. } => Workload {
                login,
                ..workload.clone()
            },
        }
    }

    /// One line: how it was read.
    pub(super) fn reading(&self) -> String {
        match self {
            Self::Named(plan) => plan.reading(),
            Self::File { workload, .. } => parts::sentence(&workload.parts),
        }
    }

    /// How long to measure, if it says so.
    pub(super) fn duration(&self) -> Option<Duration> {
        match self {
            Self::Named(_) => None,
            Self::File { duration, .. } => *duration,
        }
    }

    /// If it is one of a report.
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Named(plan) => Some(plan),
            Self::File { .. } => None,
        }
    }
}

impl Chosen {
    /// Reads the name, or the file.
    pub(super) fn scenario(&self) -> Result<Scenario, Failure> {
        let (connections, rates) = (self.scale.value, self.rate_scale.value);
        if let Some(second) = &self.second {
            let is_json = |name: &String| Path::new(name).extension().is_some_and(|e| e == "json");
            if !is_json(&self.name) || !is_json(second) {
                let message = "two files are the publisher and the subscriber groups of a test of TBMQ, .json";
                return Err(Failure::Usage(message.to_owned()));
            }
        }
        if is_file(&self.name) {
            let mut scenario = self.read_files()?;
            if let Scenario::File { workload, .. } = &mut scenario {
                *workload = workload.scaled(connections, rates);
            }
            return Ok(scenario);
        }
        let plan = self.name.parse::<Plan>();
        let plan = plan.map_err(|error| Failure::Usage(format!("{}: {error}", self.name)))?;
        Ok(Scenario::Named(Box::new(plan.scaled(connections, rates))))
    }

    /// The load of the file, or of both.
    fn read_files(&self) -> Result<Scenario, Failure> {
        let login = Login::new(ProtocolVersion::V5);
        let path = Path::new(&self.name);
        if path.extension().is_none_or(|extension| extension != "json") {
            let WorkloadFile { name, parts } = WorkloadFile::read(path)?;
            return Ok(Scenario::File {
                name,
                workload: Workload { parts, login },
                duration: None,
                notes: Vec::new(),
            });
        }
        let paths: Vec<&String> = std::iter::once(&self.name).chain(&self.second).collect();
        let tests: Result<Vec<tbmq::Test>, Failure> = paths.iter().map(|p| read_test(p)).collect();
        let names: Vec<&str> = paths.iter().map(|path| path.as_str()).collect();
        let wrong = |error: &dyn fmt::Display| wrong(&names.join(", "), error);
        let combined = tbmq::combine(&tests?, login).map_err(|error| wrong(&error))?;
        combined.workload.check().map_err(|error| wrong(&error))?;
        let stems = paths.iter().filter_map(|path| Path::new(path).file_stem());
        let stems: Vec<_> = stems.map(|stem| stem.to_string_lossy()).collect();
        Ok(Scenario::File {
            name: stems.join(" + "),
            workload: combined.workload,
            duration: combined.duration,
            notes: combined.notes,
        })
    }

    fn is_scaled(&self) -> bool {
        self.scale.value < 1.0 || self.rate_scale.value < 1.0
    }

    /// What was made smaller, if something was.
    pub(super) fn scaling(&self) -> Option<String> {
        let whose = if is_file(&self.name) {
            "file"
        } else {
            "report"
        };
        self.is_scaled().then(|| {
            format!(
                "connections {} and rates {} of the {whose}'s",
                self.scale, self.rate_scale
            )
        })
    }
}

/// Whether it is a workload file and not the name of a scenario.
pub(super) fn is_file(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

fn wrong(path: &str, error: &dyn fmt::Display) -> Failure {
    Failure::Usage(format!("{path}: {error}"))
}

fn read_test(path: &str) -> Result<tbmq::Test, Failure> {
    let json = fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
    tbmq::Test::read(&json).map_err(|error| wrong(path, &error))
}

pub(super) fn list() -> String {
    let mut text = String::new();
    let mut rows = published();
    while let Some(first) = rows.first() {
        let same = |row: &Published| (row.source, row.product) == (first.source, first.product);
        let (of_report, others) =
            rows.split_at(rows.iter().position(|row| !same(row)).unwrap_or(rows.len()));
        rows = others;
        let mut table = Table::new([
            "scenario",
            "section",
            "connections",
            "asked msg/s",
            "total msg/s",
            "mean ms",
            "p99 ms",
            "CPU %",
            "memory GB",
        ]);
        for row in of_report {
            let Some(plan) = Plan::of_row(row) else {
                continue;
            };
            // The report's own name, unless it means two scenarios. It does not say that a start is cold.
            let names = [row.scenario.to_owned(), format!("{}_cold", row.scenario)];
            let is_of_row = |name: &String| {
                let read = name.parse::<Plan>();
                read.is_ok_and(|read| read.published == Some(row))
            };
            let name = names.into_iter().find(is_of_row);
            let name = name.unwrap_or_else(|| plan.to_string());
            let connections = row.connections.unwrap_or_else(|| plan.connections());
            table.row([
                name,
                row.section.to_owned(),
                connections.to_string(),
                format!("{:.0}", plan.total_per_second()),
                figure(row.total_per_second),
                figure(row.mean_ms),
                figure(row.p99_ms),
                figure(row.cpu_percent),
                row.memory_gb.to_owned(),
            ]);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!(
            "{} {}, {}\n{table}",
            first.product, first.version, first.source
        );
    }
    text
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

pub(super) fn describe(chosen: &Chosen) -> Result<String, Failure> {
    let scenario = chosen.scenario()?;
    let workload = scenario.workload(Login::new(ProtocolVersion::V5));
    let warnings = premises::of_rates(&workload);
    let mut text = describe_scenario(scenario, chosen);
    for warning in warnings {
        text += &format!("warning: {warning}\n");
    }
    Ok(text)
}

fn describe_scenario(scenario: Scenario, chosen: &Chosen) -> String {
    match scenario {
        Scenario::Named(plan) => describe_plan(&plan, chosen),
        Scenario::File {
            name,
            workload,
            duration,
            notes,
        } => {
            let mut lines = line("workload", &name);
            if let Some(duration) = duration {
                let duration = humantime::format_duration(duration).to_string();
                lines += &line("duration", &duration);
            }
            let warm_up = workload
                .parts
                .iter()
                .map(|part| part.warm_up_messages)
                .max();
            if let Some(count @ 1..) = warm_up {
                let warm_up = format!(
                    "{} of each publisher, which must be acknowledged",
                    counted(count as u64, "message", "messages")
                );
                lines += &line("warm-up", &warm_up);
            }
            let at_a_time = workload.parts.iter().filter_map(|p| p.most_concurrent);
            if let Some(most) = at_a_time.min() {
                let most = format!("{most} at most: connects, subscribes and warm-up messages");
                lines += &line("at a time", &most);
            }
            let drain_s = workload.parts.iter().map(|part| part.drain_s);
            let drain_s = drain_s.fold(0.0, f64::max);
            if drain_s > 0.0 {
                lines += &line("drain", &format!("{drain_s} s at least"));
            }
            if let Some(scaling) = chosen.scaling() {
                lines += &line("scale", &scaling);
            }
            let groups = parts::groups(&workload);
            let groups = groups.map_or_else(String::new, |groups| format!("\n{groups}"));
            let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
            format!("{lines}\n{}{groups}{notes}", parts::table(&workload))
        }
    }
}

fn describe_plan(plan: &Plan, chosen: &Chosen) -> String {
    let sessions = if plan.clean_session {
        "clean"
    } else {
        "persistent (of subscribers)"
    };
    let connect_rate = plan.connect_rate.map_or_else(
        || "as the broker accepts".to_owned(),
        |rate| format!("{rate}/s"),
    );
    let mut lines = vec![
        ("scenario", plan.to_string()),
        ("report", plan.source.to_string()),
        ("topology", plan.topology.to_string()),
        ("publishers", plan.topology.publishers().to_string()),
        ("subscribers", plan.topology.subscribers().to_string()),
        (
            "background",
            counted(plan.background as u64, "connection", "connections"),
        ),
        ("connections", plan.connections().to_string()),
        ("connect rate", connect_rate),
    ];
    if plan.topology.publishers() > 0 {
        lines.extend([
            ("rate", format!("{} msg/s per publisher", plan.rate)),
            ("sent", format!("{:.0} msg/s", plan.sent_per_second())),
            ("total", format!("{:.0} msg/s", plan.total_per_second())),
            ("payload", format!("{} bytes", plan.payload_len)),
            ("QoS", plan.qos.as_u8().to_string()),
        ]);
    }
    lines.extend([
        ("sessions", sessions.to_owned()),
        ("nodes", plan.nodes.to_string()),
    ]);
    if let Some(voters) = plan.voters {
        lines.push(("voters", voters.to_string()));
    }
    if plan.is_cold {
        let folder = "new: start the broker on an empty one before each run";
        lines.push(("data folder", folder.to_owned()));
    }
    if let Some(scaling) = chosen.scaling() {
        lines.push(("scale", scaling));
    }
    lines.push(("published", plan.published.map_or_else(none, figures)));
    lines
        .iter()
        .map(|(name, value)| line(name, value))
        .collect()
}

fn line(name: &str, value: &str) -> String {
    format!("{name:13} {value}\n")
}

fn none() -> String {
    "nothing under this name".to_owned()
}

/// The published figures in a line.
fn figures(row: &'static Published) -> String {
    let number = |name: &str, value: Option<f64>, unit: &str| {
        value.map(|value| format!("{name}{value}{unit}"))
    };
    let memory = (!row.memory_gb.is_empty()).then(|| format!("memory {} GB", row.memory_gb));
    let figures = [
        number("", row.total_per_second, " msg/s"),
        number("mean ", row.mean_ms, " ms"),
        number("p95 ", row.p95_ms, " ms"),
        number("p99 ", row.p99_ms, " ms"),
        number("ack mean ", row.acknowledge_mean_ms, " ms"),
        number("ack p95 ", row.acknowledge_p95_ms, " ms"),
        number("CPU ", row.cpu_percent, " %"),
        memory,
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    if figures.is_empty() {
        return "no figures".to_owned();
    }
    format!("{} ({} {})", figures.join(", "), row.product, row.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_or_decimals_up_to_the_whole() {
        let value = |text: &str| text.parse::<Share>().map(|share| share.value);
        assert_eq!(value("1/100"), Ok(0.01));
        assert_eq!(value("0.25"), Ok(0.25));
        assert_eq!(value("1"), Ok(1.0));
        for wrong in ["", "0", "2", "3/2", "1/0", "-1/2", "0/0", "x", "1/", "nan"] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_says_that_the_data_folder_is_new() {
        let chosen = |name: &str| Chosen {
            name: name.to_owned(),
            second: None,
            scale: Share::default(),
            rate_scale: Share::default(),
        };
        let warm = describe(&chosen("30k_30k_qos1_p256_1mps_3n_1v")).unwrap();
        let cold = describe(&chosen("30k_30k_qos1_p256_1mps_3n_1v_cold")).unwrap();
        assert!(!warm.contains("data folder"), "{warm}");
        assert!(cold.contains("data folder   new"), "{cold}");
        assert!(cold.contains("30000 msg/s (BifroMQ 2.1)"), "{cold}");
    }

    #[test]
    fn the_list_has_each_row_of_the_reports_and_every_name_is_read() {
        let text = list();
        let names = text
            .lines()
            .filter(|line| line.contains("_qos") || line.contains("qos") && line.contains("-p"))
            .map(|line| line.split_whitespace().next().unwrap_or_default());
        let mut count = 0;
        for name in names {
            assert!(name.parse::<Plan>().is_ok(), "{name}");
            count += 1;
        }
        assert_eq!(text.matches("_1v_cold ").count(), 1, "{text}");
        let warm = "\n30k_30k_qos1_p256_1mps_3n_1v ";
        assert_eq!(text.matches(warm).count(), 1, "{text}");
        // Besides these: two of idle connections and TBMQ's.
        assert_eq!(count + 3, published().len());
    }
}
