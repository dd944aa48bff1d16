//! Lists of clients, and one client.

use std::collections::BTreeMap;

use super::Merged;
use crate::{
    At, BigNumber, Client, ClientPart, ClientRow, ClientState, ClientsPart, InboxPart, Queue,
    RecordPart, Session, SubscriptionsOf,
};

/// One page of the clients of all nodes.
///
/// A client can be in several parts: of the node that has its connection, and of the leader of its session shard. The
/// connection says more. An identifier behind the last that some node has looked at is left for the next page.
pub fn clients(parts: Vec<ClientsPart>, limit: usize) -> Merged<ClientRow> {
    let decided = parts.iter().filter_map(|part| part.last.clone()).min();
    let scanned = parts.iter().map(|part| part.scanned);
    let scanned = scanned.fold(0_u64, u64::saturating_add);
    let mut rows: BTreeMap<String, ClientRow> = BTreeMap::new();
    for row in parts.into_iter().flat_map(|part| part.rows) {
        let is_decided = decided.as_ref().is_none_or(|last| row.client_id <= *last);
        if !is_decided {
            continue;
        }
        match rows.get_mut(&row.client_id) {
            Some(other) => join(other, row),
            None => {
                rows.insert(row.client_id.clone(), row);
            }
        }
    }
    let is_cut = rows.len() > limit;
    let items: Vec<ClientRow> = rows.into_values().take(limit).collect();
    let last = match is_cut {
        true => items.last().map(|row| row.client_id.clone()),
        false => decided,
    };
    Merged {
        items,
        last,
        scanned,
    }
}

/// The clients of all nodes that were held within the last minute, those that were held longest first. There is one page.
#[must_use]
pub fn longest_held(parts: Vec<ClientsPart>, limit: usize) -> Merged<ClientRow> {
    let scanned = parts.iter().map(|part| part.scanned);
    let scanned = scanned.fold(0_u64, u64::saturating_add);
    // A node of an earlier version answers with the first of all clients.
    let share = |row: &ClientRow| row.held.as_ref().map(|held| held.share_percent);
    let rows = parts.into_iter().flat_map(|part| part.rows);
    let mut items: Vec<ClientRow> = rows.filter(|row| share(row).is_some()).collect();
    items.sort_by(|one, other| {
        let (one_share, other_share) = (share(one).unwrap_or(0.0), share(other).unwrap_or(0.0));
        let longest = other_share.total_cmp(&one_share);
        longest.then_with(|| one.client_id.cmp(&other.client_id))
    });
    items.truncate(limit);
    Merged {
        items,
        last: None,
        scanned,
    }
}

/// A client as all nodes know it; `None`: none does. Of several connections the latest counts. What people call the node of a
/// client that has not answered is not said.
pub fn client(client_id: &str, parts: impl Iterator<Item = ClientPart>, now: At) -> Option<Client> {
    let (mut here, mut record, mut inbox) = (None::<Client>, None, None);
    let (mut drops, mut holds_back, mut held_by) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let connected = |client: &Client| {
            let connection = client.connection.as_ref();
            connection.map(|connection| connection.connected_at.clone())
        };
        here = match (here, part.here.map(|client| *client)) {
            (Some(one), Some(other)) if connected(&one) >= connected(&other) => Some(one),
            (one, other) => other.or(one),
        };
        record = record.or(part.record);
        inbox = inbox.or(part.inbox);
        drops.extend(part.drops);
        holds_back.extend(part.pauses);
        held_by.extend(part.paused_by);
    }
    let mut client = match (here, &record, &inbox) {
        (Some(client), ..) => client,
        (None, None, None) => return None,
        (None, ..) => absent(client_id, record.as_ref(), now),
    };
    if let Some(record) = record {
        add_record(&mut client, record);
    }
    if let Some(inbox) = inbox {
        add_inbox(&mut client, inbox);
    }
    drops.sort_by(|one, other| other.at.cmp(&one.at));
    drops.truncate(RECENT_DROPS);
    client.recent_drops = drops;
    client.holds_back = holds_back;
    client.held_by = held_by;
    Some(client)
}

/// The expiry of a session without end.
const NEVER_EXPIRES: u32 = u32::MAX;

/// Drops of a client that are shown.
const RECENT_DROPS: usize = 10;

/// A client of which no node that has answered has a connection.
fn absent(client_id: &str, record: Option<&RecordPart>, now: At) -> Client {
    let node = record.and_then(|record| record.node);
    Client {
        client_id: client_id.to_owned(),
        user: None,
        // Its node has not answered.
        state: match node {
            Some(_) => ClientState::Connected,
            None => ClientState::Away,
        },
        node,
        node_name: None,
        connection: None,
        session: None,
        in_flight: None,
        waits_for: None,
        queue: None,
        subscriptions: None,
        will: None,
        holds_back: Vec::new(),
        held_by: Vec::new(),
        held: None,
        last_departure: None,
        recent_drops: Vec::new(),
        as_of: now,
        partial: Vec::new(),
    }
}

fn add_record(client: &mut Client, record: RecordPart) {
    client.user = client.user.take().or(record.user);
    let is_away = client.state == ClientState::Away;
    let expiry_s = (record.expiry_s != NEVER_EXPIRES).then_some(record.expiry_s);
    let ends = |expiry: u32| At::unix_ms(record.since_ms.saturating_add(u64::from(expiry) * 1_000));
    let known = client.session.take();
    client.session = Some(Session {
        durable: record.durable,
        expiry_s: known.as_ref().map_or(expiry_s, |session| session.expiry_s),
        ends_at: expiry_s.filter(|_| is_away).map(ends),
        since: Some(At::unix_ms(record.since_ms)),
        class: known.as_ref().and_then(|session| session.class.clone()),
        shard: known.and_then(|session| session.shard),
        epoch: Some(BigNumber::from(record.epoch)),
    });
}

fn add_inbox(client: &mut Client, inbox: InboxPart) {
    if let Some(session) = &mut client.session {
        session.shard = Some(inbox.shard);
        session.class = session.class.take().or(inbox.class);
    }
    client.queue = Some(match client.queue.take() {
        // What a connected client has in its loop is a part of what its inbox has.
        Some(known) => Queue {
            messages: known.messages.max(inbox.queue.messages),
            bytes: known.bytes.max(inbox.queue.bytes),
            oldest_at: inbox.queue.oldest_at,
            ..known
        },
        None => inbox.queue,
    });
    let subscriptions = client.subscriptions.take();
    client.subscriptions = subscriptions.or(Some(SubscriptionsOf {
        count: inbox.subscriptions,
        first: inbox.first,
    }));
}

/// Two rows of one client.
fn join(one: &mut ClientRow, other: ClientRow) {
    let (mut best, rest) = match knows_more(&other, one) {
        true => (other, one.clone()),
        false => (one.clone(), other),
    };
    best.user = best.user.or(rest.user);
    best.durable |= rest.durable;
    *one = best;
}

/// Whether a row is of a connection, or of a later one, and the other is not.
fn knows_more(row: &ClientRow, than: &ClientRow) -> bool {
    let rank = |row: &ClientRow| {
        let is_there = row.state != ClientState::Away;
        (row.address.is_some(), is_there, row.since.clone())
    };
    rank(row) > rank(than)
}

#[cfg(test)]
mod tests {
    use crate::{HeldReason, NodeId, PublisherHold};

    use super::*;

    fn row(client_id: &str, state: ClientState, address: Option<&str>) -> ClientRow {
        ClientRow {
            client_id: client_id.to_owned(),
            user: None,
            state,
            node: Some(NodeId(1)),
            node_name: None,
            since: Some(At::unix_ms(1)),
            address: address.map(str::to_owned),
            durable: address.is_none(),
            queue_messages: None,
            held: None,
        }
    }

    fn part(ids: &[&str], last: Option<&str>) -> ClientsPart {
        ClientsPart {
            rows: ids
                .iter()
                .map(|id| row(id, ClientState::Away, None))
                .collect(),
            last: last.map(str::to_owned),
            scanned: ids.len() as u64,
            covered: Vec::new(),
        }
    }

    #[test]
    fn pages_are_in_order_and_end_where_all_nodes_have_looked() {
        type Part<'a> = (&'a [&'a str], Option<&'a str>);
        type Case<'a> = (&'a [Part<'a>], usize, &'a [&'a str], Option<&'a str>);
        let cases: [Case<'_>; 8] = [
            (&[], 2, &[], None),
            (
                &[(&["a", "c"], None), (&["b"], None)],
                3,
                &["a", "b", "c"],
                None,
            ),
            (
                &[(&["a", "c"], None), (&["b"], None)],
                2,
                &["a", "b"],
                Some("b"),
            ),
            (
                &[(&["a", "c"], Some("c")), (&["b"], None)],
                3,
                &["a", "b", "c"],
                Some("c"),
            ),
            (
                &[(&["a", "b"], Some("b")), (&["c", "d"], Some("d"))],
                9,
                &["a", "b"],
                Some("b"),
            ),
            // Filters have left out all that one node has looked at.
            (
                &[(&[], Some("b")), (&["a", "c"], None)],
                9,
                &["a"],
                Some("b"),
            ),
            (&[(&[], Some("b"))], 9, &[], Some("b")),
            (&[(&["a"], None), (&["a"], None)], 1, &["a"], None),
        ];
        for (parts, limit, ids, last) in cases {
            let built = parts.iter().map(|(ids, last)| part(ids, *last));
            let found = clients(built.collect(), limit);
            let found_ids: Vec<&str> = found.items.iter().map(|row| &*row.client_id).collect();
            assert_eq!(
                (&*found_ids, found.last.as_deref()),
                (ids, last),
                "{parts:?}"
            );
        }
    }

    #[test]
    fn those_that_were_held_longest_come_first() {
        let held = |client_id: &str, share_percent: Option<f64>| ClientRow {
            held: share_percent.map(|share_percent| PublisherHold {
                reason: HeldReason::BytesPerSecond,
                option: None,
                limit: None,
                subscriber: None,
                since: None,
                share_percent,
            }),
            ..row(client_id, ClientState::Connected, Some("10.0.0.1:1"))
        };
        let part = |rows: Vec<ClientRow>| ClientsPart {
            scanned: rows.len() as u64,
            rows,
            // Of a node of an earlier version.
            last: Some("d".to_owned()),
            covered: Vec::new(),
        };
        let parts = vec![
            part(vec![held("a", Some(10.0)), held("b", None)]),
            part(vec![held("d", Some(90.5)), held("c", Some(10.0))]),
        ];
        let found = longest_held(parts.clone(), 9);
        let ids: Vec<&str> = found.items.iter().map(|row| &*row.client_id).collect();
        assert_eq!((ids, found.last), (vec!["d", "a", "c"], None));
        assert_eq!(longest_held(parts, 1).items.len(), 1);
    }

    #[test]
    fn of_one_client_the_connection_says_more_than_the_record() {
        let connection = || row("a", ClientState::Connected, Some("10.0.0.1:1"));
        let record = || ClientRow {
            user: Some("u".to_owned()),
            ..row("a", ClientState::Away, None)
        };
        for rows in [[connection(), record()], [record(), connection()]] {
            let parts = rows.map(|row| ClientsPart {
                rows: vec![row],
                ..ClientsPart::default()
            });
            let found = clients(parts.into(), 9);
            let [item] = &found.items[..] else {
                panic!("{found:?}");
            };
            assert_eq!(item.state, ClientState::Connected);
            assert_eq!(item.address.as_deref(), Some("10.0.0.1:1"));
            assert_eq!(item.user.as_deref(), Some("u"));
            assert!(item.durable);
        }
    }
}
