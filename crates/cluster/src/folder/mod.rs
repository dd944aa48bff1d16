//! What the data folder keeps of the cluster: which one it is, and how far this node has come in it.

pub(crate) mod record;
pub(crate) mod stamps;
