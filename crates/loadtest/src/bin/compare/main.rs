//! `herald-compare`: brokers side by side on one machine, in one session.
//!
//! Each cell of the table (a row of load, a broker) is measured against a freshly started broker, and
//! brokers alternate within each round, so that whatever else the machine does falls on all of them.
//! Shown are medians over the rounds; faults are summed.
//!
//! Deliberately absent: any change to the machine. A setting that distorts the figures is warned about.

mod brokers;
mod clients;
mod relay;
mod rows;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use serde_json::{Map, Value, json};
use text_table::Table;

use brokers::{Launcher, Which};
use rows::{Columns, Failure, Row};

/// Measures brokers side by side: CPU time per message, latency, memory per idle connection.
#[derive(Parser)]
#[command(
    name = "herald-compare",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Part>,
    /// Brokers, in the order they take turns.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Which::ALL)]
    brokers: Vec<Which>,
    /// Rows whose name starts with one of these; all if none is given.
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds of measured load in each cell, after one of warm-up.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// How often each cell is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The HeraldMQ program.
    #[arg(long, value_name = "FILE", default_value = "target/release/heraldmq")]
    heraldmq: PathBuf,
    /// The Mosquitto program.
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/mosquitto")]
    mosquitto: PathBuf,
    /// First port for brokers; below the range that outgoing connections use.
    #[arg(long, default_value_t = 20_000)]
    port: u16,
    /// Also write all figures of all rounds here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the rows and measure nothing.
    #[arg(long)]
    list: bool,
}

#[derive(Subcommand)]
enum Part {
    /// What the load test costs, beside a bare loop that does the same reads and writes.
    Tool {
        #[command(flatten)]
        load: clients::Load,
        /// How often both are measured.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// The HeraldMQ program.
        #[arg(long, value_name = "FILE", default_value = "target/release/heraldmq")]
        heraldmq: PathBuf,
        /// First port for relays.
        #[arg(long, default_value_t = 20_000)]
        port: u16,
    },
    /// The bare loop.
    #[command(hide = true)]
    Loop {
        relay: std::net::SocketAddr,
        #[command(flatten)]
        load: clients::Load,
    },
    /// The relay that is measured beside the brokers.
    #[command(hide = true)]
    Relay {
        port: u16,
        /// Write publications here and sync before they are forwarded and acknowledged.
        #[arg(long, value_name = "FILE")]
        journal: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Part::Relay { port, journal }) => {
            relay::run(port, journal.as_deref()).map_err(Failure::from)
        }
        Some(Part::Loop { relay, load }) => clients::bare_loop(&load, relay).map_err(Failure::from),
        Some(Part::Tool {
            load,
            rounds,
            heraldmq,
            port,
        }) => {
            let launcher = Launcher::new(&heraldmq, &cli.mosquitto, port);
            launcher
                .map_err(Failure::from)
                .and_then(|mut launcher| clients::run(&load, rounds, &heraldmq, &mut launcher))
        }
        None => compare(&cli),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(io::stderr(), "herald-compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The figures of one cell: one list per round, in the order of the row's columns.
struct Cell {
    row: Row,
    broker: Which,
    rounds: Vec<Vec<f64>>,
}

fn compare(cli: &Cli) -> Result<(), Failure> {
    let chosen =
        |row: &Row| cli.only.is_empty() || cli.only.iter().any(|name| row.name().starts_with(name));
    let rows: Vec<Row> = Row::ALL.into_iter().filter(chosen).collect();
    let mut out = io::stdout().lock();
    if cli.list {
        for row in rows {
            writeln!(out, "{:12} {}", row.name(), row.title())?;
        }
        return Ok(());
    }
    warn_of_bbr()?;
    let mut launcher = Launcher::new(&cli.heraldmq, &cli.mosquitto, cli.port)?;
    let mut cells = Vec::new();
    for row in &rows {
        let brokers = cli.brokers.iter().filter(|&&broker| row.suits(broker));
        cells.extend(brokers.map(|&broker| Cell {
            row: *row,
            broker,
            rounds: Vec::new(),
        }));
    }
    for round in 1..=cli.rounds {
        for cell in &mut cells {
            let figures = cell.row.measure(
                cell.broker,
                &mut launcher,
                Duration::from_secs_f64(cli.seconds),
            );
            let (name, broker) = (cell.row.name(), cell.broker);
            match figures {
                Ok(figures) => {
                    let shown: Vec<String> = columns(cell.row)
                        .iter()
                        .zip(&figures)
                        .map(|(c, v)| c.show(*v))
                        .collect();
                    writeln!(
                        io::stderr(),
                        "round {round} {name} {broker}: {}",
                        shown.join(" ")
                    )?;
                    cell.rounds.push(figures);
                }
                // One cell that cannot be measured must not cost the others.
                Err(failure) => writeln!(io::stderr(), "round {round} {name} {broker}: {failure}")?,
            }
        }
    }
    for kind in [Columns::Messages, Columns::Connections] {
        let of_kind = || cells.iter().filter(|cell| cell.row.columns() == kind);
        if of_kind().next().is_some() {
            writeln!(out, "{}", table(kind, of_kind()))?;
        }
    }
    if let Some(path) = &cli.json {
        let all: Vec<Value> = cells.iter().map(json_of).collect();
        std::fs::write(
            path,
            serde_json::to_vec_pretty(&all).map_err(io::Error::from)?,
        )?;
    }
    Ok(())
}

fn columns(row: Row) -> &'static [rows::Column] {
    row.columns().list()
}

fn table<'a>(kind: Columns, cells: impl Iterator<Item = &'a Cell>) -> Table {
    let mut table = Table::new(
        ["row", "broker"]
            .into_iter()
            .chain(kind.list().iter().map(|c| c.name)),
    );
    let mut last = None;
    for cell in cells {
        let title = if last == Some(cell.row) {
            ""
        } else {
            cell.row.title()
        };
        last = Some(cell.row);
        let mut line = vec![title.to_owned(), cell.broker.to_string()];
        line.extend(
            summary(cell)
                .into_iter()
                .zip(kind.list())
                .map(|(value, column)| {
                    value.map_or_else(|| "failed".to_owned(), |value| column.show(value))
                }),
        );
        table.row(line);
    }
    table
}

/// One figure for each column, of all rounds.
fn summary(cell: &Cell) -> Vec<Option<f64>> {
    let figures = |(number, column): (usize, &rows::Column)| {
        let values: Vec<f64> = cell
            .rounds
            .iter()
            .filter_map(|round| round.get(number).copied())
            .collect();
        if column.is_fault {
            (!values.is_empty()).then(|| values.iter().sum())
        } else {
            median(&values)
        }
    };
    columns(cell.row).iter().enumerate().map(figures).collect()
}

/// The middle value, or the mean of the two; `None` if there is none.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

fn json_of(cell: &Cell) -> Value {
    let named = |figures: &[f64]| -> Map<String, Value> {
        columns(cell.row)
            .iter()
            .zip(figures)
            .map(|(column, value)| (column.name.to_owned(), json!(value)))
            .collect()
    };
    let summary: Vec<f64> = summary(cell).into_iter().flatten().collect();
    json!({
        "row": cell.row.name(),
        "broker": cell.broker.to_string(),
        "summary": named(&summary),
        "rounds": cell.rounds.iter().map(|round| named(round)).collect::<Vec<_>>(),
    })
}

/// BBR paces even on the loopback interface: each connection gets timers that cost the sender, and the
/// broker sends most.
fn warn_of_bbr() -> io::Result<()> {
    let name = "net.ipv4.tcp_congestion_control";
    let setting =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    if setting.trim() == "bbr" {
        writeln!(
            io::stderr(),
            "warning: {name} is bbr, whose pacing timers distort CPU per message on loopback;\n         \
             sysctl -w {name}=cubic"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
