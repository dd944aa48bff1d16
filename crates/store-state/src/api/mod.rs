//! What the broker asks of the store and what the store answers, as plain data
//! and one trait.
//!
//! Purpose: event loops and the store share these types; a pure crate uses them without the store's threads.
//!
//! Deliberately absent: what carries the requests out and the listener that is told of effects, which belong to the
//! crate `store`.
//!
//! Read next: [`Event`], then [`Read`].

mod event;
mod failure;
mod limit;
mod read;
mod retained;
pub(crate) mod shard;
mod store;
mod store_id;

pub use event::{Event, LastSlot, NO_SEQUENCE};
pub use failure::Failure;
pub use limit::REQUEST_LIMIT;
pub use read::Read;
pub use retained::{
    RetainMark, Retained, RetainedPage, RetainedPart, RetainedParts, RetainedPlace,
};
pub use shard::{ShardNumber, ShardRef, ShardRefs, Slot};
pub use store::Store;
pub use store_id::{PerStore, StoreId, UnknownStore};
