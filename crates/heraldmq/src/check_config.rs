//! `heraldmq check-config`: whether the broker would take a configuration file, and the files that it names:
//! certificates and keys, users, tokens, rules, secrets, bans.
//!
//! Deliberately absent: the environment and the command line. The file is judged by itself, so that
//! the answer is the same on every machine.

use std::{
    io::{self, Write},
    iter,
    path::PathBuf,
};

use config::Config;

use crate::{
    failure::{Failure, complain},
    serve::logging,
};

/// Say whether a configuration file is right, and what is wrong with it.
///
/// Prints OK and exits with 0, or prints one line per problem and exits with 2. The environment is
/// not looked at. The files that it names are read as `serve` reads them, from this directory if their paths
/// are relative: certificates and keys, which have to fit together, users, tokens, rules, secrets, bans. No
/// port is opened and nobody is connected to. Every option is described in docs/reference/configuration.md.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file (YAML).
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let loaded = Config::load(Some(&arguments.file), iter::empty(), &[], None)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    logging::filter(&loaded.config.log.level).map_err(Failure::Usage)?;
    let problems = broker::check_files(&loaded.config);
    if !problems.is_empty() {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(Failure::Usage(lines.join("\n")));
    }
    for warning in &loaded.warnings {
        complain(&format!("warning: {warning}"));
    }
    // A reader that stopped listening changes nothing about the outcome.
    let _ = writeln!(io::stdout(), "OK");
    Ok(())
}
