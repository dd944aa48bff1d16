//! What a node routes by while it hears no majority of the cluster (P10).
//!
//! Where a shard has no leader that is heard, nobody knows whether a durable session of it wants a message.
//! With a majority, a leader is there soon, and is waited for. Without one, transient traffic goes on by what
//! the last leader had told, and only publishers with a durable session wait. What was subscribed to elsewhere
//! since then, this node cannot know. A node that has heard no majority since its start was told nothing, and
//! transient traffic goes on by the subscriptions of its own clients.

use std::collections::BTreeMap;

use route_exchange::{Key, ShardNumber};

/// How often [`Peers::tick`](super::Peers::tick) is called, in ms.
pub const TICK_MS: u64 = 250;

/// How long no majority has to be silent, in ms. Counted in ticks, so that the time in which the process was
/// stopped does not count.
const SILENCE_MS: u64 = 2_000;

/// Whether the node is cut off, and what it has known as a leader.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    silent_ms: u64,
    /// A majority was heard since the start.
    has_heard: bool,
    /// Shards that nobody is known to lead since this node has ceased to.
    resigned: BTreeMap<ShardNumber, Resigned>,
}

#[derive(Debug)]
struct Resigned {
    term: u64,
    /// All routes had been told.
    complete: bool,
    /// They are in the index of this node still.
    routes: Vec<Key>,
}

impl CutOff {
    /// Another tick has passed.
    pub(super) fn tick(&mut self, hears_majority: bool) {
        let was = self.is_now();
        if hears_majority {
            self.silent_ms = 0;
            self.has_heard = true;
        } else {
            self.silent_ms = self.silent_ms.saturating_add(TICK_MS);
        }
        match (was, self.is_now()) {
            (false, true) => tracing::warn!(
                "no contact with a majority of the cluster: messages of transient sessions follow the last known routes"
            ),
            (true, false) => tracing::info!("contact with a majority of the cluster again"),
            _ => {}
        }
    }

    pub(super) fn is_now(&self) -> bool {
        self.silent_ms >= SILENCE_MS
    }

    /// No majority was heard since the start, for as long as makes a node cut off. What leaders would tell is not
    /// waited for, because nobody knows when there are any.
    pub(super) fn is_since_start(&self) -> bool {
        self.is_now() && !self.has_heard
    }

    /// This node leads a shard no longer.
    pub(super) fn resigned(&mut self, shard: ShardNumber, lead: (u64, bool), routes: Vec<Key>) {
        let (term, complete) = lead;
        let resigned = Resigned {
            term,
            complete,
            routes,
        };
        self.resigned.insert(shard, resigned);
    }

    /// The term that this node led a shard in before nobody did, and whether it had told all routes.
    pub(super) fn led(&self, shard: ShardNumber) -> Option<(u64, bool)> {
        let resigned = self.resigned.get(&shard)?;
        Some((resigned.term, resigned.complete))
    }

    /// This node leads a shard again. Returns what it knew of it.
    pub(super) fn leads_again(&mut self, shard: ShardNumber) -> Vec<Key> {
        let resigned = self.resigned.remove(&shard);
        resigned.map_or_else(Vec::new, |resigned| resigned.routes)
    }

    /// Others have told all of their routes. Returns what this node knew of these shards; all but the unknown.
    pub(super) fn forget_led(&mut self, unknown: &[ShardNumber]) -> Vec<Key> {
        let is_led = |shard: &ShardNumber, _: &mut Resigned| !unknown.contains(shard);
        let led = self.resigned.extract_if(.., is_led);
        led.flat_map(|(_, resigned)| resigned.routes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(shard: ShardNumber) -> Key {
        Key::ShardFilter(shard, "a".into())
    }

    #[test]
    fn a_majority_that_is_silent_for_long_enough_cuts_off() {
        let mut cut_off = CutOff::default();
        for _ in 1..SILENCE_MS / TICK_MS {
            cut_off.tick(false);
            assert!(!cut_off.is_now());
        }
        cut_off.tick(false);
        assert!(cut_off.is_now());
        cut_off.tick(true);
        assert!(!cut_off.is_now());
    }

    #[test]
    fn a_node_that_has_heard_a_majority_once_is_not_cut_off_since_its_start() {
        let mut cut_off = CutOff::default();
        for _ in 1..SILENCE_MS / TICK_MS {
            cut_off.tick(false);
            assert!(!cut_off.is_since_start(), "others may be heard yet");
        }
        cut_off.tick(false);
        assert!(cut_off.is_since_start());
        cut_off.tick(true);
        for _ in 0..SILENCE_MS / TICK_MS {
            cut_off.tick(false);
        }
        assert!(cut_off.is_now() && !cut_off.is_since_start());
    }

    #[test]
    fn what_was_led_is_known_until_somebody_leads() {
        let mut cut_off = CutOff::default();
        for shard in [1, 2] {
            cut_off.resigned(shard, (5, true), vec![filter(shard)]);
        }
        assert_eq!(cut_off.forget_led(&[1, 2]), []);
        assert_eq!(cut_off.forget_led(&[2]), [filter(1)]);
        assert_eq!((cut_off.led(1), cut_off.led(2)), (None, Some((5, true))));
        assert_eq!(cut_off.leads_again(2), [filter(2)]);
        assert_eq!(cut_off.led(2), None);
    }
}
