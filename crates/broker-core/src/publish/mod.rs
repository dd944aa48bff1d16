//! The way of a publication to its receivers, and its acknowledgement.

pub(crate) mod calls;
pub(crate) mod deliveries;
pub(crate) mod direct;
pub(crate) mod distribute;
mod done;
pub(crate) mod forward;
pub(crate) mod forwarding;
pub(crate) mod latency;
pub(crate) mod on_behalf;
pub(crate) mod once;
pub(crate) mod operator;
pub(crate) mod rest;
pub(crate) mod retained_order;
pub(crate) mod route;
pub(crate) mod source;
pub(crate) mod to_groups;

/// The longest topic of a retained message, in bytes: names in the store's tables are shorter than 64 KiB with what stands
/// before and behind them.
pub const STORED_NAME: usize = 60_000;
