//! The protocol as a whole: golden bytes, properties, memory.

mod golden;
mod memory;
mod properties;
mod samples;
