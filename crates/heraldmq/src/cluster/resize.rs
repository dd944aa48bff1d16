//! `heraldmq cluster resize`: which nodes leave so that those numbered from 0 to N - 1 remain.
//!
//! Invariant: nothing is changed unless each of them can leave, and a node that is up remains.
//!
//! Deliberately absent: how a node leaves (`broker/src/drain.rs`).

use std::num::NonZeroU64;

use admin::api::NodeChange;
use admin::cluster::{ClusterStatus, NodeId, NodeState, NodeStatus, Reach};
use serde_json::json;

use super::{node_path, print, told, wait};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};

/// Which nodes leave.
#[derive(clap::Args)]
pub(super) struct Resize {
    #[command(flatten)]
    node: HttpPort,
    /// How many nodes remain of those with a number: 0 to NODES - 1.
    #[arg(value_name = "NODES")]
    size: NonZeroU64,
    /// Print who would leave, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Return when they have left, or fail after so many seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "600",
        conflicts_with = "dry_run"
    )]
    wait: Option<u64>,
}

pub(super) fn run(resize: &Resize) -> Result<(), Failure> {
    let port = &resize.node;
    let status: ClusterStatus = parse(&port.get("/api/v1/cluster")?)?;
    let leaving = leaving(&status, resize.size.get()).map_err(Failure::Runtime)?;
    if leaving.is_empty() {
        return print("nothing to do: no node has such a number\n");
    }
    let begun: Vec<&&NodeStatus> = leaving.iter().filter(|node| !has_begun(node)).collect();
    let changed = |node: &NodeStatus, dry_run: bool| -> Result<NodeChange, Failure> {
        let path = node_path(&node.node.to_string(), "leave");
        let answer = port.post(&path, &json!({ "dry_run": dry_run }));
        parse(&answer.map_err(Failure::refused)?)
    };
    for node in leaving.iter().filter(|node| has_begun(node)) {
        print(&format!(
            "leaves already: node {} ({})\n",
            node.node, node.name
        ))?;
    }
    let mut refused = Vec::new();
    for node in &begun {
        let change = changed(node, true)?;
        if resize.dry_run || !change.possible {
            print(&told(&change))?;
        }
        if !change.possible {
            let why = change.detail.unwrap_or_default();
            refused.push(format!("node {} ({}): {why}", node.node, node.name));
        }
    }
    if !refused.is_empty() {
        return Err(Failure::Runtime(refused.join("\n")));
    }
    if resize.dry_run {
        return Ok(());
    }
    for node in &begun {
        print(&told(&changed(node, false)?))?;
    }
    let leaving: Vec<(NodeId, String)> = leaving
        .into_iter()
        .map(|node| (node.node, node.name.clone()))
        .collect();
    match resize.wait {
        Some(limit) => wait::gone(port, &leaving, limit),
        None => Ok(()),
    }
}

fn has_begun(node: &NodeStatus) -> bool {
    node.state == NodeState::Leaving
}

/// The nodes that leave, the highest number first, those included that have begun.
///
/// # Errors
/// No node has a number; the nodes have numbers in several series; one of those that leave is down or stops; or no node
/// remains that is up.
fn leaving(status: &ClusterStatus, size: u64) -> Result<Vec<&NodeStatus>, String> {
    if status.nodes.is_empty() {
        return Err("the node runs alone: there is no cluster to resize".to_owned());
    }
    let mut numbered: Vec<(&str, u64, &NodeStatus)> = status
        .nodes
        .iter()
        .filter_map(|node| ordinal(&node.name).map(|(series, number)| (series, number, node)))
        .collect();
    let Some((series, ..)) = numbered.first() else {
        return Err(
            "no node has a name that ends in a number, as mq-2 does; clusterConfig.nodeName sets the name of a node"
                .to_owned(),
        );
    };
    if let Some((other, ..)) = numbered.iter().find(|(other, ..)| other != series) {
        return Err(format!(
            "nodes are numbered as {series}-N and as {other}-N: which of them leave is not clear; `heraldmq cluster leave` takes \
             the name of a node"
        ));
    }
    numbered.retain(|(_, number, _)| *number >= size);
    numbered.sort_by_key(|(_, number, node)| (std::cmp::Reverse(*number), node.node));
    let leaving: Vec<&NodeStatus> = numbered.into_iter().map(|(_, _, node)| node).collect();
    let cannot: Vec<String> = leaving
        .iter()
        .filter(|node| !has_begun(node))
        .filter_map(|node| Some((node, obstacle(node)?)))
        .map(|(node, what)| {
            format!(
                "node {} ({}) {what} and cannot leave: start it again, or evict it if it will not come back",
                node.node, node.name
            )
        })
        .collect();
    if !cannot.is_empty() {
        return Err(cannot.join("\n"));
    }
    let remains = |node: &NodeStatus| {
        let leaves = leaving.iter().any(|other| other.node == node.node);
        !leaves && node.state == NodeState::Up && node.reach == Reach::Up
    };
    if !leaving.is_empty() && !status.nodes.iter().any(remains) {
        return Err("no node would remain that is up".to_owned());
    }
    Ok(leaving)
}

fn obstacle(node: &NodeStatus) -> Option<&'static str> {
    match (node.reach, node.state) {
        (Reach::Down, _) => Some("is down"),
        (_, NodeState::Stopping) => Some("is stopping"),
        _ => None,
    }
}

/// What stands before the last hyphen of a name, and the number behind it.
fn ordinal(name: &str) -> Option<(&str, u64)> {
    let (series, number) = name.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((series, number.parse().ok()?)))?
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn member(node: u64, name: &str, state: NodeState, reach: Reach) -> NodeStatus {
        NodeStatus {
            node: NodeId(node),
            name: name.to_owned(),
            address: String::new(),
            state,
            reach,
            version: String::new(),
            commit: None,
            levels: None,
            incarnation: 1,
            connections: None,
            unusable_replicas: None,
            clock_offset_ms: None,
        }
    }

    pub(crate) fn status_of(nodes: Vec<NodeStatus>) -> ClusterStatus {
        ClusterStatus {
            level: None,
            damaged: Vec::new(),
            cluster: None,
            env: String::new(),
            node: NodeId(1),
            nodes,
            shards: Vec::new(),
        }
    }

    /// Nodes that are up, numbered from 1 in this order.
    fn up(names: &[&str]) -> Vec<NodeStatus> {
        let node = |(node, name): (u64, &&str)| member(node, name, NodeState::Up, Reach::Up);
        (1..).zip(names).map(node).collect()
    }

    fn names(nodes: Vec<NodeStatus>, size: u64) -> Result<Vec<String>, String> {
        let status = status_of(nodes);
        let leaving = leaving(&status, size)?;
        Ok(leaving.iter().map(|node| node.name.clone()).collect())
    }

    #[test]
    fn a_number_stands_at_the_end_of_a_name() {
        for (name, found) in [
            ("mq-0", Some(("mq", 0))),
            ("a-b-12", Some(("a-b", 12))),
            ("mq-007", Some(("mq", 7))),
            ("mq-", None),
            ("mq", None),
            ("7", None),
            ("mq-1a", None),
            ("mq-+1", None),
            ("mq-99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(ordinal(name), found, "{name}");
        }
    }

    #[test]
    fn nodes_from_a_number_on_leave_the_highest_first() {
        let nodes = || up(&["mq-1", "mq-10", "mq-0", "other", "mq-9"]);
        assert_eq!(names(nodes(), 2).unwrap(), ["mq-10", "mq-9"]);
        assert_eq!(names(nodes(), 1).unwrap(), ["mq-10", "mq-9", "mq-1"]);
        assert!(names(nodes(), 11).unwrap().is_empty());
    }

    #[test]
    fn a_node_that_leaves_already_is_counted() {
        let mut nodes = up(&["mq-0", "mq-1", "mq-2"]);
        nodes[2].state = NodeState::Leaving;
        nodes[2].reach = Reach::Down;
        assert_eq!(names(nodes, 1).unwrap(), ["mq-2", "mq-1"]);
    }

    #[test]
    fn nothing_changes_if_one_of_them_cannot_leave() {
        let mut nodes = up(&["mq-0", "mq-1", "mq-2"]);
        nodes[1].reach = Reach::Down;
        assert!(names(nodes.clone(), 2).is_ok(), "it remains");
        let said = names(nodes.clone(), 1).unwrap_err();
        assert!(
            said.contains("(mq-1) is down") && said.contains("evict"),
            "{said}"
        );
        nodes[1].reach = Reach::Up;
        nodes[1].state = NodeState::Stopping;
        let said = names(nodes, 1).unwrap_err();
        assert!(said.contains("(mq-1) is stopping"), "{said}");
    }

    #[test]
    fn a_node_that_is_up_remains() {
        for (state, reach) in [
            (NodeState::Up, Reach::Down),
            (NodeState::Up, Reach::Suspect),
            (NodeState::Draining, Reach::Up),
            (NodeState::Leaving, Reach::Up),
        ] {
            let mut nodes = up(&["mq-0", "mq-1"]);
            nodes[0].state = state;
            nodes[0].reach = reach;
            let said = names(nodes, 1).unwrap_err();
            assert_eq!(said, "no node would remain that is up");
        }
    }

    #[test]
    fn names_that_do_not_tell_who_leaves_are_refused() {
        let said = names(up(&["a", "b"]), 1).unwrap_err();
        assert!(said.contains("nodeName"), "{said}");
        let said = names(up(&["ip-10-0-0-12", "ip-10-0-1-7"]), 1).unwrap_err();
        assert!(said.contains("ip-10-0-0-N and as ip-10-0-1-N"), "{said}");
        assert!(names(Vec::new(), 1).unwrap_err().contains("runs alone"));
    }
}
