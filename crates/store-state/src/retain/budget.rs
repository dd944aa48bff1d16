//! What pages of retained messages may hold and cost.

/// What is left for pages of retained messages: each page takes its part of it, and ends when any of the three
/// is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageBudget {
    /// Messages.
    pub messages: usize,
    /// Bytes of their topics, properties and payloads; the last message may exceed them.
    pub bytes: usize,
    /// Topics that are looked at, as [`RetainedIndex::page`](topic_router::RetainedIndex::page) counts them.
    pub work: usize,
}

impl PageBudget {
    /// All there is.
    pub const UNLIMITED: Self = Self {
        messages: usize::MAX,
        bytes: usize::MAX,
        work: usize::MAX,
    };

    /// Whether nothing more should be put on a page.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.messages == 0 || self.bytes == 0 || self.work == 0
    }
}
