//! What the replicas of a group say to each other, as bytes.
//!
//! Invariant: what [`Request::decode`] lets pass, openraft takes without a panic, whoever has sent it:
//! entries follow each other, no term is later than that of the vote, no vote is a leader's that is not
//! one. That a member does not contradict what it said before is not checked: Raft trusts its members.

use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};

use crate::command::Command;
use crate::encoding::{Reader, put_bytes, put_count, put_optional_log_id, put_vote};
use crate::mark::Mark;
use crate::record::Record;
use crate::types::{Entry, LogId, MAX_NUMBER, Payload, Types, Vote};

/// First byte of each request and each answer.
const FORMAT: u8 = 1;

mod kind {
    pub(super) const APPEND: u8 = 1;
    pub(super) const VOTE: u8 = 2;
    pub(super) const PRE_VOTE: u8 = 3;
    pub(super) const TRANSFER: u8 = 4;
    pub(super) const CHUNK: u8 = 5;
    pub(super) const END: u8 = 6;

    pub(super) const REFUSED: u8 = 16;
    pub(super) const APPENDED: u8 = 17;
    pub(super) const CONFLICT: u8 = 18;
    pub(super) const HIGHER_VOTE: u8 = 19;
    pub(super) const VOTED: u8 = 20;
    pub(super) const TRANSFERRED: u8 = 21;
    pub(super) const RECEIVED: u8 = 22;
    pub(super) const ENDS: u8 = 23;
}

pub(crate) enum Request<C: Command> {
    Append(Append<C>),
    Vote(VoteRequest<Types<C>>),
    PreVote(VoteRequest<Types<C>>),
    Transfer(TransferLeaderRequest<Types<C>>),
    Chunk(Chunk),
    /// How far does the leader's log reach? Only the leader answers.
    End,
}

pub(crate) struct Append<C: Command> {
    pub(crate) request: AppendEntriesRequest<Types<C>>,
    /// The first index that not all members are known to have: the log may be forgotten before it.
    pub(crate) wanted_from: u64,
}

/// A part of a snapshot.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chunk {
    pub(crate) vote: Vote,
    /// Where the snapshot reaches.
    pub(crate) mark: Mark,
    /// Tells apart the attempts of one leader.
    pub(crate) transfer: u64,
    /// Counts the chunks of a transfer.
    pub(crate) number: u64,
    /// `None` ends the snapshot.
    pub(crate) bytes: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// The request was not understood, or the replica has stopped.
    Refused(String),
    Appended,
    Conflict,
    HigherVote(Vote),
    Voted {
        vote: Vote,
        granted: bool,
        last: Option<LogId>,
    },
    /// Whether the transfer is taken.
    Transferred(bool),
    Received {
        vote: Vote,
        outcome: Received,
    },
    Ends(End),
}

/// How far a leader's log reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    /// The term in which it leads.
    pub(crate) vote: Vote,
    /// Its last entry, synced or not.
    pub(crate) last: Option<LogId>,
}

/// What became of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// The next one is wanted.
    Next,
    /// All that the snapshot holds is here, by it or by another way.
    Installed,
    /// It belongs to no transfer that goes on: begin again.
    Lost,
}

impl<C: Command> Request<C> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        match self {
            Self::Append(append) => append.put(&mut out),
            Self::Vote(request) => put_vote_request(kind::VOTE, request, &mut out),
            Self::PreVote(request) => put_vote_request(kind::PRE_VOTE, request, &mut out),
            Self::Transfer(request) => {
                out.push(kind::TRANSFER);
                put_vote(request.from_leader(), &mut out);
                out.extend_from_slice(&request.to_node_id().to_le_bytes());
                put_optional_log_id(request.last_log_id(), &mut out);
            }
            Self::Chunk(chunk) => chunk.put(&mut out),
            Self::End => out.push(kind::END),
        }
        out
    }

    /// The request in these bytes of another node, or why `own`, this node, does not take it.
    pub(crate) fn decode(bytes: &[u8], own: u64) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        check_format(&mut reader)?;
        let kind = reader.u8().ok_or("an empty request")?;
        let request = match kind {
            kind::APPEND => Self::Append(Append::read(&mut reader)?),
            kind::VOTE => Self::Vote(read_vote_request(&mut reader).ok_or("a broken vote")?),
            kind::PRE_VOTE => Self::PreVote(read_vote_request(&mut reader).ok_or("a broken vote")?),
            kind::TRANSFER => {
                Self::Transfer(read_transfer(&mut reader).ok_or("a broken transfer")?)
            }
            kind::CHUNK => Self::Chunk(Chunk::read(&mut reader).ok_or("a broken chunk")?),
            kind::END => Self::End,
            other => return Err(format!("a request of the unknown kind {other}")),
        };
        if !reader.0.is_empty() {
            return Err("a request with something behind it".to_owned());
        }
        request.check(own)?;
        Ok(request)
    }

    /// Whether a leader sends it to members only, and counts on what is answered.
    pub(crate) fn is_for_members(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Chunk(_))
    }

    fn check(&self, own: u64) -> Result<(), &'static str> {
        let (vote, of_leader, last) = match self {
            Self::Append(append) => {
                append.check()?;
                let request = &append.request;
                (request.vote, true, request.prev_log_id)
            }
            Self::Vote(request) | Self::PreVote(request) => {
                (request.vote, false, request.last_log_id)
            }
            Self::Transfer(request) => {
                (*request.from_leader(), true, request.last_log_id().copied())
            }
            Self::Chunk(chunk) => {
                let end = chunk.mark.log_id.ok_or("a snapshot of nothing")?;
                (chunk.vote, true, Some(end))
            }
            Self::End => return Ok(()),
        };
        if vote.leader_id.voted_for == own {
            return Err("a vote in this node's name");
        }
        if vote.committed != of_leader || vote.leader_id.term > MAX_NUMBER {
            return Err("a vote that cannot be");
        }
        if last.is_some_and(|id| !fits(&id, &vote)) {
            return Err("a position that is later than the vote");
        }
        Ok(())
    }
}

impl<C: Command> Append<C> {
    fn put(&self, out: &mut Vec<u8>) {
        let request = &self.request;
        out.push(kind::APPEND);
        put_vote(&request.vote, out);
        put_optional_log_id(request.prev_log_id.as_ref(), out);
        put_optional_log_id(request.leader_commit.as_ref(), out);
        out.extend_from_slice(&self.wanted_from.to_le_bytes());
        put_count(request.entries.len(), out);
        for entry in &request.entries {
            let record = Record::encode(entry);
            put_count(record.len(), out);
            record.put(out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, String> {
        let broken = || "a broken append".to_owned();
        let vote = reader.vote().ok_or_else(broken)?;
        let prev_log_id = reader.optional_log_id().ok_or_else(broken)?;
        let leader_commit = reader.optional_log_id().ok_or_else(broken)?;
        let wanted_from = reader.u64().ok_or_else(broken)?;
        let count = reader.u32().ok_or_else(broken)?;
        let entries = (0..count).map(|_| {
            let bytes = reader.bytes().ok_or_else(broken)?;
            Record::from_bytes(bytes).decode()
        });
        Ok(Self {
            request: AppendEntriesRequest {
                vote,
                prev_log_id,
                entries: entries.collect::<Result<_, _>>()?,
                leader_commit,
            },
            wanted_from,
        })
    }

    fn check(&self) -> Result<(), &'static str> {
        let AppendEntriesRequest {
            vote,
            prev_log_id,
            entries,
            leader_commit,
        } = &self.request;
        if leader_commit.is_some_and(|id| !fits(&id, vote)) {
            return Err("a commit that is later than the vote");
        }
        let mut before = *prev_log_id;
        for entry in entries {
            let expected = before.map_or(0, |id| id.index.saturating_add(1));
            if entry.log_id.index != expected || Some(entry.log_id) <= before {
                return Err("entries that do not follow each other");
            }
            if !fits(&entry.log_id, vote) || !is_possible(entry) {
                return Err("an entry that cannot be");
            }
            before = Some(entry.log_id);
        }
        Ok(())
    }
}

impl Chunk {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(kind::CHUNK);
        put_vote(&self.vote, out);
        put_bytes(&self.mark.encode(), out);
        out.extend_from_slice(&self.transfer.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(u8::from(self.bytes.is_some()));
        if let Some(bytes) = &self.bytes {
            put_bytes(bytes, out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            vote: reader.vote()?,
            mark: Mark::decode(reader.bytes()?).ok()?,
            transfer: reader.u64()?,
            number: reader.u64()?,
            bytes: if reader.flag()? {
                Some(reader.bytes()?.to_vec())
            } else {
                None
            },
        })
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        match self {
            Self::Refused(why) => {
                out.push(kind::REFUSED);
                put_bytes(why.as_bytes(), &mut out);
            }
            Self::Appended => out.push(kind::APPENDED),
            Self::Conflict => out.push(kind::CONFLICT),
            Self::HigherVote(vote) => {
                out.push(kind::HIGHER_VOTE);
                put_vote(vote, &mut out);
            }
            Self::Voted {
                vote,
                granted,
                last,
            } => {
                out.push(kind::VOTED);
                put_vote(vote, &mut out);
                out.push(u8::from(*granted));
                put_optional_log_id(last.as_ref(), &mut out);
            }
            Self::Transferred(taken) => {
                out.extend_from_slice(&[kind::TRANSFERRED, u8::from(*taken)])
            }
            Self::Received { vote, outcome } => {
                out.push(kind::RECEIVED);
                put_vote(vote, &mut out);
                out.push(*outcome as u8);
            }
            Self::Ends(End { vote, last }) => {
                out.push(kind::ENDS);
                put_vote(vote, &mut out);
                put_optional_log_id(last.as_ref(), &mut out);
            }
        }
        out
    }

    /// `None`: it is broken, or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        check_format(&mut reader).ok()?;
        let answer = Self::read(&mut reader)?;
        reader.0.is_empty().then_some(answer)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.u8()? {
            kind::REFUSED => Self::Refused(String::from_utf8_lossy(reader.bytes()?).into_owned()),
            kind::APPENDED => Self::Appended,
            kind::CONFLICT => Self::Conflict,
            kind::HIGHER_VOTE => Self::HigherVote(read_vote(reader)?),
            kind::VOTED => Self::Voted {
                vote: read_vote(reader)?,
                granted: reader.flag()?,
                last: reader.optional_log_id()?,
            },
            kind::TRANSFERRED => Self::Transferred(reader.flag()?),
            kind::RECEIVED => Self::Received {
                vote: read_vote(reader)?,
                outcome: match reader.u8()? {
                    0 => Received::Next,
                    1 => Received::Installed,
                    2 => Received::Lost,
                    _ => return None,
                },
            },
            kind::ENDS => Self::Ends(End::read(reader)?),
            _ => return None,
        })
    }
}

impl End {
    /// `None`: no leader has said it.
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (vote, last) = (read_vote(reader)?, reader.optional_log_id()?);
        let is_possible = vote.committed && last.is_none_or(|id| fits(&id, &vote));
        is_possible.then_some(Self { vote, last })
    }
}

fn check_format(reader: &mut Reader<'_>) -> Result<(), String> {
    match reader.u8() {
        Some(FORMAT) => Ok(()),
        Some(other) => Err(format!("the unknown format {other}")),
        None => Err("nothing".to_owned()),
    }
}

/// Whether the leader or candidate of this vote can have this entry.
fn fits(id: &LogId, vote: &Vote) -> bool {
    id.leader_id.term <= vote.leader_id.term && id.index <= MAX_NUMBER
}

/// Whether a leader would propose this entry.
fn is_possible<C: Command>(entry: &Entry<C>) -> bool {
    match &entry.payload {
        Payload::Blank | Payload::Normal(_) => true,
        Payload::Membership(membership) => {
            let voters = membership.get_joint_config();
            matches!(voters.len(), 1 | 2) && voters.iter().all(|set| !set.is_empty())
        }
    }
}

/// A vote of a term that there can be.
fn read_vote(reader: &mut Reader<'_>) -> Option<Vote> {
    let vote = reader.vote()?;
    (vote.leader_id.term <= MAX_NUMBER).then_some(vote)
}

fn put_vote_request<C: Command>(kind: u8, request: &VoteRequest<Types<C>>, out: &mut Vec<u8>) {
    out.push(kind);
    put_vote(&request.vote, out);
    put_optional_log_id(request.last_log_id.as_ref(), out);
    out.push(u8::from(request.leadership_transfer));
}

fn read_vote_request<C: Command>(reader: &mut Reader<'_>) -> Option<VoteRequest<Types<C>>> {
    Some(VoteRequest {
        vote: reader.vote()?,
        last_log_id: reader.optional_log_id()?,
        leadership_transfer: reader.flag()?,
    })
}

fn read_transfer<C: Command>(reader: &mut Reader<'_>) -> Option<TransferLeaderRequest<Types<C>>> {
    let (from, to) = (reader.vote()?, reader.u64()?);
    Some(TransferLeaderRequest::new(
        from,
        to,
        reader.optional_log_id()?,
    ))
}

#[cfg(test)]
mod tests;
