//! `heraldmq outlet`: what takes messages of a running broker to other systems, or brings them in; and the process of an outlet, which brokers start.

use std::process::ExitCode;

use admin::api::{OutletFigures, OutletRow};
use admin::page::Page;
use outlets::{BuiltIn, Ended, Program, Transfer};
use serde_json::json;
use text_table::{Table, units};

use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};
use crate::layers::Layers;
use crate::look::shown;
use crate::output::{fitted, print};

const OUTLETS: &str = "/api/v1/outlets";

/// See what takes messages to other systems and what brings them in, pause it, or try whether the other system can be reached.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq outlet list
  heraldmq outlet pause lake --token-file token
  heraldmq outlet test lake --config /etc/heraldmq/heraldmq.yml

Exit codes: 0 done; 1 the broker or the target does not answer, or refuses; 2 wrong command line or configuration.";

#[derive(clap::Subcommand)]
enum Command {
    /// Print the outlets and inlets: what each does, and how far it is behind.
    List {
        #[command(flatten)]
        node: HttpPort,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print an outlet or an inlet with all its figures.
    Show {
        #[command(flatten)]
        node: HttpPort,
        /// Its name.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Pause an outlet, whose messages wait in the queue of its session, or an inlet, whose messages wait at the other broker.
    Pause {
        #[command(flatten)]
        node: HttpPort,
        /// Its name.
        name: String,
    },
    /// End the pause of an outlet or an inlet.
    Resume {
        #[command(flatten)]
        node: HttpPort,
        /// Its name.
        name: String,
    },
    /// Connect to the target of an outlet of a configuration, or to the other broker of an inlet, from this machine, and send no message.
    Test {
        /// Its name.
        name: String,
        /// The configuration file (YAML).
        #[arg(long, value_name = "FILE")]
        config: std::path::PathBuf,
        #[command(flatten)]
        layers: Layers,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List { node, json } => list(node, *json),
        Command::Show { node, name, json } => show(node, name, *json),
        Command::Pause { node, name } => change(node, name, "pause"),
        Command::Resume { node, name } => change(node, name, "resume"),
        Command::Test {
            name,
            config,
            layers,
        } => test(name, config, layers),
    }
}

/// The process of an outlet.
pub(crate) fn process() -> ExitCode {
    match outlets::process(&BuiltIn) {
        Ended::Asked => ExitCode::SUCCESS,
        // A later process has what this one had.
        Ended::Fenced => ExitCode::SUCCESS,
        Ended::Failed(why) => {
            complain(&format!("outlet: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn list(node: &HttpPort, json: bool) -> Result<(), Failure> {
    let text = node.get(OUTLETS)?;
    if json {
        return print(&(text + "\n"));
    }
    let page: Page<OutletRow> = parse(&text)?;
    if page.items.is_empty() {
        complain("there are no outlets and no inlets");
    }
    let header = [
        "NAME",
        "DIRECTION",
        "STATE",
        "TARGET",
        "WAITING",
        "DELIVERED",
        "DEAD",
        "DROPPED",
        "LAST ERROR",
    ];
    let mut table = Table::new(header).with_text([0, 1, 2, 3, 8]);
    for row in page.items {
        let figure = |pick: fn(&OutletFigures) -> Option<u64>| {
            let count = row.figures.as_ref().and_then(pick);
            count.map_or_else(|| units::NONE.to_owned(), |count| count.to_string())
        };
        let error = row.figures.as_ref().and_then(|f| f.last_error.clone());
        let cells = [
            figure(|figures| figures.lag_messages.map(|lag| lag.0)),
            figure(|figures| Some(figures.delivered.0)),
            figure(|figures| Some(figures.dead.0)),
            figure(|figures| {
                Some(figures.dropped.refused.0 + figures.dropped.dead_letter_unclaimed.0)
            }),
        ];
        let [waiting, delivered, dead, dropped] = cells;
        table.row([
            row.name,
            word(&row.direction),
            word(&row.state),
            format!("{} {}", row.target, row.place),
            waiting,
            delivered,
            dead,
            dropped,
            error.map_or_else(|| units::NONE.to_owned(), |error| shown(&error)),
        ]);
    }
    print(&fitted(table, false).to_string())
}

/// As in JSON, for people.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => shown(&text),
        Ok(serde_json::Value::Null) | Err(_) => units::NONE.to_owned(),
        Ok(other) => other.to_string(),
    }
}

fn show(node: &HttpPort, name: &str, json: bool) -> Result<(), Failure> {
    let text = node.get(&path(name, ""))?;
    if json {
        return print(&(text + "\n"));
    }
    let fields: serde_json::Map<String, serde_json::Value> = parse(&text)?;
    let mut table = Table::new(["FIELD", "VALUE"]).with_text([0, 1]);
    add_rows(&mut table, fields);
    print(&fitted(table, true).to_string())
}

/// A row for each field, also of objects in it.
fn add_rows(table: &mut Table, fields: serde_json::Map<String, serde_json::Value>) {
    for (field, value) in fields {
        match value {
            serde_json::Value::Object(fields) => add_rows(table, fields),
            serde_json::Value::Array(values) => {
                let values: Vec<String> = values.iter().map(word).collect();
                table.row([field, values.join(" ")]);
            }
            value => {
                table.row([field, word(&value)]);
            }
        }
    }
}

fn change(node: &HttpPort, name: &str, what: &str) -> Result<(), Failure> {
    node.post(&path(name, what), &json!({})).map(drop)
}

fn path(name: &str, what: &str) -> String {
    let name = crate::profile::in_path(name);
    match what {
        "" => format!("{OUTLETS}/{name}"),
        what => format!("{OUTLETS}/{name}/{what}"),
    }
}

fn test(name: &str, config: &std::path::Path, layers: &Layers) -> Result<(), Failure> {
    let loaded = layers.load(Some(config));
    let loaded = loaded.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut transfers = Transfer::all(&loaded.config);
    let Some(transfer) = transfers.find(|transfer| transfer.name() == name) else {
        let why = format!(
            "{} has no outlet called {name}, and no inlet",
            config.display()
        );
        return Err(Failure::Usage(why));
    };
    match Program::probe(&transfer) {
        Ok(found) => print(&format!("{found}\n")),
        Err(why) => Err(Failure::Runtime(why)),
    }
}
