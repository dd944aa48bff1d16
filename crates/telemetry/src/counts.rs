//! What became of the pushes, for the metrics of the node itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Data points of metrics.
    Metrics,
    /// Log lines.
    Logs,
}

/// Why a push failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No connection to the collector, or no HTTP answer on it.
    Unreachable,
    /// No complete answer at the deadline.
    Deadline,
    /// The collector asks for a later push: status 429, 502, 503 or 504.
    Busy,
    /// Another status than 2xx.
    Refused,
    /// The collector has taken a part of the push.
    Partial,
    /// The answer is no message of OTLP, or too large.
    Answer,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Logs];

    /// The name in labels and log lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
        }
    }
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Deadline,
        Self::Busy,
        Self::Refused,
        Self::Partial,
        Self::Answer,
    ];

    /// The name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Deadline => "deadline",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Partial => "partial",
            Self::Answer => "answer",
        }
    }
}

/// Counters of the pushes since the start of the process.
#[derive(Debug, Default)]
pub struct Counts {
    pushes: [AtomicU64; Signal::ALL.len()],
    dropped: [AtomicU64; Signal::ALL.len()],
    failures: [AtomicU64; Failure::ALL.len()],
}

impl Counts {
    /// Pushes that the collector has taken, also in part.
    #[must_use]
    pub fn pushes(&self, signal: Signal) -> u64 {
        self.pushes[signal as usize].load(Ordering::Relaxed)
    }

    /// Data points or log lines that did not reach the collector and are not sent again.
    #[must_use]
    pub fn dropped(&self, signal: Signal) -> u64 {
        self.dropped[signal as usize].load(Ordering::Relaxed)
    }

    /// Pushes that failed for this reason.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn handle_push(&self, signal: Signal) {
        self.pushes[signal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handle_drop(&self, signal: Signal, count: usize) {
        self.dropped[signal as usize].fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn handle_failure(&self, failure: Failure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }
}
