//! The way to the replicas of a group on other nodes.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{
    AnyError, EmptyNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2, StorageError,
};

use crate::command::Command;
use crate::machine::Snapshot;
use crate::mark::Mark;
use crate::rpc::{Answer, Append, Chunk, End, Received, Request};
use crate::snapshot::{Contents, SnapshotReader, blocking};
use crate::types::{Types, Vote};

/// How long a chunk of a snapshot, or another long request, waits for its answer. The last chunk waits for the
/// tables to be switched.
const BULK_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a request, above which it goes with the parts of snapshots: heartbeats do not wait behind it, and it
/// has as long as these. Entries go in requests of 1 MiB, or alone if they are longer.
///
/// Limit: entries sent to a replica at once | {group_log::CHUNK_BYTES}, or one entry; more than {} goes with
/// snapshots | heartbeats do not wait behind it
const URGENT_BYTES: usize = 2 << 20;

/// How often a chunk is sent before the transfer is given up, to begin again.
const CHUNK_ATTEMPTS: u32 = 10;

/// The pause before a chunk is sent again.
const CHUNK_PAUSE: Duration = Duration::from_millis(500);

/// Tells apart the snapshots that this process sends.
static TRANSFERS: AtomicU64 = AtomicU64::new(0);

/// Carries requests to the replicas of a group on other nodes, and their answers back.
pub trait Network: Send + Sync + 'static {
    /// Has [`Group::handle`](crate::Group::handle) called with `request` on the node `node` for the group
    /// `group`. Gives its answer, or that there was none within `timeout`. `bulk`: it is a part of a
    /// snapshot, or a long entry, and nothing urgent may wait behind it.
    fn call(
        &self,
        node: u64,
        group: u64,
        bulk: bool,
        request: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>>;
}

/// The network of a node that has no others: it reaches nobody.
pub struct Nobody;

impl Network for Nobody {
    fn call(
        &self,
        _node: u64,
        _group: u64,
        _bulk: bool,
        _request: Bytes,
        _timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        Box::pin(async { Err(Unreachable("there are no other nodes".to_owned())) })
    }
}

/// No answer came from a node. The request may have been handled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable(pub String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unreachable: {}", self.0)
    }
}

impl Error for Unreachable {}

/// The other members of a group.
#[derive(Clone)]
pub(crate) struct Peers {
    /// This node.
    pub(crate) own: u64,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) group: u64,
    /// How long requests that are not parts of snapshots wait for an answer.
    pub(crate) timeout: Duration,
    /// As of [`Append`].
    pub(crate) wanted_from: Arc<AtomicU64>,
}

impl<C: Command> RaftNetworkFactory<Types<C>> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Peer {
        Peer {
            peers: self.clone(),
            node: target,
        }
    }
}

impl Peers {
    /// Asks a member that leads how far its log reaches.
    pub(crate) async fn ask_for_end<C: Command>(&self, leader: u64) -> Result<End, Unreachable> {
        let peer = Peer {
            peers: self.clone(),
            node: leader,
        };
        match peer.ask(&Request::<C>::End).await? {
            Answer::Ends(end) => Ok(end),
            other => Err(unexpected(&other)),
        }
    }
}

/// Another member of a group.
pub(crate) struct Peer {
    peers: Peers,
    node: u64,
}

impl Peer {
    async fn ask<C: Command>(&self, request: &Request<C>) -> Result<Answer, Unreachable> {
        let Peers {
            network,
            group,
            timeout,
            ..
        } = &self.peers;
        let bytes = Bytes::from(request.encode());
        let bulk = matches!(request, Request::Chunk(_)) || bytes.len() > URGENT_BYTES;
        let timeout = if bulk { BULK_TIMEOUT } else { *timeout };
        let call = network.call(self.node, *group, bulk, bytes, timeout);
        match Answer::decode(&call.await?) {
            Some(Answer::Refused(why)) => Err(Unreachable(format!("it refused: {why}"))),
            Some(answer) => Ok(answer),
            None => Err(Unreachable("an answer that is not understood".to_owned())),
        }
    }

    /// Sends all chunks, and says with which vote the other replica took them.
    async fn send<C: Command>(
        &self,
        vote: Vote,
        mark: Mark,
        mut reader: Box<dyn SnapshotReader>,
    ) -> Result<Vote, StreamingError<Types<C>>> {
        let transfer = TRANSFERS.fetch_add(1, Ordering::Relaxed);
        for number in 0.. {
            let read = blocking(move || reader.next().map(|bytes| (bytes, reader))).await;
            let (bytes, rest) =
                read.map_err(|error| StorageError::read_snapshot(None, AnyError::new(&error)))?;
            reader = rest;
            let chunk = Request::<C>::Chunk(Chunk {
                vote,
                mark: mark.clone(),
                transfer,
                number,
                bytes,
            });
            let (their_vote, outcome) = self.send_chunk(&chunk).await.map_err(unreachable)?;
            if their_vote > vote || outcome == Received::Installed {
                return Ok(their_vote);
            }
            if outcome == Received::Lost {
                return Err(
                    unreachable::<C>(Unreachable("the transfer was lost".to_owned())).into(),
                );
            }
        }
        unreachable!("numbers do not end")
    }

    /// Sends a chunk until there is an answer.
    async fn send_chunk<C: Command>(
        &self,
        chunk: &Request<C>,
    ) -> Result<(Vote, Received), Unreachable> {
        let mut attempt = 1;
        loop {
            match self.ask(chunk).await {
                Ok(Answer::Received { vote, outcome }) => return Ok((vote, outcome)),
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if attempt == CHUNK_ATTEMPTS => return Err(error),
                Err(_) => tokio::time::sleep(CHUNK_PAUSE).await,
            }
            attempt += 1;
        }
    }
}

impl<C: Command> RaftNetworkV2<Types<C>> for Peer {
    type SnapshotData = Contents;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<C>>, RPCError<Types<C>>> {
        let (vote, has_prev) = (request.vote, request.prev_log_id.is_some());
        let request = Request::Append(Append {
            request,
            wanted_from: self.peers.wanted_from.load(Ordering::Relaxed),
        });
        match self.ask(&request).await.map_err(unreachable)? {
            Answer::Appended => Ok(AppendEntriesResponse::Success),
            // Nothing conflicts with nothing, and openraft takes that for granted.
            Answer::Conflict if has_prev => Ok(AppendEntriesResponse::Conflict),
            Answer::HigherVote(higher)
                if higher > vote && higher.leader_id.voted_for != self.peers.own =>
            {
                Ok(AppendEntriesResponse::HigherVote(higher))
            }
            other => Err(unreachable(unexpected(&other))),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<C>>, RPCError<Types<C>>> {
        let answer = self.ask(&Request::Vote(request)).await;
        voted(answer.map_err(unreachable)?)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<C>>, RPCError<Types<C>>> {
        let answer = self.ask(&Request::PreVote(request)).await;
        voted(answer.map_err(unreachable)?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<C>>, StreamingError<Types<C>>> {
        let Contents::Read(reader) = snapshot.snapshot else {
            // It is asked for again a little later.
            let why = "the tables hold nothing yet".to_owned();
            return Err(unreachable::<C>(Unreachable(why)).into());
        };
        let mark = Mark::of_snapshot(&snapshot.meta);
        let sent = pin!(self.send::<C>(vote, mark, reader));
        match select(sent, pin!(cancel)).await {
            Either::Left((vote, _)) => Ok(SnapshotResponse::new(vote?)),
            Either::Right((closed, _)) => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types<C>>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<C>>, RPCError<Types<C>>> {
        let expected = request.last_log_id().copied();
        match self.ask(&Request::Transfer(request)).await {
            Ok(Answer::Transferred(true)) => Ok(Ok(())),
            Ok(Answer::Transferred(false)) => Ok(Err(TransferLeaderError::LogNotFlushed {
                expected,
                actual: None,
            })),
            Ok(other) => Err(unreachable(unexpected(&other))),
            Err(error) => Err(unreachable(error)),
        }
    }
}

fn voted<C: Command>(answer: Answer) -> Result<VoteResponse<Types<C>>, RPCError<Types<C>>> {
    match answer {
        Answer::Voted {
            vote,
            granted,
            last,
        } => Ok(VoteResponse::new(vote, last, granted)),
        other => Err(unreachable(unexpected(&other))),
    }
}

fn unexpected(answer: &Answer) -> Unreachable {
    Unreachable(format!("an answer to something else: {answer:?}"))
}

fn unreachable<C: Command>(error: Unreachable) -> RPCError<Types<C>> {
    openraft::errors::Unreachable::new(&error).into()
}
