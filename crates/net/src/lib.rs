//! Listeners and event loops: moves bytes between sockets and a [`Service`](net_api::Service), through the layers of
//! `transport` where a listener has any.
//!
//! Purpose: one event loop per core, each with its own epoll instance and its own connections. A turn
//! of a loop reads all that is ready, lets the service handle it, and then flushes each touched
//! connection with one write.
//!
//! Invariants: an idle connection holds no buffer; bytes wait in user memory only as an incomplete
//! packet, or as what the socket did not take of one transmission; a loop's state is touched only under
//! its lock, and no thread ever waits for one loop's lock while it holds another's.
//!
//! Loops work for each other: a loop that has mail for another one that is asleep takes its lock and
//! handles the mail itself, so that no thread is woken; if the other is awake, the mail waits for the
//! end of its turn (see `event_loop.rs` and `docs/decisions/0002-event-loops.md`).
//!
//! Deliberately absent: MQTT. The service says how much of the bytes it has consumed; what a packet is,
//! and who may send which, is not known here.

mod clock;
mod connection;
mod event_loop;
mod io;
mod layered;
mod listener;
mod packed_address;
mod parking;
mod places;
mod stats;
mod timers;

pub use clock::Clock;
pub use connection::CONNECTION_BYTES;
pub use event_loop::{EventLoops, HandInError, Remote};
pub use io::Io;
pub use listener::{Listener, Profile, bind, bind_unix};
pub use places::{Descriptors, Places};
pub use stats::{HandshakeFailure, ListenerStats, LoopStats};

/// Bytes read at once, and the budget of one transmission.
///
/// Limit: what layers have to send by themselves (pongs) | one read: {:bytes} | not read until it is sent
///
/// Limit: what a socket did not take | one transmission: {:bytes} and one packet | nothing more is encoded
pub const CHUNK: usize = 64 * 1024;
