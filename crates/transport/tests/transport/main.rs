//! The crate from outside: each layer against a peer, and all of them together.

mod authority;
mod layers;
mod memory;
mod tls;
