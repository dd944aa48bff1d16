//! `heraldmq api-key`: the keys of the HTTP API, in a file that the broker reads (`http.keyFile`).
//!
//! Deliberately absent: what roles may do (`admin`).

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use admin::{KeyFile, KeyFileError, KeyId, Role};
use clap::Subcommand;
use text_table::Table;

use crate::failure::Failure;

/// Create, list and remove keys of the HTTP API.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq api-key add keys.json --name grafana --role viewer > grafana.key
  heraldmq api-key list keys.json
  heraldmq api-key remove keys.json 5f3a90c2

The file is the one that `http.keyFile` names. A running broker reads it again at SIGHUP.

Exit codes: 0 done; 1 the file cannot be used; 2 wrong command line; 3 there is no such key.";

#[derive(Subcommand)]
enum Command {
    /// Create a key and print it. The key is shown only once: the file keeps a hash of it.
    Add {
        /// The key file; created if it is missing.
        file: PathBuf,
        /// A name for the key.
        #[arg(long)]
        name: String,
        /// viewer reads, operator also acts on clients and bans, administrator also changes the cluster.
        #[arg(long, default_value_t = Role::Viewer)]
        role: Role,
        /// How long the key is valid, such as 90d. Without it, the key is valid until it is removed.
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: Option<Duration>,
    },
    /// List the keys, without their secrets.
    List {
        /// The file of keys.
        file: PathBuf,
    },
    /// Remove a key.
    Remove {
        /// The file of keys.
        file: PathBuf,
        /// The identifier of the key in the list.
        id: KeyId,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Add {
            file,
            name,
            role,
            time,
        } => {
            let added = KeyFile::new(file).add(name, *role, *time);
            let added = added.map_err(|error| failure(file, &error))?;
            print(&format!("{}\n", *added.text))
        }
        Command::List { file } => {
            let keys = KeyFile::new(file).read();
            let keys = keys.map_err(|error| failure(file, &error))?;
            let now = SystemTime::now();
            let mut table = Table::new(["ID", "NAME", "ROLE", "CREATED", "ENDS"]).with_text(1..5);
            for key in keys.iter() {
                let created = humantime::format_rfc3339_seconds(key.created).to_string();
                let ends = match key.ends {
                    None => "never".to_owned(),
                    Some(_) if key.has_ended(now) => "has ended".to_owned(),
                    Some(ends) => humantime::format_rfc3339_seconds(ends).to_string(),
                };
                let cells = [key.id.to_string(), key.name.clone(), key.role.to_string()];
                table.row(cells.into_iter().chain([created, ends]));
            }
            print(&table.to_string())
        }
        Command::Remove { file, id } => {
            let removed = KeyFile::new(file).remove(id);
            removed.map(drop).map_err(|error| failure(file, &error))
        }
    }
}

fn failure(file: &std::path::Path, error: &KeyFileError) -> Failure {
    let message = format!("{}: {error}", file.display());
    match error {
        KeyFileError::Unknown(_) => Failure::NotFound(message),
        KeyFileError::Name => Failure::Usage(message),
        _ => Failure::Runtime(message),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(error.to_string()))
}
