//! `heraldmq store`: what the data folder of a broker holds, and whether all of it can be read.
//!
//! Invariants: nothing in the folder is changed; a folder that a broker uses is refused.
//!
//! Deliberately absent: reading and judging, which is `store::survey`.

mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use store::NodeSurvey;

use crate::failure::Failure;

/// Look at the data folder of a broker that does not run.
///
/// Both commands read all of the folder, change nothing in it, and keep a broker from starting on it
/// meanwhile.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq store inspect /var/lib/heraldmq
  heraldmq store inspect /var/lib/heraldmq --json | jq .stores
  heraldmq store verify /var/lib/heraldmq && heraldmq serve --data-dir /var/lib/heraldmq

Exit codes: 0 the folder could be read, and `verify` found nothing wrong; 1 something is wrong, or the
folder cannot be read, is in use, or is no data folder; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Say what a data folder holds.
    ///
    /// Sessions, queued and retained messages by shard, the fullest inboxes, the log, and what a broker
    /// would apply again when it starts.
    #[command(after_help = EXAMPLES)]
    Inspect {
        #[command(flatten)]
        place: Place,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read all of a data folder, and say what is wrong with it.
    ///
    /// Prints OK, or one line for each finding: store, shard, key and what is wrong. What a broker
    /// repairs itself when it starts, a torn end of the log, is only noted.
    #[command(after_help = EXAMPLES)]
    Verify(Place),
}

/// Where the stores are.
#[derive(clap::Args)]
struct Place {
    /// The data folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder of the session store, if `session_store_data_dir` is set.
    #[arg(long, value_name = "DIR")]
    session_store: Option<PathBuf>,
    /// Folder of the inbox store, if `inbox_store_data_dir` is set.
    #[arg(long, value_name = "DIR")]
    inbox_store: Option<PathBuf>,
    /// Folder of the retain store, if `retain_store_data_dir` is set.
    #[arg(long, value_name = "DIR")]
    retain_store: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Inspect { place, json } => inspect(place, *json),
        Command::Verify(place) => verify(place),
    }
}

fn inspect(place: &Place, json: bool) -> Result<(), Failure> {
    let survey = place.survey()?;
    print(&if json {
        serde_json::to_string_pretty(&survey)
            .map_err(|error| Failure::Runtime(error.to_string()))?
            + "\n"
    } else {
        text::inspection(&survey)
    });
    Ok(())
}

fn verify(place: &Place) -> Result<(), Failure> {
    let survey = place.survey()?;
    print(&text::verdict(&survey));
    let found = survey.findings.len() as u64 + survey.more_findings;
    match found {
        0 => Ok(()),
        _ => Err(Failure::Runtime(format!(
            "{}: {found} {} wrong",
            survey.folder.display(),
            if found == 1 { "thing is" } else { "things are" }
        ))),
    }
}

impl Place {
    fn survey(&self) -> Result<NodeSurvey, Failure> {
        let absolute = |folder: &Option<PathBuf>| {
            let folder = folder.as_deref().map(std::path::absolute).transpose();
            folder.map_err(|error| Failure::Runtime(error.to_string()))
        };
        let elsewhere = [
            absolute(&self.session_store)?,
            absolute(&self.inbox_store)?,
            absolute(&self.retain_store)?,
        ];
        let survey = store::survey(&self.folder, &elsewhere);
        survey.map_err(|error| Failure::Runtime(error.to_string()))
    }
}

/// A reader that stopped listening changes nothing about the outcome.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
