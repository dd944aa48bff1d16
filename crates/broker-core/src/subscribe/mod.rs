//! SUBSCRIBE and UNSUBSCRIBE.

pub(crate) mod grant;
pub(crate) mod parts;
mod room;
