//! What the store knows a connected client by, and its inbox, as far as its connection has to know.

use hashing::HashMap;
use mqtt_proto::PacketId;
use mqtt_session::PacketIdSet;
use store_state::inbox::{ClientName, Origin};

use crate::publish::once::Once;

/// Queued messages that a session is given beyond what it has taken out of its memory.
pub(crate) const CREDIT: u32 = 256;

/// What the store knows a connected client by.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Of this connection.
    pub(crate) epoch: u64,
    /// `None`: the session ends with the connection; only the client identifier and the will are
    /// recorded.
    pub(crate) inbox: Option<Inbox>,
}

/// A durable session's inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) shard: u16,
    /// Its number in the shard.
    pub(crate) number: u64,
    /// What the store calls the client by, if that is not its identifier.
    pub(crate) long_name: Option<ClientName>,
    /// The epoch that the session began with.
    pub(crate) incarnation: u64,
    /// What is queued below this may have been sent before.
    pub(crate) sent: u64,
    /// The first sequence that it has not been given.
    pub(crate) next: u64,
    /// Messages that the shard may still give.
    pub(crate) credit: u32,
    /// Which of its publications other shards than the session's own know of.
    pub(crate) elsewhere: Elsewhere,
    /// Publications that came on an earlier connection, to this process or to a node that has told of it:
    /// everybody who is connected has them.
    pub(crate) repeated: PacketIdSet,
    /// The client has released a publication on this connection.
    pub(crate) has_released: bool,
}

/// Inbox shards that know of a client's publications of QoS 2 beside the client's own, by packet identifier.
///
/// Invariant: no identifier is in both.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// The shards.
    pub(super) known: HashMap<PacketId, Box<[u16]>>,
    /// All shards may.
    pub(super) unknown: PacketIdSet,
}

impl Inbox {
    /// Takes note of the shards that are asked to keep a publication of this client.
    pub(crate) fn remember(&mut self, packet_id: PacketId, shards: impl Iterator<Item = u16>) {
        let mut others: Vec<u16> = shards.filter(|shard| *shard != self.shard).collect();
        others.sort_unstable();
        others.dedup();
        let Elsewhere { known, unknown } = &mut self.elsewhere;
        if known.remove(&packet_id).is_some() {
            // It came before, and nobody knows where to.
            unknown.insert(packet_id);
        } else if !others.is_empty() && !unknown.contains(packet_id) {
            known.insert(packet_id, others.into());
        }
    }

    /// What a publication of this client is known by that came by the connection with this epoch.
    pub(crate) fn once(&self, client_id: &str, epoch: u64, packet_id: PacketId) -> Once {
        let origin = Origin {
            client: self.long_name.clone().unwrap_or_else(|| client_id.into()),
            incarnation: self.incarnation,
            packet_id: packet_id.get(),
        };
        Once::Client { origin, epoch }
    }

    /// Those of `all` shards that are to hear that a publication of this client is released: those that may know of
    /// it; and of the first release all, since earlier connections may have sent any of them something that is still
    /// on its way.
    pub(crate) fn shards_to_release(&mut self, packet_id: PacketId, all: &[u16]) -> Vec<u16> {
        if !std::mem::replace(&mut self.has_released, true)
            || self.elsewhere.unknown.contains(packet_id)
        {
            return all.to_vec();
        }
        match self.elsewhere.known.get(&packet_id) {
            None => vec![self.shard],
            Some(others) => [&[self.shard], &**others].concat(),
        }
    }

    /// A publication is over: its packet identifier is free for another one.
    pub(crate) fn forget(&mut self, packet_id: PacketId) {
        self.elsewhere.known.remove(&packet_id);
        self.elsewhere.unknown.remove(packet_id);
        self.repeated.remove(packet_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(unknown: &[u16]) -> Inbox {
        Inbox {
            shard: 2,
            number: 1,
            long_name: None,
            incarnation: 1,
            sent: 1,
            next: 1,
            credit: CREDIT,
            elsewhere: Elsewhere {
                known: HashMap::default(),
                unknown: unknown.iter().map(|n| id(*n)).collect(),
            },
            repeated: unknown.iter().map(|n| id(*n)).collect(),
            has_released: true,
        }
    }

    fn id(n: u16) -> PacketId {
        PacketId::new(n).unwrap()
    }

    #[test]
    fn the_shards_that_may_know_of_a_publication_are_asked_to_forget_it() {
        let mut inbox = inbox(&[7]);
        inbox.remember(id(1), [2].into_iter());
        inbox.remember(id(3), [4, 2, 1, 4].into_iter());
        assert_eq!(inbox.shards_to_release(id(1), &[0, 1, 2, 3, 4, 5]), [2]);
        assert_eq!(
            inbox.shards_to_release(id(3), &[0, 1, 2, 3, 4, 5]),
            [2, 1, 4]
        );
        assert_eq!(inbox.shards_to_release(id(7), &[0, 1, 2]), [0, 1, 2]);
        inbox.remember(id(3), [2].into_iter());
        assert_eq!(
            inbox.shards_to_release(id(3), &[0, 1, 2]),
            [0, 1, 2],
            "it came twice"
        );
        inbox.remember(id(7), [5].into_iter());
        assert_eq!(inbox.shards_to_release(id(7), &[0, 1, 2]), [0, 1, 2]);
        for n in [3, 7] {
            inbox.forget(id(n));
            assert_eq!(inbox.shards_to_release(id(n), &[0, 1, 2]), [2]);
            assert!(!inbox.repeated.contains(id(n)));
        }
    }
}
