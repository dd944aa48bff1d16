//! What a queued message takes, as far as its queue knows.

/// Estimated bytes of a queued reference to a body that the tables do not have.
pub(super) const REFERENCE: usize = 64;

/// What an inbox's queue says of one of its messages when it lets go of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight {
    /// Accounted bytes.
    pub(super) bytes: u32,
    /// The body it refers to; 0: none.
    pub(super) body: u64,
}

impl Weight {
    /// What a queued message takes that only memory has, its body apart.
    pub(super) fn unsaved(self) -> usize {
        if self.body == 0 {
            self.bytes as usize
        } else {
            REFERENCE
        }
    }
}
