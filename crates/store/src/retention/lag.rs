//! The log says which sessions lag behind: once when a session begins to, and once when it has caught up.

use std::collections::{BTreeMap, BTreeSet};

use crate::retention::found::Lagging;

/// Sessions of a shard that are remembered; of others the log says nothing.
const REMEMBERED: usize = 1_024;

/// The sessions of a shard that lag behind.
#[derive(Debug, Default)]
pub(super) struct LagWatch {
    /// By the numbers of their inboxes.
    lagging: BTreeMap<u64, Box<str>>,
}

/// What the log is to say.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum LagChange {
    /// A session has begun to lag.
    Lags(Lagging),
    /// A session has caught up, or has ended.
    CaughtUp(Box<str>),
}

impl LagWatch {
    /// These lag behind by now. `are_all`: no others do.
    pub(super) fn handle_look(&mut self, now: Vec<Lagging>, are_all: bool) -> Vec<LagChange> {
        let mut changes = Vec::new();
        if are_all {
            let lag: BTreeSet<u64> = now.iter().map(|of| of.inbox.number.0).collect();
            let rest = self
                .lagging
                .extract_if(.., |number, _| !lag.contains(number));
            changes.extend(rest.map(|(_, client)| LagChange::CaughtUp(client)));
        }
        for of in now {
            let number = of.inbox.number.0;
            if self.lagging.len() < REMEMBERED && !self.lagging.contains_key(&number) {
                self.lagging.insert(number, of.client_id.clone());
                changes.push(LagChange::Lags(of));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store_state::inbox::InboxId;

    use super::*;
    use crate::retention::found::QueuedMessages;

    fn lagging(number: u64) -> Lagging {
        Lagging {
            inbox: InboxId::new(1, number),
            client_id: number.to_string().into(),
            messages: QueuedMessages(5),
            age: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_change_is_told_once() {
        let mut watch = LagWatch::default();
        assert_eq!(watch.handle_look(Vec::new(), true), []);
        let lags = LagChange::Lags;
        let begun = watch.handle_look(vec![lagging(1), lagging(2)], true);
        assert_eq!(begun, [lags(lagging(1)), lags(lagging(2))]);
        assert_eq!(watch.handle_look(vec![lagging(2), lagging(1)], true), []);
        let changed = watch.handle_look(vec![lagging(3), lagging(2)], true);
        let expected = [LagChange::CaughtUp("1".into()), lags(lagging(3))];
        assert_eq!(changed, expected);
        assert_eq!(watch.handle_look(vec![lagging(3)], false), []);
        let many = watch.handle_look((0..5_000).map(lagging).collect(), true);
        assert_eq!(many.len(), REMEMBERED - 2);
    }
}
