//! `heraldmq groups` and `group`: shared groups, and the members of one.

use std::process::ExitCode;

use admin::api::{ClientState, GroupMember, SharedGroupRow};
use text_table::Table;

use super::cells::{number, or_dash, shown};
use super::shown::{EXIT_CODES, Listed, Shown, Walk, print_list};
use crate::failure::Failure;
use crate::http_port::HttpPort;

/// List shared groups with their members and the messages that wait for these.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct GroupsArguments {
    #[command(flatten)]
    node: HttpPort,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn groups(arguments: &GroupsArguments) -> Result<ExitCode, Failure> {
    let how = (&arguments.walk, &arguments.shown);
    let path = "/api/v1/shared-groups";
    let listed = Listed::all("shared groups");
    print_list(&arguments.node, path, Vec::new(), how, listed, groups_table)
}

fn groups_table(rows: &[SharedGroupRow]) -> Table {
    let header = ["SUBSCRIPTION", "CONNECTED", "AWAY", "LAG"];
    let mut table = Table::new(header);
    for row in rows {
        table.row([
            shown(&row.given_filter),
            number(Some(row.online)),
            number(Some(row.members.saturating_sub(row.online))),
            number(row.lag),
        ]);
    }
    table
}

/// List the members of a shared group: durable sessions by client identifier, then the others by node.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct GroupArguments {
    #[command(flatten)]
    node: HttpPort,
    /// The subscription as clients send it, such as '$share/workers/jobs/#'.
    #[arg(value_name = "SUBSCRIPTION")]
    subscription: String,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn group(arguments: &GroupArguments) -> Result<ExitCode, Failure> {
    let how = (&arguments.walk, &arguments.shown);
    let path = "/api/v1/shared-groups/members";
    let query = vec![("filter", arguments.subscription.clone())];
    let listed = Listed::all("members");
    print_list(&arguments.node, path, query, how, listed, members_table)
}

fn members_table(rows: &[GroupMember]) -> Table {
    let header = ["CLIENT ID", "STATE", "NODE", "WAITING", "IN FLIGHT"];
    let mut table = Table::new(header).with_text(1..3);
    for row in rows {
        table.row([
            shown(&row.client_id),
            or_dash(row.state.map(ClientState::name)),
            or_dash(row.node_name.as_deref()),
            number(row.waiting),
            number(row.in_flight),
        ]);
    }
    table
}
