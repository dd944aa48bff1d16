//! The list of members, merged from what gossip, handshakes and the file `cluster` say.
//!
//! Invariants: of two processes with one identifier the one of the higher incarnation counts. Who was evicted
//! never comes back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::members::reach::Reach;
use crate::options::Versions;

/// Members of a cluster at most.
///
/// Limit: members; evicted nodes; what a member tells the others | {}; {EVICTED_LIMIT}; {INFO_LIMIT:bytes} | refused
pub(crate) const MEMBERS_LIMIT: usize = 64;

/// Evicted nodes at most. All nodes remember all of them for ever.
pub(crate) const EVICTED_LIMIT: usize = 256;

/// What a node tells the others, in bytes of all keys and values: gossip has to fit into one UDP packet.
pub const INFO_LIMIT: usize = 1024;

/// Who belongs to the cluster, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// All members, this node among them, by their identifier.
    pub nodes: BTreeMap<u64, Member>,
    /// Nodes that are refused for ever.
    pub evicted: BTreeSet<u64>,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its identifier.
    pub node: u64,
    /// How often it was started.
    pub incarnation: u64,
    /// Where its links and its gossip are, `host:port`.
    pub address: String,
    /// What it says it does.
    pub state: State,
    /// The version of its program; empty while unknown.
    pub version: String,
    /// Whether this node reaches it.
    pub reach: Reach,
    /// Small facts that it tells.
    pub info: BTreeMap<String, String>,
}

/// What a member says it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// It starts.
    #[default]
    Joining,
    /// It serves.
    Up,
    /// It sends its clients elsewhere, and leads nothing.
    Draining,
    /// It gives up all that it has, for ever.
    Leaving,
    /// It is about to stop, and may come back.
    Stopping,
}

impl State {
    const ALL: [Self; 5] = [
        Self::Joining,
        Self::Up,
        Self::Draining,
        Self::Leaving,
        Self::Stopping,
    ];

    /// Its name in gossip, logs and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Leaving => "leaving",
            Self::Stopping => "stopping",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Where a node is. Kept in the file `cluster`, and told to nodes that join.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
    pub(crate) address: String,
}

/// What only gossip tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Details {
    pub(crate) state: State,
    pub(crate) version: String,
    pub(crate) info: BTreeMap<String, String>,
}

/// The versions of the protocol between nodes that a member speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spoken {
    /// Those that its program speaks. The member has said so in a handshake with this node.
    pub versions: Versions,
    /// The handshake was with an earlier process of this node, and the data folder has kept it. `false`: it was with this
    /// process, and the connection may be up still.
    pub is_kept: bool,
}

/// Everything this node knows of the others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Roster {
    me: u64,
    others: BTreeMap<u64, Known>,
    evicted: BTreeSet<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) place: Place,
    pub(crate) details: Details,
    /// `None`: no handshake with this incarnation is known.
    pub(crate) spoken: Option<Spoken>,
}

impl Known {
    /// What is known of the versions that it speaks now. `started`: the latest start of it that a stamp tells of, which is on
    /// the disk before anything else of that start is. `is_confirmed`: this node's data folder is not an old copy; a member
    /// may have been started since such a one was made.
    pub(crate) fn spoken_now(&self, started: Option<u64>, is_confirmed: bool) -> Option<Spoken> {
        let is_latest = started.is_none_or(|started| started <= self.place.incarnation);
        let spoken = self.spoken.filter(|_| is_latest);
        spoken.filter(|spoken| is_confirmed || !spoken.is_kept)
    }
}

/// There are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

impl Roster {
    pub(crate) fn new(me: u64, places: Vec<Place>, evicted: BTreeSet<u64>) -> Self {
        let mut roster = Self {
            me,
            others: BTreeMap::new(),
            evicted,
        };
        for place in places {
            // The list was bounded when it was kept.
            let _ = roster.learn(place, None);
        }
        roster
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = &Known> {
        self.others.values()
    }

    pub(crate) fn known(&self, node: u64) -> Option<&Known> {
        self.others.get(&node)
    }

    pub(crate) fn place(&self, node: u64) -> Option<&Place> {
        Some(&self.known(node)?.place)
    }

    pub(crate) fn evicted(&self) -> &BTreeSet<u64> {
        &self.evicted
    }

    pub(crate) fn has_room_for(&self, node: u64) -> bool {
        self.others.contains_key(&node) || self.others.len() + 1 < MEMBERS_LIMIT
    }

    /// A node was heard of. What an earlier incarnation said is forgotten, and so is what is said of an
    /// earlier one.
    pub(crate) fn learn(&mut self, place: Place, details: Option<Details>) -> Result<(), Full> {
        if place.node == self.me || self.evicted.contains(&place.node) {
            return Ok(());
        }
        if !self.has_room_for(place.node) {
            return Err(Full);
        }
        let known = self.others.entry(place.node).or_insert_with(|| Known {
            place: place.clone(),
            details: Details::default(),
            spoken: None,
        });
        if place.incarnation < known.place.incarnation {
            return Ok(());
        }
        if place.incarnation > known.place.incarnation {
            known.details = Details::default();
            known.spoken = None;
        }
        known.place = place;
        if let Some(details) = details {
            known.details = details;
        }
        Ok(())
    }

    /// A node has shaken hands, and speaks these versions. The latest start of the node counts. A process does not change
    /// its program: of two that pass for the same start the older program counts.
    pub(crate) fn was_spoken(&mut self, node: u64, incarnation: u64, versions: Versions) {
        if let Some(known) = self.of_start(node, incarnation) {
            let before = known.spoken.map(|spoken| spoken.versions);
            let older = before.filter(|before| before.newest < versions.newest);
            known.spoken = Some(Spoken {
                versions: older.unwrap_or(versions),
                is_kept: false,
            });
        }
    }

    /// Takes over what an earlier process of this node knew, if the node is a member and was not started since. Before
    /// anything else is learned.
    pub(crate) fn recall(
        &mut self,
        node: u64,
        incarnation: u64,
        versions: Option<Versions>,
        details: Details,
    ) {
        if let Some(known) = self.of_start(node, incarnation) {
            known.details = details;
            known.spoken = versions.map(|versions| Spoken {
                versions,
                is_kept: true,
            });
        }
    }

    fn of_start(&mut self, node: u64, incarnation: u64) -> Option<&mut Known> {
        let known = self.others.get_mut(&node);
        known.filter(|known| known.place.incarnation == incarnation)
    }

    /// Whether this is news.
    pub(crate) fn evict(&mut self, node: u64) -> Result<bool, Full> {
        if self.evicted.contains(&node) {
            return Ok(false);
        }
        if self.evicted.len() >= EVICTED_LIMIT {
            return Err(Full);
        }
        self.others.remove(&node);
        Ok(self.evicted.insert(node))
    }

    /// Where the others are, for the file and for nodes that join.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.others().map(|known| known.place.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: u64, incarnation: u64, address: &str) -> Place {
        Place {
            node,
            incarnation,
            address: address.to_owned(),
        }
    }

    fn up() -> Option<Details> {
        let state = State::Up;
        Some(Details {
            state,
            ..Details::default()
        })
    }

    fn roster() -> Roster {
        Roster::new(1, Vec::new(), BTreeSet::new())
    }

    #[test]
    fn the_higher_incarnation_counts() {
        let mut roster = roster();
        roster.learn(place(2, 5, "a:1"), up()).unwrap();
        roster.learn(place(2, 4, "old:1"), up()).unwrap();
        assert_eq!(roster.place(2).unwrap().address, "a:1");
        roster.learn(place(2, 6, "b:1"), None).unwrap();
        let known = roster.others().next().unwrap();
        assert_eq!(known.place, place(2, 6, "b:1"));
        assert_eq!(known.details.state, State::Joining);
    }

    #[test]
    fn the_same_incarnation_may_move_and_keeps_what_it_told() {
        let mut roster = roster();
        roster.learn(place(2, 5, "a:1"), up()).unwrap();
        roster.learn(place(2, 5, "b:1"), None).unwrap();
        let known = roster.others().next().unwrap();
        assert_eq!(known.place.address, "b:1");
        assert_eq!(known.details.state, State::Up);
    }

    #[test]
    fn who_was_evicted_never_comes_back() {
        let mut roster = roster();
        roster.learn(place(2, 5, "a:1"), up()).unwrap();
        assert_eq!(roster.evict(2), Ok(true));
        assert_eq!(roster.evict(2), Ok(false));
        roster.learn(place(2, 6, "a:1"), up()).unwrap();
        assert_eq!(roster.others().count(), 0);
    }

    #[test]
    fn a_node_is_not_among_the_others() {
        let mut roster = roster();
        roster.learn(place(1, 9, "a:1"), up()).unwrap();
        assert_eq!(roster.others().count(), 0);
    }

    #[test]
    fn members_and_evicted_are_bounded() {
        let mut roster = roster();
        for node in 2..=MEMBERS_LIMIT as u64 {
            roster.learn(place(node, 1, "a:1"), None).unwrap();
        }
        assert_eq!(roster.learn(place(1000, 1, "a:1"), None), Err(Full));
        assert_eq!(roster.learn(place(2, 2, "b:1"), None), Ok(()));
        for node in 0..EVICTED_LIMIT as u64 {
            roster.evict(node).unwrap();
        }
        assert_eq!(roster.evict(u64::MAX), Err(Full));
    }
}
