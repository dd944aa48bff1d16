//! `heraldmq cluster`: how a cluster is, as one of its nodes sees it, and its change, by the HTTP port of
//! that node.
//!
//! Deliberately absent: whether a change is possible; the node says so.

mod damaged;
mod rebalance;
mod resize;
mod split_policy;
mod wait;

use std::io::{self, Write};

use admin::api::NodeChange;
use admin::cluster::{
    ClusterStatus, LevelStatus, LoadStatus, NodeId, Seconds, ShardStatus, StoreName,
};
use clap::Subcommand;
use config::Endpoint;
use serde_json::{Value, json};
use text_table::{Table, units::counted};

use self::damaged::damaged;
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};

/// Show the state of a cluster, and change it.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  heraldmq cluster status
  heraldmq cluster drain --url http://10.0.0.12:8091 --token-file token
  heraldmq cluster drain mq-2 --key-file operator.key
  heraldmq cluster drain mq-2 --wait 300 --key-file operator.key
  heraldmq cluster drain mq-2 --end --key-file operator.key
  heraldmq cluster resize 3 --dry-run --key-file operator.key
  heraldmq cluster resize 3 --wait --key-file operator.key
  heraldmq cluster rebalance --dry-run --key-file operator.key
  heraldmq cluster rebalance --per-second 100 --wait --key-file operator.key
  heraldmq cluster evict 5f3a90c2d1e4b867 --dry-run --token-file token
  heraldmq cluster evict 5f3a90c2d1e4b867 --token-file token
  heraldmq cluster transfer-leader inbox 0 5f3a90c2d1e4b867 --token-file token
  heraldmq cluster split inbox 0 --token-file token
  heraldmq cluster split-policy test conf/split-policies/early.rhai --store inbox
  heraldmq cluster upgrade finish --dry-run
  heraldmq cluster upgrade finish --token-file token

`join` acts on the node at --url, and so do `leave` and `drain` without a node. They return when the work has begun, and
`status` shows the progress; `drain` and `resize` return when it is done with --wait. docs/operate/cluster.md says when to use
which.

Exit codes: 0 done or begun; 1 the node does not answer, or refuses, the time given by --wait is over, or the script fails; 2 wrong command line.";

#[derive(Subcommand)]
enum Command {
    /// Print the nodes and the shards.
    Status {
        #[command(flatten)]
        node: HttpPort,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Give a node the address of a member when it cannot find the cluster.
    Join {
        #[command(flatten)]
        node: HttpPort,
        /// Host and port of a member, as in clusterConfig.seedEndpoints.
        #[arg(value_name = "HOST:PORT", value_parser = endpoint)]
        seed: Endpoint,
    },
    /// Remove a running node permanently: its clients and replicas move to other nodes, then it stops.
    Leave {
        #[command(flatten)]
        node: HttpPort,
        #[command(flatten)]
        of: OfNode,
    },
    /// Move the clients of a node to other nodes before maintenance, or end that with --end.
    ///
    /// The node refuses new clients, gives the leadership of its shards to other nodes, and then disconnects its
    /// clients little by little; it keeps its replicas. `heraldmq cluster status` shows the progress. The node takes
    /// clients again after its next start, or after --end.
    Drain {
        #[command(flatten)]
        node: HttpPort,
        #[command(flatten)]
        of: OfNode,
        /// End the drain: the node takes clients again, and may lead shards again.
        #[arg(long, conflicts_with = "dry_run")]
        end: bool,
        /// Return when the node has no clients and leads no shard, or fail after so many seconds.
        #[arg(long, value_name = "SECONDS", conflicts_with_all = ["dry_run", "end"])]
        wait: Option<u64>,
    },
    /// Have the nodes leave whose number is NODES or more, before a StatefulSet is made smaller.
    ///
    /// The number of a node is at the end of its name, as in `mq-2`, and the first node is number 0. All nodes with a number
    /// from NODES on begin to leave at once, the highest first; nodes without a number stay. If there is no such node, there
    /// is nothing to do, and that is success. If one of them cannot leave, nothing is changed.
    Resize(resize::Resize),
    /// Move clients from nodes that have more than their share to the others, for example after a node was added.
    ///
    /// Each node disconnects at most so many clients per second, until it has no more than 2 % above the mean. Clients of MQTT 5.0
    /// without TLS and WebSocket are told a node that has fewer; the others connect anew where their configuration or a balancer sends
    /// them. Clients to which messages are on their way stay, and no client is moved twice within an hour.
    Rebalance(rebalance::Rebalance),
    /// Remove a failed node that will not come back.
    Evict {
        #[command(flatten)]
        node: HttpPort,
        /// The node's identifier or name.
        #[arg(value_name = "NODE")]
        member: String,
        /// Evict the node even if shards have no majority of their voters without it. The data of these shards is lost.
        #[arg(long)]
        force: bool,
        /// Print what the cluster would lose, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Move the leadership of a shard to another voter.
    TransferLeader {
        #[command(flatten)]
        node: HttpPort,
        /// session, inbox or retain.
        store: StoreName,
        /// The shard's number in `status`.
        shard: u64,
        /// The identifier or name of the new leader.
        #[arg(value_name = "NODE")]
        to: String,
    },
    /// Split a shard: a new shard takes over its upper slots and their data.
    Split {
        #[command(flatten)]
        node: HttpPort,
        /// session, inbox or retain.
        store: StoreName,
        /// The shard's number in `status`.
        shard: u64,
        /// The first slot of the new shard, which will also be its number. By default the slot at which the load
        /// halves (`half` in `status`), or the middle if there is no load.
        #[arg(long, value_name = "SLOT", value_parser = clap::value_parser!(u16).range(1..=65_534))]
        at: Option<u16>,
    },
    /// Try policies for automatic splits.
    #[command(subcommand)]
    SplitPolicy(SplitPolicy),
    /// Finish an upgrade, or show its progress.
    #[command(subcommand)]
    Upgrade(Upgrade),
}

#[derive(Subcommand)]
enum SplitPolicy {
    /// Play a script against simulated loads, and print what it splits beside what the policy `load` splits.
    ///
    /// Each row is a situation of six minutes. It shows the splits and the moves of leaders in each minute, as in `1+0 0+1`, and
    /// what each node leads in the end, in tenths of a core. The command asks no broker. It fails if the script fails in any
    /// situation; docs/operate/split-policies.md describes scripts.
    Test(split_policy::Test),
}

#[derive(Subcommand)]
enum Upgrade {
    /// Raise the level of all shards to the highest that every node knows. Afterwards no node can go back to an earlier
    /// version.
    Finish {
        #[command(flatten)]
        node: HttpPort,
        /// Print what would change and which nodes prevent it, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which node is changed.
#[derive(clap::Args)]
struct OfNode {
    /// The node's identifier or name; without it the one at --url.
    #[arg(value_name = "NODE")]
    member: Option<String>,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Status { node, json } => status(node, *json),
        Command::Join { node, seed } => change(node, "join", &json!({ "seed": seed.to_string() })),
        Command::Leave { node, of } => change_node(node, of, "leave", false),
        Command::Drain {
            node,
            of,
            end,
            wait: None,
        } => change_node(node, of, "drain", *end),
        Command::Drain {
            node,
            of,
            wait: Some(limit),
            ..
        } => wait::drain(node, of.member.as_deref(), *limit),
        Command::Resize(resize) => resize::run(resize),
        Command::Rebalance(rebalance) => rebalance::run(rebalance),
        Command::Evict {
            node,
            member,
            force,
            dry_run: true,
        } => {
            let path = node_path(member, "evict");
            let answer = node.post(&path, &json!({ "dry_run": true, "force": force }));
            tell(&answer.map_err(Failure::refused)?)
        }
        Command::Evict {
            node,
            member,
            force,
            dry_run: false,
        } => {
            let mut wanted = json!({ "node": member });
            // A node of an earlier version knows no such field.
            if *force {
                wanted["force"] = true.into();
            }
            change(node, "evict", &wanted)
        }
        Command::TransferLeader {
            node,
            store,
            shard,
            to,
        } => {
            let wanted = json!({ "store": store, "shard": shard, "to": to });
            change(node, "transfer-leader", &wanted)
        }
        Command::Split {
            node,
            store,
            shard,
            at,
        } => {
            let wanted = json!({ "store": store, "shard": shard, "at": at });
            change(node, "split", &wanted)
        }
        Command::SplitPolicy(SplitPolicy::Test(test)) => split_policy::run(test),
        Command::Upgrade(Upgrade::Finish { node, dry_run }) => finish_upgrade(node, *dry_run),
    }
}

/// Raises the level of the shards, or says what that would mean. A level that is held up is a failure.
fn finish_upgrade(node: &HttpPort, dry_run: bool) -> Result<(), Failure> {
    let status: ClusterStatus = parse(&node.get("/api/v1/cluster")?)?;
    let Some(level) = &status.level else {
        return Err(Failure::Runtime(
            "the node runs a version without levels: upgrade it first".to_owned(),
        ));
    };
    let is_held_up = !level.held_up_by.is_empty();
    let text = match level.lowest >= level.known {
        true => "there is nothing to raise\n".to_owned(),
        false => raises(level),
    };
    let text = format!("{}\n{text}", level_line(level));
    print(&text)?;
    match (dry_run, is_held_up) {
        (true, true) => Err(Failure::Runtime("the level cannot be raised".to_owned())),
        (true, false) => Ok(()),
        (false, _) => change(node, "upgrade", &json!({})),
    }
}

/// What raising the level means, and who holds it up.
fn raises(level: &LevelStatus) -> String {
    let mut text = String::new();
    for change in &level.changes {
        text += &format!(
            "level {} (programs: {}): {}\n",
            change.level.0, change.programs, change.changes
        );
    }
    for holds in &level.held_up_by {
        let name = match holds.name.as_str() {
            "" => "?",
            name => name,
        };
        text += &format!(
            "held up by node {} ({name}): {}\n",
            holds.node, holds.reason
        );
    }
    if level.held_up_by.is_empty() && level.lowest < level.possible {
        text += &format!(
            "after that no node goes back to a program that does not know level {}\n",
            level.possible.0
        );
    }
    text
}

/// The level of the shards in one line.
fn level_line(level: &LevelStatus) -> String {
    let now = match level.lowest == level.highest {
        true => format!("level {}", level.lowest.0),
        false => format!("levels {} to {}", level.lowest.0, level.highest.0),
    };
    if level.lowest >= level.known {
        return now;
    }
    let next = match (&level.held_up_by[..], level.raised_in) {
        ([], Some(Seconds(left))) if level.lowest < level.possible => {
            format!("raised to {} in {left} s", level.possible.0)
        }
        ([], _) => "`heraldmq cluster upgrade finish` raises it".to_owned(),
        (held, _) => format!("held up by {} of the nodes", held.len()),
    };
    format!("{now} of {} ({next})", level.known.0)
}

fn endpoint(text: &str) -> Result<Endpoint, &'static str> {
    Endpoint::new(text).ok_or("expected host:port")
}

fn change(node: &HttpPort, what: &str, body: &Value) -> Result<(), Failure> {
    let answer = node.post(&format!("/api/v1/cluster/{what}"), body);
    answer.map(drop).map_err(Failure::refused)
}

/// The path of an action on a node. Bytes of the node's name that have a meaning in a URL are percent-encoded.
fn node_path(member: &str, action: &str) -> String {
    let mut path = "/api/v1/nodes/".to_owned();
    for byte in member.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => path.push(char::from(byte)),
            _ => path += &format!("%{byte:02X}"),
        }
    }
    path + "/" + action
}

/// Has a node drain or leave, ends its draining, or says what that would mean.
fn change_node(node: &HttpPort, of: &OfNode, what: &str, end: bool) -> Result<(), Failure> {
    let OfNode { member, dry_run } = of;
    if member.is_none() && !end && !dry_run {
        // What nodes of earlier versions know, too.
        return change(node, what, &json!({}));
    }
    let member = match member {
        Some(member) => member.clone(),
        None => {
            let status: ClusterStatus = parse(&node.get("/api/v1/cluster")?)?;
            status.node.to_string()
        }
    };
    let path = node_path(&member, what);
    let answer = match end {
        true => node.delete(&path),
        false => node.post(&path, &json!({ "dry_run": dry_run })),
    };
    tell(&answer.map_err(Failure::refused)?)
}

/// Says what a change means; a change that was only judged, and is not possible, is a failure.
fn tell(answer: &str) -> Result<(), Failure> {
    let change: NodeChange = parse(answer)?;
    print(&told(&change))?;
    match change.detail {
        Some(why) if !change.begun && !change.possible => Err(Failure::Runtime(why)),
        _ => Ok(()),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::Runtime(error.to_string()))
}

/// What a change means, in one line.
fn told(change: &NodeChange) -> String {
    let what = match (change.begun, change.possible) {
        (true, _) => "begun",
        (false, true) => "possible",
        (false, false) => "not possible",
    };
    let clients = change
        .clients
        .map_or("? clients".to_owned(), |n| counted(n, "client", "clients"));
    let shards = counted(change.shards_led, "shard", "shards");
    format!(
        "{what}: node {} ({}) has {clients}, leads {shards}, votes in {}\n",
        change.node, change.node_name, change.voters
    )
}

fn status(node: &HttpPort, json: bool) -> Result<(), Failure> {
    let text = node.get("/api/v1/cluster")?;
    let text = if json {
        text + "\n"
    } else {
        tables(&parse(&text)?)
    };
    print(&text)
}

fn tables(status: &ClusterStatus) -> String {
    if status.nodes.is_empty() {
        let (node, shards) = (status.node, shards(&status.shards));
        let level = level(status);
        let damaged = damaged(status);
        return format!("node {node} runs alone{level}\n\n{shards}{damaged}");
    }
    let cluster = status
        .cluster
        .map_or("not joined yet".to_owned(), |cluster| cluster.to_string());
    let env = &status.env;
    let (nodes, shards) = (nodes(status), shards(&status.shards));
    let level = level(status);
    let damaged = damaged(status);
    format!("cluster {cluster}, env {env}{level}\n\n{nodes}\n{shards}{damaged}")
}

/// The level behind what else is said of the cluster; an earlier version of the broker says none.
fn level(status: &ClusterStatus) -> String {
    let level = status.level.as_ref();
    level.map_or_else(String::new, |level| format!(", {}", level_line(level)))
}

/// The node that answers is marked.
fn nodes(status: &ClusterStatus) -> Table {
    let mut table = Table::new([
        "node",
        "name",
        "address",
        "state",
        "reach",
        "connections",
        "clock",
        "version",
        "commit",
        "levels",
        "incarnation",
    ]);
    for node in &status.nodes {
        let mark = if node.node == status.node { " *" } else { "" };
        let connections = node.connections.map_or("?".to_owned(), |n| n.to_string());
        let name = match node.name.as_str() {
            "" => "?".to_owned(),
            name => name.to_owned(),
        };
        table.row([
            &format!("{}{mark}", node.node),
            &name,
            &node.address,
            &node.state.to_string(),
            &node.reach.to_string(),
            &connections,
            &clock(node.clock_offset_ms),
            &node.version,
            node.commit.as_deref().unwrap_or("?"),
            node.levels.as_deref().unwrap_or("?"),
            &node.incarnation.to_string(),
        ]);
    }
    table
}

/// How far a clock is ahead of the cluster's time.
fn clock(offset_ms: Option<i64>) -> String {
    offset_ms.map_or("?".to_owned(), |ms| format!("{:+.1}s", ms as f64 / 1_000.0))
}

fn shards(shards: &[ShardStatus]) -> Table {
    let mut table = Table::new([
        "store", "shard", "slots", "version", "leader", "voters", "learners", "term", "cpu",
        "requests", "half", "split",
    ]);
    for shard in shards {
        let leader = match (shard.leader, shard.last_leader) {
            (Some(leader), _) => leader.to_string(),
            (None, Some(last)) => format!("none (was {last})"),
            (None, None) => "none".to_owned(),
        };
        table.row([
            &shard.store.to_string(),
            &shard.shard.to_string(),
            &slots(shard),
            &shard
                .version
                .map_or("?".to_owned(), |version| version.0.to_string()),
            &leader,
            &list(&shard.voters),
            &list(&shard.learners),
            &shard.term.to_string(),
            &load(shard, cpu),
            &load(shard, |load| format!("{}/s", load.requests.0)),
            &load(shard, half),
            &split(shard),
        ]);
    }
    table
}

/// The first and the last slot of a shard; an earlier version of the broker does not say.
fn slots(shard: &ShardStatus) -> String {
    match (shard.first, shard.last) {
        (Some(first), Some(last)) => format!("{}-{}", first.0, last.0),
        _ => "?".to_owned(),
    }
}

/// What is to be said of the load of a shard that has any.
fn load(shard: &ShardStatus, say: fn(&LoadStatus) -> String) -> String {
    shard.load.as_ref().map_or("-".to_owned(), say)
}

/// The share of one core.
fn cpu(load: &LoadStatus) -> String {
    let us = [load.propose_us, load.apply_us, load.read_us].map(|us| us.0 as f64);
    format!("{:.1}%", us.iter().sum::<f64>() / 10_000.0)
}

/// Where a load halves.
fn half(load: &LoadStatus) -> String {
    let half = load.half.as_ref();
    half.map_or("-".to_owned(), |half| {
        format!("{} ({}%)", half.slot.0, half.below.0)
    })
}

/// What the node that answers has decided about a shard that it leads.
fn split(shard: &ShardStatus) -> String {
    let split = shard.split.as_ref();
    split.map_or("-".to_owned(), |split| match split.names.as_slice() {
        [] => split.decision.clone(),
        names => format!("{} ({})", split.decision, names.join(" ")),
    })
}

fn list(nodes: &[NodeId]) -> String {
    let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    nodes.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_name_of_a_node_percent_encoded() {
        for (member, path) in [
            ("5f3a90c2d1e4b867", "/api/v1/nodes/5f3a90c2d1e4b867/drain"),
            ("mq-2.a_b~c", "/api/v1/nodes/mq-2.a_b~c/drain"),
            ("a/b?c#d", "/api/v1/nodes/a%2Fb%3Fc%23d/drain"),
            ("100% ü", "/api/v1/nodes/100%25%20%C3%BC/drain"),
        ] {
            assert_eq!(node_path(member, "drain"), path);
        }
    }
}
