//! `heraldmq class`: which class of the configuration a client is of.
//!
//! Invariant: the answer is the broker's own, from the same classes.

use std::io::{self, Write as _};
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use broker::DescribedClient;
use clap::Subcommand;
use config::{Config, DEFAULT_CLASS};

use crate::failure::Failure;

/// Show which class a client belongs to.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq class test --config heraldmq.yml --client billing-1 --user app-billing
  heraldmq class test --config heraldmq.yml --client gw-1 --listener tls --certificate gw-1

Exit codes: 0 the class is printed, 2 the configuration or the command line is wrong.";

#[derive(Subcommand)]
enum Command {
    /// Show which class a client belongs to, and why.
    ///
    /// Prints the name of the class, then each class that does not match with the option of `match` that differs, and
    /// the limits that the class sets itself. Environment variables are ignored.
    #[command(after_help = EXAMPLES)]
    Test(Question),
}

#[derive(clap::Args)]
struct Question {
    /// Configuration file (YAML) with `clientClasses`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Client identifier.
    #[arg(long, value_name = "ID")]
    client: String,
    /// User name that authentication has confirmed; without it the client is anonymous.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Class that the client's login names: by `jwt.classClaim`, or in the answer of an HTTP server or of PostgreSQL.
    #[arg(long, value_name = "NAME")]
    login_class: Option<String>,
    /// The name in the client's certificate.
    #[arg(long, value_name = "NAME")]
    certificate: Option<String>,
    /// The kind of the listener: tcp, tls, ws, wss or unix; outlet for the broker's own outlets.
    #[arg(long, value_name = "KIND", default_value = "tcp", value_parser = ["tcp", "tls", "ws", "wss", "unix", "outlet"])]
    listener: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Command::Test(question) = &arguments.command;
    let loaded = Config::load(Some(&question.config), iter::empty(), &[], None)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let client = DescribedClient {
        client_id: &question.client,
        user: question.user.as_deref(),
        login_class: question.login_class.as_deref(),
        certificate: question.certificate.as_deref(),
        listener: &question.listener,
    };
    let tried = broker::try_classes(&loaded.config, &client);
    let found = tried.iter().find(|tried| tried.mismatch.is_none());
    let mut answer = found.map_or(DEFAULT_CLASS, |found| &found.name).to_owned() + "\n";
    for class in &tried {
        answer += &match class.mismatch {
            Some(option) => format!("  {}: match.{option} does not match\n", class.name),
            None => format!("  {}: matches\n", class.name),
        };
    }
    let own = found.iter().flat_map(|found| &found.limits);
    for (option, value) in own {
        answer += &format!("  {option}: {value}\n");
    }
    // A reader that stopped listening changes nothing about the outcome.
    let _ = io::stdout().write_all(answer.as_bytes());
    Ok(ExitCode::SUCCESS)
}
