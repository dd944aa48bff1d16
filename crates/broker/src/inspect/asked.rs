//! What the API asks, by asking all nodes.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::api::{
    AclAnswer, AclQuestion, AclRules, AclSubject, Ban, BigNumber, Client, ClientOrder, ClientRow,
    ClientState, DropRow, Gone, GroupMember, Happened, History, ListenerRow, Match, MatchRequest,
    Message, NewBan, NewMessage, NewSubscription, NodeChange, NodeRow, NotReached,
    PublishedMessage, Publisher, QueueOrder, QueuePurge, QueueRow, QueuedMessage, RetainedLevelRow,
    RetainedRow, SettingRow, ShardRow, SharedGroupRow, Stats, SubscriptionChanged, SubscriptionRow,
    Voter,
};
use admin::cluster::{Change, ClusterStatus, NodeId, NodeState, NodeStatus, Reach};
use admin::page::{self, Found, Missing, MissingReason};
use admin::problem::{Kind, Problem};
use admin::{
    ApiChange, Asked, Broker, ClientFilter, DropFilter, EventFilter, Gathered, Groups,
    LoginAttempt, LoginSession, MetricsFormat, NodeCommand, Processes, QueueQuestion, Range, Role,
    SessionQuestion, Traffic,
};
use authorization::Action;
use futures_util::FutureExt as _;
use inspection::merge;
use inspection::{
    Answer, AskedChange, At, ClientPart, ClientsQuestion, DropsQuestion, Limit, MembersQuestion,
    MessagesAnswer, MessagesQuestion, Part, Question, short,
};
use mqtt_proto::{SubscriptionFilter, filter_matches, validate_topic_filter};
use peer_protocol::{INSPECTION_SINCE, Refusal};
use prometheus_client::encoding::prometheus_protobuf::encode_to_vec;
use store::ReplicaFault;
use tokio::time::Instant;

use super::gather::SHORTEST;
use super::known::{nobody, uncovered};
use super::rules::Judged;
use super::state::Inspect;
use super::top::AskingTraffic;
use super::wire::{ToApi as _, ToWire as _, found_to_api};
use super::{
    events, gather, known, login, matching, messages, node, publishing, rows, rules, stores,
    subscriptions,
};
use crate::control;

/// Clients whose subscriptions are looked up for one page of all subscriptions.
const CLIENTS_OF_SUBSCRIPTIONS: u16 = 100;

/// How soon is looked again whether a session has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The broker as the API sees it, with what it knows of processes.
#[derive(Debug)]
pub(crate) struct Asking(pub(super) Arc<Inspect>, pub(super) Processes);

impl Broker for Asking {
    fn readiness(&self) -> (bool, Vec<String>) {
        let node = &self.0.node;
        let faults = node
            .opened_store()
            .map_or_else(Vec::new, |store| store.levels.faults());
        let judged = node.rim.readiness.judge(node.opened_store());
        let is_ready = judged.is_ok() && faults.is_empty();
        let reasons = judged.err().unwrap_or_default();
        let leaderless = control::without_leader(node).into_iter();
        let lines = leaderless
            .map(|(store, shard)| format!("no node leads shard {shard} of the {store} store"));
        let faults = faults.into_iter().map(|fault| {
            let ReplicaFault { store, shard, why } = fault;
            format!("the replica of shard {shard} of the {store} store cannot be used: {why}")
        });
        (
            is_ready,
            reasons.into_iter().chain(faults).chain(lines).collect(),
        )
    }

    fn metrics(&self, format: MetricsFormat) -> Result<Vec<u8>, Box<dyn Error>> {
        let registry = &self.0.registry;
        Ok(match format {
            MetricsFormat::Text => crate::metrics::text(registry)?.into_bytes(),
            MetricsFormat::Protobuf => encode_to_vec(registry)?,
        })
    }

    fn cluster(&self) -> ClusterStatus {
        self.0.control.status()
    }

    fn members(&self) -> Vec<(NodeId, String)> {
        let nodes = gather::nodes(&self.0.control.status(), &self.0.name).into_iter();
        nodes.map(|(node, name, _)| (node, name)).collect()
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        self.0.control.change(change)
    }

    fn nodes(&self, budget: Duration) -> Asked<Gathered<Vec<NodeRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let answers = gather::all(&inspect, Question::Health, budget).await;
            let (parts, partial) = gather::sort(answers, "health", |answer| match answer {
                Answer::Health(health) => Some(*health),
                _ => None,
            });
            let mut healths: BTreeMap<NodeId, _> = parts
                .into_iter()
                .map(|(node, _, health)| (node, health.to_api()))
                .collect();
            let status = inspect.control.status();
            let members = match status.nodes.is_empty() {
                true => vec![inspect.alone(&status)],
                false => status.nodes.iter().map(node_row).collect(),
            };
            let all = members.into_iter().map(|row: NodeRow| NodeRow {
                health: healths.remove(&row.node),
                ..row
            });
            let all = all.collect();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn shards(&self, budget: Duration) -> Asked<Gathered<Vec<ShardRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let answers = gather::all(&inspect, Question::Shards, budget).await;
            let (parts, partial) = gather::sort(answers, "shards", |answer| match answer {
                Answer::Shards(shards) => Some(shards),
                _ => None,
            });
            let status = inspect.control.status();
            let mut rows: Vec<ShardRow> = shard_rows(&status, &inspect.name);
            for (node, _, shards) in parts {
                for led in shards {
                    let row = rows.iter_mut().find(|row| {
                        (row.store, row.shard, row.leader)
                            == (led.store.to_api(), led.shard, Some(node))
                    });
                    if let Some(row) = row {
                        row.holds = Some(led.content.to_api());
                        row.load = led.load.to_api().or(row.load.take());
                        let decision = led.decision.to_api();
                        row.last_decision = decision.or(row.last_decision.take());
                    }
                }
            }
            Ok(Gathered { all: rows, partial })
        }
        .boxed()
    }

    fn change_node(
        &self,
        node: NodeId,
        command: NodeCommand,
        dry_run: bool,
        budget: Duration,
    ) -> Asked<NodeChange> {
        let inspect = Arc::clone(&self.0);
        async move { node::change_node(&inspect, node, command, dry_run, budget).await }.boxed()
    }

    fn settings(
        &self,
        node: Option<NodeId>,
        prefix: String,
        budget: Duration,
    ) -> Asked<Gathered<Vec<SettingRow>>> {
        let inspect = Arc::clone(&self.0);
        async move { node::settings(&inspect, node, prefix, budget).await }.boxed()
    }

    fn stats(&self, budget: Duration) -> Asked<Stats> {
        let inspect = Arc::clone(&self.0);
        async move { node::stats(&inspect, budget).await }.boxed()
    }

    fn history(&self, since_ms: Option<u64>, budget: Duration) -> Asked<History> {
        let inspect = Arc::clone(&self.0);
        async move { Ok(node::history_of_all(&inspect, None, since_ms, budget).await) }.boxed()
    }

    fn log_in(&self, attempt: LoginAttempt) -> Asked<Role> {
        let inspect = Arc::clone(&self.0);
        async move { login::log_in(&inspect, attempt).await }.boxed()
    }

    fn login_session(
        &self,
        node: NodeId,
        question: SessionQuestion,
        budget: Duration,
    ) -> Asked<Option<LoginSession>> {
        let inspect = Arc::clone(&self.0);
        async move { login::session_of(&inspect, node, question, budget).await }.boxed()
    }

    fn events(
        &self,
        filter: EventFilter,
        after: Option<String>,
        budget: Duration,
    ) -> Asked<Happened> {
        let inspect = Arc::clone(&self.0);
        async move { events::of_all(&inspect, filter, after, budget).await }.boxed()
    }

    fn tell_change(&self, change: &ApiChange) {
        let rim = &self.0.node.rim;
        rim.events.handle_api_change(change, rim.clock.now_ms());
    }

    fn acl(&self, question: AclQuestion, budget: Duration) -> Asked<AclAnswer> {
        let inspect = Arc::clone(&self.0);
        async move {
            let Some(text) = question.rules.clone() else {
                return node::acl(&inspect, question, budget).await;
            };
            let (action, topic) = node::asked(&question.action, &question.topic)?;
            let unsaved = rules::unsaved(&text, &inspect.node.settings.read().authorization)?;
            let said = node::acl(&inspect, question.clone(), budget);
            let parts = known::client_parts(&inspect, &question.client_id, budget);
            let (said, address, _) = said_of(said, parts, rows::now(&inspect.node)).await?;
            let address = question.address.as_deref().or(address.as_deref());
            Ok(rules::judge(&unsaved, said, address, (action, topic)))
        }
        .boxed()
    }

    fn acl_rules(&self, subject: AclSubject, budget: Duration) -> Asked<AclRules> {
        let inspect = Arc::clone(&self.0);
        async move {
            let unsaved = subject.rules.as_deref().map(|text| {
                let settings = inspect.node.settings.read();
                rules::unsaved(text, &settings.authorization)
            });
            let unsaved = unsaved.transpose()?;
            let id = &subject.client_id;
            let judged = match Judged::by_question(&subject) {
                Some(judged) => judged,
                None => {
                    let said = node::acl(&inspect, rules::who(id), budget);
                    let parts = known::client_parts(&inspect, id, budget);
                    let now = rows::now(&inspect.node);
                    let (said, address, partial) = said_of(said, parts, now).await?;
                    Judged::by_nodes(said, address.as_deref(), partial)
                }
            };
            let settings = inspect.node.settings.read();
            let authorization = unsaved.as_ref().unwrap_or(&settings.authorization);
            Ok(rules::of_client(authorization, subject.client_id, judged))
        }
        .boxed()
    }

    fn listeners(&self, budget: Duration) -> Asked<Gathered<Vec<ListenerRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let answers = gather::all(&inspect, Question::Listeners, budget).await;
            let (parts, partial) = gather::sort(answers, "listeners", |answer| match answer {
                Answer::Listeners(rows) => Some(rows),
                _ => None,
            });
            let all = parts.into_iter().flat_map(|(.., rows)| rows.to_api());
            let all = all.collect();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn clients(&self, filter: ClientFilter, range: Range) -> Asked<Found<ClientRow>> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.clients(filter, range).await }.boxed()
    }

    fn client(&self, client_id: String, budget: Duration) -> Asked<Client> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.client(client_id, budget).await }.boxed()
    }

    fn end(&self, client_id: String, session: bool, budget: Duration) -> Asked<Gone> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.end(client_id, session, budget).await }.boxed()
    }

    fn subscriptions(&self, prefix: Option<String>, range: Range) -> Asked<Found<SubscriptionRow>> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.subscriptions(prefix, range).await }.boxed()
    }

    fn subscriptions_of(
        &self,
        client_id: String,
        prefix: Option<String>,
        range: Range,
    ) -> Asked<Found<SubscriptionRow>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let after = range.after.clone().unwrap_or_default();
            let part = inspect.subscriptions_of(&client_id, after, range.limit, range.budget);
            let (part, partial) = part.await?;
            let Some(Part { mut rows, more }) = part else {
                return Err(known::not_found(&client_id, partial));
            };
            let last = rows.last().filter(|_| more);
            let last = last.map(|row| row.given_filter.clone());
            let scanned = rows.len() as u64;
            let is_wanted = |row: &SubscriptionRow| {
                let prefix = prefix.as_ref();
                prefix.is_none_or(|prefix| row.filter.starts_with(prefix.as_str()))
            };
            rows.retain(is_wanted);
            Ok(Found {
                scanned,
                items: rows,
                last,
                partial,
            })
        }
        .boxed()
    }

    fn subscribe(
        &self,
        client_id: String,
        subscription: NewSubscription,
        budget: Duration,
    ) -> Asked<SubscriptionChanged> {
        let inspect = Arc::clone(&self.0);
        let change = AskedChange::Subscribe(subscription.to_wire());
        async move { subscriptions::change(&inspect, client_id, change, budget).await }.boxed()
    }

    fn unsubscribe(
        &self,
        client_id: String,
        filter: String,
        budget: Duration,
    ) -> Asked<SubscriptionChanged> {
        let inspect = Arc::clone(&self.0);
        let change = AskedChange::Unsubscribe { filter };
        async move { subscriptions::change(&inspect, client_id, change, budget).await }.boxed()
    }

    fn groups(&self) -> Arc<dyn Groups> {
        Arc::new(AskingGroups(Arc::clone(&self.0)))
    }

    fn matching(&self, request: MatchRequest, budget: Duration) -> Asked<Match> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.matching(request, budget).await }.boxed()
    }

    fn publish(
        &self,
        messages: Vec<NewMessage>,
        budget: Duration,
    ) -> Asked<Vec<Result<PublishedMessage, Problem>>> {
        let inspect = Arc::clone(&self.0);
        async move { Ok(publishing::publish(&inspect.node, messages, budget).await) }.boxed()
    }

    fn retained(&self, filter: String, range: Range) -> Asked<Found<RetainedRow>> {
        let inspect = Arc::clone(&self.0);
        async move { messages::retained(&inspect, filter, range).await }.boxed()
    }

    fn retained_levels(
        &self,
        below: Option<String>,
        range: Range,
    ) -> Asked<Found<RetainedLevelRow>> {
        let inspect = Arc::clone(&self.0);
        async move { messages::levels(&inspect, below, range).await }.boxed()
    }

    fn retained_message(&self, topic: String, budget: Duration) -> Asked<Message> {
        let inspect = Arc::clone(&self.0);
        async move { messages::retained_message(&inspect, topic, budget).await }.boxed()
    }

    fn queues(
        &self,
        by: QueueOrder,
        limit: usize,
        budget: Duration,
    ) -> Asked<Gathered<Vec<QueueRow>>> {
        let inspect = Arc::clone(&self.0);
        async move { Ok(messages::first_queues(&inspect, by, limit, budget).await) }.boxed()
    }

    fn traffic(&self) -> Arc<dyn Traffic> {
        Arc::new(AskingTraffic(Arc::clone(&self.0)))
    }

    fn processes(&self) -> Processes {
        self.1.clone()
    }

    fn queue(&self, question: QueueQuestion, range: Range) -> Asked<Found<QueuedMessage>> {
        let inspect = Arc::clone(&self.0);
        async move { messages::queue(&inspect, question, range).await }.boxed()
    }

    fn purge_queue(&self, client_id: String, budget: Duration) -> Asked<QueuePurge> {
        let inspect = Arc::clone(&self.0);
        async move { messages::purge(&inspect, client_id, budget).await }.boxed()
    }

    fn drops(&self, filter: DropFilter, range: Range) -> Asked<Found<DropRow>> {
        let inspect = Arc::clone(&self.0);
        async move { inspect.drops(filter, range).await }.boxed()
    }

    fn bans(&self, after: Option<u64>, limit: usize) -> (Vec<Ban>, bool) {
        self.0.bans_here(after, limit)
    }

    fn ban(&self, ban: NewBan) -> Asked<Ban> {
        Arc::clone(&self.0).add_ban(ban).boxed()
    }

    fn unban(&self, id: u64) -> Asked<()> {
        Arc::clone(&self.0).remove_ban(id).boxed()
    }
}

impl Inspect {
    async fn clients(
        self: &Arc<Self>,
        filter: ClientFilter,
        range: Range,
    ) -> Result<Found<ClientRow>, Problem> {
        let limit = usize::from(range.limit);
        let deadline = Instant::now() + range.budget;
        let question = ClientsQuestion {
            prefix: filter.prefix.unwrap_or_default(),
            after: range.after,
            // One more: whether anything follows.
            limit: range.limit + 1,
            user: filter.user,
            address: filter.address,
            node: filter.node.to_wire(),
            state: filter.state.to_wire(),
            durable: filter.durable,
            longest_held: filter.order == ClientOrder::Held,
        };
        let answers = gather::all(self, Question::Clients(question), range.budget).await;
        let (parts, mut partial) = gather::sort(answers, "clients", |answer| match answer {
            Answer::Clients(part) => Some(part),
            _ => None,
        });
        if parts.is_empty() {
            return Err(nobody(&partial));
        }
        let merged = match filter.order {
            ClientOrder::Held => {
                let parts = parts.into_iter().map(|(.., part)| part).collect();
                merge::longest_held(parts, limit)
            }
            ClientOrder::Identifier => {
                let covered = parts.iter().flat_map(|(.., part)| part.covered.clone());
                partial.extend(uncovered("session_store", covered));
                let parts = parts.into_iter().map(|(.., part)| part).collect();
                merge::clients(parts, limit)
            }
        };
        let mut found = found_to_api(merged, partial);
        let names = self.names();
        for row in &mut found.items {
            row.node_name = row.node.and_then(|node| names.get(&node).cloned());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left >= SHORTEST {
            self.add_queues(&mut found.items, left).await;
        }
        Ok(found)
    }

    /// How much waits for those that are away, as the leaders of their inbox shards say.
    async fn add_queues(self: &Arc<Self>, items: &mut [ClientRow], budget: Duration) {
        let is_asked = |row: &&ClientRow| row.durable && row.state == ClientState::Away;
        let away = items.iter().filter(is_asked);
        // As many as fit into a question; of the others it is not known.
        let client_ids = short(away.map(|row| row.client_id.clone()));
        let queues = self.queue_lengths(client_ids, budget).await;
        for row in items {
            if let Some(messages) = queues.get(&row.client_id) {
                row.queue_messages = Some(*messages);
            }
        }
    }

    /// How many messages wait for durable sessions, of those whose leaders answer.
    async fn queue_lengths(
        self: &Arc<Self>,
        client_ids: Vec<String>,
        budget: Duration,
    ) -> BTreeMap<String, u64> {
        let answers = match client_ids.is_empty() {
            true => Vec::new(),
            false => gather::all(self, Question::Queues { client_ids }, budget).await,
        };
        let (parts, _) = gather::sort(answers, "queues", |answer| match answer {
            Answer::Queues(queues) => Some(queues),
            _ => None,
        });
        parts.into_iter().flat_map(|(.., queues)| queues).collect()
    }

    async fn client(
        self: &Arc<Self>,
        client_id: String,
        budget: Duration,
    ) -> Result<Client, Problem> {
        let (parts, partial) = known::client_parts(self, &client_id, budget).await;
        let names = self.names();
        let now = rows::now(&self.node);
        let departures = parts.iter().filter_map(|(.., part)| part.departure.clone());
        let last_departure = departures.max_by(|one, other| one.at.cmp(&other.at));
        let last_departure = last_departure.to_api();
        let parts = parts.into_iter().map(|(.., part)| part);
        let found = merge::client(&client_id, parts, now);
        let Some(client) = found else {
            let problem = known::not_found(&client_id, partial);
            let departure = serde_json::to_value(last_departure).unwrap_or_default();
            return Err(problem.with("last_departure", departure));
        };
        let client = client.to_api();
        let name_of = |node| names.get(&node).cloned();
        Ok(Client {
            node_name: client.node_name.or_else(|| client.node.and_then(name_of)),
            partial,
            last_departure,
            ..client
        })
    }

    async fn end(
        self: &Arc<Self>,
        client_id: String,
        session: bool,
        budget: Duration,
    ) -> Result<Gone, Problem> {
        let (gone, has_record, partial) = self.end_present(&client_id, session, budget).await;
        match gone {
            Some(gone) => Ok(gone),
            None if has_record && !session => Ok(Gone {
                client_id,
                node: None,
                address: None,
                disconnected: false,
                session_ended: false,
            }),
            None if has_record => self.end_absent(client_id, budget).await,
            None => Err(known::not_found(&client_id, partial)),
        }
    }

    /// Ends the connection of a client, wherever it is. Says whether there was one, and whether there is a session.
    async fn end_present(
        self: &Arc<Self>,
        client_id: &str,
        session: bool,
        budget: Duration,
    ) -> (Option<Gone>, bool, Vec<Missing>) {
        let question = Question::End {
            client_id: client_id.to_owned(),
            session,
        };
        let answers = gather::all(self, question, budget).await;
        let (parts, partial) = gather::sort(answers, "client", |answer| match answer {
            Answer::End(ending) => Some(ending),
            _ => None,
        });
        let has_record = parts.iter().any(|(.., ending)| ending.has_record);
        let gone = parts.into_iter().find_map(|(.., ending)| ending.gone);
        (gone.to_api(), has_record, partial)
    }

    /// Ends the session of a client that is away, and waits until its record is gone.
    async fn end_absent(
        self: &Arc<Self>,
        client_id: String,
        budget: Duration,
    ) -> Result<Gone, Problem> {
        let clustered = self.node.rim.clustered();
        let may_end = self.node.store().levels.may_end();
        if !may_end
            || clustered.is_some_and(|cluster| !cluster.cluster().all_speak(INSPECTION_SINCE))
        {
            let why = "a node runs a version that cannot end sessions, or has not been reached yet, or the upgrade is not finished";
            return Err(Problem::new(Kind::Conflict, why));
        }
        let deadline = Instant::now() + budget;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (parts, _) = known::client_parts(self, &client_id, left).await;
            let is_led = parts.iter().any(|(.., part)| part.leads_record);
            // What its last loop still knows of it is forgotten a little later.
            let lingers = parts.iter().any(|(.., part)| {
                let here = part.here.as_ref();
                here.is_some_and(|client| client.state == inspection::ClientState::Away)
            });
            let record = parts.into_iter().find_map(|(.., part)| part.record);
            let is_away = record.as_ref().is_none_or(|record| record.node.is_none());
            let is_gone = is_led && record.is_none();
            match record {
                // It has connected meanwhile, or its end is not recorded yet.
                Some(_) if !is_away => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let (gone, ..) = self.end_present(&client_id, true, left).await;
                    if let Some(gone) = gone {
                        return Ok(gone);
                    }
                }
                // Repeated, it does nothing if it was done.
                Some(record) => stores::end(&self.node, &client_id, record.epoch),
                None if is_led && !lingers => break,
                None => {}
            }
            if Instant::now() + LOOK_AGAIN >= deadline {
                if is_gone {
                    break;
                }
                if !is_away {
                    let why = "the client connects and leaves all the time: ask again";
                    return Err(Problem::new(Kind::Conflict, why));
                }
                let why =
                    "no leader of its shard has ended the session in time; it may still do so";
                return Err(Problem::new(Kind::NoLeader, why));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(Gone {
            client_id,
            node: None,
            address: None,
            disconnected: false,
            session_ended: true,
        })
    }

    async fn subscriptions_of(
        self: &Arc<Self>,
        client_id: &str,
        after: String,
        limit: u16,
        budget: Duration,
    ) -> Result<(Option<Part<SubscriptionRow>>, Vec<Missing>), Problem> {
        let question = Question::SubscriptionsOf {
            client_id: client_id.to_owned(),
            after,
            limit,
        };
        let answers = gather::all(self, question, budget).await;
        let (parts, partial) = gather::sort(answers, "subscriptions", |answer| match answer {
            Answer::SubscriptionsOf(part) => Some(part),
            _ => None,
        });
        // The node that has the connection knows best; the leader of the inbox shard knows of the same.
        let parts = parts.into_iter().filter_map(|(.., part)| part);
        let best = parts.max_by_key(|part| part.rows.iter().any(|row| row.node.is_some()));
        let best = best.map(|part| Part {
            rows: part.rows.to_api(),
            more: part.more,
        });
        Ok((best, partial))
    }

    /// Subscriptions client by client.
    async fn subscriptions(
        self: &Arc<Self>,
        prefix: Option<String>,
        range: Range,
    ) -> Result<Found<SubscriptionRow>, Problem> {
        let limit = usize::from(range.limit);
        let after = range.after.as_deref().map(page::split);
        let (after_client, after_filter) = after.unwrap_or_default();
        let mut items: Vec<SubscriptionRow> = Vec::new();
        let mut scanned = 0;
        let mut partial = Vec::new();
        // The client that a page has ended in goes on with its next filter.
        let mut clients: Vec<(String, String)> = Vec::new();
        if !after_filter.is_empty() {
            clients.push((after_client.to_owned(), after_filter.to_owned()));
        }
        let is_first = after_client.is_empty();
        let list = Range {
            after: (!is_first).then(|| after_client.to_owned()),
            limit: CLIENTS_OF_SUBSCRIPTIONS,
            budget: range.budget,
        };
        let found = self.clients(ClientFilter::default(), list).await?;
        partial.extend(found.partial);
        let ids = found.items.into_iter().map(|row| row.client_id);
        clients.extend(ids.map(|id| (id, String::new())));
        // Where the page ends if there is no time for any client.
        let mut last = Some(range.after.unwrap_or_else(|| page::join("", "")));
        let mut is_cut = false;
        let deadline = Instant::now() + range.budget;
        'clients: for (client_id, after) in clients {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < SHORTEST {
                is_cut = true;
                break;
            }
            let part = self.subscriptions_of(&client_id, after, range.limit, left);
            let (part, missing) = part.await?;
            for entry in missing {
                if !partial.contains(&entry) {
                    partial.push(entry);
                }
            }
            let (rows, has_more) = part.map_or((Vec::new(), false), |part| (part.rows, part.more));
            for row in rows {
                if items.len() == limit {
                    is_cut = true;
                    break 'clients;
                }
                scanned += 1;
                last = Some(page::join(&client_id, &row.given_filter));
                let is_wanted = |prefix: &String| row.filter.starts_with(prefix.as_str());
                if prefix.as_ref().is_none_or(is_wanted) {
                    items.push(row);
                }
            }
            if has_more {
                // The next page goes on behind what was looked at of this client.
                is_cut = true;
                break;
            }
            last = Some(page::join(&client_id, ""));
        }
        let more = is_cut || found.last.is_some();
        Ok(Found {
            items,
            last: last.filter(|_| more),
            partial,
            scanned,
        })
    }

    async fn drops(
        self: &Arc<Self>,
        filter: DropFilter,
        range: Range,
    ) -> Result<Found<DropRow>, Problem> {
        if let Some(topic) = &filter.topic {
            let valid = validate_topic_filter(topic);
            valid.map_err(|error| Problem::parameter("topic", error))?;
        }
        let question = Question::Drops(DropsQuestion {
            limit: range.limit + 1,
            before: range.after,
            reason: filter.reason,
            client: filter.client,
            topic: filter.topic,
            since_ms: filter.since_ms,
        });
        let answers = match filter.node {
            None => gather::all(self, question, range.budget).await,
            Some(node) => {
                let nodes = gather::nodes(&self.control.status(), &self.name);
                gather::some(self, &nodes, &[node], |_| question.clone(), range.budget).await
            }
        };
        let (parts, partial) = gather::sort(answers, "drops", |answer| match answer {
            Answer::Drops(rows) => Some(rows),
            _ => None,
        });
        let rows = parts.into_iter().flat_map(|(.., rows)| rows);
        let rows = rows.map(|drop| (drop.place, drop.row.to_api())).collect();
        Ok(cut(rows, range.limit.into(), partial))
    }

    async fn matching(
        self: &Arc<Self>,
        request: MatchRequest,
        budget: Duration,
    ) -> Result<Match, Problem> {
        let MatchRequest {
            topic,
            qos,
            publisher,
            publisher_user,
            clients,
            limit,
        } = request;
        if topic.is_empty() || topic.contains(['+', '#', '\0']) {
            let why = "`topic` is a topic name: not empty, and without wildcards";
            return Err(Problem::new(Kind::InvalidBody, why).with("pointer", "/topic"));
        }
        let question = Question::Match {
            topic: topic.clone(),
            qos,
            publisher: publisher.clone(),
            limit,
        };
        let deadline = Instant::now() + budget;
        let answers = gather::all(self, question, budget).await;
        let (parts, mut partial) = gather::sort(answers, "receivers", |answer| match answer {
            Answer::Match(part) => Some(part),
            _ => None,
        });
        let parts = parts.into_iter().map(|(.., part)| part).collect();
        let mut part = merge::matching(parts, limit.into());
        let left = deadline.saturating_duration_since(Instant::now());
        if left >= SHORTEST {
            // As many as fit into a question; of the others it is not known.
            let client_ids = short(part.limits.keys().cloned());
            let queues = self.queue_lengths(client_ids, left).await;
            merge::weigh(&mut part, &queues, &matching::reason_of_full());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let publisher_said = match &publisher {
            Some(client_id) => Some(
                self.publisher(client_id, publisher_user, &topic, left)
                    .await,
            ),
            None => None,
        };
        let mut not = Vec::new();
        for client_id in clients {
            let is_it = |of: &inspection::Receiver| of.client_id.as_ref() == Some(&client_id);
            if part.receivers.iter().any(is_it) {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left < SHORTEST {
                partial.push(Missing {
                    node: None,
                    node_name: String::new(),
                    reason: MissingReason::Timeout,
                    missing: vec![format!("why_not:{client_id}")],
                });
                continue;
            }
            let (reason, missing) = self
                .why_not(&client_id, &topic, publisher.as_deref(), left)
                .await?;
            not.extend(reason);
            for entry in missing {
                if !partial.contains(&entry) {
                    partial.push(entry);
                }
            }
        }
        Ok(Match {
            topic,
            qos,
            publisher: publisher_said,
            receivers: part.receivers.to_api(),
            not,
            counts: part.counts.to_api(),
            counted_all: part.counted_all,
            partial,
        })
    }

    /// Whether a client may publish to a topic.
    async fn publisher(
        self: &Arc<Self>,
        client_id: &str,
        user: Option<String>,
        topic: &str,
        budget: Duration,
    ) -> Publisher {
        let question = AclQuestion {
            client_id: client_id.to_owned(),
            action: Action::Publish.as_str().to_owned(),
            topic: topic.to_owned(),
            user,
            address: None,
            rules: None,
        };
        let said = node::acl(self, question, budget).await.ok();
        Publisher {
            client_id: client_id.to_owned(),
            user: said.as_ref().and_then(|said| said.user.clone()),
            known_by: said.as_ref().map(|said| said.known_by),
            verdict: said.map(|said| said.verdict),
        }
    }

    /// Why a client does not get a message; `None`: it does, and is not listed.
    async fn why_not(
        self: &Arc<Self>,
        client_id: &str,
        topic: &str,
        publisher: Option<&str>,
        budget: Duration,
    ) -> Result<(Option<NotReached>, Vec<Missing>), Problem> {
        let most = page::LARGEST_LIMIT;
        let part = self.subscriptions_of(client_id, String::new(), most, budget);
        let (part, partial) = part.await?;
        let rows = part.map(|part| part.rows);
        let because = |reason: &str, closest: Option<String>, detail: String| NotReached {
            client_id: client_id.to_owned(),
            reason: reason.to_owned(),
            closest_filter: closest,
            detail,
        };
        let Some(rows) = rows else {
            let detail = "no node knows a session of this client".to_owned();
            return Ok((Some(because("no_session", None, detail)), partial));
        };
        let matching: Vec<&SubscriptionRow> = rows
            .iter()
            .filter(|row| filter_matches(&row.filter, topic))
            .collect();
        let reason = if matching.is_empty() {
            let (closest, detail) = closest(&rows, topic);
            Some(because("no_filter", closest, detail))
        } else if publisher == Some(client_id) && matching.iter().all(|row| row.no_local) {
            let filter = matching.first().map(|row| row.filter.clone());
            let detail = "it has asked for no messages of its own (No Local)".to_owned();
            Some(because("no_local", filter, detail))
        } else {
            None
        };
        Ok((reason, partial))
    }

    fn alone(&self, status: &ClusterStatus) -> NodeRow {
        NodeRow {
            node: status.node,
            node_name: self.name.clone(),
            address: None,
            state: NodeState::Up,
            reach: Reach::Up,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: self.node.store().incarnation(),
            connections: Some(self.node.connected.load(Ordering::Relaxed) as u64),
            clock_offset_ms: None,
            health: None,
        }
    }

    pub(super) fn names(&self) -> BTreeMap<NodeId, String> {
        let nodes = gather::nodes(&self.control.status(), &self.name);
        nodes
            .into_iter()
            .map(|(node, name, _)| (node, name))
            .collect()
    }
}
/// The first of these rows, with the key that the next page begins behind.
/// What the nodes say of a client, the address of its connection, and who has not answered. `parts`: what they know of it.
async fn said_of(
    said: impl Future<Output = Result<AclAnswer, Problem>>,
    parts: impl Future<Output = (Vec<(NodeId, String, ClientPart)>, Vec<Missing>)>,
    now: At,
) -> Result<(AclAnswer, Option<String>, Vec<Missing>), Problem> {
    let (said, (parts, partial)) = tokio::join!(said, parts);
    let said = said?;
    let parts = parts.into_iter().map(|(.., part)| part);
    let client = merge::client(&said.client_id, parts, now);
    let connection = client.and_then(|client| client.connection);
    Ok((said, connection.map(|of| of.address), partial))
}

fn cut<T>(rows: BTreeMap<String, T>, limit: usize, partial: Vec<Missing>) -> Found<T> {
    let is_cut = rows.len() > limit;
    let scanned = rows.len().min(limit) as u64;
    let mut last = None;
    let kept = rows.into_iter().take(limit).map(|(key, row)| {
        last = Some(key);
        row
    });
    let items = kept.collect();
    Found {
        items,
        last: last.filter(|_| is_cut),
        partial,
        scanned,
    }
}

/// The filter that has the most levels in common with a topic, and where the two part.
fn closest(rows: &[SubscriptionRow], topic: &str) -> (Option<String>, String) {
    let levels: Vec<&str> = topic.split('/').collect();
    let common = |filter: &str| {
        let pairs = filter.split('/').zip(&levels);
        pairs
            .take_while(|(wanted, level)| *wanted == "+" || wanted == *level)
            .count()
    };
    let best = rows.iter().max_by_key(|row| common(&row.filter));
    let Some(best) = best else {
        return (None, "it has no subscriptions".to_owned());
    };
    let at = common(&best.filter);
    let wanted = best.filter.split('/').nth(at);
    let found = levels.get(at).copied();
    let detail = match (wanted, found) {
        (Some(wanted), Some(found)) if wanted.eq_ignore_ascii_case(found) => {
            format!("differs in case at level {}", at + 1)
        }
        (Some(_), Some(_)) if at == 0 && topic.starts_with('$') => {
            "a wildcard in the first level does not match a topic that begins with $".to_owned()
        }
        (Some(wanted), Some(found)) => {
            format!("level {} is {found:?} and not {wanted:?}", at + 1)
        }
        (Some(_), None) => "the topic has fewer levels".to_owned(),
        (None, _) => "the topic has more levels".to_owned(),
    };
    (Some(best.filter.clone()), detail)
}

fn node_row(member: &NodeStatus) -> NodeRow {
    NodeRow {
        node: member.node,
        node_name: member.name.clone(),
        address: Some(member.address.clone()),
        state: member.state,
        reach: member.reach,
        version: member.version.clone(),
        incarnation: member.incarnation,
        connections: member.connections,
        clock_offset_ms: member.clock_offset_ms,
        health: None,
    }
}

fn shard_rows(status: &ClusterStatus, own_name: &str) -> Vec<ShardRow> {
    let nodes: BTreeMap<NodeId, (String, Reach)> = gather::nodes(status, own_name)
        .into_iter()
        .map(|(node, name, reach)| (node, (name, reach)))
        .collect();
    let replica = |node: &NodeId| Voter {
        node: *node,
        node_name: nodes
            .get(node)
            .map_or_else(String::new, |(name, _)| name.clone()),
        reach: nodes.get(node).map(|(_, reach)| *reach),
    };
    let row = |shard: &admin::cluster::ShardStatus| ShardRow {
        store: shard.store,
        shard: shard.shard,
        first_slot: shard.first.map(|slot| slot.0),
        last_slot: shard.last.map(|slot| slot.0),
        version: shard.version.map(|version| BigNumber::from(version.0)),
        serves: shard.leader.is_some(),
        term: shard.term.into(),
        leader: shard.leader,
        leader_name: shard
            .leader
            .and_then(|node| Some(nodes.get(&node)?.0.clone())),
        voters: shard.voters.iter().map(replica).collect(),
        learners: shard.learners.iter().map(replica).collect(),
        holds: None,
        load: shard.load.clone(),
        last_decision: shard.split.clone(),
    };
    status.shards.iter().map(row).collect()
}

/// Shared groups as the API sees them.
#[derive(Debug)]
struct AskingGroups(Arc<Inspect>);

impl Groups for AskingGroups {
    fn list(&self, range: Range) -> Asked<Found<SharedGroupRow>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let question = Question::SharedGroups {
                after: range.after.unwrap_or_default(),
                limit: range.limit,
            };
            let answers = gather::all(&inspect, question, range.budget).await;
            let (parts, partial) = gather::sort(answers, "shared_groups", |answer| match answer {
                Answer::SharedGroups(part) => Some(part),
                _ => None,
            });
            let parts = parts.into_iter().map(|(.., part)| part).collect();
            let found = merge::shared_groups(parts, range.limit.into());
            Ok(found_to_api(found, partial))
        }
        .boxed()
    }

    fn members(&self, filter: String, range: Range) -> Asked<Found<GroupMember>> {
        let inspect = Arc::clone(&self.0);
        async move {
            check_group(&filter)?;
            let is_first = range.after.is_none();
            let question = MessagesQuestion::Members(MembersQuestion {
                filter: filter.clone(),
                after: range.after,
                limit: Limit(range.limit),
            });
            let part = |answer| match answer {
                MessagesAnswer::Members(part) => Some(part),
                _ => None,
            };
            let parts = messages::ask(&inspect, question, range.budget, "members", part);
            let (parts, partial) = parts.await;
            let found = merge::group_members(parts, range.limit.into());
            let is_empty = found.items.is_empty() && found.last.is_none();
            if is_first && is_empty && partial.is_empty() {
                let shown = broker_core::excerpt(&filter);
                let why = format!("no session subscribes to {shown:?}");
                return Err(Problem::new(Kind::NotFound, why).with("kind", "shared_group"));
            }
            Ok(found_to_api(found, partial))
        }
        .boxed()
    }
}

/// Whether a subscription makes sessions members of a group.
fn check_group(filter: &str) -> Result<(), Problem> {
    match SubscriptionFilter::parse(filter) {
        Ok(parsed) if parsed.shared.is_some() => Ok(()),
        Ok(_) => {
            let why = "`filter` is to begin with `$share/`, `$oshare/` or `$queue/`";
            Err(Problem::parameter("filter", why))
        }
        Err(error) => Err(Problem::parameter("filter", format!("`filter`: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_busy_are_asked_again_and_silent_ones_are_not_ready() {
        let missing = |reason| Missing {
            node: Some(NodeId(1)),
            node_name: String::new(),
            reason,
            missing: Vec::new(),
        };
        use MissingReason::{Busy, Timeout};
        for (reasons, kind) in [
            (vec![Busy, Busy], Kind::TooManyRequests),
            (vec![Busy, Timeout], Kind::NotReady),
            (vec![Timeout], Kind::NotReady),
        ] {
            let partial: Vec<Missing> = reasons.into_iter().map(missing).collect();
            assert_eq!(nobody(&partial).kind, kind, "{partial:?}");
        }
    }
}
