//! What the store knows a connected client by, and its inbox, as far as its connection has to know.

use hashing::HashMap;
use mqtt_proto::PacketId;
use mqtt_session::{PacketIdSet, Subscription};
use store_state::api::{ShardRef, ShardRefs, Slot, Store};
use store_state::inbox::{ClientName, Origin, StoredSubscription};

use super::catching_up::CatchingUp;
use super::numbers::{Epoch, InboxNumber, Sequence};
use crate::publish::once::Once;

/// Queued messages that a session is given beyond what it has taken out of its memory.
///
/// Limit: queued messages given to a loop for one session | {} beyond what was sent on | the rest stays in the shard
pub(super) const CREDIT: u32 = 256;

/// What the store knows a connected client by.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Of this connection.
    pub(super) epoch: Epoch,
    /// `None`: the session ends with the connection; only the client identifier and the will are
    /// recorded.
    pub(super) inbox: Option<Inbox>,
}

/// What the store has said of an inbox that it has attached to a connection.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Of the connection.
    pub(crate) epoch: Epoch,
    /// The inbox's number in its shard.
    pub(crate) number: InboxNumber,
    /// The epoch that the session began with.
    pub(crate) incarnation: Epoch,
    /// The session was there before.
    pub(crate) present: bool,
    /// What is queued below this may have been sent before.
    pub(crate) sent: Sequence,
    /// The first sequence that is queued.
    pub(crate) first: Sequence,
    /// Publications of the client that it has not released.
    pub(crate) received: PacketIdSet,
    /// Those that came on an earlier connection, as this process or another node knows.
    pub(crate) repeated: PacketIdSet,
}

/// A durable session's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(super) slot: Slot,
    /// The inbox shards that there were when it was known last which of them have its publications.
    pub(super) shards: ShardRefs,
    /// Its number in its shard.
    pub(super) number: InboxNumber,
    /// What the store calls the client by, if that is not its identifier.
    pub(super) long_name: Option<ClientName>,
    /// The epoch that the session began with.
    pub(super) incarnation: Epoch,
    /// What is queued below this may have been sent before.
    pub(super) sent: Sequence,
    /// The first sequence that it has not been given.
    pub(super) next: Sequence,
    /// Messages that the shard may still give.
    pub(super) credit: u32,
    /// Which of its publications other shards than the session's own know of.
    pub(super) elsewhere: Elsewhere,
    /// Publications that came on an earlier connection, to this process or to a node that has told of it:
    /// everybody who is connected has them.
    pub(super) repeated: PacketIdSet,
    /// The client has released a publication on this connection.
    pub(super) has_released: bool,
    /// What comes directly, behind what is queued.
    pub(super) catching_up: CatchingUp,
}

/// Inbox shards that know of a client's publications of QoS 2 beside the client's own, by packet identifier.
///
/// Invariant: no identifier is in both.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The shards.
    known: HashMap<PacketId, Box<[u16]>>,
    /// All shards may.
    unknown: PacketIdSet,
}

impl Stored {
    /// Of a client with a durable session.
    pub(super) fn with_inbox(epoch: Epoch, inbox: Inbox) -> Self {
        Self {
            epoch,
            inbox: Some(inbox),
        }
    }

    /// Of a client whose session ends with the connection.
    pub(crate) fn without_inbox(epoch: Epoch) -> Self {
        Self { epoch, inbox: None }
    }

    /// Of this connection.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the session is durable.
    pub(crate) fn has_inbox(&self) -> bool {
        self.inbox.is_some()
    }

    /// The inbox of a durable session.
    pub(crate) fn inbox(&self) -> Option<&Inbox> {
        self.inbox.as_ref()
    }

    /// The same.
    pub(crate) fn inbox_mut(&mut self) -> Option<&mut Inbox> {
        self.inbox.as_mut()
    }

    /// The inbox that the session has at this connection; `None`: `epoch` is that of another one, or there is none.
    pub(super) fn inbox_at(&mut self, epoch: Epoch) -> Option<&mut Inbox> {
        self.inbox.as_mut().filter(|_| self.epoch == epoch)
    }
}

impl Inbox {
    pub(super) fn new(store: &impl Store, client_id: &str, attachment: Attachment) -> Self {
        let long_name = store.client_name(client_id);
        Self {
            slot: store.inbox_slot(client_id),
            shards: store.inbox_shards(),
            number: attachment.number,
            long_name: Some(long_name).filter(|name| name.as_str() != client_id),
            incarnation: attachment.incarnation,
            sent: attachment.sent,
            next: attachment.first,
            credit: CREDIT,
            elsewhere: Elsewhere {
                known: HashMap::default(),
                unknown: attachment.received,
            },
            repeated: attachment.repeated,
            has_released: false,
            catching_up: CatchingUp::new(attachment.present),
        }
    }

    /// Where it is.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// By which its shard knows it.
    pub(crate) fn number(&self) -> InboxNumber {
        self.number
    }

    /// Whether a publication may have come on an earlier connection.
    pub(crate) fn is_repeated(&self, packet_id: PacketId) -> bool {
        self.repeated.contains(packet_id)
    }

    /// Whether a message has come directly by this connection: it is likely that more are on their way when it ends.
    pub(crate) fn has_come_directly(&self) -> bool {
        self.catching_up.has_come()
    }

    /// The shards that there are now. If there are more than before, any may know of the publications of this client that
    /// it has not released (`received`): what prevents that one is kept twice is copied to both halves of a split.
    pub(crate) fn keep_up(&mut self, shards: &ShardRefs, received: impl FnOnce() -> PacketIdSet) {
        if self.shards.is_same(shards) {
            return;
        }
        self.shards = shards.clone();
        let Elsewhere { known, unknown } = &mut self.elsewhere;
        known.clear();
        unknown.extend(received().iter());
    }

    /// The shard of the client's own inbox.
    pub(crate) fn shard(&self) -> u16 {
        let shard = self.shards.of_slot(self.slot);
        shard.map_or(0, |shard| shard.number)
    }

    /// Takes note of the shards that are asked to keep a publication of this client. `routed_by`: all that there were as
    /// far as whoever found these knew.
    pub(crate) fn remember(
        &mut self,
        packet_id: PacketId,
        shards: impl Iterator<Item = u16>,
        routed_by: &ShardRefs,
    ) {
        let own = self.shard();
        let is_split_since = !self.shards.is_same(routed_by);
        let mut others: Vec<u16> = shards.filter(|shard| *shard != own).collect();
        others.sort_unstable();
        others.dedup();
        let Elsewhere { known, unknown } = &mut self.elsewhere;
        if known.remove(&packet_id).is_some() || is_split_since {
            // It came before, and nobody knows where to; or it goes on to shards that were split off.
            unknown.insert(packet_id);
        } else if !others.is_empty() && !unknown.contains(packet_id) {
            known.insert(packet_id, others.into());
        }
    }

    /// What a publication of this client is known by that came by the connection with this epoch.
    pub(crate) fn once(&self, client_id: &str, epoch: Epoch, packet_id: PacketId) -> Once {
        let origin = Origin {
            client: self.long_name.clone().unwrap_or_else(|| client_id.into()),
            incarnation: self.incarnation.0,
            packet_id: packet_id.get(),
        };
        Once::Client {
            origin,
            epoch: epoch.0,
        }
    }

    /// The shards that are to hear that a publication of this client is released: those that may know of it; and of the
    /// first release all, since earlier connections may have sent any of them something that is still on its way.
    pub(crate) fn shards_to_release(&mut self, packet_id: PacketId) -> Vec<ShardRef> {
        if !std::mem::replace(&mut self.has_released, true)
            || self.elsewhere.unknown.contains(packet_id)
        {
            return self.shards.to_vec();
        }
        let own = self.shard();
        let others = self.elsewhere.known.get(&packet_id);
        let others = others.map_or_else(Default::default, |others| &**others);
        let is_asked = |shard: &&ShardRef| shard.number == own || others.contains(&shard.number);
        self.shards.iter().filter(is_asked).copied().collect()
    }

    /// A publication is over: its packet identifier is free for another one.
    pub(crate) fn forget(&mut self, packet_id: PacketId) {
        self.elsewhere.known.remove(&packet_id);
        self.elsewhere.unknown.remove(packet_id);
        self.repeated.remove(packet_id);
    }
}

/// A subscription as the session knows it.
pub(crate) fn subscription(stored: StoredSubscription) -> Subscription {
    Subscription {
        filter: stored.filter,
        options: stored.options,
        id: Some(stored.id).filter(|id| *id != 0),
        group: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six shards, of which the third is the client's own.
    fn inbox(unknown: &[u16]) -> Inbox {
        Inbox {
            slot: Slot(25),
            shards: (0..6).map(shard).collect(),
            number: InboxNumber(1),
            long_name: None,
            incarnation: Epoch(1),
            sent: Sequence(1),
            next: Sequence(1),
            credit: CREDIT,
            elsewhere: Elsewhere {
                known: HashMap::default(),
                unknown: unknown.iter().map(|n| id(*n)).collect(),
            },
            repeated: unknown.iter().map(|n| id(*n)).collect(),
            has_released: true,
            catching_up: CatchingUp::new(false),
        }
    }

    fn shard(number: u16) -> ShardRef {
        ShardRef {
            number,
            last: number * 10 + 9,
        }
    }

    fn id(n: u16) -> PacketId {
        PacketId::new(n).unwrap()
    }

    fn remember(inbox: &mut Inbox, packet_id: u16, shards: &[u16]) {
        let routed_by = inbox.shards.clone();
        inbox.remember(id(packet_id), shards.iter().copied(), &routed_by);
    }

    fn released(inbox: &mut Inbox, packet_id: u16) -> Vec<u16> {
        let shards = inbox.shards_to_release(id(packet_id));
        shards.iter().map(|shard| shard.number).collect()
    }

    const ALL: [u16; 6] = [0, 1, 2, 3, 4, 5];

    #[test]
    fn the_shards_that_may_know_of_a_publication_are_asked_to_forget_it() {
        let mut inbox = inbox(&[7]);
        remember(&mut inbox, 1, &[2]);
        remember(&mut inbox, 3, &[4, 2, 1, 4]);
        assert_eq!(released(&mut inbox, 1), [2]);
        assert_eq!(released(&mut inbox, 3), [1, 2, 4]);
        assert_eq!(released(&mut inbox, 7), ALL);
        remember(&mut inbox, 3, &[2]);
        assert_eq!(released(&mut inbox, 3), ALL, "it came twice");
        remember(&mut inbox, 7, &[5]);
        assert_eq!(released(&mut inbox, 7), ALL);
        for n in [3, 7] {
            inbox.forget(id(n));
            assert_eq!(released(&mut inbox, n), [2]);
            assert!(!inbox.repeated.contains(id(n)));
        }
    }

    #[test]
    fn all_shards_may_know_what_was_published_before_one_was_split() {
        let mut inbox = inbox(&[]);
        remember(&mut inbox, 1, &[2]);
        remember(&mut inbox, 3, &[4]);
        let before = inbox.shards.clone();
        // Shard 25 is split off shard 2, and has the client's own inbox.
        let mut after: Vec<_> = (0..6).map(shard).collect();
        after[2].last = 24;
        after.insert(
            3,
            ShardRef {
                number: 25,
                last: 29,
            },
        );
        let after: ShardRefs = after.into_iter().collect();
        inbox.keep_up(&before, || panic!("nothing has changed"));
        inbox.keep_up(&after, || [id(1), id(3)].into_iter().collect());
        assert_eq!(inbox.shard(), 25);
        let all = [0, 1, 2, 25, 3, 4, 5];
        assert_eq!([1, 3].map(|n| released(&mut inbox, n)), [all, all]);
        // Found by what was known before: it goes on to where nobody here knows.
        inbox.remember(id(5), [2].into_iter(), &before);
        assert_eq!(released(&mut inbox, 5), all);
        remember(&mut inbox, 6, &[25, 4]);
        assert_eq!(released(&mut inbox, 6), [25, 4]);
    }
}
