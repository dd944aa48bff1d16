//! SUBSCRIBE and UNSUBSCRIBE.

pub(crate) mod asked;
pub(crate) mod grant;
pub(crate) mod on_behalf;
pub(crate) mod parts;
mod room;
mod told;
