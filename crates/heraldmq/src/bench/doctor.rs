//! `heraldmq bench doctor`: which kernel settings would limit a scenario on this machine, and what those do that reports print.
//!
//! Where to read next: `host::kernel`, which judges them.

use std::fmt::Write;

use clap::ValueEnum;
use host::Kernel;
use host::kernel::{Finding, Matters, Need, PrintedHere, Severity, Side};
use loadtest::most_connections;
use loadtest::workload::Login;
use mqtt_proto::ProtocolVersion;
use text_table::{Table, units::counted};

use super::scenario::{Chosen, Share};
use super::target;
use crate::failure::Failure;

/// Bytes that a simulated client takes.
const CLIENT_BYTES: u64 = 1_000;

/// Bytes that HeraldMQ takes for a connection.
const BROKER_BYTES: u64 = 1_000;

/// Show which kernel settings would limit a scenario on this machine, and the commands that change them.
///
/// The command changes nothing itself. Other brokers may need more memory for a connection than this check assumes.
#[derive(clap::Args)]
pub(super) struct Doctor {
    /// The scenario to check the machine for.
    #[arg(required_unless_present = "connections")]
    scenario: Option<String>,
    /// Share of the connections of the report.
    #[arg(long, value_name = "1/N", default_value = "1")]
    scale: Share,
    /// Number of connections, instead of those of a scenario.
    #[arg(long, value_name = "N", conflicts_with_all = ["scenario", "scale"])]
    connections: Option<u64>,
    /// What runs on this machine.
    #[arg(long, value_enum, default_value = "both")]
    side: Sides,
    /// The broker's listeners.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = target::parse)]
    target: Vec<String>,
    /// Processes that generate the load. Default: as many as the connections need.
    #[arg(long)]
    workers: Option<u32>,
    /// Print a file for sysctl(8) instead, with the settings that this machine needs and all settings of the reports.
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sides {
    /// The broker.
    Broker,
    /// The load generator.
    Load,
    /// Both.
    Both,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<String, Failure> {
        let (connections, rate) = self.wanted()?;
        let kernel = Kernel::read();
        let mut sides = Vec::new();
        if self.side != Sides::Load {
            let need = Need {
                bytes_per_connection: BROKER_BYTES,
                connects_per_second: rate,
                ..Need::new(Side::Broker, connections)
            };
            sides.push(("broker".to_owned(), self.located(need)));
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
            sides.push((
                format!(
                    "load, {}",
                    counted(u64::from(processes), "worker", "workers")
                ),
                self.located(need),
            ));
        }
        if self.print {
            let findings = sides.iter().flat_map(|(_, need)| kernel.check(need));
            return Ok(sysctl_file(
                connections,
                &findings.collect::<Vec<_>>(),
                &kernel.printed(),
            ));
        }
        let mut text = counted(connections, "connection", "connections") + "\n";
        for (title, need) in &sides {
            text += &side_text(title, &kernel, need);
        }
        text += &printed_text(&kernel.printed());
        Ok(text)
    }

    /// Connections, and how many are opened per second.
    fn wanted(&self) -> Result<(u64, Option<f64>), Failure> {
        match (&self.scenario, self.connections) {
            (Some(name), _) => {
                let chosen = Chosen {
                    name: name.clone(),
                    second: None,
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

    /// With what the listeners say about it.
    fn located(&self, need: Need) -> Need {
        let is_local = |target: &String| {
            target.starts_with("127.")
                || target.starts_with("localhost:")
                || target.starts_with("[::1]")
        };
        let port = self
            .target
            .first()
            .and_then(|target| target.rsplit_once(':'));
        Need {
            targets_loopback: self.side == Sides::Both && self.target.iter().all(is_local),
            listening_port: port.and_then(|(_, port)| port.parse().ok()),
            ..need
        }
    }
}

fn side_text(title: &str, kernel: &Kernel, need: &Need) -> String {
    let mut table = Table::new([title, "now", "wanted", "verdict"]);
    for row in kernel.table(need) {
        let verdict = row
            .complaint
            .map_or_else(|| "ok".to_owned(), |c| c.severity.to_string());
        table.row([row.setting.to_owned(), row.now, row.wanted, verdict]);
    }
    let mut text = format!("\n{table}");
    let findings = kernel.check(need);
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

/// What the reports print, whatever the scenario.
fn printed_text(settings: &[PrintedHere]) -> String {
    let mut table = Table::new(["settings of the reports", "now", "printed", "matters here"]);
    for here in settings {
        table.row([
            here.printed.setting,
            here.now.as_deref().unwrap_or("-"),
            here.printed.value,
            here.printed.matters.text(),
        ]);
    }
    format!(
        "\n{table}\ndocs/operate/kernel.md says what each of them does; --print makes a file of them.\n"
    )
}

/// Lines for sysctl(8): what is missing for the connections, what the reports print and helps here, and, as comments, the rest.
fn sysctl_file(connections: u64, findings: &[Finding], printed: &[PrintedHere]) -> String {
    let mut file = format!(
        "# For {}, by `heraldmq bench doctor --print`.\n\
         # Save as /etc/sysctl.d/90-heraldmq.conf, and run `sysctl --system`.\n",
        counted(connections, "connection", "connections")
    );
    let lines = findings
        .iter()
        .filter_map(|finding| finding.complaint.remedy.as_ref()?.line.as_ref());
    let mut lines: Vec<&String> = lines.collect();
    lines.sort();
    lines.dedup();
    let is_set = |setting: &str| {
        let mut lines = lines.iter();
        lines.any(|line| line.split(' ').next() == Some(setting))
    };
    for line in &lines {
        let _ = writeln!(file, "{line}");
    }
    let others = printed
        .iter()
        .filter(|here| here.now.is_some() && !is_set(here.printed.setting));
    let (raised, rest): (Vec<_>, Vec<_>) = others.partition(|here| here.is_raised);
    file += "\n# Settings of the published reports that can matter here and are higher there:\n";
    for here in raised {
        let off = match here.printed.matters {
            // The setting is there only with the module.
            Matters::ToFirewall => "# with a stateful firewall: ",
            _ => "",
        };
        let _ = writeln!(
            file,
            "{off}{} = {}",
            here.printed.setting, here.printed.value
        );
    }
    file += "\n# The others of them, which change nothing for HeraldMQ, or are as high here:\n";
    for here in rest {
        let _ = writeln!(file, "# {} = {}", here.printed.setting, here.printed.value);
    }
    file
}

#[cfg(test)]
mod tests {
    use host::kernel::PRINTED;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/kernel.md");

    const BEGIN: &str =
        "<!-- The table is generated: UPDATE_GENERATED=1 cargo test -p heraldmq kernel_page -->\n";

    fn page_table() -> String {
        let mut table =
            "| Setting | Printed | By | Matters | What it does for HeraldMQ |\n|---|---|---|---|---|\n".to_owned();
        for printed in PRINTED {
            let name = match printed.is_sysctl() {
                true => format!("`{}`", printed.setting),
                false => printed.setting.to_owned(),
            };
            let _ = writeln!(
                table,
                "| {name} | {} | {} | {} | {} |",
                printed.value,
                printed.by,
                printed.matters.text(),
                printed.effect
            );
        }
        table
    }

    #[test]
    fn the_kernel_page_has_all_settings_of_the_reports() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (head, behind) = page.split_once(BEGIN).unwrap();
        let tail = behind.split_once("\n\n").map_or("", |(_, tail)| tail);
        let wanted = format!("{head}{BEGIN}{}\n{tail}", page_table());
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(PAGE, &wanted).unwrap();
        } else {
            assert_eq!(
                page, wanted,
                "UPDATE_GENERATED=1 cargo test -p heraldmq kernel_page"
            );
        }
    }

    fn here(setting: &'static str, now: Option<&str>, is_raised: bool) -> PrintedHere {
        PrintedHere {
            printed: PRINTED.iter().find(|p| p.setting == setting).unwrap(),
            now: now.map(str::to_owned),
            is_raised,
        }
    }

    #[test]
    fn a_file_for_sysctl_has_what_is_wanted_and_the_rest_as_comments() {
        let finding = Kernel::read_at(std::path::Path::new("/nowhere"));
        let mut findings = finding.check(&Need::new(Side::Broker, 9));
        let remedy = host::kernel::Remedy {
            command: String::new(),
            permanent: String::new(),
            line: Some("fs.file-max = 900".to_owned()),
        };
        findings.truncate(1);
        findings[0].complaint.remedy = Some(remedy);
        let both = [findings[0].clone(), findings[0].clone()];
        let printed = [
            here("fs.file-max", Some("5"), true),
            here("fs.nr_open", Some("7"), true),
            here("net.netfilter.nf_conntrack_max", Some("7"), true),
            here("net.core.rmem_max", Some("7"), false),
            here("swap", None, false),
        ];
        let file = sysctl_file(9, &both, &printed);
        let lines: Vec<&str> = file.lines().filter(|line| line.contains(" = ")).collect();
        assert_eq!(
            lines,
            [
                "fs.file-max = 900",
                "fs.nr_open = 2097152",
                "# with a stateful firewall: net.netfilter.nf_conntrack_max = 1048576",
                "# net.core.rmem_max = 16777216"
            ]
        );
    }
}
