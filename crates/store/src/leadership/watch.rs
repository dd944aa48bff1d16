//! Whether the replica of this node leads its shard and may serve.
//!
//! Invariant: a leader that no majority has answered for [`MAJORITY_SILENT`] does not serve: its proposals may never commit.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Group, Standing};
use tokio::time::interval;

use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::leadership::state::Leadership;
use crate::shard::handle::Shard;

/// How often the silence of the majority is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How long a majority may be silent before a leader serves no more. It takes no proposals then, and believes
/// that it knows the routes of the shard: others wait for 3 s until they go on without it.
const MAJORITY_SILENT: Duration = Duration::from_millis(1_500);

/// Sets the leadership of a replica. A leader without a quorum stops serving: its proposals may never commit.
pub(crate) async fn watch_leadership<M: Kind>(shard: Arc<Shard<M>>, group: Arc<Group<Command>>) {
    let mut standing = group.watch();
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            changed = standing.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = look.tick() => {}
        }
        let Standing { leads, term, .. } = *standing.borrow_and_update();
        let silence = group.majority_silence();
        let leadership = Leadership {
            leads: leads && silence.is_none_or(|silence| silence < MAJORITY_SILENT),
            term,
        };
        shard.routing.leadership.send_if_modified(|known| {
            let is_new = *known != leadership;
            *known = leadership;
            is_new
        });
    }
}
