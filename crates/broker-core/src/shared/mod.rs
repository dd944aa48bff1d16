//! Shared subscriptions: groups, their members, and what ended sessions have left to them.

pub(crate) mod awaited;
pub(crate) mod groups;
pub(crate) mod members;
pub(crate) mod offer;
mod offers;
