//! What goes on inside the process of a node: where its CPU time goes, what its threads use, and what takes its memory.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::Amount;
use crate::cluster::NodeId;

/// Where the CPU time of a node's process went, as addresses. `heraldmq profile cpu` finds the names of functions by build identifiers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CpuProfile {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Version of HeraldMQ.
    pub version: String,
    /// Samples for each second of CPU time.
    pub hertz: Amount,
    /// How long was sampled, in ms.
    pub lasted_ms: Amount,
    /// CPU time that the process used meanwhile, in ms.
    pub cpu_ms: Amount,
    /// Samples in `stacks`.
    pub samples: Amount,
    /// Samples that are not in `stacks`: there were too many at once, or too many different stacks.
    pub lost: Amount,
    /// Threads that were seen.
    pub threads: Vec<ProfiledThread>,
    /// Files whose code the process runs.
    pub modules: Vec<ProfiledModule>,
    /// Places in code, each as the index of its module and a hexadecimal address in the file of that, such as `0:1a2b3c`; without a module
    /// `:` and the address in memory.
    pub places: Vec<String>,
    /// The function at each of `places`, in their order, without functions that were inlined there; `[libc.so.6]` where only the file is known. `null`: it
    /// was not asked for, or the node that was asked has no symbols of this build.
    #[serde(default)]
    pub functions: Option<Vec<String>>,
    /// What was seen, most often first; at most 10,000.
    pub stacks: Vec<ProfiledStack>,
}

/// A thread of a profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfiledThread {
    /// The number that the kernel has for it.
    pub id: Amount,
    /// Of 15 bytes at most; empty: it had ended.
    pub name: String,
}

/// A file whose code a process runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfiledModule {
    /// Where it was on the machine of the node when it was loaded.
    pub path: String,
    /// What tells its build from others, hexadecimal; `null`: it has none.
    pub build_id: Option<String>,
    /// Whether it is HeraldMQ itself.
    pub is_program: bool,
}

/// A stack, and how often it was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProfiledStack {
    /// The index of its thread.
    pub thread: usize,
    /// Samples.
    pub count: Amount,
    /// Indices of `places`, the innermost first; at most 128.
    pub places: Vec<usize>,
}

/// What the threads of a node's process have used since they started: the difference to `earlier`, or of two answers, is the use between them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ThreadsUsage {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// When this was read, in µs since the process started.
    pub uptime_us: Amount,
    /// Its threads, in the order of their identifiers.
    pub threads: Vec<ThreadUsageRow>,
    /// The same as the node read it 50 to 60 s before, or at its start if that is less: the difference is the use of the last
    /// minute. `null`: the node has just started.
    #[serde(default)]
    pub earlier: Option<EarlierThreads>,
}

/// What the threads of a node's process had used at an earlier moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EarlierThreads {
    /// When this was read, in µs since the process started.
    pub uptime_us: Amount,
    /// The threads of then, in the order of their identifiers.
    pub threads: Vec<ThreadUsageRow>,
}

/// What a thread has used since it started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ThreadUsageRow {
    /// The number that the kernel has for it.
    pub id: Amount,
    /// Of 15 bytes at most.
    pub name: String,
    /// CPU time, in µs.
    pub cpu_us: Amount,
    /// Of it, in the kernel, in µs; in steps of a clock tick.
    pub system_us: Amount,
    /// Time that it could run and had no core, in µs; `null`: the kernel does not say.
    pub no_core_us: Option<Amount>,
    /// How often it waited for something, and was woken up; `null`: the kernel does not say.
    pub wake_ups: Option<Amount>,
    /// Turns of the event loop that the thread runs, by how long they took; `null`: it runs none.
    pub turns: Option<Vec<TurnTimes>>,
}

/// Turns of an event loop that took about as long.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TurnTimes {
    /// At most so many ms, and more than those before; `null`: longer than any other.
    pub up_to_ms: Option<f64>,
    /// How many.
    pub count: Amount,
}

/// What the resident memory of a node's process is taken by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemoryProfile {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Resident memory of the process, in bytes.
    pub resident_bytes: Amount,
    /// What the memory allocator says; `null`: this build has none that says anything.
    pub allocator: Option<AllocatorBytes>,
    /// What takes the memory. All bytes together are `resident_bytes`.
    pub structures: Vec<MemoryRow>,
}

/// What a memory allocator says, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AllocatorBytes {
    /// Asked for by the program and not given back, each piece rounded up to a size of the allocator.
    pub allocated: Amount,
    /// Pages with such pieces.
    pub active: Amount,
    /// What the allocator keeps its own books in.
    pub metadata: Amount,
    /// Pages that may be resident, unused ones included: an upper bound.
    pub resident: Amount,
    /// Address space kept for later, without pages.
    pub retained: Amount,
}

/// What some part of a process takes of its memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemoryRow {
    /// What takes it, such as `retained_messages`.
    pub structure: String,
    /// How many there are of it; `null`: it is no number of things.
    pub count: Option<Amount>,
    /// Bytes. Of a remainder they can be below 0: estimates or the allocator's upper bounds were too high.
    pub bytes: i64,
    /// How the bytes are known.
    pub how: MemoryKnown,
}

/// How the bytes of a part of the memory are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKnown {
    /// Whoever has them counts them: in steps of what was asked of the allocator, which rounds up.
    Counted,
    /// A number of things times what one was measured to take.
    Estimated,
    /// What remains of a whole when all else is taken from it.
    Remainder,
}
