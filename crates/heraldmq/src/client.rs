//! What `pub` and `sub` share: options, and a blocking connection with the client of [`mqtt_client`] in it.
//!
//! Deliberately absent: sessions on disk; connecting again is for `sub` to do. This is for a first try, for scripts and
//! for looking into a broker, not a client library.

mod connection;
mod options;
mod property;
mod stream;

pub(crate) use connection::{Connection, Event, explain, farewell, unencodable, unexpected};
pub(crate) use options::{ConnectionOptions, parse_qos};
pub(crate) use property::{Packet as PropertyOf, Properties};
