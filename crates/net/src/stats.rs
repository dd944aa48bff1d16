//! Counters of one loop.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that is only added to by the holder of its loop's lock, and read by anybody.
///
/// A plain load and store: no locked instruction, no cache line shared between loops.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Takes away, for gauges.
    pub fn sub(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(n),
            Ordering::Relaxed,
        );
    }

    /// Replaces the value, for gauges.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one loop has done since the start.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LoopStats {
    /// Connections accepted and given to this loop.
    pub accepted: Counter,
    /// Connections open now.
    pub open: Counter,
    /// Bytes read from sockets.
    pub bytes_in: Counter,
    /// Bytes written to sockets.
    pub bytes_out: Counter,
    /// Calls of read(2).
    pub reads: Counter,
    /// Calls of write(2).
    pub writes: Counter,
    /// Turns of the loop: returns of epoll_wait(2), and mail handled by other loops.
    pub turns: Counter,
    /// Batches of mail that another loop's thread handled here while this loop slept.
    pub helped: Counter,
    /// Reads put off because a connection was over its inbound rate.
    pub throttled_in: Counter,
    /// Writes put off because a connection was over its outbound rate.
    pub throttled_out: Counter,
    /// Failures of accept(2), such as for want of descriptors.
    pub accept_errors: Counter,
}
