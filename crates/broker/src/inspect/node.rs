//! What is asked of a node as a whole: its settings, its counts, its rules, and changes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::Gathered;
use admin::NodeCommand;
use admin::api::{
    AclAnswer, AclQuestion, At, Counts, History, KnownBy, NodeChange, NodeHistory, NodeStats,
    SettingElsewhere, SettingRow, ShardName, Stats,
};
use admin::cluster::{Change, ClusterStatus, NodeId, NodeState, Reach};
use admin::page::{Missing, MissingReason};
use admin::problem::{Kind, Problem};
use authorization::{Action, Client};
use broker_core::{Reason, sum};
use inspection::{AclPart, Answer, HistoryPart, Question, SettingPart, UnixMs};
use mqtt_proto::{SubscriptionFilter, validate_topic_name};
use peer_protocol::{NodeAnswer, Refusal};
use store::ShardLoad;
use store_state::api::StoreId;
use store_state::retain::RetainedEnd;

use super::state::Inspect;
use super::wire::{ToApi as _, ToWire as _};
use super::{gather, loops, rows, stores};
use crate::eviction;
use crate::history::{Reading, STEP_MS, Samples, cpu_s, until_next_ms};
use crate::latency_metrics::{acknowledgements, deliveries};
use crate::node::Node;

pub(super) fn settings_of_node(inspect: &Arc<Inspect>, prefix: &str) -> Vec<SettingPart> {
    let settings = inspect.settings.read();
    let wanted = settings.iter().filter(|row| row.key.starts_with(prefix));
    wanted.map(rows::setting).collect()
}

pub(super) fn counts(inspect: &Arc<Inspect>) -> Counts {
    let node = &inspect.node;
    let net = |pick: fn(&net::LoopStats) -> u64| node.rim.net.iter().map(|s| pick(s)).sum();
    let holdings = node.store().inspect().holdings();
    let of = |store: StoreId| holdings.iter().filter(move |of| of.store == store);
    let queues = || of(StoreId::Inbox);
    let stored: u64 = of(StoreId::Session).map(|of| of.entries).sum();
    let published = |stats: &broker_core::BrokerStats| {
        stats
            .publishes_in
            .iter()
            .map(net_api::Counter::get)
            .sum::<u64>()
    };
    let ends = node.rim.removals.retained.counts();
    let ended = |of: fn(RetainedEnd) -> bool| {
        let counts = ends.iter().filter(|(end, _)| of(*end));
        counts.map(|(_, count)| count).sum()
    };
    Counts {
        connections: node.connected.load(Ordering::Relaxed) as u64,
        sessions: stored + sum(&node.stats, |s| &s.sessions),
        subscriptions: node.routes.subscriptions() as u64,
        retained_messages: of(StoreId::Retain).map(|of| of.entries).sum(),
        queued_messages: queues().filter_map(|of| of.messages).sum(),
        queued_bytes: queues().filter_map(|of| of.bytes).sum(),
        messages_in: node.stats.iter().map(|stats| published(stats)).sum(),
        messages_out: sum(&node.stats, |s| &s.publishes_out),
        bytes_in: net(|s| s.bytes_in.get()),
        bytes_out: net(|s| s.bytes_out.get()),
        connects: sum(&node.stats, |s| &s.connects),
        connects_refused: sum(&node.stats, |s| &s.refused),
        dropped: Reason::all().map(|reason| node.dropped(reason)).sum(),
        unmatched: sum(&node.stats, |s| &s.unmatched),
        retained_expired: ended(|end| end == RetainedEnd::Expiry),
        retained_removed: ended(|end| end != RetainedEnd::Expiry),
    }
}

/// What this node has counted.
pub(super) fn history(inspect: &Arc<Inspect>, since_ms: Option<UnixMs>) -> HistoryPart {
    part(inspect.history.samples(since_ms.map(|since| since.0)))
}

/// What a shard has cost while this node led it.
pub(super) fn shard_history(
    inspect: &Arc<Inspect>,
    shard: ShardName,
    since_ms: Option<UnixMs>,
) -> HistoryPart {
    let since_ms = since_ms.map(|since| since.0);
    part(inspect.history.samples_of(shard, since_ms))
}

fn part(samples: Samples) -> HistoryPart {
    let series = samples.series.into_iter().map(|(name, values)| {
        let values = values.into_iter().map(|value| value.map(rounded));
        (name.into_owned(), values.collect())
    });
    HistoryPart {
        end_ms: samples.end_ms.map(UnixMs),
        series: series.collect(),
    }
}

/// What all nodes have counted; with a shard, only what that has cost.
pub(super) async fn history_of_all(
    inspect: &Arc<Inspect>,
    shard: Option<ShardName>,
    since_ms: Option<u64>,
    budget: Duration,
) -> History {
    let since_ms = since_ms.map(UnixMs);
    let question = match shard {
        None => Question::History { since_ms },
        Some(shard) => Question::ShardHistory {
            shard: shard.to_wire(),
            since_ms,
        },
    };
    let answers = gather::all(inspect, question, budget).await;
    let (parts, partial) = gather::sort(answers, "history", |answer| match answer {
        Answer::History(part) => Some(part),
        _ => None,
    });
    let nodes = parts
        .into_iter()
        .map(|(node, node_name, part)| NodeHistory {
            node,
            node_name,
            end: part.end_ms.map(|end| At::unix_ms(end.0)),
            series: part.series,
        });
    History {
        step_s: u32::try_from(STEP_MS / 1_000).unwrap_or(u32::MAX),
        nodes: nodes.collect(),
        partial,
    }
}

/// A value of about seven digits, without those that a conversion makes up.
fn rounded(value: f32) -> f64 {
    let value = f64::from(value);
    match value.abs() {
        large if large >= 10_000.0 => value.round(),
        _ => (value * 1_000.0).round() / 1_000.0,
    }
}

/// Samples what there is, until the node ends.
pub(crate) async fn record_history(inspect: Arc<Inspect>) {
    // The first sample begins now.
    let mut wait_ms = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let of = Arc::clone(&inspect);
        let inspect = Arc::clone(&inspect);
        // It waits for the locks of shards.
        let sampled = tokio::task::spawn_blocking(move || {
            let node = &inspect.node;
            let reading = Reading {
                counts: counts(&inspect),
                cpu_s: cpu_s(),
                memory_bytes: crate::memory::resident_bytes(),
                disk_free_bytes: node.rim.disk.free_bytes(),
                acknowledgements: acknowledgements(&node.stats),
                deliveries: deliveries(&node.stats),
                syncs: node.store().inspect().sync_times(),
                applied: node.store().inspect().apply_times(),
                dropped: Reason::all()
                    .map(|reason| (reason.as_str(), node.dropped(reason)))
                    .collect(),
                shards: shards_led(node),
            };
            inspect.history.record(reading, node.cluster_now_ms());
            inspect.profiles.record_threads();
        });
        if let Err(error) = sampled.await {
            tracing::error!(%error, "this node no longer records its history");
            return std::future::pending().await;
        }
        wait_ms = until_next_ms(of.node.cluster_now_ms());
    }
}

/// The load of the shards that a node leads.
fn shards_led(node: &Node) -> Vec<(ShardName, ShardLoad)> {
    let own = node.store().node();
    let led = node.store().shards().into_iter();
    let led = led.filter(|info| info.leader == Some(own));
    led.filter_map(|info| {
        let name = ShardName {
            store: info.store.into(),
            shard: info.shard.into(),
        };
        Some((name, info.load?))
    })
    .collect()
}

/// What this node says of a client's rights. The question was checked where it was asked.
pub(super) async fn acl_here(
    inspect: &Arc<Inspect>,
    question: &inspection::AclQuestion,
) -> Result<AclPart, MissingReason> {
    let Ok((action, topic)) = asked(&question.action, &question.topic) else {
        return Err(MissingReason::Failed);
    };
    let judge = |user: Option<String>| {
        let address = question.address.as_ref().and_then(|ip| ip.parse().ok());
        let client_id = &question.client_id;
        let of_store = |user: &String| inspect.node.rim.authentication.identity_of(user);
        let rules = &inspect.node.settings.read().authorization;
        let verdict = match user.as_ref().and_then(of_store) {
            Some(identity) => rules.explain_login(identity, client_id, address, (action, topic)),
            None => {
                let client = Client {
                    client_id,
                    username: user.as_deref(),
                    address,
                };
                rules.explain(&client, action, topic)
            }
        };
        (rows::verdict(verdict), user)
    };
    let mut part = AclPart {
        asked: Some(judge(question.user.clone())),
        ..AclPart::default()
    };
    if question.user.is_some() || question.address.is_some() {
        return Ok(part);
    }
    if let Some(home) = inspect.node.home_of(&question.client_id) {
        let verdict = loops::verdict(&inspect.node, home, action, topic).await?;
        part.connected = verdict.map(|(verdict, user)| (rows::verdict(verdict), user));
    }
    let record = stores::client(&inspect.node, &question.client_id).record;
    part.stored = record.map(|record| judge(record.user));
    Ok(part)
}

/// Begins a change of this node.
pub(super) async fn change_here(
    inspect: &Arc<Inspect>,
    command: inspection::NodeCommand,
) -> NodeAnswer {
    let node = NodeId(inspect.node.store().node());
    let change = match command {
        inspection::NodeCommand::Drain => Change::Drain,
        inspection::NodeCommand::EndDrain => Change::EndDrain,
        inspection::NodeCommand::Leave => Change::Leave,
        inspection::NodeCommand::Evict { force } => Change::Evict { node, force },
    };
    carry_out(inspect, change).await
}

/// Begins a change on a thread that may wait.
async fn carry_out(inspect: &Arc<Inspect>, change: Change) -> NodeAnswer {
    let control = Arc::clone(&inspect.control);
    let changed = tokio::task::spawn_blocking(move || control.change(change)).await;
    changed.unwrap_or_else(|error| Err(Refusal::Unavailable(error.to_string())))
}

pub(super) async fn settings(
    inspect: &Arc<Inspect>,
    node: Option<NodeId>,
    prefix: String,
    budget: Duration,
) -> Result<Gathered<Vec<SettingRow>>, Problem> {
    let first = node.unwrap_or(NodeId(inspect.node.store().node()));
    let answers = gather::all(inspect, Question::Settings { prefix }, budget).await;
    let (mut parts, partial) = gather::sort(answers, "settings", |answer| match answer {
        Answer::Settings(settings) => Some(settings),
        _ => None,
    });
    let Some(at) = parts.iter().position(|(node, ..)| *node == first) else {
        return Err(no_answer_of(first, &partial));
    };
    let (.., settings) = parts.remove(at);
    Ok(Gathered {
        all: compare(settings, &parts),
        partial,
    })
}

pub(super) async fn stats(inspect: &Arc<Inspect>, budget: Duration) -> Result<Stats, Problem> {
    let answers = gather::all(inspect, Question::Stats, budget).await;
    let (parts, partial) = gather::sort(answers, "stats", |answer| match answer {
        Answer::Stats(counts) => Some(counts.to_api()),
        _ => None,
    });
    let nodes = parts
        .into_iter()
        .map(|(node, node_name, counts)| NodeStats {
            node,
            node_name,
            counts,
        });
    let nodes: Vec<NodeStats> = nodes.collect();
    let sum = |sum: Counts, of: &NodeStats| sum.plus(&of.counts);
    Ok(Stats {
        total: nodes.iter().fold(Counts::default(), sum),
        as_of: rows::now(&inspect.node).to_api(),
        nodes,
        partial,
    })
}

pub(super) async fn acl(
    inspect: &Arc<Inspect>,
    question: AclQuestion,
    budget: Duration,
) -> Result<AclAnswer, Problem> {
    asked(&question.action, &question.topic)?;
    let own = NodeId(inspect.node.store().node());
    let answers = gather::all(inspect, Question::Acl(question.clone().to_wire()), budget).await;
    let (parts, partial) = gather::sort(answers, "rights", |answer| match answer {
        Answer::Acl(part) => Some(part),
        _ => None,
    });
    let (mut connected, mut stored, mut by_own) = (None, None, None);
    for (node, _, part) in parts {
        connected = connected.or(part.connected);
        stored = stored.or(part.stored);
        if node == own {
            by_own = part.asked;
        }
    }
    let known_by = match (&connected, &stored) {
        _ if question.user.is_some() || question.address.is_some() => KnownBy::Question,
        (Some(_), _) => KnownBy::Connection,
        (None, Some(_)) => KnownBy::Session,
        (None, None) => KnownBy::Nothing,
    };
    match connected.or(stored).or(by_own) {
        Some((verdict, user)) => Ok(AclAnswer {
            client_id: question.client_id,
            user,
            known_by,
            connected: known_by == KnownBy::Connection,
            verdict: verdict.to_api(),
        }),
        None => Err(no_answer_of(own, &partial)),
    }
}

pub(super) async fn change_node(
    inspect: &Arc<Inspect>,
    node: NodeId,
    command: NodeCommand,
    dry_run: bool,
    budget: Duration,
) -> Result<NodeChange, Problem> {
    let status = inspect.control.status();
    let name = inspect.names().remove(&node);
    let name = name.ok_or_else(|| {
        Problem::new(Kind::NotFound, "there is no such member").with("kind", "node")
    })?;
    let mut change = estimate(&status, node, name, command);
    if dry_run {
        // What is known of it from others is some seconds old.
        change.clients = clients_of(inspect, node, budget).await.or(change.clients);
        return Ok(change);
    }
    let changed = match command {
        // The others take it out: it is gone.
        NodeCommand::Evict { force } => carry_out(inspect, Change::Evict { node, force }).await,
        _ => change_there(inspect, node, command, budget).await?,
    };
    changed.map_err(Problem::from)?;
    change.begun = true;
    change.possible = true;
    Ok(change)
}

/// How many clients are connected to a node, as it says.
async fn clients_of(inspect: &Arc<Inspect>, node: NodeId, budget: Duration) -> Option<u64> {
    let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
    let answers = gather::some(inspect, &nodes, &[node], |_| Question::Stats, budget).await;
    let answer = answers.into_iter().next()?.answer;
    match answer {
        Ok(Answer::Stats(counts)) => Some(counts.connections),
        _ => None,
    }
}

/// Has a node change itself.
async fn change_there(
    inspect: &Arc<Inspect>,
    node: NodeId,
    command: NodeCommand,
    budget: Duration,
) -> Result<NodeAnswer, Problem> {
    let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
    let question = |_| Question::Change(command.to_wire());
    let answers = gather::some(inspect, &nodes, &[node], question, budget).await;
    let (parts, partial) = gather::sort(answers, "change", |answer| match answer {
        Answer::Change(changed) => Some(changed),
        _ => None,
    });
    let answer = parts.into_iter().next();
    // A node that was asked and is slow may still do it.
    answer
        .map(|(.., changed)| changed.map_err(inspection::Refusal::to_api))
        .ok_or_else(|| no_answer_of(node, &partial).with("may_have_begun", true))
}

/// The node that was to answer has not.
fn no_answer_of(node: NodeId, partial: &[Missing]) -> Problem {
    let missing = partial.iter().find(|missing| missing.node == Some(node));
    let Some(missing) = missing else {
        return Problem::new(Kind::NotFound, "there is no such member").with("kind", "node");
    };
    let reason = missing.reason;
    let why = format!("node {node} has not answered: {}", reason.name());
    let nodes = vec![node.to_string()];
    Problem::new(Kind::NodeSilent, why).with("nodes", nodes)
}

/// What is asked, as the rules are asked about it.
pub(super) fn asked<'a>(action: &str, topic: &'a str) -> Result<(Action, &'a str), Problem> {
    let wrong =
        |pointer: &str, why: String| Problem::new(Kind::InvalidBody, why).with("pointer", pointer);
    let known = Action::ALL.into_iter();
    let action = known.into_iter().find(|known| known.as_str() == action);
    let action = action.ok_or_else(|| {
        let why = "`action` is publish, retain, subscribe or receive";
        wrong("/action", why.to_owned())
    })?;
    let topic = match action {
        Action::Subscribe => SubscriptionFilter::parse(topic)
            .map(|parsed| parsed.filter)
            .map_err(|error| error.to_string()),
        Action::Publish | Action::Retain | Action::Receive => validate_topic_name(topic)
            .map(|()| topic)
            .map_err(|error| error.to_string()),
    };
    let topic = topic.map_err(|why| wrong("/topic", format!("`topic`: {why}")))?;
    Ok((action, topic))
}

/// The options of one node, each with the nodes where it is another.
fn compare(
    settings: Vec<SettingPart>,
    others: &[(NodeId, String, Vec<SettingPart>)],
) -> Vec<SettingRow> {
    let row = |part: SettingPart| {
        let elsewhere = others.iter().filter_map(|(node, node_name, theirs)| {
            let other = theirs.iter().find(|other| other.key == part.key)?;
            (other.setting.value != part.setting.value).then(|| SettingElsewhere {
                node: *node,
                node_name: node_name.clone(),
                setting: other.setting.clone().to_api(),
            })
        });
        SettingRow {
            differs: elsewhere.collect(),
            key: part.key,
            setting: part.setting.to_api(),
            live: part.live,
        }
    };
    settings.into_iter().map(row).collect()
}

/// What a change of a node would mean, as far as the node that is asked knows.
fn estimate(
    status: &ClusterStatus,
    node: NodeId,
    node_name: String,
    command: NodeCommand,
) -> NodeChange {
    let member = status.nodes.iter().find(|member| member.node == node);
    let led = status
        .shards
        .iter()
        .filter(|shard| shard.leader == Some(node));
    let voters = status
        .shards
        .iter()
        .filter(|shard| shard.voters.contains(&node));
    let has_others = status.nodes.iter().any(|other| {
        other.node != node && other.state == NodeState::Up && other.reach == Reach::Up
    });
    let why_not = match command {
        _ if status.nodes.is_empty() => {
            Some("this node runs alone: there is no other that could take over".to_owned())
        }
        NodeCommand::EndDrain => None,
        NodeCommand::Drain | NodeCommand::Leave if !has_others => {
            Some("no other node is up that could take over from this one".to_owned())
        }
        NodeCommand::Drain | NodeCommand::Leave => None,
        NodeCommand::Evict { .. } if node == status.node => {
            Some("a node does not evict itself; ask another one, or have it leave".to_owned())
        }
        NodeCommand::Evict { .. } => match eviction::check(status, node) {
            Ok(()) => None,
            Err(harm) => Some(harm.to_string()),
        },
    };
    let is_forced = matches!(command, NodeCommand::Evict { force: true }) && node != status.node;
    NodeChange {
        node,
        node_name,
        begun: false,
        possible: why_not.is_none() || is_forced,
        detail: why_not,
        clients: member.and_then(|member| member.connections),
        shards_led: led.count() as u64,
        voters: voters.count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use inspection::Setting;

    use super::*;

    fn part(key: &str, value: &str) -> SettingPart {
        SettingPart {
            key: key.to_owned(),
            live: true,
            setting: Setting {
                value: Some(value.to_owned()),
                origin: "file".to_owned(),
                place: None,
                at_restart: None,
            },
        }
    }

    #[test]
    fn a_setting_names_the_nodes_where_it_is_another() {
        let others = [
            (
                NodeId(2),
                "b".to_owned(),
                vec![part("x", "1"), part("y", "3")],
            ),
            // Of a version without `y`.
            (NodeId(3), "c".to_owned(), vec![part("x", "2")]),
        ];
        let rows = compare(vec![part("x", "1"), part("y", "2")], &others);
        let said: Vec<(&str, Vec<&str>)> = rows
            .iter()
            .map(|row| {
                let names = row.differs.iter().map(|of| of.node_name.as_str());
                (row.key.as_str(), names.collect())
            })
            .collect();
        assert_eq!(said, [("x", vec!["c"]), ("y", vec!["b"])]);
    }
}
