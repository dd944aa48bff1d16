//! What a load test found, and how it is shown to people and to other programs.
//!
//! Purpose: [`Record`] holds a run as it is kept in a file; the other modules show records: as JSON, as
//! text for a terminal, side by side, as CSV, as an HTML page.
//!
//! Invariant: whatever is shown comes from records alone, so that an old file shows the same again.
//!
//! Deliberately absent: measuring, sockets, clocks, files.
//!
//! Where to read next: `record.rs`, then `tables.rs` and `html.rs`.

#![forbid(unsafe_code)]

mod compare;
mod csv;
mod figures;
#[cfg(test)]
mod fixture;
mod html;
mod json;
mod record;
mod summary;
mod tables;

/// The fixture names this crate as the example that shares it does.
#[cfg(test)]
extern crate self as report;

pub use compare::compare;
pub use csv::samples_csv;
pub use html::page;
pub use json::{ReadError, records_from_json, records_to_json};
pub use record::{
    Columns, Counts, FORMAT, Latencies, Latency, Load, Machine, PartFigures, PayloadBytes, Phase,
    PublishedFigures, PublisherCounts, QosNumber, Record, Sample, Scaling, Setting, ShardCount,
    Shards, SplitCount, SystemUsage, Usage,
};
