//! How a node comes to its cluster, has its data folder confirmed, and keeps the list of members.

pub(crate) mod confirm;
pub(crate) mod error;
pub(crate) mod founding;
pub(crate) mod gossip;
pub(crate) mod heard;
pub(crate) mod join;
pub(crate) mod seeds;
pub(crate) mod upkeep;
