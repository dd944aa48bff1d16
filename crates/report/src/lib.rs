//! What a load test found, and how it is shown to people and to other programs.
//!
//! Purpose: [`Record`] holds a run as it is kept in a file; the other modules show records.
//!
//! Invariant: whatever is shown comes from records alone, so that an old file shows the same again.
//!
//! Deliberately absent: measuring, sockets, clocks, files.
//!
//! Where to read next: `record.rs`.

#![forbid(unsafe_code)]

mod record;

pub use record::{
    Counts, FORMAT, Latencies, Latency, Machine, Phase, PublishedFigures, PublisherCounts, Record,
    Sample, Setting, SystemUsage, Usage,
};
