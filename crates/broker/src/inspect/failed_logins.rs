//! Who fails to log in, at which node.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use admin::Gathered;
use admin::api::{At, FailedLoginsRow, FailedUser};
use guard::{FailingAddress, FailingUser};

use super::gather;
use super::parts::{MessagesAnswer, MessagesQuestion};
use super::question::{Answer, Question};
use super::rows::Own;
use super::state::Inspect;
use crate::node::Node;

/// Addresses of a node in an answer.
const MOST: usize = 100;

/// Those of this node.
pub(super) fn here(node: &Node, own: &Own) -> Vec<FailedLoginsRow> {
    let row = |failing: FailingAddress| FailedLoginsRow {
        node: own.node,
        node_name: own.name.clone(),
        address: address(&failing),
        denied: failing.total.denied.0.into(),
        refused: failing.total.refused.0.into(),
        last: At::unix_ms(failing.total.last.0),
        users: failing.users.into_iter().map(user).collect(),
    };
    node.guard.failing(MOST).into_iter().map(row).collect()
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

/// Those of all nodes, those that failed most first.
pub(super) async fn all(
    inspect: &Arc<Inspect>,
    budget: Duration,
) -> Gathered<Vec<FailedLoginsRow>> {
    let question = Question::Messages(MessagesQuestion::FailedLogins);
    let answers = gather::all(inspect, question, budget).await;
    let (parts, partial) = gather::sort(answers, "failed_logins", |answer| match answer {
        Answer::Messages(MessagesAnswer::FailedLogins(rows)) => Some(rows),
        _ => None,
    });
    let mut all: Vec<_> = parts.into_iter().flat_map(|(.., rows)| rows).collect();
    all.sort_by_key(|row| Reverse(row.denied.saturating_add(row.refused)));
    Gathered { all, partial }
}
