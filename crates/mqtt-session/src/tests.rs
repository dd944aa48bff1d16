//! Tests of the session by dialogue, property and mutation.

mod connect;
mod disconnect;
mod driver;
mod inbound;
mod mutation;
mod outbound;
mod property;
mod reconnect;
mod subscribe;
mod time;
