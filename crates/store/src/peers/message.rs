//! What the stores of a cluster's nodes say to each other.
//!
//! The node that leads a shard is sent the work that the others are given, and sends answers and pages back. Every node says which
//! shards it leads.
//!
//! Invariant: a message is not longer than a link takes; work that is lost with a connection is sent again by the node that needs
//! the answer.

use std::collections::BTreeSet;

use bytes::Bytes;
use peer_protocol::Kind;
use serde::{Deserialize, Serialize};
use store_state::RoutedUntil;
use store_state::api::{Event, Failure, Read, ShardNumber, StoreId};
use store_state::control::ControlOp;
use store_state::inbox::InboxOp;
use store_state::retain::RetainOp;
use store_state::session::SessionOp;

use crate::leadership::health::Health;
use crate::leadership::state::LeadershipEpoch;
use crate::peers::wire_size::{MESSAGE_BYTES, PART_LIMIT, parts, written_len};
use crate::shard::load::ShardLoad;
use crate::shard::retained::Wanted;
use crate::storage::digest::Holds;

/// The first byte of each message, so that one connection can carry other messages as well. What stands behind it is of
/// the version of the link (docs/decisions/0016-peer-protocol.md).
const FORMAT: u8 = Kind::Store.tag();

/// What one store says to another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Work for a session shard that the receiver leads.
    Session(Forwarded<SessionOp>),
    /// Work for an inbox shard that the receiver leads.
    Inbox(Forwarded<InboxOp>),
    /// Work for a retain shard that the receiver leads.
    Retain(Forwarded<RetainOp>),
    /// What the receiver's work has brought.
    Mail(Mail),
    /// Which shards the sender leads.
    Leads(Vec<Lead>),
    /// How fit the sender is to lead.
    Health(Health),
    /// The loads of the shards that the sender leads. Those without any are left out.
    Loads(Vec<(StoreId, ShardNumber, ShardLoad)>),
    /// What the sender's replica of a shard holds.
    Holds(StoreId, ShardNumber, Holds),
    /// Work for the control shard, which the receiver leads.
    Control(Forwarded<ControlOp>),
}

/// Work for one shard, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Forwarded<O> {
    pub(crate) shard: ShardNumber,
    /// The receiver's, as the sender knows it: work for an older one is not taken on.
    pub(crate) leadership_epoch: LeadershipEpoch,
    pub(crate) work: Vec<ForwardedWork<O>>,
}

/// A piece of work; `id`: what its answer is to bear as its token.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ForwardedWork<O> {
    /// To be agreed on.
    Propose {
        id: u64,
        until: RoutedUntil,
        /// What it weighs for the sender.
        bytes: u32,
        /// On a full disk it waits.
        must_wait: bool,
        op: O,
    },
    /// To be answered when all before is applied.
    Barrier { id: u64 },
    /// To be answered with retained messages.
    Page { id: u64, wanted: Wanted },
    /// To be read.
    Read(Read),
}

/// Answers and pages of one shard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) store: StoreId,
    pub(crate) shard: ShardNumber,
    /// Their tokens are the numbers that the work was sent with.
    pub(crate) answers: Vec<Event>,
    /// For event loops.
    pub(crate) pages: Vec<(u16, Event)>,
}

/// Answers and pages for one node, before they are sent.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) answers: Vec<Event>,
    pub(crate) pages: Vec<(u16, Event)>,
}

/// Who leads a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lead {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    pub(crate) leadership_epoch: LeadershipEpoch,
    /// The replicas that vote; while these change, old and new ones.
    pub voters: BTreeSet<u64>,
    /// The replicas that only listen.
    pub learners: BTreeSet<u64>,
    /// The highest incarnation of the receiver that the shard knows of: a process of a lower one has been
    /// declared dead.
    pub incarnation: u64,
}

impl Lead {
    /// The Raft term that it leads in.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.leadership_epoch.term
    }
}

impl Answers {
    /// The messages of a shard that carry them, none longer than it must be. What is too long for any is answered with
    /// a failure.
    pub(crate) fn parts(self, store: StoreId, shard: ShardNumber) -> impl Iterator<Item = Mail> {
        let answers = self.answers.into_iter().map(|mut event| {
            if written_len(&event) > PART_LIMIT
                && let Some(token) = event.token_mut()
            {
                event = Event::failed(Failure::TooLong)(*token);
            }
            event
        });
        let answers = parts(answers.collect(), MESSAGE_BYTES, written_len);
        let pages = parts(self.pages, MESSAGE_BYTES, written_len);
        let mail = move |answers, pages| Mail {
            store,
            shard,
            answers,
            pages,
        };
        let answers = answers
            .into_iter()
            .map(move |answers| mail(answers, Vec::new()));
        answers.chain(pages.into_iter().map(move |pages| mail(Vec::new(), pages)))
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Bytes {
        let out = vec![FORMAT];
        // Postcard refuses only a sequence that does not know its length.
        postcard::to_extend(self, out)
            .expect("every sequence in a message knows its length")
            .into()
    }

    /// The message, or why there is none in these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes {
            [FORMAT, rest @ ..] => postcard::from_bytes(rest).map_err(|error| error.to_string()),
            [format, ..] => Err(format!("its format is {format}, and {FORMAT} is known")),
            [] => Err("it is empty".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::load::{HalfLoad, HalfSlot, Percent};
    use crate::storage::digest::Digest;

    /// Nodes of other versions send these bytes.
    #[test]
    fn messages_are_encoded_as_they_have_always_been() {
        let answers = Answers {
            answers: vec![Event::passed(5)],
            pages: vec![(3, Event::Fenced)],
        };
        let mail: Vec<_> = answers.parts(StoreId::Retain, 9).collect();
        let bytes: Vec<_> = mail
            .into_iter()
            .map(|mail| Message::Mail(mail).encode().to_vec())
            .collect();
        // Format, kind of message, store, shard, answers, pages.
        assert_eq!(bytes[0], [FORMAT, 3, 2, 9, 1, 4, 5, 0]);
        assert_eq!(bytes[1], [FORMAT, 3, 2, 9, 0, 1, 3, 7]);
        let lead = Lead {
            store: StoreId::Inbox,
            shard: 2,
            leadership_epoch: LeadershipEpoch {
                term: 4,
                attempt: 1,
            },
            voters: [1, 2].into(),
            learners: [3].into(),
            incarnation: 8,
        };
        let bytes = Message::Leads(vec![lead]).encode();
        assert_eq!(*bytes, [FORMAT, 4, 1, 1, 2, 4, 1, 2, 1, 2, 1, 3, 8]);
        let load = ShardLoad {
            apply: std::time::Duration::new(1, 5),
            half: Some(HalfLoad {
                at: HalfSlot(9),
                below: Percent(50),
            }),
            ..ShardLoad::default()
        };
        let bytes = Message::Loads(vec![(StoreId::Inbox, 2, load)]).encode();
        // Propose, apply, read, wait, requests, bytes, half.
        assert_eq!(
            *bytes,
            [FORMAT, 6, 1, 1, 2, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 1, 9, 50]
        );
    }

    /// Nodes of other versions send these bytes.
    #[test]
    fn what_a_replica_holds_is_said_as_it_has_always_been() {
        let holds = |digest| Message::Holds(StoreId::Inbox, 2, Holds::at(301, digest)).encode();
        // Entry; the last one applied, rows, digest; whether it stops.
        let digest = Digest::of(300, 5);
        assert_eq!(
            *holds(Some(digest)),
            [FORMAT, 7, 1, 2, 0xad, 2, 1, 0xac, 2, 1, 5, 0]
        );
        assert_eq!(*holds(None), [FORMAT, 7, 1, 2, 0xad, 2, 0, 0]);
    }

    #[test]
    fn a_message_of_no_store_or_another_format_is_refused() {
        Message::decode(&[FORMAT, 3, 2, 9, 0, 0]).unwrap();
        for bytes in [
            &[FORMAT, 3, 4, 9, 0, 0][..],
            &[FORMAT + 1, 3, 2, 9, 0, 0],
            &[],
        ] {
            Message::decode(bytes).unwrap_err();
        }
    }

    #[test]
    fn an_answer_that_no_link_takes_is_a_failure() {
        let message = mqtt_session::ApplicationMessage {
            body: mqtt_proto::MessageBody::new("t", &vec![0; PART_LIMIT]),
            qos: mqtt_proto::QoS::AtMostOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        };
        let page = store_state::api::RetainedPage {
            messages: vec![store_state::api::Retained(std::sync::Arc::new(message))],
            next: None,
        };
        let answers = Answers {
            answers: vec![Event::Retained {
                token: 6,
                pages: vec![page],
            }],
            pages: Vec::new(),
        };
        let mail: Vec<_> = answers.parts(StoreId::Retain, 0).collect();
        assert!(matches!(
            mail[0].answers[..],
            [Event::Failed {
                token: 6,
                failure: Failure::TooLong
            }]
        ));
    }
}
