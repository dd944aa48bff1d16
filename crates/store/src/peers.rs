//! What the stores of a cluster's nodes say to each other.
//!
//! The node that leads a shard is sent the work that the others are given, and sends answers and pages
//! back. Everybody says which shards it leads. Whatever a lost connection loses is said again by whoever
//! needs the answer.

use std::collections::BTreeSet;

use bytes::Bytes;
use consensus::Network;
use serde::{Deserialize, Serialize};
use store_state::inbox::InboxOp;
use store_state::retain::RetainOp;
use store_state::session::SessionOp;
use tokio::sync::watch;

use crate::health::Health;
use crate::retained::Wanted;
use crate::shard::Reign;
use crate::size::{MESSAGE_BYTES, PART_LIMIT, parts, written_len};
use crate::{Event, Failure, Read, ShardNumber};

/// The format of messages; the first byte of each. Formats of stores are 16 to 31, so that one connection can
/// carry other messages as well.
const FORMAT: u8 = 16;

/// Carries messages between the stores of a cluster's nodes.
pub trait Peers: Network {
    /// Sends a message to the store of another node, which gets it by [`Store::received`]. In order; lost
    /// if there is no connection, or with it.
    ///
    /// [`Store::received`]: crate::Store::received
    fn send(&self, to: u64, message: Bytes);

    /// Whether the other nodes have confirmed that this node's data folder is not an old copy. Replicas begin then:
    /// what the folder lacks must not be agreed upon anew.
    fn admitted(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

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
}

/// Work for one shard, in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Forwarded<O> {
    pub(crate) shard: ShardNumber,
    /// The receiver's, as the sender knows it: work for an older one is not taken on.
    pub(crate) reign: Reign,
    pub(crate) work: Vec<ForwardedWork<O>>,
}

/// A piece of work; `id`: what its answer is to bear as its token.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ForwardedWork<O> {
    /// To be agreed on.
    Propose {
        id: u64,
        map_version: u64,
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
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mail {
    /// The store's number.
    pub(crate) store: u8,
    pub(crate) shard: ShardNumber,
    /// Their tokens are the numbers that the work was sent with.
    pub(crate) answers: Vec<Event>,
    /// For event loops.
    pub(crate) pages: Vec<(u16, Event)>,
}

/// Who leads a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lead {
    /// The store's number: session 0, inbox 1, retain 2.
    pub store: u8,
    /// The shard.
    pub shard: ShardNumber,
    pub(crate) reign: Reign,
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
        self.reign.term
    }
}

impl Mail {
    /// The same in messages that are not longer than they must be. What is too long for any is answered with a
    /// failure.
    pub(crate) fn parts(self) -> impl Iterator<Item = Self> {
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
        let answers = answers.into_iter().map(|answers| Self {
            answers,
            ..Self::default()
        });
        answers.chain(pages.into_iter().map(|pages| Self {
            pages,
            ..Self::default()
        }))
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Bytes {
        let out = vec![FORMAT];
        // Only a type that does not know its length fails, and there is none in a message.
        postcard::to_extend(self, out).unwrap_or_default().into()
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
