//! What is read of disks and of other nodes, as fuzz targets.

use crate::rpc::{Answer, Request};
use crate::types::Entry;
use crate::types::{Payload, log_id};
use crate::{Command, Mark, record::Record};

/// The node that reads.
const OWN: u64 = 1;

/// The command in a record of the log, if it is one.
///
/// # Panics
/// Something is wrong with what reads it.
#[must_use]
pub fn record<C: Command>(bytes: &[u8]) -> Option<C> {
    if let Ok(mark) = Mark::decode(bytes) {
        assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
    }
    let record = Record::from_bytes(bytes);
    let entry = record.decode::<C>().ok()?;
    assert_eq!(record.log_id(), Some(entry.log_id));
    let again = Record::encode(&entry).decode::<C>();
    let again = again.expect("what was read can be written");
    assert_eq!(again.log_id, entry.log_id);
    match entry.payload {
        Payload::Normal(command) => Some(command),
        Payload::Blank | Payload::Membership(_) => None,
    }
}

/// Inputs for [`record`].
pub fn record_seeds<C: Command>(commands: &[C]) -> Vec<Vec<u8>> {
    let entry = |command: &C| Entry {
        log_id: log_id(3, 7),
        payload: Payload::Normal(command.clone()),
    };
    let seed = |command: &C| {
        let mut seed = Vec::new();
        Record::encode(&entry(command)).put(&mut seed);
        seed
    };
    let mut seeds: Vec<_> = commands.iter().map(seed).collect();
    seeds.push(Mark::default().encode());
    seeds
}

/// A request or an answer of another node's replica.
///
/// # Panics
/// Something is wrong with what reads it.
pub fn message<C: Command>(bytes: &[u8]) {
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
    if let Ok(request) = Request::<C>::decode(bytes, OWN) {
        let again = Request::<C>::decode(&request.encode(), OWN);
        assert!(again.is_ok(), "what was read can be written");
    }
}

/// Inputs for [`message`].
pub fn message_seeds<C: Command>(commands: &[C]) -> Vec<Vec<u8>> {
    use openraft::raft::{AppendEntriesRequest, VoteRequest};

    use crate::rpc::{Append, End};
    use crate::types::Vote;

    let entries = (1..).zip(commands).map(|(index, command)| Entry {
        log_id: log_id(2, index),
        payload: Payload::Normal(command.clone()),
    });
    let append = Request::Append(Append {
        request: AppendEntriesRequest {
            vote: Vote::new_committed(2, 3),
            prev_log_id: Some(log_id(1, 0)),
            entries: entries.collect(),
            leader_commit: None,
        },
        wanted_from: 0,
    });
    let vote = Request::<C>::Vote(VoteRequest {
        vote: Vote::new(2, 3),
        last_log_id: Some(log_id(1, 1)),
        leadership_transfer: false,
    });
    let answers = [
        Answer::Appended,
        Answer::Refused("no".to_owned()),
        Answer::HigherVote(Vote::new(2, 3)),
        Answer::Ends(End {
            vote: Vote::new_committed(2, 3),
            last: Some(log_id(1, 1)),
        }),
    ];
    let end = Request::<C>::End;
    let mut seeds = vec![append.encode(), vote.encode(), end.encode()];
    seeds.extend(answers.iter().map(Answer::encode));
    seeds
}
