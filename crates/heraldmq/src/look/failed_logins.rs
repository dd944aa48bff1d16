//! `heraldmq failed-logins`.

use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::{FailedLoginsRow, FailedUser};
use text_table::Table;

use super::cells::{ago, number, shown};
use super::shown::{EXIT_CODES, Listed, Shown, print_whole};
use crate::failure::Failure;
use crate::http_port::HttpPort;

/// List failed logins by address and user name, most failures first.
///
/// DENIED counts logins that the broker checked. REFUSED counts logins that it refused without a check, because too
/// many logins with this user name had failed from the address, or because the same password had failed before. Each
/// node remembers 256 addresses, and the last 16 user names of each.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct FailedLoginsArguments {
    #[command(flatten)]
    node: HttpPort,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn failed_logins(arguments: &FailedLoginsArguments) -> Result<ExitCode, Failure> {
    let path = "/api/v1/failed-logins";
    let (node, shown) = (&arguments.node, &arguments.shown);
    print_whole(node, path, &[], shown, Listed::all("failed logins"), table)
}

fn table(rows: &[FailedLoginsRow]) -> Table {
    let now = SystemTime::now();
    let header = ["ADDRESS", "NODE", "DENIED", "REFUSED", "LAST", "USERS"];
    let mut table = Table::new(header).with_text([1, 4, 5]);
    for row in rows {
        let users: Vec<String> = row.users.iter().map(user).collect();
        table.row([
            row.address.clone(),
            shown(&row.node_name),
            number(Some(row.denied)),
            number(Some(row.refused)),
            ago(Some(&row.last), now),
            users.join(" "),
        ]);
    }
    table
}

fn user(of: &FailedUser) -> String {
    let name = of.user.as_deref().map_or("-".to_owned(), shown);
    format!("{name} ({})", number(Some(of.denied + of.refused)))
}
