//! What clients may do, and what becomes of what they may not do.

pub(crate) mod access;
pub(crate) mod authorize;
pub(crate) mod recheck;
pub(crate) mod rechecks;
pub(crate) mod rules;
pub(crate) mod unjudged;
