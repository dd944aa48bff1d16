//! Lists as tables.

use std::process::ExitCode;
use std::time::SystemTime;

use admin::api::{ClientRow, DropRow, NodeRow, SettingRow, ShardRow, SubscriptionRow, Voter};
use text_table::Table;

use super::cells::{ago, number, or_dash, shown};
use super::shown::{EXIT_CODES, Listed, Shown, Walk, print_list, print_whole};
use crate::failure::Failure;
use crate::http_port::HttpPort;

/// List clients that are connected or have a session.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ClientsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only clients whose identifiers start with this.
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Only clients of this user.
    #[arg(long)]
    user: Option<String>,
    /// Only clients that connect from this address.
    #[arg(long)]
    address: Option<String>,
    /// Only clients that are connected to this node, by its identifier or name.
    #[arg(long, value_name = "NODE")]
    on: Option<String>,
    /// Only clients in this state.
    #[arg(long, value_parser = ["connecting", "connected", "closing", "away"])]
    state: Option<String>,
    /// Only clients whose packets had to wait within the last minute, sorted by how long they waited.
    #[arg(long)]
    held: bool,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn clients(arguments: &ClientsArguments) -> Result<ExitCode, Failure> {
    let given = [
        ("prefix", &arguments.prefix),
        ("user", &arguments.user),
        ("address", &arguments.address),
        ("node", &arguments.on),
        ("state", &arguments.state),
    ];
    let how = (&arguments.walk, &arguments.shown);
    let mut query = query(given);
    if arguments.held {
        query.push(("order", "held".to_owned()));
    }
    let listed = Listed::all("clients").only_some(!query.is_empty());
    let path = "/api/v1/clients";
    print_list(&arguments.node, path, query, how, listed, clients_table)
}

/// List the sessions in the stores, of connected and of disconnected clients.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SessionsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only sessions of clients whose identifiers start with this.
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Only sessions of clients that are not connected.
    #[arg(long)]
    away: bool,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn sessions(arguments: &SessionsArguments) -> Result<ExitCode, Failure> {
    let mut query = query([("prefix", &arguments.prefix)]);
    query.push(("durable", "true".to_owned()));
    if arguments.away {
        query.push(("state", "away".to_owned()));
    }
    let how = (&arguments.walk, &arguments.shown);
    let listed = Listed::all("sessions").only_some(arguments.away || arguments.prefix.is_some());
    let path = "/api/v1/clients";
    print_list(&arguments.node, path, query, how, listed, clients_table)
}

/// List the settings of a node, where each comes from, and nodes that differ.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SettingsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only options whose names start with this, such as limits.session.
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Also list options that have their default on all nodes.
    #[arg(long)]
    defaults: bool,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn settings(arguments: &SettingsArguments) -> Result<ExitCode, Failure> {
    let query = query([("prefix", &arguments.prefix)]);
    let path = "/api/v1/settings";
    let table = |rows: &[SettingRow]| settings_table(rows, arguments.defaults);
    let listed = Listed::all("settings").only_some(!query.is_empty());
    let listed = listed
        .when_hidden("nobody has set any of these, and no node differs; --defaults lists them");
    let (node, shown) = (&arguments.node, &arguments.shown);
    print_whole(node, path, &query, shown, listed, table)
}

fn settings_table(rows: &[SettingRow], defaults: bool) -> Table {
    let header = ["SETTING", "VALUE", "SET BY", "AT RESTART", "ELSEWHERE"];
    let mut table = Table::new(header).with_text(1..5);
    let value = |value: &Option<String>| shown(value.as_deref().unwrap_or("null"));
    for row in rows {
        let setting = &row.setting;
        if !defaults && setting.origin == "default" && row.differs.is_empty() {
            continue;
        }
        let elsewhere: Vec<String> = row
            .differs
            .iter()
            .map(|of| format!("{} {}", shown(&of.node_name), value(&of.setting.value)))
            .collect();
        table.row([
            row.key.clone(),
            value(&setting.value),
            shown(setting.place.as_deref().unwrap_or(&setting.origin)),
            or_dash(setting.at_restart.as_deref()),
            match elsewhere.is_empty() {
                true => "-".to_owned(),
                false => elsewhere.join(", "),
            },
        ]);
    }
    table
}

fn query<const N: usize>(
    given: [(&'static str, &Option<String>); N],
) -> Vec<(&'static str, String)> {
    let given = given.into_iter();
    given
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect()
}

fn clients_table(rows: &[ClientRow]) -> Table {
    let now = SystemTime::now();
    let header = [
        "CLIENT ID",
        "USER",
        "STATE",
        "NODE",
        "SINCE",
        "ADDRESS",
        "QUEUE",
        "HELD",
    ];
    let mut table = Table::new(header).with_text([1, 2, 3, 4, 5, 7]);
    for row in rows {
        table.row([
            shown(&row.client_id),
            or_dash(row.user.as_deref()),
            row.state.name().to_owned(),
            or_dash(row.node_name.as_deref()),
            ago(row.since.as_ref(), now),
            or_dash(row.address.as_deref()),
            number(row.queue_messages),
            row.held.as_ref().map_or("-".to_owned(), |held| {
                format!("{:.0} %  {}", held.share_percent, held.reason.name())
            }),
        ]);
    }
    table
}

/// List subscriptions, client by client, or those of one client.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SubscriptionsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only subscriptions of this client.
    #[arg(value_name = "CLIENT")]
    client: Option<String>,
    /// Only topic filters that start with this.
    #[arg(long, conflicts_with = "client")]
    prefix: Option<String>,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn subscriptions(arguments: &SubscriptionsArguments) -> Result<ExitCode, Failure> {
    let how = (&arguments.walk, &arguments.shown);
    let given = [("prefix", &arguments.prefix), ("client", &arguments.client)];
    let path = "/api/v1/subscriptions";
    let query = query(given);
    let listed = Listed::all("subscriptions").only_some(!query.is_empty());
    print_list(
        &arguments.node,
        path,
        query,
        how,
        listed,
        subscriptions_table,
    )
}

fn subscriptions_table(rows: &[SubscriptionRow]) -> Table {
    let header = ["CLIENT ID", "FILTER", "NODE", "QOS"];
    let mut table = Table::new(header).with_text(1..3);
    for row in rows {
        table.row([
            shown(&row.client_id),
            shown(&row.given_filter),
            or_dash(row.node_name.as_deref()),
            row.qos.to_string(),
        ]);
    }
    table
}

/// List the shards of the stores.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ShardsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only shards of this store.
    #[arg(long, value_parser = ["session", "inbox", "retain"])]
    store: Option<String>,
    /// Only shards without a leader.
    #[arg(long)]
    leaderless: bool,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn shards(arguments: &ShardsArguments) -> Result<ExitCode, Failure> {
    let mut query = query([("store", &arguments.store)]);
    if arguments.leaderless {
        query.push(("leaderless", "true".to_owned()));
    }
    let path = "/api/v1/shards";
    let listed = Listed::all("shards").only_some(!query.is_empty());
    let (node, shown) = (&arguments.node, &arguments.shown);
    print_whole(node, path, &query, shown, listed, shards_table)
}

fn shards_table(rows: &[ShardRow]) -> Table {
    let header = [
        "STORE",
        "SHARD",
        "SLOTS",
        "LEADER",
        "VOTERS",
        "LOAD",
        "REQ/S",
        "SESSIONS",
        "MESSAGES",
        "LAST DECISION",
    ];
    let mut table = Table::new(header).with_text([2, 3, 4, 9]);
    for row in rows {
        let slots = match (row.first_slot, row.last_slot) {
            (Some(first), Some(last)) => format!("{first}-{last}"),
            _ => "-".to_owned(),
        };
        let voters: Vec<&str> = row.voters.iter().map(name).collect();
        let load = row.load.as_ref();
        let cpu = load.map(|load| {
            let us = [load.propose_us, load.apply_us, load.read_us].map(|us| us.0 as f64);
            format!("{:.2}", us.iter().sum::<f64>() / 1_000_000.0)
        });
        let decision = row.last_decision.as_ref().map(|of| of.decision.as_str());
        table.row([
            row.store.to_string(),
            row.shard.to_string(),
            slots,
            or_dash(row.leader_name.as_deref()),
            shown(&voters.join(" ")),
            or_dash(cpu.as_deref()),
            number(load.map(|load| load.requests.0)),
            number(row.holds.and_then(|holds| holds.sessions)),
            number(row.holds.and_then(|holds| holds.messages)),
            or_dash(decision),
        ]);
    }
    table
}

fn name(voter: &Voter) -> &str {
    match voter.node_name.as_str() {
        "" => "?",
        name => name,
    }
}

/// List the nodes.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct NodesArguments {
    #[command(flatten)]
    node: HttpPort,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn nodes(arguments: &NodesArguments) -> Result<ExitCode, Failure> {
    let (node, shown) = (&arguments.node, &arguments.shown);
    let listed = Listed::all("nodes");
    print_whole(node, "/api/v1/nodes", &[], shown, listed, nodes_table)
}

fn nodes_table(rows: &[NodeRow]) -> Table {
    let header = [
        "NODE", "NAME", "STATE", "REACH", "VERSION", "ALARMS", "CLIENTS", "SESSIONS", "LEADS",
        "MEMORY", "UPTIME",
    ];
    let mut table = Table::new(header).with_text(1..6);
    for row in rows {
        let health = row.health.as_ref();
        let alarms = health.map(|health| {
            let names: Vec<&str> = health.alarms.iter().map(|alarm| &*alarm.name).collect();
            names.join(" ")
        });
        let alarms = alarms.filter(|alarms| !alarms.is_empty());
        let memory = health.and_then(|health| health.memory_bytes);
        let uptime = health.map(|health| {
            humantime::format_duration(std::time::Duration::from_secs(health.uptime_s)).to_string()
        });
        table.row([
            row.node.to_string(),
            shown(&row.node_name),
            row.state.to_string(),
            row.reach.to_string(),
            shown(&row.version),
            or_dash(alarms.as_deref()),
            number(row.connections),
            number(health.map(|health| health.sessions)),
            number(health.map(|health| health.shards_led)),
            memory.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20)),
            or_dash(uptime.as_deref()),
        ]);
    }
    table
}

/// List dropped messages, latest first.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DropsArguments {
    #[command(flatten)]
    node: HttpPort,
    /// Only drops of this client.
    #[arg(long)]
    client: Option<String>,
    /// Only drops for this reason, as named in the metrics.
    #[arg(long)]
    reason: Option<String>,
    /// Only drops on topics that match this filter.
    #[arg(long)]
    topic: Option<String>,
    #[command(flatten)]
    walk: Walk,
    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn drops(arguments: &DropsArguments) -> Result<ExitCode, Failure> {
    let given = [
        ("client", &arguments.client),
        ("reason", &arguments.reason),
        ("topic", &arguments.topic),
    ];
    let how = (&arguments.walk, &arguments.shown);
    let query = query(given);
    let listed = Listed::all("dropped messages").only_some(!query.is_empty());
    let path = "/api/v1/drops";
    print_list(&arguments.node, path, query, how, listed, drops_table)
}

fn drops_table(rows: &[DropRow]) -> Table {
    let header = [
        "TIME", "NODE", "ROLE", "CLIENT", "TOPIC", "QOS", "BYTES", "REASON",
    ];
    let mut table = Table::new(header).with_text([1, 2, 3, 4, 7]);
    for row in rows {
        table.row([
            row.at.to_string(),
            shown(&row.node_name),
            row.role.clone(),
            shown(&row.client_id),
            shown(&row.topic),
            row.qos.to_string(),
            number(Some(row.bytes)),
            row.reason.clone(),
        ]);
    }
    table
}
