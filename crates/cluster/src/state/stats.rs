//! Numbers for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::protocol::channel::Channel;

/// Counters of both connections of one channel with one peer, from the start of this process.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    pub(crate) connects: AtomicU64,
    pub(crate) sent_frames: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_frames: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
}

/// What the counters of a link were when they were read. Frames are messages, requests and answers; bytes are
/// those of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReading {
    /// The other node.
    pub node: u64,
    /// The channel.
    pub channel: Channel,
    /// Whether our connection is up.
    pub connected: bool,
    /// How often our connection came up.
    pub connects: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
}

impl LinkCounters {
    pub(crate) fn count_sent(&self, frames: usize, bytes: usize) {
        self.sent_frames.fetch_add(frames as u64, Relaxed);
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn count_received(&self, bytes: usize) {
        self.received_frames.fetch_add(1, Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }
}
