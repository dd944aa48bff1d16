//! `heraldmq bench`: the load tests of the published reports, by the names they have there.
//!
//! Deliberately absent: everything that plays or counts; that is the `loadtest` crate. This is the
//! command line of it.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use clap::Subcommand;
use loadtest::{
    Plan, Process, Published, Settings, Target, measure, published, report::Table,
    reserve_descriptors,
};
use mqtt_proto::ProtocolVersion;
use serde_json::json;

use crate::failure::{Failure, complain};

/// Connections from one address of this machine; it has some 28,000 ports for them.
const PER_SOURCE: usize = 20_000;

/// Load-test any MQTT broker with the scenarios of the published reports.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq bench list
  heraldmq bench plan 2k_2k_qos0_p32_100mps_1n --scale 1/10
  heraldmq bench run 2k_2k_qos0_p32_100mps_1n --scale 1/10 --target 127.0.0.1:1883

Exit codes: 0 the run went to its end, whatever it measured; 1 it did not; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Show all scenarios of the reports with their published figures.
    List,
    /// Say how a name is read, and run nothing.
    Plan(Chosen),
    /// Run a scenario in this process, on one core, and print what was measured.
    ///
    /// Load is open-loop: latency runs from the moment a message was due. All connections speak
    /// MQTT 5.0. CPU is in percent of the whole machine, as in the reports.
    Run(Run),
}

/// A scenario and its size.
#[derive(clap::Args)]
struct Chosen {
    /// The scenario's name in its report; `heraldmq bench list` shows all.
    name: String,
    /// Connections, as a share of the report's.
    #[arg(long, value_name = "1/N", default_value = "1")]
    scale: Share,
    /// Messages per second of each publisher, as a share of the report's; connects per second too.
    #[arg(long, value_name = "1/N", default_value = "1")]
    rate_scale: Share,
}

#[derive(clap::Args)]
struct Run {
    #[command(flatten)]
    chosen: Chosen,
    /// The broker's listener.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_target)]
    target: String,
    /// How long to measure.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Load before the measurement.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    warm_up: Duration,
    /// The broker's process on this machine, to measure its CPU time and memory.
    #[arg(long)]
    pid: Option<u32>,
    /// Also write all figures and histograms here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A part of a whole, above 0 and at most 1, as it was written.
#[derive(Clone, PartialEq, Debug)]
struct Share {
    text: String,
    value: f64,
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

fn parse_target(text: &str) -> Result<String, &'static str> {
    let expected = "expected HOST:PORT, such as 127.0.0.1:1883";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(expected),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("must be above 0".to_owned());
    }
    Ok(duration)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = match &arguments.command {
        Command::List => list(),
        Command::Plan(chosen) => describe(&chosen.plan()?, chosen),
        Command::Run(run) => run.measure()?,
    };
    // A reader that stopped listening changes nothing about the outcome.
    let _ = write!(io::stdout(), "{text}");
    Ok(())
}

impl Chosen {
    fn plan(&self) -> Result<Plan, Failure> {
        let plan = self.name.parse::<Plan>();
        let plan = plan.map_err(|error| Failure::Usage(format!("{}: {error}", self.name)))?;
        Ok(plan.scaled(self.scale.value, self.rate_scale.value))
    }

    fn is_scaled(&self) -> bool {
        self.scale.value < 1.0 || self.rate_scale.value < 1.0
    }
}

fn list() -> String {
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
            // The report's own name, unless it means two scenarios.
            let name = match row.scenario.parse::<Plan>() {
                Ok(_) => row.scenario.to_owned(),
                Err(_) => plan.to_string(),
            };
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

fn describe(plan: &Plan, chosen: &Chosen) -> String {
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
        ("background", format!("{} connections", plan.background)),
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
    if chosen.is_scaled() {
        lines.push(("scale", scale_line(chosen)));
    }
    lines.push(("published", plan.published.map_or_else(none, figures)));
    lines
        .iter()
        .map(|(name, value)| format!("{name:13} {value}\n"))
        .collect()
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
        number("p99 ", row.p99_ms, " ms"),
        number("CPU ", row.cpu_percent, " %"),
        memory,
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    if figures.is_empty() {
        return "no figures".to_owned();
    }
    format!("{} ({} {})", figures.join(", "), row.product, row.version)
}

fn scale_line(chosen: &Chosen) -> String {
    format!(
        "connections {} and rates {} of the report's",
        chosen.scale, chosen.rate_scale
    )
}

impl Run {
    fn measure(&self) -> Result<String, Failure> {
        let plan = self.chosen.plan()?;
        reserve_descriptors(plan.connections()).map_err(|error| {
            let shrunk = self.chosen.scale.value / error.divisor() as f64;
            let divisor = (1.0 / shrunk).ceil();
            Failure::Runtime(format!("{error}; shrink it with --scale 1/{divisor}"))
        })?;
        let address = self.resolve()?;
        // Opened first: a run is too long to find out afterwards that its figures cannot be kept.
        let json = self.json.as_ref().map(|path| {
            let named = |error| Failure::Runtime(format!("{}: {error}", path.display()));
            File::create(path).map_err(named)
        });
        let mut json = json.transpose()?;
        let settings = Settings {
            target: Target {
                address,
                sources: sources(address, plan.connections()),
            },
            version: ProtocolVersion::V5,
            warm_up: self.warm_up,
            duration: self.duration,
            broker: self.pid.map(Process::new),
        };
        let measured = measure(&plan, &settings)
            .map_err(|error| Failure::Runtime(format!("{}: {error}", self.target)))?;
        if let Some(file) = &mut json {
            let mut figures = measured.json();
            figures["run"] = json!({
                "target": self.target,
                "scale": self.chosen.scale.value,
                "rate_scale": self.chosen.rate_scale.value,
                "warm_up_s": self.warm_up.as_secs_f64(),
                "duration_s": self.duration.as_secs_f64(),
                "protocol": "5.0",
            });
            writeln!(file, "{figures:#}")
                .map_err(|error| Failure::Runtime(format!("writing figures: {error}")))?;
        }
        for warning in measured.warnings() {
            complain(&format!("warning: {warning}"));
        }
        let mut title = format!("{plan}: {}", plan.reading());
        if self.chosen.is_scaled() {
            title += &format!("\nscaled: {}", scale_line(&self.chosen));
        }
        Ok(format!("{title}\n\n{measured}"))
    }

    fn resolve(&self) -> Result<SocketAddr, Failure> {
        let failed = |reason: &str| Failure::Runtime(format!("{}: {reason}", self.target));
        let mut addresses = self
            .target
            .to_socket_addrs()
            .map_err(|error| failed(&error.to_string()))?;
        addresses.next().ok_or_else(|| failed("has no address"))
    }
}

/// Addresses to connect from. Only the loopback network lends itself to having several.
fn sources(target: SocketAddr, connections: usize) -> Vec<IpAddr> {
    let is_v4_loopback = target.is_ipv4() && target.ip().is_loopback();
    if !is_v4_loopback || connections <= PER_SOURCE {
        return Vec::new();
    }
    let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
    (first..)
        .take(connections.div_ceil(PER_SOURCE))
        .map(|bits| Ipv4Addr::from(bits).into())
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
    fn targets_name_host_and_port() {
        assert!(parse_target("localhost:1883").is_ok());
        assert!(parse_target("[::1]:1883").is_ok());
        for wrong in [
            "localhost",
            ":1883",
            "localhost:",
            "localhost:0",
            "localhost:x",
        ] {
            assert!(parse_target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn many_connections_come_from_several_loopback_addresses() {
        let local = SocketAddr::from(([127, 0, 0, 1], 1883));
        assert!(sources(local, PER_SOURCE).is_empty());
        assert_eq!(sources(local, PER_SOURCE * 3 + 1).len(), 4);
        let remote = SocketAddr::from(([192, 0, 2, 1], 1883));
        assert!(sources(remote, PER_SOURCE * 3).is_empty());
    }

    /// The outcome of `bench` with these arguments.
    fn outcome(arguments: &[&str]) -> Result<(), Failure> {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            arguments: Arguments,
        }
        let line = ["bench"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).map_err(|e| Failure::Usage(e.to_string()))?;
        run(&cli.arguments)
    }

    #[test]
    fn wrong_command_lines_are_usage_and_what_the_machine_lacks_is_not() {
        let name = "2k_2k_qos0_p32_100mps_1n";
        for wrong in [
            ["plan", "100_100_qos0_p1024_50mps"].as_slice(),
            &["plan", "nonsense"],
            &["plan", name, "--scale", "0"],
            &["run", name],
            &["run", name, "--target", "localhost"],
            &["run", name, "--target", "localhost:1", "--duration", "0s"],
        ] {
            let outcome = outcome(wrong);
            assert!(matches!(outcome, Err(Failure::Usage(_))), "{wrong:?}");
        }
        assert_eq!(outcome(&["plan", name]), Ok(()));
        let name = "100M publishers, 500 APPLICATION subscribers, 1 h";
        match outcome(&["run", name, "--target", "localhost:1"]) {
            Err(Failure::Runtime(message)) => assert!(message.contains("--scale 1/"), "{message}"),
            other => panic!("{other:?}"),
        }
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
        // Besides these: two of idle connections and TBMQ's.
        assert_eq!(count + 3, published().len());
    }
}
