//! What this machine says of itself: kernel settings and what processes use, from /proc and /sys.
//!
//! Invariant: what cannot be read is said to be unknown; it is never taken for good, and nothing here
//! panics on what a file holds.
//!
//! Deliberately absent: changing anything, and any other system than Linux.
//!
//! Where to read next: `kernel.rs` for the settings, `process.rs` and `processes.rs` for usage.

#![forbid(unsafe_code)]

pub mod kernel;
mod machine;
mod network;
mod process;
mod processes;
#[cfg(test)]
mod tree;

pub use kernel::Kernel;
pub use machine::Machine;
pub use network::NetworkBytes;
pub use process::{Cpu, Process, ProcessUsage, ResidentParts, ThreadId, ThreadUsage, Waits};
pub use processes::Processes;
