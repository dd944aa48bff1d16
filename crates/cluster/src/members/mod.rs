//! Who belongs to the cluster, and which of them can be reached. No I/O.

pub(crate) mod list;
pub(crate) mod reach;
