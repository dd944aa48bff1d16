//! `heraldmq key`: keys of the HTTP API in the control store.

use std::process::ExitCode;
use std::time::Duration;

use admin::api::KeyRow;
use admin::{KeyId, Role};
use clap::Subcommand;
use serde_json::json;
use text_table::Table;

use super::people::known_in;
use super::record::{EXIT_CODES, How, path_of};
use crate::failure::Failure;
use crate::http_port::{HttpPort, Sent};
use crate::look::{Listed, Shown, Walk, or_dash, print_list, shown};

const KEYS: &str = "/api/v1/keys";

/// Add, list, rotate and remove keys of the HTTP API, while the broker runs. `heraldmq api-key` is about keys in a file.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct KeyArguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq key add --name grafana > grafana.key            viewer reads
  heraldmq key add --name ci --role administrator --for 90d > ci.key
  heraldmq key rotate 5f3a90c2 --overlap 1d > ci.key       the secret of before counts for a day more
  heraldmq key list
  heraldmq key remove 5f3a90c2";

#[derive(Subcommand)]
enum Command {
    /// Add a key and print it. The key is shown only once.
    Add {
        /// A name for the key.
        #[arg(long)]
        name: String,
        /// viewer reads, operator also acts on clients and bans, administrator also changes the cluster and who may do what.
        #[arg(long, default_value_t = Role::Viewer)]
        role: Role,
        /// It may read the audit, whatever the role.
        #[arg(long)]
        audits: bool,
        /// How long the key is valid, such as 90d. Without it, the key is valid until it is removed.
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: Option<Duration>,
        #[command(flatten)]
        how: How,
    },
    /// List keys, without their secrets.
    List {
        #[command(flatten)]
        node: HttpPort,
        #[command(flatten)]
        walk: Walk,
        #[command(flatten)]
        shown: Shown,
    },
    /// Give a key another secret and print it. It is shown only once.
    Rotate {
        /// The identifier of the key in the list.
        id: KeyId,
        /// How long the secret of before is accepted, 30 days at most; 0s if others know it.
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "1h")]
        overlap: Duration,
        #[command(flatten)]
        how: How,
    },
    /// Remove a key: requests with it are refused from now on.
    Remove {
        /// The identifier of the key in the list.
        id: KeyId,
        #[command(flatten)]
        how: How,
    },
}

pub(crate) fn run(arguments: &KeyArguments) -> Result<ExitCode, Failure> {
    let done = match &arguments.command {
        Command::Add {
            name,
            role,
            audits,
            time,
            how,
        } => {
            let ends = time.map(|time| std::time::SystemTime::now() + time);
            let ends = ends.map(|ends| humantime::format_rfc3339_seconds(ends).to_string());
            let body = json!({"name": name, "role": role, "audits": audits, "ends_at": ends});
            how.send(&Sent {
                body: Some(&body),
                ..Sent::of("POST", KEYS)
            })
        }
        Command::List { node, walk, shown } => {
            let listed = Listed::all("keys");
            return print_list(node, KEYS, Vec::new(), (walk, shown), listed, table);
        }
        Command::Rotate { id, overlap, how } => {
            let path = path_of(KEYS, &id.to_string()) + "/rotate";
            let body = json!({"overlap_s": overlap.as_secs()});
            how.send(&Sent {
                body: Some(&body),
                ..Sent::of("POST", &path)
            })
        }
        Command::Remove { id, how } => {
            how.send(&Sent::of("DELETE", &path_of(KEYS, &id.to_string())))
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn table(keys: &[KeyRow]) -> Table {
    let header = [
        "KEY",
        "NAME",
        "ROLE",
        "AUDITS",
        "MADE",
        "ENDS",
        "OLD SECRET UNTIL",
        "KNOWN IN",
    ];
    let mut table = Table::new(header).with_text(0..8);
    for key in keys {
        let time = |at: Option<&admin::api::At>| or_dash(at.map(ToString::to_string).as_deref());
        table.row([
            key.id.clone(),
            shown(&key.name),
            key.role.to_string(),
            if key.audits { "yes" } else { "no" }.to_owned(),
            key.created_at.to_string(),
            time(key.ends_at.as_ref()),
            time(key.old_secret_ends_at.as_ref()),
            known_in(key.source).to_owned(),
        ]);
    }
    table
}
