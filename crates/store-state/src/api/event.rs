//! What the store tells the event loops.

use serde::{Deserialize, Serialize};

use super::{Failure, RetainedPage, ShardNumber};
use crate::control::ControlReply;
use crate::inbox::{InboxReply, Queued};
use crate::retain::RetainReply;
use crate::session::{SessionEnd, SessionReply, StoredWill};

/// Of a message that was not queued; sequences count from 1.
pub const NO_SEQUENCE: u64 = 0;

/// One thing that a loop is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The answer to a request to the session store.
    Session {
        /// As given with the request.
        token: u64,
        /// The answer.
        reply: SessionReply,
    },
    /// The answer to a request to the inbox store.
    Inbox {
        /// As given with the request.
        token: u64,
        /// The answer.
        reply: InboxReply,
    },
    /// The answer to a request to the retain store.
    Retain {
        /// As given with the request.
        token: u64,
        /// The answer.
        reply: RetainReply,
    },
    /// A request was not carried out.
    Failed {
        /// As given with the request.
        token: u64,
        /// Why.
        failure: Failure,
    },
    /// Everything that was asked of the shard before the barrier is done.
    Passed {
        /// As given with the barrier.
        token: u64,
    },
    /// Pages of retained messages that were asked for.
    Retained {
        /// As given with the question.
        token: u64,
        /// Those of its first filters, in its order; of one filter at least.
        pages: Vec<RetainedPage>,
    },
    /// Another node serves an inbox shard, or this one does from now on: whoever reads an inbox there
    /// opens it again, from the first sequence that it has not been given.
    Reopen {
        /// The shard.
        shard: ShardNumber,
    },
    /// The other nodes have taken this one for dead, and what its clients had is theirs no more: all that
    /// have something in the store are to be disconnected.
    Fenced,
    /// Queued messages for a session that has opened its inbox.
    Page {
        /// As given when the inbox was opened.
        home: u64,
        /// The epoch it was opened with.
        epoch: u64,
        /// All that is queued from this sequence on, up to the last one, is in here. If the session has not
        /// been given all before it, that was lost on its way from another node, [`Event::Reopen`] follows,
        /// and this is to be ignored.
        from: u64,
        /// In ascending order of their sequences; or messages of QoS 0 that were not queued ([`NO_SEQUENCE`]), since the
        /// session was attached and its cursor not open. These go before what comes to the session directly.
        items: Vec<(u64, Queued)>,
    },
    /// A will is to be published, under the origin of its client, this epoch and packet identifier 0;
    /// then [`crate::session::SessionOp::Fired`].
    Fire {
        /// Whose.
        client: Box<str>,
        /// Of the connection that it came with.
        epoch: u64,
        /// The will.
        will: StoredWill,
    },
    /// A session has ended: its inbox is to be removed, then
    /// [`crate::session::SessionOp::Gone`].
    Ended {
        /// Whose.
        client: Box<str>,
        /// Its last epoch.
        epoch: u64,
        /// Why; `None`: this was told before, perhaps by another leader. Of the process that leads the shard.
        #[serde(skip)]
        why: Option<SessionEnd>,
    },
    /// A session has ended, or is away, and has left messages to its shared groups: others are to have them, then
    /// [`crate::inbox::InboxOp::HandOver`], by which they are read as well.
    LeftBehind {
        /// Whose session.
        client: Box<str>,
        /// The number of the legacy.
        inbox: u64,
    },
    /// The shard does not have all the slots any more that it was taken to have. Stores tell each other; no loop is told.
    SplitOff {
        /// As given with the request.
        token: u64,
        /// The answer for the slots that the shard has; `None`: the request is for none of these, and had no effect.
        reply: Option<Box<Event>>,
        /// The last slot that it has.
        last: LastSlot,
    },
    /// The answer to a request to the control store. No loop asks it.
    Control {
        /// As given with the request.
        token: u64,
        /// The answer.
        reply: ControlReply,
    },
}

/// The last slot that a shard has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastSlot(pub u16);

impl Event {
    /// The number that an answer was asked under; `None`: it is no answer.
    pub fn token_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Session { token, .. }
            | Self::Inbox { token, .. }
            | Self::Retain { token, .. }
            | Self::Retained { token, .. }
            | Self::Failed { token, .. }
            | Self::SplitOff { token, .. }
            | Self::Control { token, .. }
            | Self::Passed { token } => Some(token),
            Self::Reopen { .. }
            | Self::Fenced
            | Self::Page { .. }
            | Self::Fire { .. }
            | Self::Ended { .. }
            | Self::LeftBehind { .. } => None,
        }
    }

    /// The answer of two shards to one request, given those of each. What one of them did not do was not done.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            // A barrier is passed, too, when what was before it was refused.
            (passed @ Self::Passed { .. }, _) | (_, passed @ Self::Passed { .. }) => passed,
            (failed @ Self::Failed { .. }, _) | (_, failed @ Self::Failed { .. }) => failed,
            (Self::Inbox { token, reply }, Self::Inbox { reply: other, .. }) => Self::Inbox {
                token,
                reply: reply.merge(other),
            },
            (Self::Retain { token, reply }, Self::Retain { reply: other, .. }) => Self::Retain {
                token,
                reply: match reply {
                    RetainReply::Done => other,
                    undone => undone,
                },
            },
            (answer, _) => answer,
        }
    }

    /// The event that tells a failure, given the token.
    pub fn failed(failure: Failure) -> impl FnOnce(u64) -> Self {
        move |token| Self::Failed { token, failure }
    }

    /// The event that tells that a barrier is passed.
    #[must_use]
    pub fn passed(token: u64) -> Self {
        Self::Passed { token }
    }
}
