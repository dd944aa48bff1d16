//! Clients are spread evenly over the nodes of a cluster: some of those that connect to a node which has more than its share are sent
//! on (`clusterConfig.spreadAtConnect`), and those that are connected are moved when a person asks for it.
//!
//! Each node looks once a second at how many clients the members tell, and does its own part: it gives away what it has more than
//! the mean. So all nodes stop by themselves, and none gives another one more than that can take.
//!
//! Deliberately absent: what a client is told (`broker-core/src/{spread,drain}`), who has asked for what (`wishes.rs`).

mod recent;
mod wishes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admin::cluster::{Evenness, Refusal};
use broker_core::{Advice, LoopMessage, SendAway, SentOn, Thousandths};
use cluster::{Member, Reach, State};
use config::{Config, SpreadAtConnect};
use parking_lot::Mutex;

use crate::all_loops::all_loops;
use crate::clustered::{CONNECTIONS, Clustered, MQTT};
use crate::node::Node;
use crate::pace::{Pace, PerSecond, STEP};
use recent::Recent;
use wishes::{MadeMs, Order, Rate, Wish, Wishes};

/// What a member tells of the last wish that a person has made at it.
pub(crate) const REBALANCE: &str = "rebalance";

/// How often a node looks at how many clients the others have.
const ROUND: Duration = Duration::from_secs(1);

/// From so many clients above the mean on, those that connect are sent on: 5 %, and so many.
const SPARE: f64 = 10.0;

/// How long clients that were moved take to be connected again, and others to hear of them.
const TRANSIT: Duration = Duration::from_secs(10);

/// How long nobody has been moved, longer than twice [`TRANSIT`], until a node takes those that are left for ones that it cannot move.
const IDLE: Duration = Duration::from_secs(30);

/// How a node takes part in spreading clients.
pub(crate) struct Spreading {
    node: Arc<Node>,
    clustered: Arc<Clustered>,
    at_connect: SpreadAtConnect,
    as_drained: PerSecond,
    wishes: Mutex<Wishes>,
    /// When the wish was made that is carried out; a later one ends that.
    current: AtomicU64,
    advised: Mutex<Option<Advice>>,
}

impl fmt::Debug for Spreading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spreading")
    }
}

/// Clients of this node.
#[derive(Clone, Copy)]
struct Own(u64);

/// What a node knows of the clients of all.
struct Counts {
    all: Evenness,
    own: Own,
    /// Where clients can be sent: the listeners of those that have less than the mean, fewest clients first.
    elsewhere: Vec<String>,
}

impl Spreading {
    pub(crate) fn new(node: Arc<Node>, clustered: Arc<Clustered>, config: &Config) -> Self {
        let cluster = &config.cluster_config;
        Self {
            node,
            clustered,
            at_connect: cluster.spread_at_connect,
            as_drained: PerSecond(cluster.drain_clients_per_second.get().into()),
            wishes: Mutex::default(),
            current: AtomicU64::new(0),
            advised: Mutex::new(None),
        }
    }

    /// Has all nodes move clients, or stop that.
    ///
    /// # Errors
    /// No other node serves.
    pub(crate) fn wish(&self, clients_per_second: Option<u32>) -> Result<(), Refusal> {
        if self.counts().all.nodes < 2 {
            return Err(Refusal::Conflict(
                "no other node is up that could take clients".to_owned(),
            ));
        }
        let wish = Wish {
            made: MadeMs(self.node.cluster_now_ms()),
            rate: clients_per_second.map_or(Rate::AsDrained, Rate::PerSecond),
        };
        self.clustered.tell(REBALANCE, &wish.to_text());
        Ok(())
    }

    fn counts(&self) -> Counts {
        let cluster = self.clustered.cluster();
        let (members, own) = (cluster.members(), cluster.node());
        let here = self.node.connected.load(Ordering::Relaxed) as u64;
        let serves = |member: &&Member| {
            let is_here = member.node == own;
            member.state == State::Up && (is_here || member.reach == Reach::Up)
        };
        let clients = |member: &Member| match member.node == own {
            true => Some(here),
            false => member.info.get(CONNECTIONS)?.parse().ok(),
        };
        let serving = || members.nodes.values().filter(serves);
        let all = Evenness::of(serving().filter_map(clients));
        let mut less: Vec<(u64, &String)> = serving()
            .filter(|member| member.node != own)
            .filter_map(|member| Some((clients(member)?, member.info.get(MQTT)?)))
            .filter(|(clients, _)| (*clients as f64) < all.mean())
            .collect();
        less.sort_unstable();
        Counts {
            all,
            own: Own(here),
            elsewhere: less.into_iter().map(|(_, place)| place.clone()).collect(),
        }
    }

    /// Whether this node takes part: it is not drained, and does not end.
    fn serves(&self) -> bool {
        let cluster = self.clustered.cluster();
        let members = cluster.members();
        let own = members.nodes.get(&cluster.node());
        own.is_some_and(|member| member.state == State::Up)
    }

    /// Tells the loops what to do with clients that connect.
    fn advise(&self) {
        let whom = match self.at_connect {
            SpreadAtConnect::Nothing => return,
            SpreadAtConnect::Redirect => SentOn::Told,
            SpreadAtConnect::Refuse => SentOn::All,
        };
        let advice = Some(self.counts())
            .filter(|_| self.serves())
            .and_then(|counts| advice(&counts, whom));
        let mut advised = self.advised.lock();
        if *advised == advice {
            return;
        }
        advised.clone_from(&advice);
        self.tell_loops(advice);
    }

    fn tell_loops(&self, advice: Option<Advice>) {
        let (advice, loops) = (advice.map(Arc::new), self.node.rim.loops());
        for index in 0..loops.loops() {
            loops.send(index, LoopMessage::Spread(advice.clone()));
        }
    }

    /// Begins what a person has asked for at any node.
    fn look_for_wishes(self: &Arc<Self>) {
        let now = MadeMs(self.node.cluster_now_ms());
        let members = self.clustered.cluster().members();
        let told = members.nodes.values();
        let told = told.filter_map(|member| member.info.get(REBALANCE));
        let told = told.filter_map(|text| Wish::of_text(text));
        let order = self.wishes.lock().handle_told(told, now);
        if let Some(order) = order {
            self.begin(order);
        }
    }

    fn begin(self: &Arc<Self>, order: Order) {
        self.current.store(order.wish.made.0, Ordering::Relaxed);
        let spreading = Arc::clone(self);
        let begun = std::thread::Builder::new()
            .name("rebalance".to_owned())
            .spawn(move || spreading.carry_out(order));
        if let Err(error) = begun {
            tracing::error!(%error, "clients cannot be moved to other nodes");
        }
    }

    /// Moves clients until this node has its share, nobody is left whom it can move, or a person asks for something else.
    fn carry_out(&self, Order { wish, before }: Order) {
        let rate = match wish.rate {
            Rate::AsDrained => self.as_drained,
            Rate::PerSecond(clients) => PerSecond(clients),
        };
        let (now_us, now_ms) = (self.node.rim.clock.now_us(), self.node.cluster_now_ms());
        let since_us = now_ms.saturating_sub(before.0).saturating_mul(1_000);
        let before_us = now_us.saturating_sub(since_us);
        let is_current = || self.current.load(Ordering::Relaxed) == wish.made.0;
        let (mut pace, mut moved, mut last) = (Pace::new(rate), 0_u64, Instant::now());
        let mut enough = Recent::new(TRANSIT, Instant::now());
        while rate.0 > 0 && is_current() && self.serves() && last.elapsed() < IDLE {
            let counts = self.counts();
            // Clients that are between two nodes are missing in the mean of this moment.
            let enough = enough.most(counts.all.enough(), Instant::now());
            let spare = counts.own.0.saturating_sub(enough);
            let allowed = pace
                .step()
                .min(usize::try_from(spare).unwrap_or(usize::MAX));
            if allowed > 0 && !counts.elsewhere.is_empty() {
                let sent = self.send(allowed, before_us, &counts.elsewhere);
                moved += sent as u64;
                if sent > 0 {
                    last = Instant::now();
                }
            }
            std::thread::sleep(STEP);
        }
        // The loops know the node that clients were moved to, with the settings of then.
        self.tell_loops(self.advised.lock().clone());
        let Counts {
            all, own: Own(own), ..
        } = self.counts();
        let mean = all.mean().round();
        if moved > 0 {
            tracing::info!(moved, own, mean, "clients were moved to other nodes");
        } else if own > all.enough() && is_current() {
            tracing::warn!(
                own,
                mean,
                "no client was moved to another node: messages are on their way to those that are here, or they came after the \
                 first rebalance of the last hour"
            );
        }
    }

    /// Gives how many clients have gone.
    fn send(&self, clients: usize, before_us: u64, elsewhere: &[String]) -> usize {
        let elsewhere = self.clustered.next_of(elsewhere.to_vec());
        let permits = Arc::new(AtomicUsize::new(clients));
        all_loops(self.node.rim.loops(), |done| LoopMessage::SendAway {
            why: SendAway::Rebalance { before_us },
            permits: Arc::clone(&permits),
            elsewhere: elsewhere.clone(),
            done,
        });
        clients.saturating_sub(permits.load(Ordering::Relaxed))
    }
}

fn advice(counts: &Counts, whom: SentOn) -> Option<Advice> {
    let (own, mean) = (counts.own.0 as f64, counts.all.mean());
    let elsewhere = counts.elsewhere.first().cloned()?;
    let is_over = own > mean * 1.05 + SPARE;
    // Twice as many as it has too many, so that clients which stay where they are do not keep the nodes apart.
    let share = 2_000.0 * (own - mean) / own;
    is_over.then(|| Advice {
        elsewhere: Some(elsewhere),
        share: Thousandths(share.clamp(50.0, 500.0) as u16),
        whom,
    })
}

/// Looks once a second, for as long as the node runs.
pub(crate) async fn run(spreading: Option<Arc<Spreading>>) {
    let Some(spreading) = spreading else {
        return std::future::pending().await;
    };
    let mut interval = tokio::time::interval(ROUND);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        spreading.advise();
        spreading.look_for_wishes();
    }
}

/// How evenly clients are spread, as the metrics say it.
pub(crate) fn evenness(members: &cluster::Members) -> Evenness {
    let serves =
        |member: &&Member| member.state == State::Up && !matches!(member.reach, Reach::Down { .. });
    let serving = members.nodes.values().filter(serves);
    let clients = |member: &Member| member.info.get(CONNECTIONS)?.parse().ok();
    Evenness::of(serving.filter_map(clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(own: u64, others: &[u64]) -> Counts {
        let all = Evenness::of(others.iter().copied().chain([own]));
        let less = others
            .iter()
            .filter(|clients| (**clients as f64) < all.mean());
        Counts {
            all,
            own: Own(own),
            elsewhere: less.map(|clients| format!("10.0.0.1:{clients}")).collect(),
        }
    }

    #[test]
    fn a_node_with_more_than_its_share_sends_clients_on() {
        let share = |own, others: &[u64]| {
            let advice = advice(&counts(own, others), SentOn::Told);
            advice.map(|advice| advice.share.0)
        };
        assert_eq!(share(33_000, &[33_000, 33_000, 0]), Some(500));
        assert_eq!(share(27_000, &[25_000, 25_000, 23_000]), Some(148));
        assert_eq!(share(25_000, &[25_000, 25_000, 25_000]), None);
        assert_eq!(share(0, &[33_000, 33_000]), None);
        // A few more are no reason.
        assert_eq!(share(12, &[0, 0]), None);
        assert_eq!(share(0, &[]), None);
    }
}
