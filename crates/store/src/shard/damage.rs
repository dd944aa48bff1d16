//! Damage that a read of a shard's tables meets while the shard is open.
//!
//! Whoever meets it drops the state of the shard at once: half of a state is no state. Then the replica controller
//! (`placement/controller.rs`) has another node lead, and closes the replica. The log and the tables stay as they are.
//!
//! Invariants: from the damage on nothing is applied here, and no checkpoint is written; the damage that is found first is the one
//! that is told.
//!
//! Deliberately absent: writes that fail (`checkpoint.rs`); the repair of a table.

use std::future::pending;

use consensus::Applied;
use parking_lot::RwLockWriteGuard;
use store_state::TableError;
use tokio::sync::watch;

/// What is damaged, if anything is.
#[derive(Debug)]
pub(crate) struct Damage(watch::Sender<Option<String>>);

impl Default for Damage {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Damage {
    /// A read of the tables has met damage: drops the state of the shard, so that nobody decides anything by it, and tells the
    /// replica controller.
    pub(super) fn meet<S>(&self, mut state: RwLockWriteGuard<'_, Option<S>>, error: &TableError) {
        *state = None;
        drop(state);
        self.find(error.to_string());
    }

    /// A read has met damage.
    fn find(&self, what: String) {
        self.0.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(what);
            is_first
        });
    }

    /// The shard is opened with what its tables hold now.
    pub(super) fn clear(&self) {
        self.0.send_replace(None);
    }

    /// Whether a read has met damage since the shard was opened.
    pub(crate) fn is_found(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until a read meets damage; at once, if one has. Returns what is damaged.
    pub(crate) async fn found(&self) -> String {
        let mut found = self.0.subscribe();
        let found = found.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|found| found.clone());
        found.expect("the sender of what is found lives as long as the shard")
    }
}

/// What becomes of an entry that comes after the damage: it is not applied, and whoever has proposed it hears so when the replica
/// is closed.
pub(super) fn never_applied() -> Applied {
    Applied::Wait(Box::pin(pending()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_damage_that_is_found_first_is_told() {
        let damage = Damage::default();
        assert!(!damage.is_found());
        damage.find("a block".to_owned());
        damage.find("another block".to_owned());
        assert!(damage.is_found());
        assert_eq!(damage.found().await, "a block");
        damage.clear();
        assert!(!damage.is_found());
    }
}
