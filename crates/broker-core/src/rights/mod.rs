//! What clients may do, and what becomes of what they may not do.

pub(crate) mod access;
pub(crate) mod authorize;
#[cfg(test)]
mod tests;
