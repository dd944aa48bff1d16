//! A shard is raised to a level: what its replicas write, and do with an entry, is what that level says from the entry on.
//!
//! ```text
//! `Raise(n)` is applied ─► no checkpoint under way ─► `FORMAT` of the folder is n, synced ─► machine and state are at level n
//!                                                                                           └─► the next checkpoint has the level row
//! ```
//!
//! Invariants: all replicas are at a level from the same entry on; nothing of a level is on the disk before the format of the data
//! folder says so.
//!
//! Deliberately absent: who decides that a shard is raised (`broker`).

use std::sync::Arc;
use std::time::Duration;

use consensus::{Applied, blocking};
use store_state::Level;
use tokio::time::{Instant, sleep};

use crate::kinds::kind::Kind;
use crate::shard::apply::Replica;
use crate::shard::shards::note_level;
use crate::shard::split::until_over;
use crate::storage::folder::Folder;

/// Time until the format of the data folder is written again that could not be.
const NOTE_RETRY: Duration = Duration::from_secs(1);

/// Has programs refuse the data folder that do not know the level. Tries until that is written: without it the entry cannot be
/// applied.
async fn note(folder: Arc<Folder>, level: Level) {
    let mut is_told = false;
    loop {
        let to_note = Arc::clone(&folder);
        match blocking(move || to_note.note_level(level)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if !std::mem::replace(&mut is_told, true) => tracing::error!(
                %error,
                "the level of a shard is not raised yet, because the format of the data folder cannot be raised"
            ),
            Ok(Err(_)) => {}
            // The store ends.
            Err(_) => return,
        }
        sleep(NOTE_RETRY).await;
    }
}

impl<M: Kind> Replica<M> {
    /// Applies an entry that raises the shard.
    pub(super) fn raise(&self, level: Level) -> Applied {
        let Self {
            shard, services, ..
        } = self;
        if let Some(wait) = until_over(&shard.in_checkpoint) {
            // The rows that it has yet to hand out are those of the level before.
            return wait;
        }
        if !services.folder.has_noted(level) {
            let folder = Arc::clone(&services.folder);
            return Applied::Wait(Box::pin(note(folder, level)));
        }
        let before = match &mut *shard.state.write() {
            Some(state) if level > state.level => {
                state.mark = None;
                state.dirty_since.get_or_insert_with(Instant::now);
                state.machine.raise(level);
                state.is_level_unsaved = true;
                Some(std::mem::replace(&mut state.level, level))
            }
            _ => None,
        };
        match before {
            Some(before) => {
                if let Some(shards) = shard.shards() {
                    note_level(&Arc::downgrade(&shards));
                }
                tracing::info!(store = M::NAME, shard = shard.number, %before, %level, "the level of a shard is raised");
            }
            None => tracing::info!(
                store = M::NAME,
                shard = shard.number,
                %level,
                "a raise of the level no longer applies, and does nothing"
            ),
        }
        Applied::Done
    }
}
