//! Sessions that the store keeps, and the end of connections and sessions.

pub(crate) mod end;
pub(crate) mod new_leaders;
pub(crate) mod reopening;
pub(crate) mod unreleased;
