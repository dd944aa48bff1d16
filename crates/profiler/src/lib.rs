//! Where the CPU time of the own process goes: a timer of the kernel sends SIGPROF after each so many ms of CPU time, and a handler
//! notes the stack of the interrupted thread as addresses.
//!
//! Invariant: the handler takes no lock that it would have to wait for, allocates nothing, and reads memory only through the
//! kernel, which refuses an address that is not mapped. Without a sampling there is no memory and no timer; before the first one
//! there is no handler either.
//!
//! Deliberately absent: names of functions, which the released program does not have; the command that shows a profile finds them by
//! the build identifiers of the modules.
//!
//! Where to read next: `sampling.rs`, then `handler.rs`, and `system.rs` for what the compiler cannot check.

mod handler;
mod modules;
mod sampling;
mod system;
mod table;

pub use modules::Module;
pub use sampling::{CpuProfile, CpuSampling, Hertz, Refused};
pub use table::{Address, Frame, Samples, Stack, Thread, ThreadId};

/// The most frames of a stack; those farther out are left away.
pub const DEEPEST: usize = 128;

/// The most different stacks of a profile; samples of others are counted as lost.
pub const MOST_STACKS: usize = 10_000;
