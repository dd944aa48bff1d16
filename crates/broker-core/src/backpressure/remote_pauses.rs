//! Publishers of a loop that subscribers of other nodes hold back.

use hashbrown::hash_map::Entry;
use hashing::HashMap;
use net_api::Key;
use route_exchange::NodeId;

/// Entries up to which none is looked through.
const FEW: usize = 1_024;

/// By node and publisher, how many subscribers hold it back.
#[derive(Debug, Default)]
pub(crate) struct RemotePauses {
    pauses: HashMap<(NodeId, Key), u32>,
    /// How many entries there are when they are looked through for publishers that are gone.
    most: usize,
}

impl RemotePauses {
    /// A subscriber of a node holds a publisher back. `lives`: whether a publisher is in the loop.
    pub(super) fn handle_held(
        &mut self,
        node: NodeId,
        publisher: Key,
        lives: impl Fn(Key) -> bool,
    ) {
        if self.pauses.len() > self.most {
            self.pauses.retain(|(_, key), _| lives(*key));
            self.most = FEW.max(2 * self.pauses.len());
        }
        *self.pauses.entry((node, publisher)).or_default() += 1;
    }

    /// A subscriber of a node lets a publisher go. False: none holds it back.
    pub(super) fn handle_released(&mut self, node: NodeId, publisher: Key) -> bool {
        let Entry::Occupied(mut pauses) = self.pauses.entry((node, publisher)) else {
            return false;
        };
        *pauses.get_mut() -= 1;
        if *pauses.get() == 0 {
            pauses.remove();
        }
        true
    }

    /// A connection with a node is gone. The publishers that its subscribers held back, and how many of them.
    pub(super) fn handle_lost(&mut self, node: NodeId) -> Vec<(Key, u32)> {
        let lost = self.pauses.extract_if(|(by, _), _| *by == node);
        lost.map(|((_, key), pauses)| (key, pauses)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(slot: u32) -> Key {
        Key {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn each_pause_is_released_once() {
        let mut pauses = RemotePauses::default();
        for node in [7, 7, 8] {
            pauses.handle_held(node, publisher(1), |_| true);
        }
        assert!(pauses.handle_released(7, publisher(1)));
        assert!(pauses.handle_released(8, publisher(1)));
        assert!(!pauses.handle_released(8, publisher(1)));
        assert!(!pauses.handle_released(7, publisher(2)));
        assert_eq!(pauses.handle_lost(7), [(publisher(1), 1)]);
        assert_eq!(pauses.handle_lost(7), []);
        assert!(!pauses.handle_released(7, publisher(1)));
    }

    #[test]
    fn publishers_that_are_gone_are_forgotten() {
        let mut pauses = RemotePauses::default();
        for slot in 0..10_000 {
            pauses.handle_held(7, publisher(slot), |key| key.slot % 1_000 == 0);
            assert!(pauses.pauses.len() <= FEW + 1 + 10);
        }
        assert!(pauses.handle_released(7, publisher(1_000)));
    }
}
