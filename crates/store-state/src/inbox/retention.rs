//! Which queues hold how much since when, and messages that are not kept any longer.
//!
//! Whoever leads a shard looks at its queues, some at a time ([`QueuePass`]), and proposes [`InboxOp::Trim`](super::InboxOp::Trim)
//! by what it sees. What is looked at, replicas need not agree on; what is dropped, the operation says.
//!
//! Invariant: an inbox whose queue holds something is listed in the stock, once.

use mqtt_session::{ClassId, Timestamp};

use super::InboxId;
use super::inbox::{Inbox, is_shared};
use super::inspect::Epoch;
use super::longest::{Extent, LookNumber};
use super::machine::InboxMachine;
use super::members::Membership;
use super::queue::ages::Ages;
use super::queue::trim::first_unsent;
use super::stock::Stock;
use crate::Limits;

/// A look at all queues of a shard that hold something, some at a time. Queues that fill meanwhile may be left out.
#[derive(Debug)]
pub struct QueuePass {
    left: Listed,
    look: LookNumber,
}

/// The limits to propose a batch with: as they are set, or as long as the longest queue of a class is, where a queue
/// that is full drops its oldest messages. A limit that was lowered leaves alone what waits: one message makes room for
/// one, and queues of the class that are shorter may grow as long until that one is shorter.
#[must_use]
pub fn leave_alone(machine: &InboxMachine, limits: Limits) -> Limits {
    let longest = machine.stock.longest.of_classes();
    longest.fold(limits, |limits, (class, Extent(messages, bytes))| {
        limits.leaving(class, messages, bytes)
    })
}

/// Inboxes of the list that are to be looked at still.
#[derive(Debug)]
struct Listed(usize);

/// A queue that holds something.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    inbox: &'a Inbox,
    membership: Option<Membership>,
}

/// A member of shared groups that is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwayMember {
    /// Of its last connection.
    pub epoch: Epoch,
    /// Since when it is away; `None`: for longer than this replica is loaded.
    pub since: Option<Timestamp>,
}

impl QueueView<'_> {
    /// The session's inbox.
    #[must_use]
    pub fn id(&self) -> InboxId {
        self.inbox.id()
    }

    /// The session.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.inbox.client
    }

    /// Of the session.
    #[must_use]
    pub fn class(&self) -> ClassId {
        self.inbox.class
    }

    /// Messages queued, in flight ones included.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.inbox.queue.len()
    }

    /// Their accounted bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inbox.queue.bytes()
    }

    /// The next sequence to be given: one more than messages have ever been queued.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.inbox.queue.next()
    }

    /// A sequence below which nothing is queued that cannot have been sent.
    #[must_use]
    pub fn first_unsent(&self) -> u64 {
        first_unsent(&self.inbox.queue)
    }

    /// Whether the client is connected, as far as is known: then messages may have been sent that are not below
    /// [`QueueView::first_unsent`].
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inbox.is_connected()
    }

    /// The time before which nothing that is queued came, to a tenth of its age; `None`: not known.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.ages()?.since(self.inbox.queue.head())
    }

    /// A sequence below which all messages came at this time or before; `None`: none is known to have.
    #[must_use]
    pub fn came_by(&self, time: Timestamp) -> Option<u64> {
        self.ages()?.came_by(time)
    }

    /// If the session is a member of shared groups, and no node has it.
    #[must_use]
    pub fn away_member(&self) -> Option<AwayMember> {
        let membership = self.membership?;
        (!self.inbox.is_attached()).then_some(AwayMember {
            epoch: Epoch(self.inbox.epoch),
            since: membership.away_since,
        })
    }

    /// The subscriptions of these groups, as in SUBSCRIBE.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let all = self.inbox.subscriptions.iter().map(|of| &*of.filter);
        all.filter(|filter| is_shared(filter))
    }

    fn ages(&self) -> Option<&Ages> {
        self.inbox.queue.ages()
    }
}

impl QueuePass {
    /// Begins to look.
    #[must_use]
    pub fn new(machine: &mut InboxMachine) -> Self {
        Self {
            left: Listed(machine.stock.listed.len()),
            look: machine.stock.longest.handle_look(),
        }
    }

    /// Goes on: `tell` gets the queues of so many inboxes, in no order. True: those were the last. The machine may be another
    /// one than that with which the look began.
    pub fn go_on(
        &mut self,
        machine: &mut InboxMachine,
        inboxes: usize,
        mut tell: impl FnMut(QueueView<'_>),
    ) -> bool {
        let Stock {
            listed, longest, ..
        } = &mut machine.stock;
        let Listed(left) = &mut self.left;
        *left = (*left).min(listed.len());
        for _ in 0..inboxes.min(*left) {
            *left -= 1;
            match machine.inboxes.get_mut(listed[*left]) {
                Some(inbox) if inbox.queue.len() > 0 => {
                    let holds = Extent(inbox.queue.len(), inbox.queue.bytes());
                    longest.handle_queue(inbox.class, holds);
                    let membership = machine.members.of(inbox.number);
                    tell(QueueView { inbox, membership });
                }
                Some(inbox) => {
                    inbox.is_listed = false;
                    listed.swap_remove(*left);
                }
                // The session has ended.
                None => {
                    listed.swap_remove(*left);
                }
            }
        }
        let is_over = *left == 0;
        if is_over {
            longest.handle_looked(self.look);
        }
        if is_over && listed.capacity() / 4 > listed.len() {
            listed.shrink_to_fit();
        }
        is_over
    }
}
