//! Who fails to log in, at which node.

use guard::{FailingAddress, FailingUser, Guard};
use inspection::{At, FailedLoginsRow, FailedUser, NodeId};

/// Addresses of a node in an answer.
const MOST: usize = 100;

/// Those of this node.
pub(super) fn here(guard: &Guard, own: (NodeId, &str)) -> Vec<FailedLoginsRow> {
    let (node, node_name) = own;
    let row = |failing: FailingAddress| FailedLoginsRow {
        node,
        node_name: node_name.to_owned(),
        address: address(&failing),
        denied: failing.total.denied.0.into(),
        refused: failing.total.refused.0.into(),
        last: At::unix_ms(failing.total.last.0),
        users: failing.users.into_iter().map(user).collect(),
    };
    guard.failing(MOST).into_iter().map(row).collect()
}

/// Without the length of its prefix, unless it stands for others.
fn address(failing: &FailingAddress) -> String {
    let address = failing.address.to_string();
    match address.strip_suffix("/32") {
        Some(single) if failing.address.is_ipv4() => single.to_owned(),
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
