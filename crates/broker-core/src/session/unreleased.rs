//! Publications of QoS 2 that came on connections which have ended, and that their publishers have not released.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashing::HashMap;
use mqtt_session::PacketIdSet;
use parking_lot::Mutex;

/// QoS 2 publications of durable sessions that are not connected, received in this process and not
/// released. Sessions that live as long as their connections have got them and must not get them again.
///
/// A node to which the client connects is told of them, and they are remembered until it says that the client is
/// connected: its answer, or the connection, may come to nothing. Those of a node of an earlier version, which does
/// not say so, are remembered for `TOLD_MS`.
///
/// At most `UNRELEASED` sessions; beyond that, the one whose connection ended first is forgotten. Messages that
/// it sends again may then reach sessions a second time that live as long as their connections.
#[derive(Debug, Default)]
pub struct Unreleased(Mutex<Remembered>);

/// Sessions of which unreleased publications are remembered. Each takes 10 KiB at most.
///
/// Limit: sessions that are not connected here whose unreleased QoS 2 messages a process remembers | {}, each until
/// the client is connected or its session ends; if another node was told of them and has not said so, for {TOLD_MS} |
/// the oldest is forgotten: what it sends again may reach clean sessions twice
const UNRELEASED: usize = 100_000;

/// How long they are remembered after another node was first told of them, in ms.
const TOLD_MS: u64 = 600_000;

#[derive(Debug, Default)]
struct Remembered {
    by_client: HashMap<Arc<str>, OfSession>,
    /// By when their connections ended, counted.
    by_age: BTreeMap<u64, Arc<str>>,
    last: u64,
    /// Of which other nodes were told, and when they are forgotten; some are forgotten already.
    told: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct OfSession {
    /// When its connection ended, counted.
    number: u64,
    /// Of that connection.
    epoch: u64,
    received: PacketIdSet,
    is_told: bool,
}

impl Unreleased {
    /// The connection of a session is closed that the session store knew by an epoch.
    pub fn keep(&self, client_id: &str, epoch: u64, received: &PacketIdSet, now_ms: u64) {
        let mut remembered = self.0.lock();
        remembered.forget_told(now_ms);
        remembered.forget(client_id, epoch);
        if received.is_empty() || remembered.by_client.contains_key(client_id) {
            return;
        }
        remembered.last += 1;
        let (client, number) = (Arc::<str>::from(client_id), remembered.last);
        remembered.by_age.insert(number, Arc::clone(&client));
        let of_session = OfSession {
            number,
            epoch,
            received: received.clone(),
            is_told: false,
        };
        remembered.by_client.insert(client, of_session);
        if remembered.by_age.len() > UNRELEASED
            && let Some((_, oldest)) = remembered.by_age.pop_first()
        {
            remembered.by_client.remove(&oldest);
        }
    }

    /// Those of a session that came on connections of lower epochs.
    pub fn before(&self, client_id: &str, epoch: u64) -> PacketIdSet {
        let remembered = self.0.lock();
        let of_session = remembered.by_client.get(client_id);
        of_session
            .filter(|of| of.epoch < epoch)
            .map_or_else(PacketIdSet::new, |of| of.received.clone())
    }

    /// The same, to be told to another node.
    pub fn tell(&self, client_id: &str, epoch: u64, now_ms: u64) -> PacketIdSet {
        let remembered = &mut *self.0.lock();
        remembered.forget_told(now_ms);
        let of_session = remembered.by_client.get_mut(client_id);
        let Some(of_session) = of_session.filter(|of| of.epoch < epoch) else {
            return PacketIdSet::new();
        };
        if !std::mem::replace(&mut of_session.is_told, true) {
            let told = (now_ms + TOLD_MS, of_session.number);
            if remembered.told.len() >= 2 * UNRELEASED {
                let by_age = &remembered.by_age;
                remembered
                    .told
                    .retain(|(_, number)| by_age.contains_key(number));
            }
            remembered.told.push_back(told);
        }
        of_session.received.clone()
    }

    /// A session is connected by an epoch, or ends with the connection of that.
    pub fn forget(&self, client_id: &str, epoch: u64) {
        self.0.lock().forget(client_id, epoch);
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.0.lock().by_age.len()
    }
}

impl Remembered {
    /// Forgets what came on connections of no higher epoch.
    fn forget(&mut self, client_id: &str, epoch: u64) {
        if let Some(of_session) = self.by_client.get(client_id)
            && of_session.epoch <= epoch
        {
            self.by_age.remove(&of_session.number);
            self.by_client.remove(client_id);
        }
    }

    fn forget_told(&mut self, now_ms: u64) {
        while let Some((until_ms, number)) = self.told.front().copied()
            && (until_ms <= now_ms || !self.by_age.contains_key(&number))
        {
            self.told.pop_front();
            if let Some(client) = self.by_age.remove(&number) {
                self.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::PacketId;

    use super::*;

    #[test]
    fn of_too_many_sessions_the_oldest_is_forgotten() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        unreleased.keep("none", 1, &PacketIdSet::new(), 0);
        for n in 0..=UNRELEASED as u64 {
            unreleased.keep(&n.to_string(), 1, &ids, 0);
            unreleased.keep("latest", n, &ids, 0);
        }
        assert_eq!(unreleased.sessions(), UNRELEASED);
        let of = |client| unreleased.before(client, u64::MAX);
        assert_eq!((of("0").len(), of("1").len()), (0, 0));
        assert_eq!((of("2"), of("latest")), (ids.clone(), ids));
        unreleased.forget("latest", u64::MAX);
        assert_eq!(of("latest").len(), 0);
        assert_eq!(unreleased.sessions(), UNRELEASED - 1);
    }

    #[test]
    fn what_a_node_is_told_is_remembered_until_the_client_is_connected_there() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        unreleased.keep("c", 5, &ids, 0);
        let tell = |epoch, now_ms| unreleased.tell("c", epoch, now_ms).len();
        // A question of before, that was late.
        assert_eq!(tell(5, 0), 0);
        // The first answer may be lost.
        assert_eq!((tell(6, 0), tell(6, 1), tell(7, 2)), (1, 1, 1));
        unreleased.forget("c", 4);
        assert_eq!(tell(7, 3), 1);
        unreleased.forget("c", 7);
        assert_eq!((tell(7, 4), unreleased.sessions()), (0, 0));
        // It came back, and went.
        unreleased.keep("c", 8, &ids, 5);
        assert_eq!((tell(9, 6), tell(9, TOLD_MS + 5)), (1, 1));
        assert_eq!((tell(9, TOLD_MS + 6), unreleased.sessions()), (0, 0));
        unreleased.keep("c", 10, &ids, 0);
        unreleased.keep("c", 11, &PacketIdSet::new(), 0);
        assert_eq!(unreleased.sessions(), 0);
    }

    #[test]
    fn so_many_are_told_at_a_time() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        for epoch in 0..=2 * UNRELEASED as u64 {
            unreleased.keep("c", epoch, &ids, 0);
            assert_eq!(unreleased.tell("c", epoch + 1, 0).len(), 1);
        }
        assert!(unreleased.0.lock().told.len() <= 2 * UNRELEASED);
    }
}
