//! `heraldmq alarms`.

use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::{Alarm, At};
use text_table::Table;

use super::cells::{ago, or_dash, shown};
use super::shown::{EXIT_CODES, Listed, Shown, print_whole};
use crate::failure::Failure;
use crate::http_port::HttpPort;

/// List the alarms of all nodes.
///
/// SINCE is when the node raised the alarm; a restart of the node does not change it. Each node remembers the last 256 alarms that
/// have ended.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct AlarmsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// List the alarms that have ended, the latest first.
    #[arg(long)]
    ended: bool,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn alarms(arguments: &AlarmsArguments) -> Result<ExitCode, Failure> {
    let path = "/api/v1/alarms";
    let (node, shown) = (&arguments.node, &arguments.shown);
    match arguments.ended {
        true => {
            let query = [("state", "ended".to_owned())];
            let listed = Listed::all("alarms that have ended");
            print_whole(node, path, &query, shown, listed, ended)
        }
        false => print_whole(node, path, &[], shown, Listed::all("alarms"), raised),
    }
}

fn raised(rows: &[Alarm]) -> Table {
    let now = SystemTime::now();
    let mut table = Table::new(["ALARM", "NODE", "SINCE", "DETAIL"]).with_text([1, 3]);
    for row in rows {
        table.row([
            shown(&row.name),
            shown(&row.node_name),
            ago(row.since.as_ref(), now),
            shown(&row.detail),
        ]);
    }
    table
}

fn ended(rows: &[Alarm]) -> Table {
    let mut table = Table::new(["ALARM", "NODE", "SINCE", "UNTIL", "DETAIL"]).with_text(1..5);
    let moment = |at: &Option<At>| or_dash(at.as_ref().map(At::to_string).as_deref());
    for row in rows {
        table.row([
            shown(&row.name),
            shown(&row.node_name),
            moment(&row.since),
            moment(&row.until),
            shown(&row.detail),
        ]);
    }
    table
}
