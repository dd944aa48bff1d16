//! `heraldmq ban`: who a running broker does not let in, by its HTTP port.
//!
//! Deliberately absent: what a ban does, and whether one is right; the broker says so.

use std::time::{Duration, UNIX_EPOCH};

use admin::page::{LARGEST_LIMIT, Page};
use clap::Subcommand;
use guard::{Ban, Subject};
use serde_json::{Value, json};
use text_table::Table;

use crate::failure::{Failure, complain};
use crate::http_port::{HttpPort, parse};
use crate::output::{fitted, print};

const BANS: &str = "/api/v1/bans";

/// List, add and remove bans of a running broker.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq ban list
  heraldmq ban add --address 203.0.113.0/24 --for 1h --reason 'login flood' --token-file token
  heraldmq ban remove 7 --url http://10.0.0.5:8091 --token-file token

Exit codes: 0 done; 1 the broker does not answer, or refuses; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Print the bans.
    List {
        #[command(flatten)]
        node: HttpPort,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print cells whole. Without it, long cells are cut and end with `…`: on a terminal to its width, elsewhere to 200
        /// characters.
        #[arg(long)]
        wide: bool,
    },
    /// Ban a client identifier, a user name, or addresses. Matching clients are disconnected.
    Add {
        #[command(flatten)]
        node: HttpPort,
        #[command(flatten)]
        subject: Named,
        /// How long the ban lasts, such as 90s, 1h or 7d. Without it, the ban lasts until it is removed.
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: Option<Duration>,
        /// The reason, which the list shows.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Remove a ban.
    Remove {
        #[command(flatten)]
        node: HttpPort,
        /// The number of the ban in the list.
        id: u64,
    },
}

/// Whom a ban concerns.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Named {
    /// A client identifier.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// A user name.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// An address, or a network such as 203.0.113.0/24.
    #[arg(long, value_name = "NETWORK")]
    address: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List { node, json, wide } => list(node, *json, *wide),
        Command::Add {
            node,
            subject,
            time,
            reason,
        } => {
            let wanted = json!({
                "client": subject.client,
                "user": subject.user,
                "address": subject.address,
                "seconds": time.map(|time| time.as_secs()),
                "reason": reason,
            });
            let ban = node.post(BANS, &wanted)?;
            print(&fitted(table(&[parse(&ban)?]), false).to_string())
        }
        Command::Remove { node, id } => {
            let removed = node.delete(&format!("{BANS}/{id}"));
            removed.map(drop).map_err(Failure::refused)
        }
    }
}

fn list(node: &HttpPort, json: bool, wide: bool) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    let mut all: Vec<Value> = Vec::new();
    loop {
        let mut query = vec![("limit", LARGEST_LIMIT.to_string())];
        query.extend(after.map(|after| ("after", after)));
        let page: Page<Value> = parse(&node.get_with(BANS, &query)?)?;
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if json {
        let page = Page::whole(all, Vec::new());
        let text = serde_json::to_string(&page).expect("what was JSON is JSON");
        return print(&(text + "\n"));
    }
    let bans: Vec<Ban> = parse(&Value::Array(all).to_string())?;
    if bans.is_empty() {
        complain("there are no bans");
    }
    print(&fitted(table(&bans), wide).to_string())
}

fn table(bans: &[Ban]) -> Table {
    let mut table = Table::new(["id", "kind", "who", "expires", "reason"]).with_text(1..5);
    for ban in bans {
        let (kind, who) = match &ban.subject {
            Subject::Client(name) => ("client", name.to_string()),
            Subject::User(name) => ("user", name.to_string()),
            Subject::Address(network) => ("address", network.to_string()),
        };
        let expires = ban.expires_ms.map_or("never".to_owned(), |at| {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(at)).to_string()
        });
        let id = ban.id.to_string();
        table.row([id.as_str(), kind, &who, &expires, &ban.reason]);
    }
    table
}
