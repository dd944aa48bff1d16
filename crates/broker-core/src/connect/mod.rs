//! From a network connection to a session: CONNECT, login, the claim of the client identifier, takeover.

pub(crate) mod awaiting;
pub(crate) mod awaiting_connect;
pub(crate) mod claim;
pub(crate) mod departures;
pub(crate) mod expiries;
pub(crate) mod guarded;
pub(crate) mod joining;
pub(crate) mod login;
pub(crate) mod login_expiry;
pub(crate) mod login_stage;
pub(crate) mod open;
pub(crate) mod own_clients;
pub(crate) mod refused;
pub(crate) mod register;
pub(crate) mod registering;
pub(crate) mod registry;
pub(crate) mod takeover;
pub(crate) mod taking;
