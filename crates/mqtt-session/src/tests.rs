//! Tests of the session by dialogue, property and mutation.

mod connect;
mod disconnect;
mod driver;
mod durable;
mod inbound;
mod kept_back;
mod mutation;
mod outbound;
mod property;
mod reconnect;
mod store_model;
mod subscribe;
mod time;
mod timed;
