//! Settings of the splits that a node makes by itself.

use std::num::NonZeroU16;
use std::time::Duration;

/// By what a node splits the shards of a store that it leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitBy {
    /// A shard that has been busy for ten seconds, while a thread or a node has room.
    Load,
    /// As BifroMQ does, while the node is not busy.
    Bifromq,
    /// As the script of the store says; as [`SplitBy::Load`] while there is none that works.
    Script,
    /// Only by hand.
    Nothing,
}

/// Operations per entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Density(pub u64);

/// How a node splits the shards of a store that it leads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SplitOptions {
    /// By what.
    pub by: SplitBy,
    /// Time from one split to the next of the store.
    pub cooldown: Duration,
    /// Replicas of shards of the store on the node from which on none is split.
    pub shards_most: NonZeroU16,
    /// With [`SplitBy::Bifromq`], and for scripts: no split while an operation takes as long.
    pub operation_limit: Duration,
    /// With [`SplitBy::Bifromq`], and for scripts: a split when there are more operations in an entry of the log.
    pub density_most: Density,
    /// With [`SplitBy::Bifromq`], and for scripts: no split while the process uses as much of the CPU of the machine, from 0 to 1.
    pub cpu_usage_most: f64,
}

impl Default for SplitOptions {
    /// Only by hand.
    fn default() -> Self {
        Self {
            by: SplitBy::Nothing,
            cooldown: Duration::from_secs(20),
            shards_most: NonZeroU16::MAX,
            operation_limit: Duration::from_nanos(30_000),
            density_most: Density(100),
            cpu_usage_most: 0.8,
        }
    }
}
