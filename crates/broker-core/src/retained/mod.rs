//! Retained messages that subscriptions bring.

pub(crate) mod asked;
pub(crate) mod backlog;
pub(crate) mod grace;
pub(crate) mod own;
pub(crate) mod replay;
#[cfg(test)]
mod tests;
