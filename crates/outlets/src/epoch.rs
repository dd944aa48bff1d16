//! What the node says of a connection and of messages.

/// Which process of an outlet this is: what is written by an earlier one may be refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

/// The User Property of CONNACK with the number of the connection.
pub(crate) const EPOCH: &str = "hmq-epoch";

/// The User Property with the position of a message, of the node and for targets.
pub const POSITION: &str = "hmq-position";
