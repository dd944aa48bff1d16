//! Publishers that a subscriber has just held back for the whole time, in vain.
//!
//! A subscriber that has not yet shown that it drains does not hold back a publisher again that has waited for
//! another such one: all of them together take a stated share of a publisher's time.

use hashing::HashMap;

/// Publishers that are remembered. Beyond that, further ones are not.
///
/// Limit: the time that subscribers which do not drain hold one publisher back | {limits.connection.holdPublisherMs}
/// in ten times that, for {} publishers | it is not held; what does not fit is dropped by the queue's policy
const MOST: usize = 65_536;

/// Publishers, as messages name them, and until when they are spared, in ms.
#[derive(Debug, Default)]
pub(super) struct Stalls(HashMap<u64, u64>);

impl Stalls {
    /// Publishers have waited in vain.
    pub(super) fn note(
        &mut self,
        publishers: impl Iterator<Item = u64>,
        until_ms: u64,
        now_ms: u64,
    ) {
        let spared = &mut self.0;
        for publisher in publishers {
            if spared.len() >= MOST {
                spared.retain(|_, until| *until > now_ms);
                if spared.len() >= MOST {
                    return;
                }
            }
            spared.insert(publisher, until_ms);
        }
    }

    /// Whether a publisher is not to be held back by whoever has not shown that it drains.
    pub(super) fn spares(&mut self, publisher: u64, now_ms: u64) -> bool {
        let spared = &mut self.0;
        let Some(until) = spared.get(&publisher) else {
            return false;
        };
        let is_spared = *until > now_ms;
        if !is_spared {
            spared.remove(&publisher);
        }
        is_spared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_is_spared_for_a_time() {
        let mut stalls = Stalls::default();
        stalls.note([1, 2].into_iter(), 100, 10);
        assert!(stalls.spares(1, 99) && !stalls.spares(3, 99));
        assert!(!stalls.spares(1, 100));
        assert_eq!(stalls.0.len(), 1);
    }

    #[test]
    fn so_many_are_remembered() {
        let mut stalls = Stalls::default();
        stalls.note(0..MOST as u64, 100, 10);
        stalls.note([u64::MAX].into_iter(), 100, 10);
        assert!(!stalls.spares(u64::MAX, 50));
        stalls.note([u64::MAX].into_iter(), 300, 200);
        assert!(stalls.spares(u64::MAX, 250));
        assert_eq!(stalls.0.len(), 1);
    }
}
