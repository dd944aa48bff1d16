//! What goes on inside the processes of nodes: this one looks into its own (`own_profiles.rs`), and the others are asked
//! (`asked_profiles.rs`).

use std::sync::Arc;
use std::time::Duration;

use admin::api::{CpuProfile, MemoryProfile, ThreadsUsage};
use admin::cluster::NodeId;
use admin::problem::Problem;
use admin::{Asked, Profiles};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use inspection::{ProfileAnswer, ProfileQuestion};

use super::asked_profiles::{OtherProfiles, other};
use super::own_profiles::OwnProfiles;
use super::state::Inspect;
use super::wire::ToApi as _;

/// The processes of this node and of the others.
#[derive(Debug)]
pub(super) struct NodeProfiles(pub(super) Arc<Inspect>);

impl NodeProfiles {
    fn of(&self, node: NodeId) -> Process {
        match node == NodeId(self.0.node.store().node()) {
            true => Process::Own(Arc::clone(&self.0.profiles)),
            false => Process::Other(OtherProfiles::new(Arc::clone(&self.0), node)),
        }
    }
}

/// Whose process is looked into.
enum Process {
    Own(Arc<OwnProfiles>),
    Other(OtherProfiles),
}

impl Profiles for NodeProfiles {
    fn cpu(
        &self,
        node: NodeId,
        lasts: Duration,
    ) -> Asked<BoxFuture<'static, Result<CpuProfile, Problem>>> {
        let of = self.of(node);
        async move {
            match of {
                Process::Own(own) => own.begin_cpu(lasts).await,
                Process::Other(there) => there.begin_cpu(lasts).await,
            }
        }
        .boxed()
    }

    fn with_functions(&self, profile: CpuProfile) -> BoxFuture<'static, CpuProfile> {
        self.0.profiles.with_functions(profile)
    }

    fn memory(&self, node: NodeId) -> Asked<MemoryProfile> {
        let of = self.of(node);
        async move {
            match of {
                Process::Own(own) => own.memory().await,
                Process::Other(there) => match there.ask(ProfileQuestion::Memory).await? {
                    ProfileAnswer::Memory(profile) => Ok(profile.to_api()),
                    _ => Err(other(node)),
                },
            }
        }
        .boxed()
    }

    fn threads(&self, node: NodeId) -> Asked<ThreadsUsage> {
        let of = self.of(node);
        async move {
            match of {
                Process::Own(own) => own.threads().await,
                Process::Other(there) => match there.ask(ProfileQuestion::Threads).await? {
                    ProfileAnswer::Threads(usage) => Ok(usage.to_api()),
                    _ => Err(other(node)),
                },
            }
        }
        .boxed()
    }
}
