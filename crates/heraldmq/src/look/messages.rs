//! Queues and retained messages as tables.

use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::{QueuePurge, QueueRow, QueuedMessage, RetainedRow};
use text_table::{Table, units::counted};

use super::cells::{ago, number, or_dash, rate, shown};
use super::shown::{EXIT_CODES, Listed, Shown, Walk, path_of, print_list, print_whole};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};
use crate::output::print;

/// List the largest queues by messages, bytes or age.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct QueuesArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Sort by this: the largest, or the oldest, first.
    #[arg(long, default_value = "bytes", value_parser = ["messages", "bytes", "age"])]
    by: String,
    /// The maximum number of rows, 1 to 100.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    limit: u16,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn queues(arguments: &QueuesArguments) -> Result<ExitCode, Failure> {
    let query = [
        ("by", arguments.by.clone()),
        ("limit", arguments.limit.to_string()),
    ];
    let (node, how) = (&arguments.node, &arguments.shown);
    let listed = Listed::all("queues");
    print_whole(node, "/api/v1/queues", &query, how, listed, queues_table)
}

pub(super) fn queues_table(rows: &[QueueRow]) -> Table {
    let now = SystemTime::now();
    let header = [
        "CLIENT ID",
        "CLASS",
        "NODE",
        "OLDEST",
        "MESSAGES",
        "LIMIT",
        "BYTES",
        "IN/S",
        "OUT/S",
    ];
    let mut table = Table::new(header).with_text(1..4);
    for row in rows {
        table.row([
            shown(&row.client_id),
            shown(&row.class),
            shown(&row.node_name),
            ago(row.oldest_at.as_ref(), now),
            number(Some(row.messages)),
            number(Some(row.limit_messages)),
            number(Some(row.bytes)),
            rate(row.in_per_s),
            rate(row.out_per_s),
        ]);
    }
    table
}

/// List the queued messages of a durable session, oldest first, or drop them.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct QueueArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The client identifier.
    #[arg(value_name = "CLIENT")]
    client: String,
    /// Drop the queued messages, except those that the client may already have received. The drops have the reason `purged`.
    #[arg(long, conflicts_with_all = ["limit", "all"])]
    empty: bool,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn queue(arguments: &QueueArguments) -> Result<ExitCode, Failure> {
    let path = path_of(&arguments.client).ok_or_else(|| {
        let why = "identifiers that do not fit into a path are asked for by POST /api/v1/queue";
        Failure::Usage(why.to_owned())
    })?;
    let path = path.replacen("/clients/", "/sessions/", 1) + "/queue";
    if arguments.empty {
        return empty(&arguments.node, &path, arguments.shown.json);
    }
    let how = (&arguments.walk, &arguments.shown);
    let listed = Listed::all("queued messages");
    print_list(&arguments.node, &path, Vec::new(), how, listed, queue_table)
}

/// Empties a queue, and asks again as long as more is dropped.
fn empty(node: &HttpPort, path: &str, json: bool) -> Result<ExitCode, Failure> {
    let mut all = QueuePurge {
        removed: 0,
        bytes: 0,
        complete: false,
    };
    while !all.complete {
        let part: QueuePurge = parse(&node.delete(&format!("{path}?budget_ms=5000"))?)?;
        all.removed += part.removed;
        all.bytes += part.bytes;
        all.complete = part.complete;
        if part.removed == 0 {
            break;
        }
    }
    let line = match json {
        true => serde_json::to_string(&all).expect("numbers become JSON"),
        false => format!(
            "dropped {} of {}",
            counted(all.removed, "message", "messages"),
            counted(all.bytes, "byte", "bytes")
        ),
    };
    print(&(line + "\n"))?;
    match all.complete {
        true => Ok(ExitCode::SUCCESS),
        false => {
            let why = "more waits, and could not be dropped in 5 s; ask again";
            Err(Failure::Runtime(why.to_owned()))
        }
    }
}

fn queue_table(rows: &[QueuedMessage]) -> Table {
    let header = ["SEQUENCE", "TOPIC", "GROUP", "EXPIRES", "QOS", "BYTES"];
    let mut table = Table::new(header).with_text(1..4);
    for row in rows {
        let expires = row.expires_at.as_ref().map(ToString::to_string);
        table.row([
            row.sequence.to_string(),
            shown(&row.topic),
            or_dash(row.group.as_deref()),
            or_dash(expires.as_deref()),
            row.qos.to_string(),
            number(Some(row.payload_bytes)),
        ]);
    }
    table
}

/// List retained messages by topic.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RetainedArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only topics that match this topic filter.
    #[arg(value_name = "FILTER", default_value = "#")]
    filter: String,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn retained(arguments: &RetainedArguments) -> Result<ExitCode, Failure> {
    let query = vec![("filter", arguments.filter.clone())];
    let how = (&arguments.walk, &arguments.shown);
    let listed = Listed::all("retained messages").only_some(arguments.filter != "#");
    let path = "/api/v1/retained";
    print_list(&arguments.node, path, query, how, listed, |rows| {
        let mut table =
            Table::new(["TOPIC", "RETAINED", "EXPIRES", "QOS", "BYTES"]).with_text(1..3);
        for row in rows {
            let RetainedRow { topic, qos, .. } = row;
            let since = row.retained_at.as_ref().map(ToString::to_string);
            let expires = row.expires_at.as_ref().map(ToString::to_string);
            table.row([
                shown(topic),
                or_dash(since.as_deref()),
                or_dash(expires.as_deref()),
                qos.to_string(),
                number(Some(row.payload_bytes)),
            ]);
        }
        table
    })
}
