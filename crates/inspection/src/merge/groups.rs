//! Shared groups and their members, of all nodes.

use std::collections::BTreeMap;

use super::Merged;
use crate::{GroupMember, GroupShare, MembersPart, Part, SharedGroupRow};

/// A shared group of all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedGroup {
    /// The subscription that makes sessions members, as it is given at SUBSCRIBE.
    pub given_filter: String,
    /// Its name.
    pub group: String,
    /// Its topic filter.
    pub filter: String,
    /// How many sessions are in it.
    pub members: u64,
    /// How many of them are connected.
    pub online: u64,
    /// Messages that wait or are in flight for its members; `None`: some node has not counted them.
    pub lag: Option<u64>,
}

/// What the nodes that have answered count of one group.
#[derive(Debug)]
struct Counted {
    row: SharedGroupRow,
    /// Sums of all nodes, but for durable members, which each node counts; `None`: a node of an earlier version is among them.
    all: Option<GroupShare>,
}

/// One page of the shared groups of all nodes. Each node knows the sessions that live as long as their connections to it, all durable
/// members, and which of these are connected to it.
pub fn shared_groups(parts: Vec<Part<SharedGroupRow>>, limit: usize) -> Merged<SharedGroup> {
    let ends = parts.iter().filter(|part| part.more);
    let decided = ends
        .filter_map(|part| Some(part.rows.last()?.given_filter.clone()))
        .min();
    let mut groups: BTreeMap<String, Counted> = BTreeMap::new();
    for row in parts.into_iter().flat_map(|part| part.rows) {
        if decided
            .as_ref()
            .is_some_and(|last| row.given_filter > *last)
        {
            continue;
        }
        match groups.get_mut(&row.given_filter) {
            Some(known) => known.add(&row),
            None => {
                let all = row.share;
                groups.insert(row.given_filter.clone(), Counted { row, all });
            }
        }
    }
    let is_cut = groups.len() > limit;
    let items: Vec<SharedGroup> = groups
        .into_values()
        .take(limit)
        .map(Counted::group)
        .collect();
    let last = match is_cut {
        true => items.last().map(|row| row.given_filter.clone()),
        false => decided,
    };
    Merged {
        scanned: items.len() as u64,
        items,
        last,
    }
}

impl Counted {
    fn add(&mut self, other: &SharedGroupRow) {
        self.row.members = self.row.members.max(other.members);
        self.row.online = self.row.online.max(other.online);
        self.all = self
            .all
            .zip(other.share)
            .map(|(one, other)| together(one, other));
    }

    fn group(self) -> SharedGroup {
        let Self { row, all } = self;
        let members = all.map(|all| all.sessions.saturating_add(all.durable));
        let online = all.map(|all| all.sessions.saturating_add(all.durable_online));
        SharedGroup {
            given_filter: row.given_filter,
            group: row.group,
            filter: row.filter,
            members: members.unwrap_or(row.members),
            online: online.unwrap_or(row.online),
            lag: all.and_then(|all| all.waiting),
        }
    }
}

fn together(one: GroupShare, other: GroupShare) -> GroupShare {
    let waiting = one.waiting.zip(other.waiting);
    GroupShare {
        sessions: one.sessions.saturating_add(other.sessions),
        durable: one.durable.max(other.durable),
        durable_online: one.durable_online.saturating_add(other.durable_online),
        waiting: waiting.map(|(one, other)| one.saturating_add(other)),
    }
}

/// One page of the members of a shared group. A durable member is in the parts of all nodes: the node that it is connected to knows its
/// state, and the leader of its inbox shard knows what waits.
pub fn group_members(parts: Vec<MembersPart>, limit: usize) -> Merged<GroupMember> {
    let decided = parts.iter().filter_map(|part| part.last.clone()).min();
    let mut rows: BTreeMap<String, GroupMember> = BTreeMap::new();
    for row in parts.into_iter().flat_map(|part| part.rows) {
        if decided.as_ref().is_some_and(|last| row.place > *last) {
            continue;
        }
        match rows.get_mut(&row.place) {
            Some(known) => join(known, row),
            None => {
                rows.insert(row.place.clone(), row);
            }
        }
    }
    let is_cut = rows.len() > limit;
    let items: Vec<GroupMember> = rows.into_values().take(limit).collect();
    let last = match is_cut {
        true => items.last().map(|row| row.place.clone()),
        false => decided,
    };
    Merged {
        scanned: items.len() as u64,
        items,
        last,
    }
}

/// Two rows of one member.
fn join(one: &mut GroupMember, other: GroupMember) {
    let knows_more = (other.node.is_some(), other.state.is_some());
    if knows_more > (one.node.is_some(), one.state.is_some()) {
        one.state = other.state;
        one.node = other.node;
        one.node_name = other.node_name;
    }
    one.durable |= other.durable;
    // What a connected client has in its loop is a part of what its inbox has.
    one.waiting = one.waiting.max(other.waiting);
    one.in_flight = one.in_flight.max(other.in_flight);
}

#[cfg(test)]
mod tests {
    use crate::{ClientState, NodeId};

    use super::*;

    fn row(given_filter: &str, share: Option<GroupShare>) -> SharedGroupRow {
        SharedGroupRow {
            given_filter: given_filter.to_owned(),
            group: String::new(),
            filter: String::new(),
            members: 1,
            online: 1,
            share,
        }
    }

    #[test]
    fn groups_of_several_nodes_are_one_list() {
        let part = |filters: &[&str], more| Part {
            rows: filters.iter().map(|filter| row(filter, None)).collect(),
            more,
        };
        for (parts, limit, expected, last) in [
            (
                vec![part(&["a", "c"], false), part(&["b", "c"], false)],
                9,
                vec!["a", "b", "c"],
                None,
            ),
            (
                vec![part(&["a", "c"], false), part(&["b", "c"], false)],
                2,
                vec!["a", "b"],
                Some("b"),
            ),
            // One node has more behind b: what others have behind it is for the next page.
            (
                vec![part(&["a", "d"], false), part(&["b"], true)],
                9,
                vec!["a", "b"],
                Some("b"),
            ),
        ] {
            let found = shared_groups(parts, limit);
            let filters: Vec<&str> = found.items.iter().map(|row| &*row.given_filter).collect();
            assert_eq!((filters, found.last.as_deref()), (expected, last));
        }
    }

    #[test]
    fn members_of_a_group_are_added_up_and_durable_ones_counted_once() {
        let share = |sessions, durable_online, waiting| {
            Some(GroupShare {
                sessions,
                durable: 5,
                durable_online,
                waiting,
            })
        };
        for (shares, expected) in [
            // Two and three sessions, five durable ones of which one is on each node and three are away.
            (
                vec![share(2, 1, Some(4)), share(3, 1, Some(6))],
                (10, 7, Some(10)),
            ),
            (vec![share(2, 1, Some(4)), share(3, 1, None)], (10, 7, None)),
            // A node of an earlier version counts as it did.
            (vec![share(2, 1, Some(4)), None], (1, 1, None)),
            (vec![None, share(2, 1, Some(4))], (1, 1, None)),
            (
                vec![share(u64::MAX, 1, Some(u64::MAX)), share(1, 1, Some(1))],
                (u64::MAX, u64::MAX, Some(u64::MAX)),
            ),
        ] {
            let parts = shares.iter().map(|share| Part {
                rows: vec![row("$share/g/t", *share)],
                more: false,
            });
            let found = shared_groups(parts.collect(), 9);
            let counts: Vec<_> = found
                .items
                .iter()
                .map(|group| (group.members, group.online, group.lag))
                .collect();
            assert_eq!(counts, [expected], "{shares:?}");
        }
    }

    fn member(place: &str, node: Option<u64>, waiting: Option<u64>) -> GroupMember {
        GroupMember {
            place: place.to_owned(),
            client_id: place.to_owned(),
            durable: true,
            state: node.map(|_| ClientState::Connected),
            node: node.map(NodeId),
            node_name: None,
            waiting,
            in_flight: node.map(|_| 1),
        }
    }

    #[test]
    fn a_member_has_its_state_from_its_node_and_its_queue_from_the_leader() {
        let away = GroupMember {
            state: Some(ClientState::Away),
            ..member("da", None, Some(7))
        };
        let leads = MembersPart {
            rows: vec![away.clone()],
            last: None,
        };
        let here = MembersPart {
            rows: vec![member("da", Some(1), Some(2))],
            last: None,
        };
        let neither = MembersPart {
            rows: vec![member("da", None, None)],
            last: None,
        };
        let expected = member("da", Some(1), Some(7));
        for parts in [
            vec![leads.clone(), here.clone(), neither.clone()],
            vec![neither.clone(), here, leads.clone()],
        ] {
            assert_eq!(group_members(parts, 9).items.first(), Some(&expected));
        }
        assert_eq!(group_members(vec![neither, leads], 9).items, [away]);
    }

    #[test]
    fn pages_of_members_end_where_all_nodes_have_looked() {
        let part = |places: &[&str], last: Option<&str>| MembersPart {
            rows: places
                .iter()
                .map(|place| member(place, None, None))
                .collect(),
            last: last.map(str::to_owned),
        };
        for (parts, limit, expected, last) in [
            (
                vec![part(&["da", "db"], None), part(&["da", "s1"], None)],
                9,
                vec!["da", "db", "s1"],
                None,
            ),
            (
                vec![part(&["da", "db"], None), part(&["da", "s1"], None)],
                2,
                vec!["da", "db"],
                Some("db"),
            ),
            // All sessions up to `s1` have gone since.
            (
                vec![part(&[], Some("s1")), part(&["s2"], None)],
                9,
                vec![],
                Some("s1"),
            ),
        ] {
            let found = group_members(parts, limit);
            let places: Vec<&str> = found.items.iter().map(|row| &*row.place).collect();
            assert_eq!((places, found.last.as_deref()), (expected, last));
        }
    }
}
