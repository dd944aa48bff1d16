//! What a loop has asked the store and waits for.

use std::sync::Arc;

use mqtt_proto::{PacketId, ReasonCode};
use mqtt_session::ApplicationMessage;
use net_api::{ConnectionId, Key};
use store_state::CorrelationId;
use store_state::api::{Failure, RetainedPage, Store as _};
use store_state::inbox::{InboxOp, InboxReply, Item, Origin, StoredSubscription};
use store_state::retain::RetainReply;
use store_state::session::SessionReply;

use crate::clients::{ClientLoop, Done, LoopIo};
use crate::connect::takeover::{Closing, Taking};
use crate::publish::once::Once;
use crate::rim::Rim;
use crate::session::linger::Late;
use crate::shared::legacies::Handover;

/// A question to the store, with what is needed to go on when the answer comes.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A client that connects: the session store is asked for the identifier.
    Claim(Key),
    /// A client that connects: the cluster's directory is asked for the identifier.
    Register(Key),
    /// A client that connects: other nodes are asked to close its older connections.
    TakeOver(Box<Taking>),
    /// A client that is connected to another node: all that it did here is to be applied.
    Close(Closing),
    /// A client that connects: its inbox is asked for.
    Attach { key: Key, epoch: u64 },
    /// A client that connects without a durable session: the one that was there is removed.
    Discard { key: Key, epoch: u64 },
    /// A message on its way to those who keep it.
    Publish(Box<Publication>),
    /// A part of a client's SUBSCRIBE: for each filter its subscription, if it is admitted, or the reason code
    /// why not.
    Subscribe {
        key: Key,
        part: Vec<Result<StoredSubscription, ReasonCode>>,
    },
    /// A part of a client's UNSUBSCRIBE.
    Unsubscribe { key: Key, part: Vec<Box<str>> },
    /// Subscriptions that a client may not have any more.
    Revoke { key: Key, filters: Vec<Box<str>> },
    /// A PUBREC of a client.
    Receipt { key: Key, sequence: u64 },
    /// A PUBREL of a client: so many shards are still to forget its publication.
    Release {
        key: Key,
        packet_id: PacketId,
        left: usize,
    },
    /// Retained messages for a durable session.
    Replay(Key),
    /// Pages of retained messages for a session, by the number of the question.
    Pages {
        key: Key,
        question: u64,
        filters: Box<[Box<str>]>,
    },
    /// A SUBSCRIBE waits for retained messages that are on their way to the store, and for other nodes that
    /// are to know its routes: so many shards and owners of routes have not answered yet.
    Barrier {
        key: Key,
        packet_id: PacketId,
        reasons: Vec<ReasonCode>,
        left: usize,
        /// The replay of retained messages waits as well.
        replays: bool,
    },
    /// The inbox of a session that has ended.
    Removal { client: Box<str>, epoch: u64 },
    /// The end of a connection, which a shutdown waits for. `closes`: a connection whose client has sent
    /// DISCONNECT, and which is closed when its end is recorded.
    Disconnect { closes: Option<ConnectionId> },
    /// A will that was published, by its origin: that is to be recorded.
    Fired(Origin),
    /// A will that could not be published is asked for again.
    FireAgain { client: Box<str>, epoch: u64 },
    /// The will of a client that is to be disconnected, which a shutdown waits for.
    WillDue { _done: Done },
    /// A message for a member of a shared group.
    Member(Box<ToMember>),
    /// A message for a session that is not connected, by the routes that its connection left.
    Late(Box<Late>),
    /// The inbox of a session that has lingered long enough is detached.
    LingerEnd(Key),
    /// A page of a legacy: the shard is asked for it, and then members of its groups are to take it.
    Handover(Box<Handover>),
    /// A message of that page, for a member.
    Heir { handover: Key, sequence: u64 },
}

/// A message on its way to the inbox of a member of a shared group.
#[derive(Debug)]
pub(crate) struct ToMember {
    pub(crate) item: Item,
    /// The publication that waits for it.
    pub(crate) publication: Option<Key>,
    /// What makes it happen once, if no publication waits.
    pub(crate) call: Option<u64>,
    /// Of what the broker publishes.
    pub(crate) origin: Option<Origin>,
}

/// What those who are to keep a message did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Storing {
    /// They keep it, as far as they have answered.
    Done,
    /// A shard has no room for it, and does not keep it.
    Refused,
    /// A shard has not answered in time: it may keep it.
    Unknown,
    /// A shard knows of a later connection of the publisher.
    Stale,
}

/// A message on its way to those who keep it.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Whose acknowledgement waits.
    pub(crate) from: Awaiting,
    /// Shards that have not answered.
    pub(crate) left: usize,
    /// The worst of what was answered, or that nobody matched so far.
    pub(crate) reason: ReasonCode,
    /// The worst of what shards did with it.
    pub(crate) storing: Storing,
    /// The retain store has no room for it.
    pub(crate) not_retained: bool,
    /// Durable sessions that it went to are filling up.
    pub(crate) pressing: bool,
    /// It is not known whether anybody is to keep it, and that does not matter if this node is cut off.
    pub(crate) unsure: bool,
    pub(crate) message: Arc<ApplicationMessage>,
    pub(crate) once: Option<Once>,
    /// What makes it happen once, if it has no name.
    pub(crate) call: Option<u64>,
}

/// Whose acknowledgement waits for a publication.
#[derive(Clone, Debug)]
pub(crate) enum Awaiting {
    /// A client's.
    Client(Key, PacketId),
    /// Nobody's: a retained message of QoS 0 of a client, which is to be counted if it is not kept.
    Nobody(Key),
    /// The session store's: a will.
    Will { client: Box<str>, epoch: u64 },
}

/// Any answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Session(SessionReply),
    Inbox(InboxReply),
    Retain(RetainReply),
    Passed,
    Retained(Vec<RetainedPage>),
    Failed(Failure),
}

impl<R: Rim> ClientLoop<R> {
    /// Remembers what is asked; the ticket goes with the question.
    pub(crate) fn ask(&mut self, pending: Pending) -> CorrelationId {
        let token = self.pending.insert(pending).to_bits();
        self.stats.pending.set(self.pending.len() as u64);
        self.ticket(token)
    }

    pub(crate) fn ticket(&self, token: u64) -> CorrelationId {
        CorrelationId {
            peer: 0,
            loop_number: self.index as u16 + 1,
            token,
        }
    }

    /// Asks the inbox shard of a client.
    pub(crate) fn ask_inbox(&mut self, client: &str, pending: Pending, op: InboxOp) {
        let ticket = self.ask(pending);
        let store = self.node.store();
        store.inbox(store.inbox_shard(client), ticket, op);
    }

    /// Tells the inbox shard of a client something that nobody waits for.
    pub(crate) fn tell_inbox(&self, client: &str, op: InboxOp) {
        let store = self.node.store();
        store.inbox(store.inbox_shard(client), CorrelationId::NONE, op);
    }

    /// This node is cut off from most others: publications of transient sessions that only wait for shards of
    /// which nobody knows whether they are to keep them go on (P10).
    pub(crate) fn cut_off(&mut self, io: &mut impl LoopIo) {
        self.members_may_be_known(io);
        let unsure =
            |id: &Key| matches!(self.pending.get(*id), Some(Pending::Publish(p)) if p.unsure);
        let going_on: Vec<Key> = self.pending.keys().filter(unsure).collect();
        for id in going_on {
            if let Some(Pending::Publish(publication)) = self.pending.remove(id) {
                self.publication_done(io, *publication);
            }
        }
        self.stats.pending.set(self.pending.len() as u64);
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, io: &mut impl LoopIo, token: u64, answer: Answer) {
        let id = Key::from_bits(token);
        let failed = matches!(answer, Answer::Failed(_));
        match self.pending.get_mut(id) {
            Some(Pending::Release { left, .. }) if *left > 1 && !failed => {
                *left -= 1;
                return;
            }
            // Who has failed is not waited for; the others are.
            Some(Pending::Barrier { left, .. }) if *left > 1 => {
                *left -= 1;
                return;
            }
            _ => {}
        }
        if let Some(Pending::Publish(_)) = self.pending.get(id) {
            self.publication_answered(io, id, answer);
            return;
        }
        if let Some(Pending::Close(_)) = self.pending.get(id) {
            self.settled(id);
            return;
        }
        if let Some(Pending::Handover(_)) = self.pending.get(id) {
            self.page_answered(io, id, answer);
            self.stats.pending.set(self.pending.len() as u64);
            return;
        }
        let Some(pending) = self.pending.remove(id) else {
            return;
        };
        self.go_on(io, pending, answer);
        self.stats.pending.set(self.pending.len() as u64);
    }

    /// What a question was asked for goes on.
    fn go_on(&mut self, io: &mut impl LoopIo, pending: Pending, answer: Answer) {
        match pending {
            Pending::Claim(key) => self.claim_answered(io, key, answer),
            Pending::Attach { key, epoch } => self.attach_answered(io, key, epoch, answer),
            Pending::Discard { key, epoch } => self.discard_answered(io, key, epoch, &answer),
            Pending::Subscribe { key, part } => self.subscribe_answered(io, key, part, answer),
            Pending::Unsubscribe { key, part } => {
                self.unsubscribe_answered(io, key, &part, answer);
            }
            Pending::Revoke { key, filters } => self.revoke_answered(io, key, &filters, answer),
            Pending::Receipt { key, sequence } => {
                self.recorded(io, key, &answer, |session| {
                    session.complete_receipt(sequence)
                });
            }
            Pending::Release { key, packet_id, .. } => {
                self.recorded(io, key, &answer, |session| {
                    session.complete_release(packet_id)
                });
            }
            Pending::Replay(key) => self.replay_answered(io, key, &answer),
            Pending::Pages {
                key,
                question,
                filters,
            } => self.pages_have_come(io, key, question, filters, answer),
            Pending::Barrier {
                key,
                packet_id,
                reasons,
                replays,
                ..
            } => self.barrier_passed(io, key, packet_id, &reasons, replays),
            Pending::Fired(origin) => self.fired_answered(&origin, &answer),
            Pending::FireAgain { client, epoch } => {
                if let Answer::Failed(_) = answer {
                    self.will_is_unpublished(io, client, epoch);
                }
            }
            Pending::Disconnect { closes } => Self::end_answered(io, closes, &answer),
            Pending::Removal { client, epoch } => self.removal_answered(client, epoch, &answer),
            Pending::Member(to_member) => {
                let ToMember {
                    item,
                    publication,
                    call,
                    origin,
                } = *to_member;
                if let Some(call) = call {
                    self.calls.end(call);
                }
                if let Answer::Inbox(InboxReply::Stale) = answer {
                    // Its session ended while the message was on its way: another member gets it.
                    self.redispatch_stored(io, &item, publication, origin);
                }
                if let Some(publication) = publication {
                    self.publication_answered(io, publication, answer);
                }
            }
            Pending::Late(late) => self.late_answered(io, *late, &answer),
            Pending::LingerEnd(holder) => self.detach_answered(io, holder),
            Pending::Heir { handover, sequence } => {
                self.heir_answered(io, handover, sequence, &answer);
            }
            Pending::Publish(_)
            | Pending::Handover(_)
            | Pending::Register(_)
            | Pending::TakeOver(_)
            | Pending::Close(_)
            | Pending::WillDue { .. } => {}
        }
    }
}
