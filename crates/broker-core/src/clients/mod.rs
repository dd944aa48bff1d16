//! The clients of one loop: their sessions, in a table, and what they and the loop are told.
//!
//! Invariant: nothing here knows of the store, of other nodes or of other clients than the one that is meant.
//!
//! `client.rs`: a client's state. `rare.rs`: what few clients have of it. `table.rs`: the table of them. `message.rs`,
//! `timer.rs`: what a loop is sent, and woken for.

mod client;
mod dropped;
pub(crate) mod io;
pub(crate) mod message;
mod rare;
mod table;
pub(crate) mod timer;

use mqtt_proto::QoS;
use net_api::{ConnectionId, Key};

pub(crate) use client::Client;
pub(crate) use dropped::{record, record_drop};
pub(crate) use io::LoopIo;
pub use message::{Advice, Done, FromLoop, LoopMessage, SendAway, SentOn, Thousandths};
pub(crate) use message::{BetweenLoops, Together};
pub(crate) use table::Clients;
pub(crate) use timer::Timer;

/// How soon connections that wait for the store look again.
pub(crate) const STORE_RETRY_MS: u64 = 2;

/// How often connections that wait for memory look again.
pub(crate) const PRESSURE_RETRY_MS: u64 = 100;

/// Marks the tag of a connection that has a session; the rest of the tag is the session's key.
pub(crate) const HAS_SESSION: u64 = 1 << 56;

/// The tag of a connection that is not heard any more: refused, or let go by its session.
pub(crate) const DONE: u64 = 1 << 57;

/// The session of a connection.
pub(crate) fn key_of(io: &impl LoopIo, connection: ConnectionId) -> Option<Key> {
    key_in(io.tag(connection)?)
}

/// The session that the tag of a connection names.
pub(crate) fn key_in(tag: u64) -> Option<Key> {
    (tag & HAS_SESSION != 0).then(|| Key::from_bits(tag & !HAS_SESSION))
}

/// Sends a connection its last bytes, and hears no more of it.
pub(crate) fn dismiss(io: &mut impl LoopIo, connection: ConnectionId, last: Vec<u8>) {
    io.set_tag(connection, DONE);
    io.send_last(connection, last);
}

/// The QoS that a message published with one QoS reaches a subscription of another with.
pub(crate) fn effective(published: QoS, granted: QoS) -> QoS {
    // [MQTT-3.8.4-8] the lesser of the two
    published.min(granted)
}
