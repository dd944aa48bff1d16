//! `heraldmq bench doctor`: which kernel settings would limit a scenario on this machine.

use std::fmt::Write;

use clap::ValueEnum;
use host::Kernel;
use host::kernel::{Need, Severity, Side};
use loadtest::most_connections;
use loadtest::workload::Login;
use mqtt_proto::ProtocolVersion;
use report::Table;

use super::scenario::{Chosen, Share};
use super::target;
use crate::failure::Failure;

/// Bytes that a simulated client takes.
const CLIENT_BYTES: u64 = 1_000;

/// Bytes that HeraldMQ takes for a connection.
const BROKER_BYTES: u64 = 1_000;

/// Say which kernel settings would limit a scenario on this machine, and the commands that change them.
///
/// It changes nothing itself. Other brokers may need more memory for a connection than is reckoned
/// with here.
#[derive(clap::Args)]
pub(super) struct Doctor {
    /// The scenario whose connections are wanted.
    #[arg(required_unless_present = "connections")]
    scenario: Option<String>,
    /// Its connections, as a share of the report's.
    #[arg(long, value_name = "1/N", default_value = "1")]
    scale: Share,
    /// How many connections are wanted, instead of a scenario's.
    #[arg(long, value_name = "N", conflicts_with_all = ["scenario", "scale"])]
    connections: Option<u64>,
    /// What runs on this machine.
    #[arg(long, value_enum, default_value = "both")]
    side: Sides,
    /// The broker's listeners.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = target::parse)]
    target: Vec<String>,
    /// Processes that make the load; as many as the connections need, if not given.
    #[arg(long)]
    workers: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sides {
    /// The broker.
    Broker,
    /// What makes the load.
    Load,
    /// Both.
    Both,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<String, Failure> {
        let (connections, rate) = self.wanted()?;
        let kernel = Kernel::read();
        let mut text = format!("{connections} connections\n");
        if self.side != Sides::Load {
            let need = Need {
                bytes_per_connection: BROKER_BYTES,
                connects_per_second: rate,
                ..Need::new(Side::Broker, connections)
            };
            text += &self.side_text("broker", &kernel, &need);
        }
        if self.side != Sides::Broker {
            let processes = connections.div_ceil(most_connections() as u64).max(1);
            let processes = self
                .workers
                .unwrap_or(u32::try_from(processes).unwrap_or(u32::MAX));
            let addresses = target::resolve(&self.target)?;
            let sources = target::sources(&addresses, connections as usize, processes as usize);
            let need = Need {
                bytes_per_connection: CLIENT_BYTES,
                connects_per_second: rate,
                processes,
                source_addresses: sources.iter().map(Vec::len).sum::<usize>().max(1) as u32,
                targets: self.target.len().max(1) as u32,
                ..Need::new(Side::LoadTool, connections)
            };
            let workers = format!("load, {processes} workers");
            text += &self.side_text(&workers, &kernel, &need);
        }
        Ok(text)
    }

    /// Connections, and how many are opened per second.
    fn wanted(&self) -> Result<(u64, Option<f64>), Failure> {
        match (&self.scenario, self.connections) {
            (Some(name), _) => {
                let chosen = Chosen {
                    name: name.clone(),
                    scale: self.scale.clone(),
                    rate_scale: Share::default(),
                };
                let workload = chosen.scenario()?.workload(Login::new(ProtocolVersion::V5));
                let rates = workload.parts.iter().map(|part| part.connect_rate);
                let rate = rates.reduce(|one, other| one.zip(other).map(|(a, b)| a.max(b)));
                Ok((workload.connections() as u64, rate.flatten()))
            }
            (None, connections) => Ok((connections.unwrap_or(1), None)),
        }
    }

    fn side_text(&self, title: &str, kernel: &Kernel, need: &Need) -> String {
        let is_local = |target: &String| {
            target.starts_with("127.")
                || target.starts_with("localhost:")
                || target.starts_with("[::1]")
        };
        let port = self
            .target
            .first()
            .and_then(|target| target.rsplit_once(':'));
        let need = Need {
            targets_loopback: self.side == Sides::Both && self.target.iter().all(is_local),
            listening_port: port.and_then(|(_, port)| port.parse().ok()),
            ..need.clone()
        };
        let mut table = Table::new([title, "now", "wanted", "verdict"]);
        for row in kernel.table(&need) {
            let verdict = row
                .complaint
                .map_or_else(|| "ok".to_owned(), |c| c.severity.to_string());
            table.row([row.setting.to_owned(), row.now, row.wanted, verdict]);
        }
        let mut text = format!("\n{table}");
        let findings = kernel.check(&need);
        for finding in &findings {
            let _ = write!(text, "\n{finding}\n");
        }
        let worst = findings
            .iter()
            .map(|finding| finding.complaint.severity)
            .max();
        text += match worst {
            Some(Severity::Limits) => "\nNot all of these connections fit.\n",
            Some(Severity::Slows) => "\nThese connections fit, but something takes longer.\n",
            Some(Severity::Note) | None => "\nNothing here limits these connections.\n",
        };
        text
    }
}
