//! How a node comes to its cluster, has its data folder confirmed, and keeps the list of members.

pub(crate) mod confirm;
pub(crate) mod error;
pub(crate) mod gossip;
pub(crate) mod join;
pub(crate) mod upkeep;
