use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::types::{Membership, StoredMembership, log_id};
use crate::{CorruptCommand, Encoded};

/// This node, in whose name nobody else votes.
const OWN: u64 = 3;

#[derive(Clone, Debug)]
struct Text(Vec<u8>);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Command for Text {
    fn encoded(&self) -> Encoded {
        Encoded::Own(self.0.to_vec())
    }

    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand> {
        Ok(Self(bytes.to_vec()))
    }

    fn encoded_len_hint(&self) -> usize {
        self.0.len()
    }
}

fn entry(term: u64, index: u64, payload: Payload<Text>) -> Entry<Text> {
    Entry {
        log_id: log_id(term, index),
        payload,
    }
}

fn members() -> Membership {
    let voters = vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 3])];
    Membership::new_with_defaults(voters, [4])
}

fn append() -> Append<Text> {
    Append {
        request: AppendEntriesRequest {
            vote: Vote::new_committed(5, 1),
            prev_log_id: Some(log_id(4, 9)),
            entries: vec![
                entry(4, 10, Payload::Normal(Text(b"something".to_vec()))),
                entry(5, 11, Payload::Blank),
                entry(5, 12, Payload::Membership(members())),
            ],
            leader_commit: Some(log_id(4, 8)),
        },
        wanted_from: 7,
    }
}

fn chunk() -> Chunk {
    let stored = StoredMembership::new(Some(log_id(3, 2)), members());
    Chunk {
        vote: Vote::new_committed(5, 1),
        mark: Mark {
            log_id: Some(log_id(4, 100)),
            membership: Arc::new(stored),
        },
        transfer: 8,
        number: 1,
        bytes: Some(b"rows".to_vec()),
    }
}

fn vote_request() -> VoteRequest<Types<Text>> {
    VoteRequest {
        vote: Vote::new(6, 2),
        last_log_id: Some(log_id(5, 12)),
        leadership_transfer: true,
    }
}

fn requests() -> Vec<Request<Text>> {
    let end = Chunk {
        bytes: None,
        ..chunk()
    };
    let transfer = TransferLeaderRequest::new(Vote::new_committed(5, 1), OWN, None);
    vec![
        Request::Append(append()),
        Request::Vote(vote_request()),
        Request::PreVote(vote_request()),
        Request::Transfer(transfer),
        Request::Chunk(chunk()),
        Request::Chunk(end),
        Request::End,
    ]
}

fn answers() -> Vec<Answer> {
    let vote = Vote::new_committed(5, 1);
    let received = [Received::Next, Received::Installed, Received::Lost];
    let mut answers = vec![
        Answer::Refused("no".to_owned()),
        Answer::Appended,
        Answer::Conflict,
        Answer::HigherVote(vote),
        Answer::Voted {
            vote,
            granted: true,
            last: Some(log_id(1, 2)),
        },
        Answer::Transferred(true),
        Answer::Ends(End {
            vote,
            last: Some(log_id(4, 9)),
        }),
        Answer::Ends(End { vote, last: None }),
    ];
    answers.extend(received.map(|outcome| Answer::Received { vote, outcome }));
    answers
}

/// Makes an append one that no leader sends.
type Lie = fn(&mut AppendEntriesRequest<Types<Text>>);

fn decode(bytes: &[u8]) -> Result<Request<Text>, String> {
    Request::decode(bytes, OWN)
}

#[test]
fn requests_and_answers_are_the_same_after_encoding() {
    for request in requests() {
        let bytes = request.encode();
        let again = decode(&bytes).expect("it is a request");
        assert_eq!(again.encode(), bytes);
    }
    for answer in answers() {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}

#[test]
fn what_is_cut_or_longer_or_of_another_format_is_refused() {
    for bytes in requests().iter().map(Request::encode) {
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end} of {bytes:?}");
        }
        assert!(decode(&[&bytes[..], b"x"].concat()).is_err());
        let newer = [&[FORMAT + 1], &bytes[1..]].concat();
        assert!(decode(&newer).is_err());
    }
    for bytes in answers().iter().map(Answer::encode) {
        for end in 0..bytes.len() {
            assert_eq!(Answer::decode(&bytes[..end]), None);
        }
        assert_eq!(Answer::decode(&[&bytes[..], b"x"].concat()), None);
    }
}

#[test]
fn no_changed_byte_makes_a_panic() {
    for bytes in requests().iter().map(Request::encode) {
        for place in 0..bytes.len() {
            for value in [0, 1, 2, 127, 128, 255] {
                let mut changed = bytes.clone();
                changed[place] = value;
                drop(decode(&changed));
                drop(Answer::decode(&changed));
            }
        }
    }
}

#[test]
fn appends_that_no_leader_sends_are_refused() {
    let outcome = |lie: Lie| {
        let mut append = append();
        lie(&mut append.request);
        decode(&Request::Append(append).encode()).err()
    };
    assert_eq!(outcome(|_| {}), None);
    let follow = "entries that do not follow each other";
    let possible = "an entry that cannot be";
    let vote = "a vote that cannot be";
    let lies: [(&str, Lie); 9] = [
        (follow, |request| request.prev_log_id = None),
        (follow, |request| drop(request.entries.remove(1))),
        (follow, |request| request.entries[1].log_id = log_id(3, 11)),
        (possible, |request| {
            request.entries[2].log_id = log_id(6, 12)
        }),
        (possible, |request| {
            let nobody = Membership::new_with_defaults(vec![BTreeSet::new()], []);
            request.entries[2].payload = Payload::Membership(nobody);
        }),
        ("a commit that is later than the vote", |request| {
            request.leader_commit = Some(log_id(6, 1));
        }),
        ("a vote in this node's name", |request| {
            request.vote = Vote::new_committed(5, OWN);
        }),
        (vote, |request| request.vote = Vote::new(5, 1)),
        (vote, |request| {
            request.vote = Vote::new_committed(u64::MAX, 1)
        }),
    ];
    for (why, lie) in lies {
        assert_eq!(outcome(lie).as_deref(), Some(why));
    }
}

#[test]
fn snapshots_that_no_leader_sends_are_refused() {
    let mut nothing = chunk();
    nothing.mark.log_id = None;
    let mut later = chunk();
    later.mark.log_id = Some(log_id(6, 100));
    for lie in [nothing, later] {
        assert!(decode(&Request::<Text>::Chunk(lie).encode()).is_err());
    }
}

#[test]
fn ends_that_no_leader_tells_are_refused() {
    let decoded = |vote, last| Answer::decode(&Answer::Ends(End { vote, last }).encode());
    let leader = Vote::new_committed(5, 1);
    assert!(decoded(leader, Some(log_id(5, 9))).is_some());
    assert_eq!(decoded(Vote::new(5, 1), Some(log_id(5, 9))), None);
    assert_eq!(decoded(leader, Some(log_id(6, 9))), None);
    assert_eq!(decoded(leader, Some(log_id(5, u64::MAX))), None);
}

#[test]
fn the_question_for_the_end_and_its_answer_keep_their_bytes() {
    assert_eq!(Request::<Text>::End.encode(), [1, 6]);
    let ends = Answer::Ends(End {
        vote: Vote::new_committed(5, 1),
        last: Some(log_id(4, 9)),
    });
    let number = |number: u8| [number, 0, 0, 0, 0, 0, 0, 0];
    let vote = [&number(5)[..], &number(1), &[1]].concat();
    let last = [&[1][..], &number(4), &number(9)].concat();
    assert_eq!(ends.encode(), [&[1, 23][..], &vote, &last].concat());
}
