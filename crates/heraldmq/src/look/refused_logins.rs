//! `heraldmq refused-logins`.

use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::RefusedLoginsRow;
use text_table::Table;

use super::cells::{ago, number, shown};
use super::shown::{EXIT_CODES, Listed, Shown, print_whole};
use crate::failure::Failure;
use crate::http_port::HttpPort;

/// List who was not let in and why, the latest first.
///
/// A client is told little: it must not learn which users there are. This list tells operators the cause: an unknown user, a
/// wrong password, a ban, a limit, a TLS handshake that has failed. A row counts what one node has refused of an address and
/// a user name for the same cause; each node remembers 256 addresses with 32 rows.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RefusedLoginsArguments {
    #[command(flatten)]
    http: HttpPort,
    /// Only of this node, by its identifier or name.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The most rows, 1 to 500.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn refused_logins(arguments: &RefusedLoginsArguments) -> Result<ExitCode, Failure> {
    let path = "/api/v1/refused-logins";
    let mut query = vec![("limit", arguments.limit.to_string())];
    query.extend(arguments.node.clone().map(|node| ("node", node)));
    let (http, shown) = (&arguments.http, &arguments.shown);
    print_whole(
        http,
        path,
        &query,
        shown,
        Listed::all("refused logins"),
        table,
    )
}

fn table(rows: &[RefusedLoginsRow]) -> Table {
    let now = SystemTime::now();
    let header = [
        "ADDRESS", "USER", "CLIENT", "TIMES", "LAST", "NODE", "CAUSE", "DETAIL",
    ];
    let mut table = Table::new(header).with_text([1, 2, 4, 5, 6, 7]);
    let given = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), shown);
    for row in rows {
        table.row([
            row.address.clone().unwrap_or_else(|| "unix".to_owned()),
            given(&row.user),
            given(&row.client_id),
            number(Some(row.count)),
            ago(Some(&row.last), now),
            shown(&row.node_name),
            row.cause.clone(),
            given(&row.detail),
        ]);
    }
    table
}
