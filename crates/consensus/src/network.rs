//! The network between the replicas of a group: none yet. With one voter nothing is ever sent.

use std::io;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use crate::Command;
use crate::machine::Snapshot;
use crate::types::{Types, Vote};

/// Reaches nobody.
pub(crate) struct Alone;

impl<C: Command> RaftNetworkFactory<Types<C>> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &EmptyNode) -> Self {
        Self
    }
}

impl<C: Command> RaftNetworkV2<Types<C>> for Alone {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<C>>, RPCError<Types<C>>> {
        Err(nobody().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<C>>, RPCError<Types<C>>> {
        Err(nobody().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<C>>, StreamingError<Types<C>>> {
        Err(nobody().into())
    }
}

fn nobody<C: Command>() -> Unreachable<Types<C>> {
    Unreachable::new(&io::Error::from(io::ErrorKind::NotConnected))
}
