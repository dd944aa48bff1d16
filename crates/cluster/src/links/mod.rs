//! Connections to other nodes and from them, dialled again whenever they are lost.

pub(crate) mod backoff;
pub(crate) mod connect;
pub(crate) mod heard;
pub(crate) mod link;
pub(crate) mod listen;
pub(crate) mod names;
pub(crate) mod strangers;
pub(crate) mod stream;
pub(crate) mod writer;
