//! The broker under load, as it looks from outside: what its processes use.

use std::io;
use std::time::Duration;

use crate::shards::NodeShards;

/// What a broker's process, or node, has used so far and holds now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// CPU time in user mode.
    pub cpu_user: Duration,
    /// CPU time in the kernel.
    pub cpu_system: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
    /// If known.
    pub threads: Option<u32>,
    /// Open descriptors, if known.
    pub descriptors: Option<u32>,
    /// Received so far, if known.
    pub network_in_bytes: Option<u64>,
    /// Sent so far, if known.
    pub network_out_bytes: Option<u64>,
    /// If it is a node that has shards.
    pub shards: Option<NodeShards>,
}

/// Something of the broker that can be read again and again.
pub trait System {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Reads it.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    fn read(&mut self) -> io::Result<Reading>;
}
