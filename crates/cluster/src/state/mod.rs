//! What the tasks of a cluster's thread, and the threads that use it, share. Nothing here waits for another node.

pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod complaints;
pub(crate) mod connect_error;
pub(crate) mod handler;
pub(crate) mod outbox;
pub(crate) mod peer;
pub(crate) mod peers;
pub(crate) mod shared;
pub(crate) mod stats;
pub(crate) mod tls;
pub(crate) mod versions;
