//! The targets that there are.

pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod mqtt;
pub(crate) mod noted;
