//! How the hash tables of the store's state machines and of the broker's core are seeded.
//!
//! Invariant: in a process that serves clients, each table has a seed of its own that nobody can predict, so that a
//! client, which chooses topics and identifiers freely, cannot choose colliding ones. In a simulation, the seeds follow
//! from one number, so that tables are iterated in the same order in each run.
//!
//! Without the feature `simulation` the types are those of foldhash. With it, a table is seeded when it is made, by the
//! thread that makes it; a thread that was not told to follow a seed draws random ones. Hashing itself looks at nothing
//! but the table's seed.
//!
//! Deliberately absent: hash functions whose results outlive a process (`store-state/src/slot.rs`) or that nodes must
//! agree on (`broker-core/src/shared/groups.rs`).

#[cfg(feature = "simulation")]
mod simulated;

#[cfg(not(feature = "simulation"))]
pub use foldhash::fast::RandomState as HashBuilder;
#[cfg(not(feature = "simulation"))]
pub use foldhash::quality::RandomState as QualityHashBuilder;

#[cfg(feature = "simulation")]
pub use simulated::{HashBuilder, QualityHashBuilder, follow};

/// A hash table of keys and values, which is seeded as this crate says.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashBuilder>;

/// A set of keys, which is seeded as this crate says.
pub type HashSet<K> = hashbrown::HashSet<K, HashBuilder>;
