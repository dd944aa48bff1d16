//! The other nodes: the way to them, what is said on it, what is known of them.
//!
//! Deliberately absent: links and membership (`cluster`); who should hold replicas (`placement`).
//!
//! Read next: `message.rs`.

pub(crate) mod known;
pub(crate) mod member;
pub(crate) mod message;
pub(crate) mod network;
pub(crate) mod wire_size;
