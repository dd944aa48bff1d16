//! `heraldmq cluster rebalance`: clients go from nodes that have more than their share to the others.
//!
//! Deliberately absent: who moves whom; each node does its part (`broker/src/spreading`).

use admin::cluster::{ClusterStatus, Evenness, NodeState, NodeStatus, Reach};
use serde_json::json;
use text_table::Table;

use super::{print, wait};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};

/// How clients are moved.
#[derive(clap::Args)]
pub(super) struct Rebalance {
    #[command(flatten)]
    node: HttpPort,
    /// Clients that each node moves per second; by default its clusterConfig.drainClientsPerSecond.
    #[arg(long, value_name = "CLIENTS", value_parser = clap::value_parser!(u32).range(1..))]
    per_second: Option<u32>,
    /// Print how many clients would be moved, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Move no more clients.
    #[arg(long, conflicts_with_all = ["dry_run", "per_second", "wait"])]
    stop: bool,
    /// Return when no node has more clients than its share, or fail after so many seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "600",
        conflicts_with = "dry_run"
    )]
    wait: Option<u64>,
}

pub(super) fn run(rebalance: &Rebalance) -> Result<(), Failure> {
    let port = &rebalance.node;
    let body = match (rebalance.stop, rebalance.per_second) {
        (true, _) => json!({ "clients_per_second": 0 }),
        (false, Some(clients)) => json!({ "clients_per_second": clients }),
        (false, None) => json!({}),
    };
    if !rebalance.stop {
        let status: ClusterStatus = parse(&port.get("/api/v1/cluster")?)?;
        print(&table(&status))?;
        if rebalance.dry_run {
            return Ok(());
        }
    }
    let answer = port.post("/api/v1/cluster/rebalance", &body);
    answer.map_err(Failure::refused)?;
    match rebalance.wait {
        Some(limit_s) => wait::even(port, limit_s),
        None => Ok(()),
    }
}

/// Each node with what it has and would move, and how even that is.
fn table(status: &ClusterStatus) -> String {
    let all = Evenness::of_status(status);
    let mut table = Table::new(["node", "name", "connections", "to move"]);
    for node in &status.nodes {
        let connections = node.connections.map_or("?".to_owned(), |n| n.to_string());
        let name = match node.name.as_str() {
            "" => "?",
            name => name,
        };
        let to_move = spare(node, all).to_string();
        table.row([&node.node.to_string(), name, &connections, &to_move]);
    }
    format!("{table}\n{}\n", told(all))
}

fn spare(node: &NodeStatus, all: Evenness) -> u64 {
    match (node.state, node.reach) {
        (NodeState::Up, Reach::Up | Reach::Suspect) => {
            let connections = node.connections.unwrap_or_default();
            connections.saturating_sub(all.enough())
        }
        _ => 0,
    }
}

/// How even the clients of a cluster are, in words.
pub(super) fn told(all: Evenness) -> String {
    format!(
        "{} on {} that serve, most on one: {} ({:.2} of the mean)",
        text_table::units::counted(all.clients, "connection", "connections"),
        text_table::units::counted(all.nodes as u64, "node", "nodes"),
        all.most,
        all.most_to_mean()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenness_is_told_in_one_line() {
        let all = Evenness::of([30, 30, 0].into_iter());
        let text = "60 connections on 3 nodes that serve, most on one: 30 (1.50 of the mean)";
        assert_eq!(told(all), text);
    }
}
