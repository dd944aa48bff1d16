//! One client's network connection and session as a state machine without I/O.
//!
//! Purpose: everything that MQTT 3.1, 3.1.1 and 5.0 say about one client. Inputs are packets
//! ([`Session::handle_packet`]), commands of the server ([`Session::deliver`], [`Session::disconnect`],
//! …) and points in time; outputs are bytes to send ([`Session::poll_transmit`]), things for the
//! server to do ([`Action`]) and the next deadline ([`Session::poll_deadline`]).
//!
//! Order of calls: [`check_connect`]; then [`Session::open`], or [`Session::resume`] on the session
//! the client left behind; any inputs; [`Session::handle_connection_closed`] when the network
//! connection is gone; [`Session::end`] when the session is. After each input look at
//! [`Session::wants_transmit`] and [`Session::poll_deadline`].
//!
//! A session that a store holds is a *durable* one ([`Session::open_durable`]): it is made anew for
//! each network connection, is handed what its inbox holds ([`Session::deliver_stored`]), and tells
//! what became of it ([`Session::take_acknowledged`]); the store keeps the rest.
//!
//! Invariants: no packet identifier is reused while it is in flight; no more QoS 1 and 2 messages
//! are in flight than the client's Receive Maximum; nothing is dropped without being handed back
//! with its reason; every queue has a limit in the [`Policy`].
//!
//! Deliberately absent: clock, randomness, sockets, locks, other clients, authentication, topic
//! matching, rates. Statements of MQTT 5.0 are cited with `MQTT`, those of 3.1.1 with `MQTT3`.

#![forbid(unsafe_code)]

mod alias;
mod class;
mod connect;
mod deadline;
mod declared;
mod disconnect;
mod durable;
mod in_order;
mod inbound;
mod message;
mod numbering;
mod outbound;
mod overlap;
mod overtaken;
mod patterns;
mod policy;
mod qos0_queue;
mod rare;
mod session;
mod slot;
mod stored;
mod subscribe;
mod subscriptions;
mod time;
mod transmit;
mod violation;
mod will;

#[cfg(test)]
mod tests;

pub use class::ClassId;
pub use connect::{Accepted, check_connect, encode_challenge, encode_refusal, session_expiry};
pub use deadline::Deadline;
pub use disconnect::{Detached, Ended};
pub use durable::Restored;
pub use message::{
    ApplicationMessage, Delivered, Delivery, DropReason, Dropped, SubscriptionIdSet, TakenUp,
};
pub use mqtt_proto::PacketIdSet;
pub use numbering::{Epoch, Incarnation};
pub use overlap::{Target, Wanted};
pub use patterns::{Pattern, pattern_of};
pub use policy::{NEVER_EXPIRES, Policy, Qos0Inbox, QueueFull};
pub use session::{
    Action, Session, class_of, end_with_connection, maximum_packet_size, will_target,
};
pub use stored::{HeldBack, StoredState};
pub use subscribe::TakenSubscriptions;
pub use subscriptions::Subscription;
pub use time::Timestamp;
pub use transmit::{Outcome, Timed, TimedPacket, Transmit};
pub use violation::Violation;
pub use will::WillTarget;
