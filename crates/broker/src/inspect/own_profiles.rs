//! What this node says of the inside of its own process: where its CPU time goes (`cpu_profile.rs`), what its threads use
//! (`own_threads.rs`), and what takes its memory (`memory.rs`).
//!
//! Invariant: nothing is sampled or counted while nobody asks; all that is kept is what the threads had used in the last minute, and a CPU profile
//! that another node fetches (`kept_profile.rs`).
//!
//! Deliberately absent: profiles of other nodes (`asked_profiles.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::api::{AllocatorBytes, CpuProfile, MemoryProfile, ThreadsUsage};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use inspection::{Amount, ProfileAnswer, ProfileQuestion, Refusal};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::cpu_profile;
use super::kept_profile::KeptProfile;
use super::memory::OwnMemory;
use super::own_threads::OwnThreads;
use super::wire::ToWire as _;
use crate::history::History;
use crate::node::Node;

/// What only the program knows of its process.
#[derive(Clone, Copy, Debug)]
pub struct OwnProcess {
    /// Asks the memory allocator what it holds; `None`: it says nothing.
    pub allocator: fn() -> Option<AllocatorBytes>,
    /// Names the function at each place of a profile, in their order. It reads files. `None`: the machine has no symbols of the
    /// profile's build.
    pub functions: fn(&CpuProfile) -> Option<Vec<String>>,
}

impl Default for OwnProcess {
    fn default() -> Self {
        Self {
            allocator: || None,
            functions: |_| None,
        }
    }
}

/// Looks into the process of this node.
pub(super) struct OwnProfiles {
    node: Arc<Node>,
    /// What people call the node.
    name: String,
    memory: Arc<OwnMemory>,
    threads: Arc<OwnThreads>,
    functions: fn(&CpuProfile) -> Option<Vec<String>>,
    /// Symbols are read for one profile after the other: each takes some MB.
    symbol_readings: Arc<Semaphore>,
    /// The CPU profile that another node has asked for.
    kept: Arc<KeptProfile>,
}

impl OwnProfiles {
    /// Looks into the process of a node with a name, which started then.
    pub(super) fn new(
        node: &Arc<Node>,
        name: &str,
        started: Instant,
        history: &Arc<History>,
        process: OwnProcess,
    ) -> Self {
        let OwnProcess {
            allocator,
            functions,
        } = process;
        let (memory_of, threads_of) = (Arc::clone(node), Arc::clone(node));
        let memory = OwnMemory::new(memory_of, name.to_owned(), Arc::clone(history), allocator);
        Self {
            node: Arc::clone(node),
            name: name.to_owned(),
            memory: Arc::new(memory),
            threads: Arc::new(OwnThreads::new(threads_of, name.to_owned(), started)),
            functions,
            symbol_readings: Arc::new(Semaphore::new(1)),
            kept: Arc::default(),
        }
    }

    /// Begins a CPU profile. What it gives is the profile, when the time is over; whoever drops it ends the profile.
    ///
    /// # Errors
    /// Another profile is under way, or the system refuses it.
    pub(super) async fn begin_cpu(
        &self,
        lasts: Duration,
    ) -> Result<BoxFuture<'static, Result<CpuProfile, Problem>>, Problem> {
        let node = NodeId(self.node.store().node());
        cpu_profile::begin((node, self.name.clone()), lasts).await
    }

    /// Names the functions of a profile of any node, as far as this machine has symbols of its build.
    pub(super) fn with_functions(&self, mut profile: CpuProfile) -> BoxFuture<'static, CpuProfile> {
        let functions = self.functions;
        let readings = Arc::clone(&self.symbol_readings);
        async move {
            let place = readings.acquire_owned().await;
            let place = place.expect("nobody closes this semaphore");
            let asked = profile.clone();
            let named = spawn_blocking(move || {
                // It reads to the end when nobody waits for it any more, and keeps its place as long.
                let _place = place;
                functions(&asked)
            });
            match named.await {
                Ok(named) => profile.functions = named,
                Err(error) => tracing::warn!(%error, "the functions of a profile are not named"),
            }
            profile
        }
        .boxed()
    }

    /// What takes the memory.
    ///
    /// # Errors
    /// It is being counted already, or cannot be.
    pub(super) async fn memory(&self) -> Result<MemoryProfile, Problem> {
        Arc::clone(&self.memory).profile().await
    }

    /// What the threads have used since they started, and had used up to a minute ago.
    ///
    /// # Errors
    /// The kernel does not say it.
    pub(super) async fn threads(&self) -> Result<ThreadsUsage, Problem> {
        Arc::clone(&self.threads).usage().await
    }

    /// Keeps what the threads have used now for looks within the next minute. It reads files of the kernel.
    pub(super) fn record_threads(&self) {
        self.threads.record();
    }

    /// Answers another node.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) async fn answer(&self, question: ProfileQuestion) -> Result<ProfileAnswer, Refusal> {
        match question {
            ProfileQuestion::Threads => {
                let usage = self.threads().await.map_err(refusal)?;
                Ok(ProfileAnswer::Threads(usage.to_wire()))
            }
            ProfileQuestion::Memory => {
                let profile = self.memory().await.map_err(refusal)?;
                Ok(ProfileAnswer::Memory(profile.to_wire()))
            }
            ProfileQuestion::BeginCpu { seconds } => {
                let lasts = Duration::from_secs(seconds.clamp(1, 60).into());
                let made = self.begin_cpu(lasts).await.map_err(refusal)?;
                // Two profiles never begin in the same millisecond, nor one of a process and one of the process before.
                let profile = Amount(self.node.rim.clock.now_ms());
                self.kept.keep(profile, made)?;
                Ok(ProfileAnswer::CpuBegun { profile })
            }
            ProfileQuestion::Cpu { profile, from } => self.kept.part(profile, from),
        }
    }
}

fn refusal(problem: Problem) -> Refusal {
    match problem.kind {
        Kind::Conflict => Refusal::Conflict(problem.detail),
        _ => Refusal::Unavailable(problem.detail),
    }
}
