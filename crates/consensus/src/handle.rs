//! What a replica answers to the others.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteResponse};

use crate::machine::Snapshot;
use crate::rpc::{Answer, Append, Chunk, End, Received, Request};
use crate::snapshot::{Contents, Step};
use crate::types::Types;
use crate::{Command, Group};

impl<C: Command> Group<C> {
    /// The answer to a request of another node's replica. Whatever comes is answered; what is not
    /// understood, with a refusal.
    pub async fn handle(&self, request: Bytes) -> Bytes {
        let answer = match Request::decode(&request, self.node) {
            Ok(request) => {
                if matches!(request, Request::Append(_)) {
                    *self.unreadable.lock() = None;
                }
                self.answer(request).await
            }
            Err(why) => {
                *self.unreadable.lock() = Some(why.clone());
                Err(why)
            }
        };
        Bytes::from(answer.unwrap_or_else(Answer::Refused).encode())
    }

    /// Why the last request of another replica could not be read; `None`: it could, or none has come. A replica that cannot read
    /// what its leader sends falls behind for good.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        self.unreadable.lock().clone()
    }

    async fn answer(&self, request: Request<C>) -> Result<Answer, String> {
        if request.is_for_members() && !self.count_contact() {
            return Err("the replica is being removed".to_owned());
        }
        match request {
            Request::Append(append) => self.append(append).await,
            Request::Vote(request) | Request::PreVote(request)
                if !self.log.may_forget_for(request.last_log_id) =>
            {
                Err("the log that was here reached further".to_owned())
            }
            Request::Vote(request) => match self.raft.vote(request).await {
                Ok(response) => Ok(voted(response)),
                Err(error) => Err(error.to_string()),
            },
            Request::PreVote(request) => match self.raft.pre_vote(request).await {
                Ok(response) => Ok(voted(response)),
                Err(error) => Err(error.to_string()),
            },
            Request::Transfer(request)
                if *request.to_node_id() == self.node && self.log.is_below_floor() =>
            {
                Ok(Answer::Transferred(false))
            }
            Request::Transfer(request) => match self.raft.handle_transfer_leader(request).await {
                Ok(taken) => Ok(Answer::Transferred(taken.is_ok())),
                Err(error) => Err(error.to_string()),
            },
            Request::Chunk(chunk) => self.receive(chunk).await,
            Request::End => self.end().await,
        }
    }

    /// How far the log reaches that this replica leads with. Another may lead in a later term by now.
    async fn end(&self) -> Result<Answer, String> {
        let own = self.node;
        let told = self.raft.with_raft_state(move |state| {
            let vote = *state.vote_ref();
            let leads = state.server_state == ServerState::Leader
                && vote.committed
                && vote.leader_id.voted_for == own;
            let last = state.log_ids.last().copied();
            leads.then_some(End { vote, last })
        });
        match told.await {
            Ok(Some(end)) => Ok(Answer::Ends(end)),
            Ok(None) => Err("the replica does not lead".to_owned()),
            Err(fatal) => Err(fatal.to_string()),
        }
    }

    /// Whether a leader lacks what is applied here: an entry of a later term stands where one of an earlier term was
    /// applied, or before it. openraft takes what is committed for what the leader has. That can be only if members
    /// have lost what they had acknowledged: the state here would be another one than that of the others.
    fn contradicts(&self, request: &AppendEntriesRequest<Types<C>>) -> bool {
        let applied = self.positions.applied.lock().log_id;
        let entries = request.entries.iter().map(|entry| entry.log_id);
        let mut ids = request.prev_log_id.into_iter().chain(entries);
        ids.any(|id| applied.is_some_and(|applied| id.index <= applied.index && id > applied))
    }

    async fn append(&self, append: Append<C>) -> Result<Answer, String> {
        if self.contradicts(&append.request) {
            if !self.is_contradicted.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    group = self.log.group(),
                    "the other replicas have lost what this one has applied, and it cannot follow them: the data folders \
                     are copies of different times. Keep the folder if what is in it is wanted; else empty it, start the \
                     node as a new one, and evict its old identifier"
                );
            }
            return Err("what is applied here is not in the leader's log".to_owned());
        }
        self.met.handle_leader(append.request.leader_commit);
        let answer = self.raft.append_entries(append.request).await;
        Ok(match answer.map_err(|error| error.to_string())? {
            AppendEntriesResponse::Success => {
                self.wanted_from
                    .store(append.wanted_from, Ordering::Relaxed);
                Answer::Appended
            }
            AppendEntriesResponse::Conflict => Answer::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Answer::HigherVote(vote),
            AppendEntriesResponse::PartialSuccess(_) => {
                return Err("only a part was appended".to_owned());
            }
        })
    }

    async fn receive(&self, chunk: Chunk) -> Result<Answer, String> {
        let leader = chunk.vote;
        let own = self.raft.server_metrics().borrow_watched().vote;
        let received = |vote, outcome| Ok(Answer::Received { vote, outcome });
        if own > leader {
            return received(own, Received::Lost);
        }
        if self.positions.applied.lock().log_id >= chunk.mark.log_id {
            return received(leader, Received::Installed);
        }
        let step = self.receiving.take(chunk).await;
        let (mark, writer) = match step.map_err(|error| error.to_string())? {
            Step::Answer(outcome) => return received(leader, outcome),
            Step::Install(mark, writer) => (mark, writer),
        };
        let snapshot = Snapshot {
            meta: mark.to_snapshot(),
            snapshot: Contents::Received(writer),
        };
        match self.raft.install_full_snapshot(leader, snapshot).await {
            Ok(response) => received(response.vote, Received::Installed),
            Err(fatal) => Err(fatal.to_string()),
        }
    }
}

fn voted<C: Command>(response: VoteResponse<Types<C>>) -> Answer {
    Answer::Voted {
        vote: response.vote,
        granted: response.vote_granted,
        last: response.last_log_id,
    }
}
