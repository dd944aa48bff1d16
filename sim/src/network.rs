//! Links between nodes: in order, until they break; then both ends are told, each after a while.

use std::collections::{BTreeMap, BTreeSet};

/// A link in one direction.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Link {
    pub(crate) session: u64,
    pub(crate) is_open: bool,
    /// The sender has been told that it is open, and nothing else since.
    pub(crate) sender_believes: bool,
    /// The same of the receiver.
    pub(crate) receiver_believes: bool,
    /// When it may be dialled again.
    pub(crate) dial_at: u64,
    /// When the last message arrives.
    pub(crate) last: u64,
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<(u64, u64), Link>,
    /// Nothing passes from the first to the second.
    pub(crate) cut: BTreeSet<(u64, u64)>,
    /// Milliseconds that something takes at most beyond the least.
    pub(crate) delay: usize,
    /// Of a thousand calls, how many are lost.
    pub(crate) lost: usize,
}

impl Network {
    pub(crate) fn link(&mut self, from: u64, to: u64) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    pub(crate) fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cut.contains(&(from, to))
    }

    /// The nodes from which something gets to `to`, directly or over others.
    pub(crate) fn heard_by(&self, to: u64, alive: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut heard = BTreeSet::from([to]);
        let mut next = vec![to];
        while let Some(at) = next.pop() {
            for from in alive {
                if !self.is_cut(*from, at) && heard.insert(*from) {
                    next.push(*from);
                }
            }
        }
        heard
    }
}
