//! What a node says of the inside of its process: its threads, its memory, and where its CPU time goes.

use serde::{Deserialize, Serialize};

use crate::{Amount, NodeId};

/// What is asked about the process of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileQuestion {
    /// What its threads have used.
    Threads,
    /// What takes its memory.
    Memory,
    /// To begin a CPU profile.
    BeginCpu {
        /// How long, 1 to 60 s.
        seconds: u16,
    },
    /// A part of a CPU profile. A profile that nobody asks for ends.
    Cpu {
        /// Which, as the answer to `BeginCpu` has it.
        profile: Amount,
        /// The byte of its JSON at which the part begins.
        from: Amount,
    },
}

/// What a node answers about its process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileAnswer {
    /// What its threads have used.
    Threads(ThreadsUsage),
    /// What takes its memory.
    Memory(MemoryProfile),
    /// A CPU profile has begun.
    CpuBegun {
        /// What it is asked for by.
        profile: Amount,
    },
    /// The node still samples.
    CpuGoesOn,
    /// A part of a CPU profile.
    Cpu {
        /// Of the JSON of [`CpuProfile`].
        text: String,
        /// Others follow.
        more: bool,
    },
}

/// What the threads of a process have used since they started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThreadsUsage {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// When this was read, in µs since the process started.
    pub uptime_us: Amount,
    /// Its threads.
    pub threads: Vec<ThreadUsageRow>,
    /// The same as it was up to a minute before; `None`: the node has just started.
    #[serde(default)]
    pub earlier: Option<EarlierThreads>,
}

/// What the threads of a process had used at an earlier moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EarlierThreads {
    /// When this was read, in µs since the process started.
    pub uptime_us: Amount,
    /// The threads of then.
    pub threads: Vec<ThreadUsageRow>,
}

/// What a thread has used since it started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ThreadUsageRow {
    /// The number that the kernel has for it.
    pub id: Amount,
    /// Of 15 bytes at most.
    pub name: String,
    /// CPU time, in µs.
    pub cpu_us: Amount,
    /// Of it, in the kernel, in µs.
    pub system_us: Amount,
    /// Time that it could run and had no core, in µs; `None`: the kernel does not say.
    pub no_core_us: Option<Amount>,
    /// How often it waited for something, and was woken up; `None`: the kernel does not say.
    pub wake_ups: Option<Amount>,
    /// Turns of the event loop that the thread runs, by how long they took; `None`: it runs none.
    pub turns: Option<Vec<TurnTimes>>,
}

/// Turns of an event loop that took about as long.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TurnTimes {
    /// At most so many ms; `None`: longer than any other.
    pub up_to_ms: Option<f64>,
    /// How many.
    pub count: Amount,
}

/// What the resident memory of a process is taken by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryProfile {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Resident memory, in bytes.
    pub resident_bytes: Amount,
    /// What the memory allocator says; `None`: it says nothing.
    pub allocator: Option<AllocatorBytes>,
    /// What takes the memory.
    pub structures: Vec<MemoryRow>,
}

/// What a memory allocator says, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllocatorBytes {
    /// Given out.
    pub allocated: Amount,
    /// Pages with such pieces.
    pub active: Amount,
    /// What it keeps its own books in.
    pub metadata: Amount,
    /// Pages that may be resident.
    pub resident: Amount,
    /// Address space kept for later, without pages.
    pub retained: Amount,
}

/// What some part of a process takes of its memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRow {
    /// What takes it.
    pub structure: String,
    /// How many there are of it; `None`: it is no number of things.
    pub count: Option<Amount>,
    /// Bytes; of a remainder they can be below 0.
    pub bytes: i64,
    /// How the bytes are known.
    pub how: MemoryKnown,
}

/// How the bytes of a part of the memory are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKnown {
    /// They are counted.
    Counted,
    /// A number of things times what one was measured to take.
    Estimated,
    /// What remains of a whole.
    Remainder,
}

/// Where the CPU time of a process went, as addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Samples that are not in `stacks`.
    pub lost: Amount,
    /// Threads that were seen.
    pub threads: Vec<ProfiledThread>,
    /// Files whose code the process runs.
    pub modules: Vec<ProfiledModule>,
    /// Places in code: the index of a module, `:`, and a hexadecimal address in its file.
    pub places: Vec<String>,
    /// What was seen.
    pub stacks: Vec<ProfiledStack>,
}

/// A thread of a profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfiledThread {
    /// The number that the kernel has for it.
    pub id: Amount,
    /// Empty: it had ended.
    pub name: String,
}

/// A file whose code a process runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfiledModule {
    /// Where it was on the machine of the node.
    pub path: String,
    /// What tells its build from others, hexadecimal; `None`: it has none.
    pub build_id: Option<String>,
    /// Whether it is HeraldMQ itself.
    pub is_program: bool,
}

/// A stack, and how often it was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfiledStack {
    /// The index of its thread.
    pub thread: usize,
    /// Samples.
    pub count: Amount,
    /// Indices of `places`, the innermost first.
    pub places: Vec<usize>,
}
