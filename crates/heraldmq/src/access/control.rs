//! `heraldmq control`: what a node knows of users, groups and rules, and all records as a document.

use clap::Subcommand;

use super::export::{ExportArguments, export};
use super::import::{ImportArguments, import};
use super::record::{EXIT_CODES, print_record};
use crate::failure::Failure;
use crate::http_port::HttpPort;
use crate::output::print;

/// Show what a node knows of users, groups and rules; export and import all of them, and people and keys.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct ControlArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq control export --with-secrets > backup.yml
  heraldmq control import backup.yml --dry-run         what would be different
  heraldmq control import backup.yml --replace         removes what the file does not have, too
  heraldmq control import --from mosquitto passwd acl
  heraldmq control import --from dynsec dynamic-security.json
  heraldmq control import --from emqx users.csv --hash pbkdf2-sha256:4096 acl.conf";

#[derive(Subcommand)]
enum Command {
    /// Print how many records the node has, the last change among them, and whether they are confirmed.
    Status {
        #[command(flatten)]
        node: HttpPort,
        /// Print the broker's answer unchanged, as JSON.
        #[arg(long)]
        json: bool,
    },
    Export(ExportArguments),
    Import(ImportArguments),
}

pub(crate) fn run(arguments: &ControlArguments) -> Result<(), Failure> {
    let (node, json) = match &arguments.command {
        Command::Status { node, json } => (node, json),
        Command::Export(arguments) => return export(arguments),
        Command::Import(arguments) => return import(arguments),
    };
    let text = node.get("/api/v1/control")?;
    match json {
        true => print(&(text + "\n")),
        false => print_record(&text),
    }
}
