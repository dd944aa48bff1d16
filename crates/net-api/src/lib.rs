//! What an event loop and the service on it say to each other, so that a service needs no sockets: an event loop of
//! `net` runs it, and so does a test or a simulation.
//!
//! A loop calls its [`Service`]: a connection has arrived, bytes have come, it can be written, a deadline has passed.
//! The service acts on the loop by [`Connections`].
//!
//! Deliberately absent: sockets, clocks and threads, which are the loop's; MQTT, which is the service's.

mod arena;
mod connections;
mod counter;
mod kind;
mod peer;
mod rate;
mod service;
mod spoken;

pub use arena::{Arena, Key};
pub use connections::{Behind, Connections, Destination, Handshakes};
pub use counter::Counter;
pub use kind::Kind;
pub use peer::PeerAddress;
pub use rate::{BytesPerSecond, RateBucket, RateGroup, Rates};
pub use service::{Arrival, Closed, Next, Received, Service, Transmit};
pub use spoken::Spoken;

/// A connection of one loop.
pub type ConnectionId = Key;
