//! The busiest clients and topics: of this node's loops, and of all nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::api::{
    self, Alarm, DropTotals, FailedLoginsRow, History, HolderRow, RefusedLoginsRow, SessionDrops,
    ShardName,
};
use admin::page::MissingReason;
use admin::{Asked, Gathered, Traffic};
use broker_core::{
    Amount, Busy, Delays, Measure, TrafficAnswer, TrafficQuestion, Uncounted, WINDOW_MS,
    WatchedTraffic,
};
use futures_util::FutureExt as _;
use futures_util::future::{try_join, try_join_all};
use inspection::merge;
use inspection::{
    Answer, BusyClient, BusyOrder, BusyPart, BusyRates, BusyRole, BusyTopic, Limit, MessagesAnswer,
    MessagesQuestion, NodeId, Part, Question, WatchedClient,
};

use super::rows::Own;
use super::state::Inspect;
use super::wire::{ToApi as _, ToWire as _};
use super::{gather, loops, lost, messages, node};
use crate::node::Node;

/// Topics that a node tells: all that its loops may know, so that the sums of nodes are right.
const TOPICS: u16 = 256;

/// Of whom, and by what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    of: Busy,
    by: BusyOrder,
}

/// What is known of one name, of all loops.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    counted: Amount,
    uncounted: Uncounted,
    delays: Option<Delays>,
}

impl Known {
    /// The larger, the earlier in the list.
    fn rank(&self, by: BusyOrder) -> u64 {
        match by {
            BusyOrder::Messages => self.counted.messages.0,
            BusyOrder::Bytes => self.counted.bytes.0,
            BusyOrder::Delay => self.delays.map_or(0, |delays| delays.longest.0),
        }
    }

    fn rates(&self) -> BusyRates {
        let per_s = |count: u64| rounded(count as f64 * 1_000.0 / WINDOW_MS as f64);
        BusyRates {
            messages_per_s: per_s(self.counted.messages.0),
            bytes_per_s: per_s(self.counted.bytes.0),
            uncounted_per_s: per_s(self.uncounted.0),
        }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn ms(us: f64) -> f64 {
    rounded(us / 1_000.0)
}

/// The first clients of this node.
pub(super) async fn clients_here(
    node: &Arc<Node>,
    own: &Own,
    role: BusyRole,
    by: BusyOrder,
    Limit(limit): Limit,
) -> Result<Vec<BusyClient>, MissingReason> {
    let of = match role {
        BusyRole::Publisher => Busy::Publishers,
        BusyRole::Subscriber => Busy::Subscribers,
    };
    let first = first(node, Wanted { of, by }, usize::from(limit)).await?;
    let rows = first.into_iter().map(|(client_id, known)| BusyClient {
        client_id: client_id.into(),
        node: own.node,
        node_name: own.name.clone(),
        rates: known.rates(),
        delay_mean_ms: known
            .delays
            .map(|delays| ms(delays.sum.0 as f64 / delays.messages.0.max(1) as f64)),
        delay_max_ms: known.delays.map(|delays| ms(delays.longest.0 as f64)),
    });
    // Clients choose names that JSON makes six times as long.
    Ok(Part::new(rows, usize::MAX).rows)
}

/// The first topics of this node.
pub(super) async fn topics_here(
    node: &Arc<Node>,
    by: BusyOrder,
    Limit(limit): Limit,
) -> Result<Vec<BusyTopic>, MissingReason> {
    let of = Busy::Topics;
    let first = first(node, Wanted { of, by }, usize::from(limit)).await?;
    let rows = first.into_iter().map(|(topic, known)| BusyTopic {
        topic: topic.into(),
        rates: known.rates(),
    });
    Ok(Part::new(rows, usize::MAX).rows)
}

async fn first(
    node: &Arc<Node>,
    wanted: Wanted,
    limit: usize,
) -> Result<Vec<(Box<str>, Known)>, MissingReason> {
    let Wanted { of, by } = wanted;
    let of_each = |question: TrafficQuestion| {
        let loops = 0..node.stats.len();
        try_join_all(loops.map(move |index| loops::traffic(node, index, question.clone())))
    };
    let slowest = async {
        match of {
            Busy::Subscribers => of_each(TrafficQuestion::Slowest).await,
            Busy::Publishers | Busy::Topics => Ok(Vec::new()),
        }
    };
    let busiest = of_each(TrafficQuestion::Busiest(of, measure(by)));
    let (busiest, slowest) = try_join(busiest, slowest).await?;
    let mut all: BTreeMap<Box<str>, Known> = BTreeMap::new();
    for answer in busiest.into_iter().chain(slowest) {
        match answer {
            TrafficAnswer::Busiest(rows) => {
                for row in rows {
                    let known = all.entry(row.name).or_default();
                    known.counted.add(row.counted);
                    known.uncounted.0 += row.uncounted.0;
                }
            }
            TrafficAnswer::Slowest(rows) => {
                for (client_id, delays) in rows {
                    let known = all.entry(client_id).or_default();
                    known.delays.get_or_insert_default().join(delays);
                }
            }
            TrafficAnswer::Watched(_) => return Err(MissingReason::Failed),
        }
    }
    let mut all: Vec<_> = all.into_iter().collect();
    // Who is slow is not busy for that, and who is busy not slow.
    all.retain(|(_, known)| known.rank(by) > 0);
    all.sort_by_key(|(_, known)| Reverse(known.rank(by)));
    all.truncate(limit);
    Ok(all)
}

fn measure(by: BusyOrder) -> Measure {
    match by {
        BusyOrder::Messages | BusyOrder::Delay => Measure::Messages,
        BusyOrder::Bytes => Measure::Bytes,
    }
}

/// Who is busy on all nodes, as the API sees it.
#[derive(Debug)]
pub(super) struct AskingTraffic(pub(super) Arc<Inspect>);

impl Traffic for AskingTraffic {
    fn drop_totals(&self, budget: Duration) -> Asked<Gathered<DropTotals>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let answers = gather::all(&inspect, Question::DropTotals, budget).await;
            let (parts, partial) = gather::sort(answers, "drops", |answer| match answer {
                Answer::DropTotals(totals) => Some(totals),
                _ => None,
            });
            let mut all = DropTotals::new();
            for (reason, count) in parts.into_iter().flat_map(|(.., totals)| totals) {
                let sum: &mut u64 = all.entry(reason).or_default();
                *sum = sum.saturating_add(count);
            }
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn busy_clients(
        &self,
        role: api::BusyRole,
        by: api::BusyOrder,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<api::BusyClient>>> {
        let inspect = Arc::clone(&self.0);
        let (role, by) = (role.to_wire(), by.to_wire());
        async move { Ok(clients(&inspect, role, by, limit, budget).await) }.boxed()
    }

    fn watched(
        &self,
        client_id: String,
        budget: Duration,
    ) -> Asked<Gathered<Vec<api::WatchedClient>>> {
        let inspect = Arc::clone(&self.0);
        async move { Ok(watched(&inspect, client_id, budget).await) }.boxed()
    }

    fn busy_topics(
        &self,
        by: api::BusyOrder,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<api::BusyTopic>>> {
        let inspect = Arc::clone(&self.0);
        let by = by.to_wire();
        async move { Ok(topics(&inspect, by, limit, budget).await) }.boxed()
    }

    fn ended_alarms(&self, budget: Duration) -> Asked<Gathered<Vec<Alarm>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let question = Question::Messages(MessagesQuestion::EndedAlarms);
            let answers = gather::all(&inspect, question, budget).await;
            let found = gather::sort(answers, "alarms", |answer| match answer {
                Answer::Messages(MessagesAnswer::EndedAlarms(alarms)) => Some(alarms),
                _ => None,
            });
            let (parts, partial) = found;
            let alarms = parts.into_iter().flat_map(|(.., alarms)| alarms);
            let mut all: Vec<inspection::Alarm> = alarms.collect();
            all.sort_by(|a, b| b.until.cmp(&a.until));
            let all = all.to_api();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn session_drops(
        &self,
        node: Option<admin::cluster::NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<SessionDrops>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
            let ids = lost::asked(&nodes, node);
            let question = MessagesQuestion::SessionDrops {
                limit: Limit(limit),
            };
            let question = |_| Question::Messages(question.clone());
            let answers = gather::some(&inspect, &nodes, &ids, question, budget).await;
            let found = gather::sort(answers, "session_drops", |answer| match answer {
                Answer::Messages(MessagesAnswer::SessionDrops(rows)) => Some(rows),
                _ => None,
            });
            let (rows, partial) = lost::first(found, limit, |row| &row.last);
            let all = rows.to_api();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn holders(
        &self,
        node: Option<admin::cluster::NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<HolderRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
            let ids = lost::asked(&nodes, node);
            let question = MessagesQuestion::Holders {
                limit: Limit(limit),
            };
            let question = |_| Question::Messages(question.clone());
            let answers = gather::some(&inspect, &nodes, &ids, question, budget).await;
            let found = gather::sort(answers, "backpressure", |answer| match answer {
                Answer::Messages(MessagesAnswer::Holders(rows)) => Some(rows),
                _ => None,
            });
            let (rows, partial) = lost::first(found, limit, |row| &row.last);
            let all = rows.to_api();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn refused_logins(
        &self,
        node: Option<admin::cluster::NodeId>,
        limit: u16,
        budget: Duration,
    ) -> Asked<Gathered<Vec<RefusedLoginsRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let nodes = gather::nodes(&inspect.control.status(), &inspect.name);
            let ids = lost::asked(&nodes, node);
            let question = MessagesQuestion::RefusedLogins {
                limit: Limit(limit),
            };
            let question = |_| Question::Messages(question.clone());
            let answers = gather::some(&inspect, &nodes, &ids, question, budget).await;
            let found = gather::sort(answers, "refused_logins", |answer| match answer {
                Answer::Messages(MessagesAnswer::RefusedLogins(rows)) => Some(rows),
                _ => None,
            });
            let (rows, partial) = lost::first(found, limit, |row| &row.last);
            let all = rows.to_api();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn failed_logins(&self, budget: Duration) -> Asked<Gathered<Vec<FailedLoginsRow>>> {
        let inspect = Arc::clone(&self.0);
        async move {
            let question = Question::Messages(MessagesQuestion::FailedLogins);
            let answers = gather::all(&inspect, question, budget).await;
            let (parts, partial) = gather::sort(answers, "failed_logins", |answer| match answer {
                Answer::Messages(MessagesAnswer::FailedLogins(rows)) => Some(rows),
                _ => None,
            });
            let all = merge::failed_logins(parts.into_iter().flat_map(|(.., rows)| rows).collect());
            let all = all.to_api();
            Ok(Gathered { all, partial })
        }
        .boxed()
    }

    fn shard_history(
        &self,
        shard: ShardName,
        since_ms: Option<u64>,
        budget: Duration,
    ) -> Asked<History> {
        let inspect = Arc::clone(&self.0);
        async move { Ok(node::history_of_all(&inspect, Some(shard), since_ms, budget).await) }
            .boxed()
    }
}

/// What the loop of a client counts of it, which is watched from now on; `None`: it is not here.
pub(super) async fn watched_here(
    node: &Arc<Node>,
    client_id: String,
) -> Result<Option<WatchedClient>, MissingReason> {
    let home = node.home_of(&client_id).map(|home| home.loop_index());
    let question = TrafficQuestion::Watch {
        client_id: client_id.into(),
    };
    let answer = match home {
        Some(index) => Some(loops::traffic(node, index, question).await?),
        None => None,
    };
    match answer {
        None => Ok(None),
        Some(TrafficAnswer::Watched(watched)) => Ok(Some(watched_client(node, watched))),
        Some(_) => Err(MissingReason::Failed),
    }
}

fn watched_client(node: &Node, watched: WatchedTraffic) -> WatchedClient {
    let WatchedTraffic {
        since,
        published,
        sent,
    } = watched;
    WatchedClient {
        node: NodeId(node.store().node()),
        since_ms: since.0,
        messages_in: published.messages.0,
        bytes_in: published.bytes.0,
        messages_out: sent.messages.0,
        bytes_out: sent.bytes.0,
    }
}

/// What each node counts of a client.
async fn watched(
    inspect: &Arc<Inspect>,
    client_id: String,
    budget: Duration,
) -> Gathered<Vec<api::WatchedClient>> {
    let question = MessagesQuestion::Watch { client_id };
    let parts = messages::ask(inspect, question, budget, "rates", |answer| match answer {
        MessagesAnswer::Watched(watched) => Some(watched),
        _ => None,
    });
    let (parts, partial) = parts.await;
    Gathered {
        all: parts
            .into_iter()
            .flatten()
            .map(WatchedClient::to_api)
            .collect(),
        partial,
    }
}

/// The first clients of all nodes.
async fn clients(
    inspect: &Arc<Inspect>,
    role: BusyRole,
    by: BusyOrder,
    limit: u16,
    budget: Duration,
) -> Gathered<Vec<api::BusyClient>> {
    let question = MessagesQuestion::BusyClients {
        role,
        by,
        limit: Limit(limit),
    };
    let parts = messages::ask(inspect, question, budget, "top", |answer| match answer {
        MessagesAnswer::Busy(BusyPart::Clients(rows)) => Some(rows),
        _ => None,
    });
    let (parts, partial) = parts.await;
    let all = parts.into_iter().flatten().collect();
    let all = merge::busy_clients(all, by, limit.into()).to_api();
    Gathered { all, partial }
}

/// The first topics of all nodes.
async fn topics(
    inspect: &Arc<Inspect>,
    by: BusyOrder,
    limit: u16,
    budget: Duration,
) -> Gathered<Vec<api::BusyTopic>> {
    let question = MessagesQuestion::BusyTopics {
        by,
        limit: Limit(TOPICS),
    };
    let parts = messages::ask(inspect, question, budget, "top", |answer| match answer {
        MessagesAnswer::Busy(BusyPart::Topics(rows)) => Some(rows),
        _ => None,
    });
    let (parts, partial) = parts.await;
    let rows = parts.into_iter().flatten();
    let all = merge::busy_topics(rows, by, limit.into()).to_api();
    Gathered { all, partial }
}
