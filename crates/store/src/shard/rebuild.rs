//! What a split has left to be made anew is made behind the scenes: a little at a time, on the shard's thread.
//!
//! A leader of the inbox store that was split tells filters that the other half has now, too. It is not to tell less before
//! all nodes that go by these know where the other half's are: whoever is told of filters says when that is
//! ([`Shard::narrow`]). Other replicas tell nobody of filters, and need not wait.
//!
//! What is left until the tables have a checkpoint goes on when that is saved, and at the next start.
//!
//! Invariant: nothing is rebuilt between two parts of an operation.
//!
//! Deliberately absent: what there is to be made anew (`store_state::Split::rebuild_part`).

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::kinds::kind::Kind;
use crate::shard::handle::{Shard, State};

/// Entries that are rebuilt before the shard does something else: about a tenth of a millisecond.
const ENTRIES_AT_ONCE: usize = 256;

/// Whether there is something to be rebuilt.
pub(super) struct Rebuild {
    progress: watch::Sender<Progress>,
    /// No operation is under way, since the last entry that was applied was applied as a whole.
    is_between: Notify,
}

/// What a turn has come to.
enum Turn {
    /// Nothing is left.
    Done,
    /// More is left.
    More,
    /// An operation is under way, or the next entry is not written yet.
    MustWait,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Progress {
    #[default]
    Done,
    /// Filters may be told only as they are.
    Held,
    Wanted,
}

impl Default for Rebuild {
    fn default() -> Self {
        Self {
            progress: watch::Sender::new(Progress::Done),
            is_between: Notify::new(),
        }
    }
}

impl Rebuild {
    /// The shard has been split. To be called while its state is locked.
    pub(super) fn want(&self, is_held: bool) {
        self.progress.send_replace(match is_held {
            true => Progress::Held,
            false => Progress::Wanted,
        });
    }

    /// There is more to be rebuilt, which concerns no filters.
    pub(super) fn want_more(&self) {
        self.progress.send_if_modified(|progress| {
            let was_done = *progress == Progress::Done;
            if was_done {
                *progress = Progress::Wanted;
            }
            was_done
        });
    }

    /// Whether nothing is left.
    pub(super) fn is_done(&self) -> bool {
        *self.progress.borrow() == Progress::Done
    }

    /// Nobody goes by filters that have moved. False: nothing waited for that.
    pub(super) fn release(&self) -> bool {
        self.progress.send_if_modified(|progress| {
            let was_held = *progress == Progress::Held;
            if was_held {
                *progress = Progress::Wanted;
            }
            was_held
        })
    }

    /// All that was begun is applied. Cheap.
    pub(super) fn applied(&self) {
        self.is_between.notify_one();
    }
}

impl<M: Kind> Shard<M> {
    /// Whoever is told of filters goes by those of the other half, too, since which the shard tells no more of what it has
    /// not.
    pub(crate) fn narrow(&self) {
        if self.rebuild.release() {
            tracing::debug!(
                store = M::NAME,
                shard = self.number,
                "a shard that was split tells of its own filters only"
            );
        }
    }

    /// Goes on a little, if no operation is under way.
    fn rebuild_part(&self) -> Turn {
        let mut state = self.state.write();
        let Some(state) = &mut *state else {
            // Who opens it makes all anew.
            self.rebuild.progress.send_replace(Progress::Done);
            return Turn::Done;
        };
        if state.mark.is_none() {
            return Turn::MustWait;
        }
        let State {
            machine,
            effects,
            table,
            ..
        } = &mut *state;
        let done = M::with_outlet(effects, |outlet| {
            machine.rebuild_part(ENTRIES_AT_ONCE, &**table, outlet)
        });
        let is_all = done.unwrap_or_else(|error| {
            tracing::error!(
                store = M::NAME,
                shard = self.number,
                %error,
                "the tables of a shard cannot be rebuilt after a split: the shard serves, and takes more space"
            );
            true
        });
        if !is_all {
            return Turn::More;
        }
        // Rows may have changed.
        state.dirty_since.get_or_insert_with(Instant::now);
        self.rebuild.progress.send_replace(Progress::Done);
        Turn::Done
    }
}

/// Rebuilds what splits leave, for as long as the shard is there.
pub(crate) async fn rebuild<M: Kind>(shard: Arc<Shard<M>>) {
    let mut progress = shard.rebuild.progress.subscribe();
    loop {
        let wanted = progress.wait_for(|now| *now == Progress::Wanted).await;
        let is_gone = wanted.map(|_| ()).is_err();
        if is_gone {
            return;
        }
        while *shard.rebuild.progress.borrow() == Progress::Wanted {
            match shard.rebuild_part() {
                Turn::Done => break,
                Turn::More => yield_now().await,
                Turn::MustWait => shard.rebuild.is_between.notified().await,
            }
        }
    }
}
