//! What the data folder keeps of the cluster: which one it is, how far this node has come in it, and which
//! versions of the protocol the other members speak.

pub(crate) mod record;
pub(crate) mod spoken;
pub(crate) mod stamps;
