//! An MQTT client's network connection and session as a state machine without I/O.
//!
//! Purpose: everything that MQTT 3.1, 3.1.1 and 5.0 ask of a client. Inputs are bytes of the network connection
//! ([`Client::handle_bytes`]), commands ([`Client::publish`], [`Client::subscribe`], …) and points in time; outputs are
//! bytes to send ([`Client::poll_transmit`]), events ([`Client::poll_event`]), messages to send again
//! ([`Client::poll_resend`]) and the next deadline ([`Client::poll_deadline`]).
//!
//! Order of calls: [`Client::new`]; then, for each network connection, [`Client::connect`]; bytes and commands in any
//! order; [`Client::handle_connection_closed`] when the network connection is gone. The application polls the events
//! of each [`Arrival`] to the end. After events and commands it sends the bytes of [`Client::poll_transmit`] and reports
//! them by [`Client::handle_transmitted`]. After [`Event::Connected`] and after acknowledgements, it sends again what
//! [`Client::poll_resend`] names. An application that wants keep alive calls [`Client::handle_deadline`].
//!
//! The client does not keep the content of messages: `M` is what the application knows a message by. The application
//! writes the message anew for [`Client::resend`], or lets `M` be the message.
//!
//! Invariants: no packet identifier is given again while it is in use. No more messages of QoS 1 and 2 are in flight
//! than the server's Receive Maximum. A message of QoS 2 is given to the application once, across network connections.
//! A client that has not published or acknowledged since its last PINGREQ holds no buffer.
//!
//! Limits: [`TRANSMIT_LIMIT`] and [`ANSWERS_LIMIT`] bytes wait to be sent; [`REQUESTS_LIMIT`] SUBSCRIBE and UNSUBSCRIBE
//! packets wait for their answers; a packet that arrives in parts takes what has arrived of it, and no more than the
//! client's Maximum Packet Size.
//!
//! Deliberately absent: clock, randomness, sockets, when to connect again, topic aliases, authentication exchanges
//! (AUTH). Statements of MQTT 5.0 are cited with `MQTT`, those of 3.1.1 with `MQTT3`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod arrival;
mod client;
mod connect;
mod deadline;
mod error;
mod event;
mod inbound;
mod outbound;
mod request;

#[cfg(test)]
mod tests;

pub use arrival::Arrival;
pub use client::{ANSWERS_LIMIT, Acknowledgements, Client, ServerLimits, TRANSMIT_LIMIT};
pub use deadline::Deadline;
pub use error::{CommandError, ProtocolError, Violation};
pub use event::{Acknowledgement, Answer, Event, Incoming};
pub use request::REQUESTS_LIMIT;
