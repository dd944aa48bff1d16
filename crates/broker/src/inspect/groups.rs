//! Shared groups, their members, and what waits for these, as far as this node knows.
//!
//! A node knows each session that lives as long as its connection to the node, and all durable members by their client identifiers.
//! What waits for a durable member is known to the leader of its inbox shard.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admin::page::{LARGEST_LIMIT, MissingReason};
use broker_core::inspect::{ClientSummary, Life};
use broker_core::{Group, GroupCounts, SessionKey};
use inspection::{
    ANSWER_BYTES, ClientState, GroupMember, GroupShare, MembersPart, MembersQuestion, NodeId, Part,
    SharedGroupRow, size,
};
use store_state::inbox::inspect::InboxSummary;
use tokio::time::Instant;

use super::loops;
use super::rows::{self, Own, shared_parts};
use super::walks::Walks;
use crate::node::Node;

/// Members whose queues are looked at for one answer about groups.
const LOOKED_AT: usize = 8_192;

/// Shared groups of which this node knows members, in the order of their filters as they are given at SUBSCRIBE.
pub(super) async fn list(
    node: &Arc<Node>,
    (walks, deadline): (&Walks, Instant),
    after: &str,
    limit: usize,
) -> Result<Part<SharedGroupRow>, MissingReason> {
    // Groups may have as many members as there are sessions, and whoever may read may ask.
    let begun = || async { walks.begin(deadline).await.ok_or(MissingReason::Busy) };
    let counted = begun().await?.look(|| {
        let mut groups = node.routes.groups();
        groups.retain(|group| group.filter() > after);
        groups.sort_by(|one, other| one.filter().cmp(other.filter()));
        // One more: whether any follow.
        groups.truncate(limit + 1);
        let mut left = LOOKED_AT;
        let counted = groups.into_iter();
        let counted = counted.map(|group| Counted::new(node, group, &mut left));
        counted.collect::<Vec<_>>()
    });
    let sessions = counted.iter().flat_map(Counted::here);
    let summaries = loops::summaries(node, sessions).await?;
    Ok(begun().await?.look(|| {
        let rows = counted.into_iter();
        let rows = rows.map(|counted| counted.row(node, &summaries));
        Part::new(rows, limit)
    }))
}

/// A group, with members whose queues are looked at.
struct Counted {
    group: Arc<Group>,
    counts: GroupCounts,
    sessions: Vec<SessionKey>,
    /// Each with its session if it is connected here.
    durable: Vec<(Arc<str>, Option<SessionKey>)>,
    /// Whether the group has no more members than may be looked at.
    looked_at: bool,
}

impl Counted {
    /// `left`: how many members may be looked at.
    fn new(node: &Arc<Node>, group: Arc<Group>, left: &mut usize) -> Self {
        let counts = group.counts();
        let rest = left.checked_sub(counts.sessions + counts.durable);
        let limit = if rest.is_some() { LOOKED_AT } else { 0 };
        *left = rest.unwrap_or(*left);
        let durable = group.durable(None, limit).into_iter();
        let with_home = |client: Arc<str>| {
            let home = node.home_of(&client);
            (client, home)
        };
        Self {
            sessions: group.sessions(None, limit).into_iter().collect(),
            durable: durable.map(with_home).collect(),
            group,
            counts,
            looked_at: rest.is_some(),
        }
    }

    fn here(&self) -> impl Iterator<Item = SessionKey> {
        let homes = self.durable.iter().filter_map(|(_, home)| *home);
        self.sessions.iter().copied().chain(homes)
    }

    fn row(
        self,
        node: &Arc<Node>,
        summaries: &BTreeMap<SessionKey, ClientSummary>,
    ) -> SharedGroupRow {
        let counts = self.counts;
        let (mut durable, mut durable_online) = (counts.durable, counts.durable_online);
        let mut waiting = None;
        if self.looked_at {
            let is_online = |(client, home): &&(Arc<str>, Option<SessionKey>)| {
                let summary = home.and_then(|home| summaries.get(&home));
                // The slot may have another client since.
                let summary = summary.filter(|summary| *summary.client_id == **client);
                summary.is_some_and(|summary| summary.life != Life::Away)
            };
            durable = self.durable.len();
            durable_online = self.durable.iter().filter(is_online).count();
            let sessions = self.sessions.iter();
            let sessions = sessions.filter_map(|session| summaries.get(session));
            let inboxes = self.durable.iter();
            let inboxes = inboxes.filter_map(|(client, _)| Some(inbox(node, client)?.messages));
            waiting = Some(sessions.map(unacknowledged).chain(inboxes).sum());
        }
        let (name, filter) = shared_parts(self.group.filter());
        SharedGroupRow {
            given_filter: self.group.filter().to_owned(),
            group: name.unwrap_or_default().to_owned(),
            filter: filter.to_owned(),
            members: (counts.sessions + durable + counts.nodes) as u64,
            online: (counts.sessions + durable_online + counts.nodes) as u64,
            share: Some(GroupShare {
                sessions: counts.sessions as u64,
                durable: durable as u64,
                durable_online: durable_online as u64,
                waiting,
            }),
        }
    }
}

/// What a loop has for a client that has not acknowledged it.
fn unacknowledged(summary: &ClientSummary) -> u64 {
    summary.queued.saturating_add(summary.in_flight)
}

/// What the leader of an inbox shard knows of a member; `None`: another node leads the shard, or it has no such inbox.
fn inbox(node: &Arc<Node>, client: &str) -> Option<InboxSummary> {
    node.store().inspect().inbox(client).1.found()
}

/// A place in the list of members, as [`GroupMember::place`] has it: durable members sort before the others.
enum Place<'a> {
    Durable(&'a str),
    Session(NodeId, SessionKey),
}

impl<'a> Place<'a> {
    /// `None`: no node has written it.
    fn parse(text: &'a str) -> Option<Self> {
        match text.split_at_checked(1)? {
            ("d", client) => Some(Self::Durable(client)),
            ("s", rest) => {
                let (node, key) = rest.split_at_checked(16)?;
                let node = u64::from_str_radix(node, 16).ok()?;
                let key = u64::from_str_radix(key, 16).ok()?;
                Some(Self::Session(NodeId(node), SessionKey::from_bits(key)?))
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Durable(client) => format!("d{client}"),
            Self::Session(node, key) => format!("s{node}{:016x}", key.to_bits()),
        }
    }
}

/// Members of a group that this node knows by themselves, in the order of places.
pub(super) async fn members(
    node: &Arc<Node>,
    own: &Own,
    question: &MembersQuestion,
) -> Result<MembersPart, MissingReason> {
    let limit = usize::from(question.limit.0.min(LARGEST_LIMIT));
    let Some(group) = node.routes.group_of(&question.filter) else {
        return Ok(MembersPart::default());
    };
    let after = match question.after.as_deref().map(Place::parse) {
        None => None,
        Some(Some(after)) => Some(after),
        Some(None) => return Err(MissingReason::Failed),
    };
    // One more of each: whether any follow.
    let (durable, sessions) = match &after {
        None => (
            group.durable(None, limit + 1),
            group.sessions(None, limit + 1),
        ),
        Some(Place::Durable(client)) => (
            group.durable(Some(*client), limit + 1),
            group.sessions(None, limit + 1),
        ),
        Some(Place::Session(of, key)) => {
            let behind = match of.cmp(&own.node) {
                Ordering::Less => group.sessions(None, limit + 1),
                Ordering::Equal => group.sessions(Some(*key), limit + 1),
                Ordering::Greater => BTreeSet::new(),
            };
            (BTreeSet::new(), behind)
        }
    };
    let durable = durable.into_iter();
    let durable = durable.map(|client| {
        let home = node.home_of(&client);
        (Some(client), home)
    });
    let sessions = sessions.into_iter().map(|session| (None, Some(session)));
    let mut listed: Vec<(Option<Arc<str>>, Option<SessionKey>)> = durable.chain(sessions).collect();
    let mut is_cut = listed.len() > limit;
    listed.truncate(limit);
    let mut summaries =
        loops::summaries(node, listed.iter().filter_map(|(_, session)| *session)).await?;
    let mut part = MembersPart::default();
    let mut bytes = 0;
    for (client, session) in listed {
        if bytes >= ANSWER_BYTES {
            is_cut = true;
            break;
        }
        let summary = session.and_then(|session| summaries.remove(&session));
        let place = match (&client, session) {
            (Some(client), _) => Place::Durable(client),
            (None, Some(session)) => Place::Session(own.node, session),
            (None, None) => continue,
        };
        part.last = Some(place.text());
        let row = match client {
            Some(client) => Some(durable_row(node, own, &client, summary)),
            // It has gone since: the group has one member less.
            None => summary.map(|summary| row_of(own, place.text(), summary)),
        };
        bytes += row.as_ref().map_or(0, size);
        part.rows.extend(row);
    }
    part.last = part.last.filter(|_| is_cut);
    Ok(part)
}

/// A durable member, as far as this node knows it.
fn durable_row(
    node: &Arc<Node>,
    own: &Own,
    client: &Arc<str>,
    summary: Option<ClientSummary>,
) -> GroupMember {
    let place = Place::Durable(client).text();
    let inbox = inbox(node, client);
    // The slot may have another client since.
    let summary = summary.filter(|summary| *summary.client_id == **client);
    if let Some(summary) = summary {
        let mut row = row_of(own, place, summary);
        row.waiting = row.waiting.max(inbox.map(|inbox| inbox.messages));
        return row;
    }
    GroupMember {
        place,
        client_id: client.to_string(),
        durable: true,
        state: inbox.as_ref().map(|inbox| match inbox.is_connected {
            true => ClientState::Connected,
            false => ClientState::Away,
        }),
        node: None,
        node_name: None,
        waiting: inbox.map(|inbox| inbox.messages),
        in_flight: None,
    }
}

fn row_of(own: &Own, place: String, summary: ClientSummary) -> GroupMember {
    let is_here = summary.life != Life::Away;
    GroupMember {
        place,
        durable: summary.durable,
        state: Some(rows::state(summary.life)),
        node: is_here.then_some(own.node),
        node_name: is_here.then(|| own.name.clone()),
        waiting: Some(unacknowledged(&summary)),
        in_flight: Some(summary.in_flight),
        client_id: summary.client_id,
    }
}
