//! What is remembered of sessions that the store keeps.

pub(crate) mod unreleased;
