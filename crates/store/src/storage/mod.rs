//! What is on the disk: the data folder, the tables of shards, and what looks at them without a broker.
//!
//! Deliberately absent: the log (`consensus`); what rows mean (`store_state`).
//!
//! Read next: `folder.rs`, then `tables.rs`.

pub(crate) mod digest;
pub(crate) mod folder;
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod recover;
pub(crate) mod retained_forecast;
pub(crate) mod snapshot;
pub(crate) mod survey;
pub(crate) mod tables;
