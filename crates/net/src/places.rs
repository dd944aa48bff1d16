//! Places for the connections of all loops: as many as the process has file descriptors for, beside those that it keeps
//! back for itself.
//!
//! Invariant: a place is taken before accept(2), and is free again when the socket is closed. As long as there is none,
//! nothing is accepted: connections wait in their listeners, where the kernel keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The places.
#[derive(Debug)]
pub struct Places {
    most: Descriptors,
    taken: AtomicU64,
    /// None was free when one was asked for last.
    is_waiting: AtomicBool,
    waits: AtomicU64,
}

/// File descriptors, counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Descriptors(pub u64);

impl Places {
    /// So many.
    #[must_use]
    pub fn new(most: Descriptors) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicU64::new(0),
            is_waiting: AtomicBool::new(false),
            waits: AtomicU64::new(0),
        })
    }

    /// As many as are wanted.
    #[must_use]
    pub fn without_limit() -> Arc<Self> {
        Self::new(Descriptors(u64::MAX))
    }

    /// How many there are.
    #[must_use]
    pub fn most(&self) -> Descriptors {
        self.most
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> Descriptors {
        Descriptors(self.taken.load(Ordering::Relaxed))
    }

    /// Whether all are taken: connections wait in their listeners.
    #[must_use]
    pub fn have_run_out(&self) -> bool {
        self.taken() >= self.most
    }

    /// How often accepting has stopped because all were taken.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> bool {
        let add = |taken: u64| (taken < self.most.0).then_some(taken + 1);
        let is_taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok();
        let was_waiting = self.is_waiting.swap(!is_taken, Ordering::Relaxed);
        if !is_taken && !was_waiting {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    pub(crate) fn free(&self) {
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place is freed once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_once() {
        let places = Places::new(Descriptors(2));
        assert!(places.take() && places.take());
        assert!(places.have_run_out());
        assert!(!places.take() && !places.take());
        assert_eq!(places.waits(), 1, "it stopped once");
        places.free();
        assert!(!places.have_run_out() && places.take());
        assert!(!places.take());
        assert_eq!((places.taken(), places.waits()), (Descriptors(2), 2));
    }
}
