//! What this node answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admin::cluster::NodeState;
use admin::page::{LARGEST_LIMIT, MissingReason};
use broker_core::{Drop, Drops, Reason, SessionKey};
use inspection::{
    ANSWER_BYTES, Answer, At, BusyPart, ClientPart, ClientRow, ClientsPart, ClientsQuestion,
    DrainProgress, DropRow, DropsQuestion, Ending, Gone, ListenerRow, MessagesAnswer,
    MessagesQuestion, NodeHealth, NodeId, Part, PlacedDrop, Question, RecentDrop, SubscriptionRow,
    size,
};
use tokio::time::Instant;

use super::rows::{self, Own};
use super::state::{Inspect, LEFT};
use super::wire::{ToApi as _, ToWire};
use super::{
    alarms, events, failed_logins, groups, login, loops, lost, matching, node, own_outlets, queues,
    retained, stores, subscribing, top,
};
use crate::history;
use crate::listeners::Listening;
use crate::node::Node;

/// Identifiers that are taken from the registry and the session store at a time.
const TAKEN: usize = 256;

/// Rows that one question looks at.
const LOOKED_AT: u64 = 20_000;

/// Drops of one client that are part of what is known of it.
const RECENT_DROPS: usize = 10;

/// Names of those that hold a client back, and that it holds back.
const HOLDERS: usize = 10;

/// Whether the answer takes long, and so waits until those before it are paid.
fn looks_at_many(question: &MessagesQuestion) -> bool {
    matches!(
        question,
        MessagesQuestion::Retained { .. }
            | MessagesQuestion::Levels { .. }
            | MessagesQuestion::FirstQueues { .. }
    )
}

impl Inspect {
    /// Answers a question about this node.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) async fn answer(
        self: &Arc<Self>,
        question: Question,
        deadline: Instant,
    ) -> Result<Answer, MissingReason> {
        let place = self.answers.try_acquire();
        let _place = place.map_err(|_| MissingReason::Busy)?;
        Ok(match question {
            Question::Health => Answer::Health(Box::new(self.health())),
            Question::Shards => Answer::Shards(stores::led(&self.node)),
            Question::Listeners => Answer::Listeners(self.listeners_here()),
            Question::Clients(question) => {
                Answer::Clients(self.clients_here(question, deadline).await?)
            }
            Question::Client { client_id } => {
                Answer::Client(Box::new(self.client_here(&client_id).await?))
            }
            Question::Queues { client_ids } => {
                Answer::Queues(stores::queues(&self.node, &client_ids))
            }
            Question::End { client_id, session } => {
                Answer::End(self.end_here(client_id, session).await?)
            }
            Question::ChangeSubscription(question) => Answer::ChangeSubscription(
                subscribing::change_here(self, &question, deadline).await?,
            ),
            Question::SubscriptionsOf {
                client_id,
                after,
                limit,
            } => {
                let limit = usize::from(limit.min(LARGEST_LIMIT));
                Answer::SubscriptionsOf(self.subscriptions_here(&client_id, &after, limit).await?)
            }
            Question::SharedGroups { after, limit } => {
                let limit = usize::from(limit.min(LARGEST_LIMIT));
                let walks = (&self.walks, deadline);
                Answer::SharedGroups(groups::list(&self.node, walks, &after, limit).await?)
            }
            Question::Match {
                topic,
                qos,
                publisher,
                limit,
            } => {
                let own = self.own();
                let publisher = publisher.as_deref();
                let limit = usize::from(limit.min(LARGEST_LIMIT));
                let part = matching::here(&self.node, &own, &topic, qos, publisher, limit).await?;
                Answer::Match(part)
            }
            Question::Drops(question) => Answer::Drops(self.drops_here(&question)),
            Question::DropTotals => Answer::DropTotals(self.totals_here()),
            Question::Settings { prefix } => {
                Answer::Settings(node::settings_of_node(self, &prefix))
            }
            Question::Stats => Answer::Stats(Box::new(node::counts(self).to_wire())),
            Question::History { since_ms } => Answer::History(node::history(self, since_ms)),
            Question::ShardHistory { shard, since_ms } => {
                Answer::History(node::shard_history(self, shard.to_api(), since_ms))
            }
            Question::Events(question) => {
                Answer::Events(events::here(&self.node, &self.own(), &question))
            }
            Question::Messages(MessagesQuestion::Purge { client_id }) => {
                let purged = queues::purge(&self.node, &client_id, deadline).await;
                Answer::Messages(MessagesAnswer::Purged(purged))
            }
            Question::Messages(MessagesQuestion::BusyClients { role, by, limit }) => {
                let rows = top::clients_here(&self.node, &self.own(), role, by, limit).await?;
                Answer::Messages(MessagesAnswer::Busy(BusyPart::Clients(rows)))
            }
            Question::Messages(MessagesQuestion::BusyTopics { by, limit }) => {
                let rows = top::topics_here(&self.node, by, limit).await?;
                Answer::Messages(MessagesAnswer::Busy(BusyPart::Topics(rows)))
            }
            Question::Messages(MessagesQuestion::FailedLogins) => {
                let own = self.own();
                let rows = failed_logins::here(&self.node.guard, (own.node, &own.name));
                Answer::Messages(MessagesAnswer::FailedLogins(rows))
            }
            Question::Messages(MessagesQuestion::RefusedLogins { limit }) => {
                let rows = failed_logins::refused_here(&self.node, &self.own(), limit);
                Answer::Messages(MessagesAnswer::RefusedLogins(rows))
            }
            Question::Messages(MessagesQuestion::EndedAlarms) => Answer::Messages(
                MessagesAnswer::EndedAlarms(alarms::ended(&self.own(), &self.alarms)),
            ),
            Question::Messages(MessagesQuestion::SessionDrops { limit }) => {
                let rows = lost::sessions_here(&self.node, &self.own(), limit);
                Answer::Messages(MessagesAnswer::SessionDrops(rows))
            }
            Question::Messages(MessagesQuestion::Holders { limit }) => {
                let rows = lost::holders_here(&self.node, &self.own(), limit);
                Answer::Messages(MessagesAnswer::Holders(rows))
            }
            Question::Messages(MessagesQuestion::Members(question)) => {
                let part = groups::members(&self.node, &self.own(), &question).await?;
                Answer::Messages(MessagesAnswer::Members(part))
            }
            Question::Messages(MessagesQuestion::Watch { client_id }) => {
                let watched = top::watched_here(&self.node, client_id).await?;
                Answer::Messages(MessagesAnswer::Watched(watched))
            }
            Question::Messages(MessagesQuestion::Profile(question)) => Answer::Messages(
                MessagesAnswer::Profile(self.profiles.answer(question).await),
            ),
            Question::Messages(MessagesQuestion::Outlets) => {
                let rows = own_outlets::here(&self.node, &self.outlets);
                Answer::Messages(MessagesAnswer::Outlets(rows))
            }
            Question::Messages(question) => {
                // It reads the disk, and may look at many topics or queues.
                let walk = match looks_at_many(&question) {
                    true => Some(
                        self.walks
                            .begin(deadline)
                            .await
                            .ok_or(MissingReason::Busy)?,
                    ),
                    false => None,
                };
                let inspect = Arc::clone(self);
                let looked = tokio::task::spawn_blocking(move || {
                    let look = || inspect.messages_here(&question, deadline);
                    match walk {
                        Some(walk) => walk.look(look),
                        None => look(),
                    }
                });
                Answer::Messages(looked.await.map_err(|_| MissingReason::Failed)?)
            }
            Question::ApiSession(question) => {
                Answer::ApiSession(login::session_here(&self.node, question))
            }
            Question::Acl(question) => Answer::Acl(node::acl_here(self, &question).await?),
            Question::Change(command) => {
                let changed = node::change_here(self, command).await;
                Answer::Change(changed.map_err(ToWire::to_wire))
            }
        })
    }

    fn messages_here(&self, question: &MessagesQuestion, deadline: Instant) -> MessagesAnswer {
        let node = &self.node;
        match question {
            MessagesQuestion::Retained { filter, range } => {
                MessagesAnswer::Retained(retained::messages(node, filter, range, deadline))
            }
            MessagesQuestion::Levels { below, range } => {
                let below = below.as_deref();
                MessagesAnswer::Levels(retained::levels(node, below, range, deadline))
            }
            MessagesQuestion::Message { topic } => {
                MessagesAnswer::Message(retained::message(node, topic))
            }
            MessagesQuestion::FirstQueues { by, limit } => {
                let limit = usize::from(limit.0.min(LARGEST_LIMIT));
                MessagesAnswer::FirstQueues(queues::first(node, &self.own(), *by, limit))
            }
            MessagesQuestion::Waiting(question) => {
                MessagesAnswer::Waiting(queues::waiting(node, question, deadline))
            }
            MessagesQuestion::FailedLogins
            | MessagesQuestion::RefusedLogins { .. }
            | MessagesQuestion::EndedAlarms
            | MessagesQuestion::SessionDrops { .. }
            | MessagesQuestion::Holders { .. }
            | MessagesQuestion::Members(_)
            | MessagesQuestion::Purge { .. }
            | MessagesQuestion::BusyClients { .. }
            | MessagesQuestion::BusyTopics { .. }
            | MessagesQuestion::Watch { .. }
            | MessagesQuestion::Profile(_)
            | MessagesQuestion::Outlets => {
                unreachable!("the store and the loops are waited for elsewhere")
            }
        }
    }

    pub(super) fn own(&self) -> Own {
        Own {
            node: NodeId(self.node.store().node()),
            name: self.name.clone(),
            settings: Arc::clone(&self.node.settings.read()),
        }
    }

    async fn clients_here(
        &self,
        question: ClientsQuestion,
        deadline: Instant,
    ) -> Result<ClientsPart, MissingReason> {
        let own = self.own();
        if question.longest_held {
            return longest_held(&self.node, &own, &question).await;
        }
        let mut part = ClientsPart::default();
        let mut after = question.after.clone();
        let mut bytes = 0;
        let limit = usize::from(question.limit);
        let is_filtered = question.user.is_some()
            || question.address.is_some()
            || question.node.is_some()
            || question.state.is_some()
            || question.durable.is_some();
        let place = match is_filtered {
            true => Some(self.scans.try_acquire().map_err(|_| MissingReason::Busy)?),
            false => None,
        };
        let _place = place;
        let taken = if is_filtered { TAKEN } else { limit.min(TAKEN) };
        loop {
            let homes = self.node.homes(after.as_deref(), &question.prefix, taken);
            let records = stores::records(&self.node, after.as_deref(), &question.prefix, taken);
            part.covered = records.covered;
            // Both are complete up to here.
            let ends = [
                (homes.len() == taken).then(|| homes.last().map(|(id, _)| id.to_string())),
                (records.rows.len() == taken)
                    .then(|| records.rows.last().map(|row| row.client_id.clone())),
            ];
            let end: Option<String> = ends.into_iter().flatten().flatten().min();
            let is_in = |id: &str| end.as_deref().is_none_or(|end| id <= end);
            let homes: Vec<(Box<str>, SessionKey)> =
                homes.into_iter().filter(|(id, _)| is_in(id)).collect();
            let mut rows: BTreeMap<String, ClientRow> = BTreeMap::new();
            for row in records.rows.into_iter().filter(|row| is_in(&row.client_id)) {
                rows.insert(row.client_id.clone(), row);
            }
            let keys = homes.iter().map(|(_, key)| *key);
            let mut summaries = loops::summaries(&self.node, keys).await?;
            for (id, key) in homes {
                if let Some(summary) = summaries.remove(&key)
                    && *summary.client_id == *id
                {
                    let mut row = rows::client_row(&own, summary);
                    if let Some(record) = rows.get(&*id) {
                        row.user = row.user.or_else(|| record.user.clone());
                        row.durable |= record.durable;
                    }
                    rows.insert(id.into(), row);
                }
            }
            for (id, row) in rows {
                part.scanned += 1;
                after = Some(id.clone());
                if !is_wanted(&question, &row) {
                    continue;
                }
                bytes += size(&row);
                part.rows.push(row);
                if part.rows.len() >= limit || bytes >= ANSWER_BYTES {
                    part.last = after;
                    return Ok(part);
                }
            }
            let Some(end) = end else {
                return Ok(part);
            };
            let is_late = deadline.saturating_duration_since(Instant::now()) < LEFT;
            if part.scanned >= LOOKED_AT || is_late {
                part.last = Some(end);
                return Ok(part);
            }
            after = Some(end);
        }
    }

    async fn client_here(&self, client_id: &str) -> Result<ClientPart, MissingReason> {
        let own = self.own();
        let mut part = stores::client(&self.node, client_id);
        if let Some(session) = self.node.home_of(client_id)
            && let Some(detail) = loops::detail(&self.node, session).await?
            && detail.summary.client_id == client_id
        {
            let client = rows::client(&own, *detail, rows::now(&self.node));
            part.here = Some(Box::new(client));
        }
        let of_client = |drop: &Drop| drop.is_of(client_id);
        let recent = Drops::recent(&self.node.drops, RECENT_DROPS, of_client);
        part.drops = recent
            .into_iter()
            .map(|drop| RecentDrop {
                at: At::unix_ms(drop.at_ms),
                topic: drop.topic,
                reason: drop.reason.to_owned(),
            })
            .collect();
        let departure = self.node.last_departure(client_id);
        part.departure = departure.map(|departure| rows::departure(&own, departure));
        for pair in self.node.slow.list(usize::MAX) {
            if pair.subscriber.as_deref() == Some(client_id) && part.pauses.len() < HOLDERS {
                part.pauses.push(pair.publisher.into());
            } else if *pair.publisher == *client_id && part.paused_by.len() < HOLDERS {
                part.paused_by.extend(pair.subscriber.map(String::from));
            }
        }
        Ok(part)
    }

    async fn subscriptions_here(
        &self,
        client_id: &str,
        after: &str,
        limit: usize,
    ) -> Result<Option<Part<SubscriptionRow>>, MissingReason> {
        let own = self.own();
        // One more: whether any follow.
        let asked = limit + 1;
        if let Some(session) = self.node.home_of(client_id)
            && let Some(rows) =
                loops::subscriptions(&self.node, session, after.into(), asked).await?
        {
            let rows = rows
                .into_iter()
                .map(|row| rows::subscription_row(&own, client_id, true, row));
            return Ok(Some(Part::new(rows, limit)));
        }
        let rows = stores::subscriptions(&self.node, client_id, after, asked);
        Ok(rows.map(|rows| Part::new(rows.into_iter(), limit)))
    }

    async fn end_here(&self, client_id: String, session: bool) -> Result<Ending, MissingReason> {
        let part = stores::client(&self.node, &client_id);
        let mut ending = Ending {
            gone: None,
            has_record: part.record.is_some(),
        };
        let Some(home) = self.node.home_of(&client_id) else {
            return Ok(ending);
        };
        let ended = loops::end(&self.node, home, client_id.as_str().into(), session).await?;
        if ended.disconnected {
            ending.gone = Some(Gone {
                client_id,
                node: Some(NodeId(self.node.store().node())),
                address: ended.address,
                disconnected: true,
                session_ended: ended.session_ended,
            });
        }
        Ok(ending)
    }

    fn totals_here(&self) -> BTreeMap<String, u64> {
        let count = |reason| {
            self.node
                .drops
                .iter()
                .map(|drops| drops.count(reason))
                .sum()
        };
        Reason::all()
            .map(|reason| (reason.as_str().to_owned(), count(reason)))
            .collect()
    }

    fn drops_here(&self, question: &DropsQuestion) -> Vec<PlacedDrop> {
        let own = self.own();
        let is_wanted = |drop: &Drop| {
            let filter = question.topic.as_ref();
            let reason = question.reason.as_ref();
            let client = question.client.as_ref();
            reason.is_none_or(|reason| drop.reason == reason)
                && client.is_none_or(|client| drop.is_of(client))
                && filter.is_none_or(|filter| mqtt_proto::filter_matches(filter, &drop.topic))
                && question.since_ms.is_none_or(|since| drop.at_ms >= since)
        };
        let recent = Drops::recent(&self.node.drops, self.node.recent_drops, is_wanted);
        let mut same_ms = (0, 0_u32);
        let placed = recent.into_iter().map(|drop| {
            same_ms = match same_ms {
                (at_ms, count) if at_ms == drop.at_ms => (at_ms, count + 1),
                _ => (drop.at_ms, 0),
            };
            let place = place(drop.at_ms, own.node, same_ms.1);
            let row = DropRow {
                at: At::unix_ms(drop.at_ms),
                node: own.node,
                node_name: own.name.clone(),
                role: role(drop.reason).to_owned(),
                client_id: drop.client_id,
                topic: drop.topic,
                reason: drop.reason.to_owned(),
                qos: drop.qos,
                bytes: drop.bytes,
            };
            PlacedDrop { row, place }
        });
        let before = question.before.as_ref();
        let is_behind = |drop: &PlacedDrop| before.is_none_or(|before| drop.place > *before);
        placed
            .filter(is_behind)
            .take(question.limit.into())
            .collect()
    }

    fn health(&self) -> NodeHealth {
        let node = &self.node;
        let store = node.store();
        let own = store.node();
        let led = store.shards().into_iter();
        let led = led.filter(|shard| shard.leader == Some(own)).count() as u64;
        let dropped = self.totals_here().values().sum();
        let status = self.control.status();
        let state = status.nodes.iter().find(|member| member.node.0 == own);
        let drains = state
            .is_some_and(|member| matches!(member.state, NodeState::Draining | NodeState::Leaving));
        let connected = node.connected.load(Ordering::Relaxed) as u64;
        NodeHealth {
            ready: node.rim.readiness.judge(node.opened_store()).is_ok(),
            uptime_s: self.started.elapsed().as_secs(),
            cpu_s: history::cpu_s(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_bytes: crate::memory::resident_bytes(),
            disk_free_bytes: node.rim.disk.free_bytes(),
            sessions: node.sessions(),
            shards_led: led,
            dropped,
            drain: drains.then_some(DrainProgress {
                clients_left: connected,
                shards_left: led,
            }),
            alarms: alarms::raised(&self.own(), &self.alarms),
        }
    }

    fn listeners_here(&self) -> Vec<ListenerRow> {
        let own = self.own();
        let loops = &self.node.rim.net;
        let row = |(number, listening): (u16, &Listening)| {
            let of = |count: &dyn Fn(&net::ListenerStats) -> u64| {
                let counts = loops.iter().map(|stats| count(stats.listener(number)));
                Some(counts.sum::<u64>())
            };
            let certificate = listening.certificate.read();
            ListenerRow {
                node: own.node,
                node_name: own.name.clone(),
                kind: listening.kind.name().to_owned(),
                address: listening.address.clone(),
                connections: of(&|stats| stats.open.get()),
                accepted: of(&|stats| stats.accepted.get()),
                refused: of(&|stats| stats.refused.get()),
                failed_handshakes: of(&net::ListenerStats::all_failed),
                certificate: certificate.as_ref().map(rows::certificate),
            }
        };
        (0..).zip(&self.listeners).map(row).collect()
    }
}

/// Sorts the latest first, and says where a page goes on.
fn place(at_ms: u64, node: NodeId, number: u32) -> String {
    format!("{:016x}{node}{number:08x}", u64::MAX - at_ms)
}

/// Of the client that a drop names.
fn role(reason: &str) -> &'static str {
    let known = Reason::all().find(|known| known.as_str() == reason);
    match known.is_some_and(Reason::is_of_publisher) {
        true => "publisher",
        false => "receiver",
    }
}

/// Clients that were held within the last minute.
async fn longest_held(
    node: &Arc<Node>,
    own: &Own,
    question: &ClientsQuestion,
) -> Result<ClientsPart, MissingReason> {
    let mut part = ClientsPart::default();
    let (mut bytes, limit) = (0, usize::from(question.limit));
    for summary in loops::longest_held(node, limit).await? {
        part.scanned += 1;
        let row = rows::client_row(own, summary);
        if row.client_id.starts_with(&question.prefix) && is_wanted(question, &row) {
            bytes += size(&row);
            part.rows.push(row);
        }
        if part.rows.len() >= limit || bytes >= ANSWER_BYTES {
            break;
        }
    }
    Ok(part)
}

fn is_wanted(question: &ClientsQuestion, row: &ClientRow) -> bool {
    let ip = |address: &str| match address.rsplit_once(':') {
        Some((ip, _)) => ip.trim_matches(['[', ']']).to_owned(),
        None => address.to_owned(),
    };
    let user = question.user.as_ref();
    let address = question.address.as_ref();
    user.is_none_or(|user| row.user.as_ref() == Some(user))
        && address.is_none_or(|wanted| row.address.as_deref().map(ip).as_ref() == Some(wanted))
        && question.node.is_none_or(|node| row.node == Some(node))
        && question.state.is_none_or(|state| row.state == state)
        && question
            .durable
            .is_none_or(|durable| row.durable == durable)
}
