//! The targets that there are.

mod by_key;
pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod mqtt;
pub(crate) mod nats;
pub(crate) mod noted;
pub(crate) mod postgres;
