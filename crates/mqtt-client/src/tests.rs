//! Dialogues with one client ([`driver`]), properties, and a client against the broker's side in virtual time.

mod bounds;
mod connect;
mod driver;
mod inbound;
mod outbound;
mod reconnect;
mod request;
mod session;
mod time;
mod violations;
