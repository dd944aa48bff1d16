//! How many connected clients a change would disconnect, for dry runs.
//!
//! Invariant: a number comes from all nodes. It is not known if one of them has not answered.
//!
//! Deliberately absent: what lets a client in. A client with the same user name that something else than the store has let in
//! is counted too.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::{Put, UnixMs, User};
use control_view::View;
use tokio::time::{Instant, timeout_at};

use crate::api::{Amount, ClientState};
use crate::backend::{Broker, ClientFilter, Range};
use crate::page::{BUDGET_MS, DEFAULT_BUDGET, LARGEST_LIMIT, MissingReason};

/// Clients that are counted at most.
const MOST: usize = 10_000;

/// Clients that a change would disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Ended {
    pub(super) clients: Amount,
    /// There are more, which were not counted.
    pub(super) is_least: bool,
}

/// Counts the connected clients of the cluster that a change would disconnect, [`MOST`] at most. `None`: it is not known,
/// because a node has not answered, or 5 s were too short to look at all clients.
pub(super) async fn ended(broker: &Arc<dyn Broker>, view: &View, put: &Put) -> Option<Ended> {
    let Some(user) = ended_user(view, put) else {
        return Some(Ended::default());
    };
    let (shortest, longest) = (*BUDGET_MS.start(), *BUDGET_MS.end());
    let deadline = Instant::now() + Duration::from_millis(longest);
    let filter = ClientFilter {
        user: Some(user.to_owned()),
        state: Some(ClientState::Connected),
        ..ClientFilter::default()
    };
    let (mut count, mut after) = (0, None);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(shortest) {
            return None;
        }
        let range = Range {
            after,
            limit: LARGEST_LIMIT,
            budget: left.min(DEFAULT_BUDGET),
        };
        let asked = broker.clients(filter.clone(), range);
        let found = timeout_at(deadline, asked).await.ok()?.ok()?;
        // A shard that nobody leads has sessions of clients that are away.
        let is_whole = |reason| reason == MissingReason::NoLeader;
        if !found.partial.iter().all(|missing| is_whole(missing.reason)) {
            return None;
        }
        count += found.items.len();
        let is_least = count > MOST;
        if is_least || found.last.is_none() {
            let clients = Amount(count.min(MOST) as u64);
            return Some(Ended { clients, is_least });
        }
        after = found.last;
    }
}

/// The user whose clients a change would disconnect.
fn ended_user<'a>(view: &View, put: &'a Put) -> Option<&'a str> {
    match put {
        Put::User(name, after) => {
            let before = view.user(name)?;
            let is_ended = |user: &User| user.ends_logins(&before.record) || has_ended(user);
            let ends = after.as_deref().is_none_or(is_ended);
            ends.then_some(name)
        }
        Put::Group(..) | Put::Rules(_) | Put::Person(..) | Put::Key(..) => None,
    }
}

fn has_ended(user: &User) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis());
    user.ends_ms
        .is_some_and(|UnixMs(ends_ms)| u128::from(ends_ms) <= now_ms)
}
