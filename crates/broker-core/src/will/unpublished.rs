//! Wills that a loop could not publish.

/// How long a loop waits before it asks for wills again that it could not publish, in ms: at first, and at most.
pub(super) const RETRY_MS: u64 = 1_000;

/// Wills that a loop asks for again. Beyond that they are published by who leads the session shard next.
pub(super) const UNPUBLISHED: usize = 65_536;

/// Wills that a loop could not publish.
#[derive(Debug)]
pub(crate) struct Unpublished {
    /// By client and epoch.
    pub(super) wills: Vec<(Box<str>, u64)>,
    pub(super) retry_ms: u64,
    pub(super) is_armed: bool,
}

impl Default for Unpublished {
    fn default() -> Self {
        Self {
            wills: Vec::new(),
            retry_ms: RETRY_MS,
            is_armed: false,
        }
    }
}
