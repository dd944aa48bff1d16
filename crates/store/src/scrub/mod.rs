//! What is on the disk is read again now and then, so that damage is found while other copies of the data are whole.

pub(crate) mod counters;
pub(crate) mod shards;
pub(crate) mod task;
mod tour;
