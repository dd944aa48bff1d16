//! `heraldmq check-config`: whether the broker would take a configuration file, and the rule file that it
//! names.
//!
//! Deliberately absent: the environment and the command line. The file is judged by itself, so that
//! the answer is the same on every machine.

use std::{
    io::{self, Write},
    iter,
    path::PathBuf,
};

use broker::RuleFile;
use config::Config;

use crate::{
    failure::{Failure, complain},
    serve::logging,
};

/// Say whether a configuration file is right, and what is wrong with it.
///
/// Prints OK and exits with 0, or prints one line per problem and exits with 2. The environment is
/// not looked at. The rule file is read too. Every option is described in docs/reference/configuration.md.
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
    RuleFile::configured(&loaded.config.authorization)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    for warning in &loaded.warnings {
        complain(&format!("warning: {warning}"));
    }
    // A reader that stopped listening changes nothing about the outcome.
    let _ = writeln!(io::stdout(), "OK");
    Ok(())
}
