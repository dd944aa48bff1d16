//! What nodes say to each other on a connection: the handshake, then frames. No I/O.

pub(crate) mod channel;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod refusal;
