//! `heraldmq control`: what a node knows of users, groups and rules.

use clap::Subcommand;

use super::EXIT_CODES;
use super::record::print_record;
use crate::failure::Failure;
use crate::http_port::HttpPort;
use crate::output::print;

/// Show what a node knows of users, groups and rules.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct ControlArguments {
    #[command(subcommand)]
    command: Command,
}

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
}

pub(crate) fn run(arguments: &ControlArguments) -> Result<(), Failure> {
    let Command::Status { node, json } = &arguments.command;
    let text = node.get("/api/v1/control")?;
    match json {
        true => print(&(text + "\n")),
        false => print_record(&text),
    }
}
