//! Who fails to log in, and who was not let in and why, at which node.

use config::Network;
use guard::{FailingAddress, FailingUser, Guard};
use inspection::{At, FailedLoginsRow, FailedUser, Limit, NodeId, RefusedLoginsRow};

use super::lost;
use super::rows::Own;
use crate::node::Node;

/// Addresses of a node in an answer.
const MOST: usize = 100;

/// Those of this node.
pub(super) fn here(guard: &Guard, own: (NodeId, &str)) -> Vec<FailedLoginsRow> {
    let (node, node_name) = own;
    let row = |failing: FailingAddress| FailedLoginsRow {
        node,
        node_name: node_name.to_owned(),
        address: address(failing.address),
        denied: failing.total.denied.0.into(),
        refused: failing.total.refused.0.into(),
        last: At::unix_ms(failing.total.last.0),
        users: failing.users.into_iter().map(user).collect(),
    };
    guard.failing(MOST).into_iter().map(row).collect()
}

/// Who was not let in on this node, and why, the latest first.
pub(super) fn refused_here(node: &Node, own: &Own, limit: Limit) -> Vec<RefusedLoginsRow> {
    let refused = node.rim.refused_logins.latest(lost::rows(limit));
    let row = refused.into_iter().map(|row| RefusedLoginsRow {
        node: own.node,
        node_name: own.name.clone(),
        address: row.address.map(address),
        user: row.user.map(String::from),
        client_id: row.last.client_id.map(String::from),
        listener: row.last.listener.map(|kind| kind.name().to_owned()),
        cause: row.why.as_str().to_owned(),
        explanation: row.why.explanation().to_owned(),
        detail: row.last.detail.map(String::from),
        count: row.last.times.0,
        first: At::unix_ms(row.last.first.0),
        last: At::unix_ms(row.last.last.0),
    });
    row.collect()
}

/// Without the length of its prefix, unless it stands for others.
fn address(of: Network) -> String {
    let address = of.to_string();
    match address.strip_suffix("/32") {
        Some(single) if of.is_ipv4() => single.to_owned(),
        _ => address,
    }
}

fn user(FailingUser { name, failed }: FailingUser) -> FailedUser {
    FailedUser {
        user: name.map(String::from),
        denied: failed.denied.0.into(),
        refused: failed.refused.0.into(),
        last: At::unix_ms(failed.last.0),
    }
}
