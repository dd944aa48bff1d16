//! Waiting until a node that drains is empty, or nodes that leave have left.
//!
//! Deliberately absent: what begins a change.

use std::thread::sleep;
use std::time::{Duration, Instant};

use admin::api::NodeChange;
use admin::cluster::{ClusterStatus, Evenness, NodeId, NodeState, NodeStatus};
use serde_json::json;
use text_table::units::counted;

use super::{node_path, print, rebalance, told};
use crate::failure::Failure;
use crate::http_port::{HttpPort, parse};

/// How often the cluster is asked.
const LOOK: Duration = Duration::from_millis(500);

/// How long a node has to be empty: what another node knows of its clients may be 1 s late.
const EMPTY: Duration = Duration::from_secs(2);

/// Has a node drain, and waits for that.
pub(super) fn drain(port: &HttpPort, member: Option<&str>, limit_s: u64) -> Result<(), Failure> {
    let member = match member {
        Some(member) => member.to_owned(),
        None => status(port)?.node.to_string(),
    };
    let answer = port.post(&node_path(&member, "drain"), &json!({}));
    let change: NodeChange = parse(&answer.map_err(Failure::refused)?)?;
    print(&told(&change))?;
    let node = change.node;
    let mut empty_since: Option<Instant> = None;
    let done = look_until(limit_s, || {
        let status = status(port)?;
        let is_empty = left(&status, node).is_some_and(Left::is_nothing);
        let since = is_empty.then(|| empty_since.unwrap_or_else(Instant::now));
        empty_since = since;
        Ok(since.is_some_and(|since| since.elapsed() >= EMPTY))
    });
    match done {
        Ok(()) => print(&format!(
            "done: node {node} ({}) is empty\n",
            change.node_name
        )),
        Err(last) => {
            let status = last.map_or_else(|| status(port), Err)?;
            Err(Failure::Runtime(match left(&status, node) {
                Some(left) => format!("node {node} after {limit_s} s: {}", left.told()),
                None => format!(
                    "node {node} is not drained by now: its drain was ended, or it is no member any more"
                ),
            }))
        }
    }
}

/// Waits until no node has more clients than its share.
pub(super) fn even(port: &HttpPort, limit_s: u64) -> Result<(), Failure> {
    let mut all = Evenness::default();
    let done = look_until(limit_s, || {
        all = Evenness::of_status(&status(port)?);
        Ok(all.most <= all.enough())
    });
    let told = rebalance::told(all);
    match done {
        Ok(()) => print(&format!("done: {told}\n")),
        Err(_) => Err(Failure::Runtime(format!("after {limit_s} s: {told}"))),
    }
}

/// Waits until none of these nodes is a member, and prints each that has left.
pub(super) fn gone(
    port: &HttpPort,
    leaving: &[(NodeId, String)],
    limit_s: u64,
) -> Result<(), Failure> {
    let mut leaving = leaving.to_vec();
    let done = look_until(limit_s, || {
        let status = status(port)?;
        let is_member = |node: NodeId| status.nodes.iter().any(|member| member.node == node);
        let (stay, left): (Vec<_>, Vec<_>) = std::mem::take(&mut leaving)
            .into_iter()
            .partition(|(node, _)| is_member(*node));
        leaving = stay;
        for (node, name) in left {
            print(&format!("left: node {node} ({name})\n"))?;
        }
        Ok(leaving.is_empty())
    });
    done.map_err(|last| {
        let names: Vec<&str> = leaving.iter().map(|(_, name)| name.as_str()).collect();
        let why = match last {
            Some(Failure::Runtime(why)) => format!("; the last answer: {why}"),
            _ => String::new(),
        };
        Failure::Runtime(format!(
            "not left after {limit_s} s: {}{why}",
            names.join(", ")
        ))
    })
}

/// Looks until something is so. An error is tolerated until the limit: the address may be that of several nodes, and the one
/// that answered before may have left.
///
/// # Errors
/// The limit is over: with what the last look came to, if that was an error.
fn look_until(
    limit_s: u64,
    mut look: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Option<Failure>> {
    let begun = Instant::now();
    let limit = Duration::from_secs(limit_s);
    loop {
        let looked = look();
        if let Ok(true) = looked {
            return Ok(());
        }
        if begun.elapsed() >= limit {
            return Err(looked.err());
        }
        sleep(LOOK.min(limit.saturating_sub(begun.elapsed())));
    }
}

fn status(port: &HttpPort) -> Result<ClusterStatus, Failure> {
    parse(&port.get("/api/v1/cluster")?)
}

/// What a node still has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    /// `None`: that is not known.
    clients: Option<u64>,
    shards_led: usize,
}

impl Left {
    fn is_nothing(self) -> bool {
        self.clients == Some(0) && self.shards_led == 0
    }

    fn told(self) -> String {
        let clients = self
            .clients
            .map_or("? clients".to_owned(), |n| counted(n, "client", "clients"));
        let shards = counted(self.shards_led as u64, "shard", "shards");
        format!("it still has {clients}, and leads {shards}")
    }
}

/// What a node that is drained still has; `None`: it is not drained.
fn left(status: &ClusterStatus, node: NodeId) -> Option<Left> {
    let is_drained = |of: &&NodeStatus| {
        of.node == node && matches!(of.state, NodeState::Draining | NodeState::Leaving)
    };
    let member = status.nodes.iter().find(is_drained)?;
    let led = status.shards.iter();
    let led = led.filter(|shard| shard.leader == Some(node));
    Some(Left {
        clients: member.connections,
        shards_led: led.count(),
    })
}

#[cfg(test)]
mod tests {
    use admin::cluster::Reach;

    use super::super::resize::tests::{member, status_of};
    use super::*;

    #[test]
    fn a_node_is_empty_when_it_is_known_to_have_no_clients() {
        let with = |state, connections| {
            let mut of = member(2, "mq-2", state, Reach::Up);
            of.connections = connections;
            left(&status_of(vec![of]), NodeId(2))
        };
        for (state, clients, is_empty) in [
            (NodeState::Draining, Some(0), Some(true)),
            (NodeState::Leaving, Some(0), Some(true)),
            (NodeState::Draining, Some(1), Some(false)),
            (NodeState::Draining, None, Some(false)),
            (NodeState::Up, Some(0), None),
        ] {
            assert_eq!(with(state, clients).map(Left::is_nothing), is_empty);
        }
        let said = with(NodeState::Draining, Some(1)).map(Left::told);
        let expected = "it still has 1 client, and leads 0 shards";
        assert_eq!(said.as_deref(), Some(expected));
    }

    #[test]
    fn errors_are_tolerated_until_the_limit() {
        let mut answers = [Err(Failure::TimedOut), Ok(true)].into_iter();
        assert_eq!(
            look_until(60, || answers.next().expect("an answer")),
            Ok(())
        );
        let failed = look_until(0, || Err(Failure::TimedOut));
        assert_eq!(failed, Err(Some(Failure::TimedOut)));
        assert_eq!(look_until(0, || Ok(false)), Err(None));
    }
}
