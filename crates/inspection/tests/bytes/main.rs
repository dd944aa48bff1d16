//! The bytes between nodes, as they are for ever, and what is done with those of other versions.

mod golden;
mod samples;
mod versions;
