//! What is wrong with a replica that does not serve, or does not follow: for people, who are told at every node.
//!
//! Invariant: what is noted stays until the replica serves, and follows, again, or is removed.

use parking_lot::Mutex;

/// Characters of a reason that are kept.
const LONGEST: usize = 160;

/// What is wrong with a replica.
#[derive(Debug, Default)]
pub(crate) struct Fault(Mutex<Option<String>>);

impl Fault {
    /// It cannot be used, or cannot read what its leader sends. True: that is news.
    pub(crate) fn note(&self, why: &str) -> bool {
        let why = why.chars().take(LONGEST).collect();
        self.0.lock().replace(why).is_none()
    }

    /// It serves, and follows; or it is removed.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// `None`: nothing is wrong.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}
