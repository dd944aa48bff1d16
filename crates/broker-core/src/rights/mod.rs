//! What clients may do, and what becomes of what they may not do.

pub(crate) mod access;
pub(crate) mod authorize;
pub(crate) mod recheck;
pub(crate) mod rechecks;
pub(crate) mod rules;
#[cfg(test)]
mod tests;
pub(crate) mod unjudged;
