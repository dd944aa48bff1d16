//! A node that hands over what it has: its lead of shards, its clients, and, if it leaves for ever, its
//! replicas.
//!
//! Deliberately absent: where replicas go (`store`), and what a client is told (`broker-core/src/drain`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use cluster::{Member, Reach, State};
use parking_lot::Mutex;

use crate::all_loops::all_loops;
use crate::clustered::{Clustered, MQTT};
use crate::control;
use crate::node::Node;
use crate::pace::{Pace, PerSecond, STEP};
use admin::cluster::Refusal;
use broker_core::{LoopMessage, SendAway};

/// How long clients stay for shards to be led elsewhere.
const LEAD: Duration = Duration::from_secs(10);

/// The same before this node stops.
const LEAD_AT_END: Duration = Duration::from_secs(3);

/// How long the last requests of clients are waited for before a node leaves.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// How often is said what a node that leaves waits for.
const SAY: Duration = Duration::from_secs(10);

/// How a node of a cluster drains, and leaves.
pub(crate) struct Drain {
    node: Arc<Node>,
    clustered: Arc<Clustered>,
    clients_per_second: PerSecond,
    /// Ends the process in order.
    end: Box<dyn Fn() + Send + Sync>,
    course: Mutex<Course>,
}

/// What is under way.
#[derive(Default)]
struct Course {
    /// There is a thread that drains.
    drains: bool,
    /// It is to go on and leave.
    leaves: bool,
    /// It is to stop, and to let clients in again.
    is_recalled: bool,
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drain")
    }
}

impl Drain {
    pub(crate) fn new(
        node: Arc<Node>,
        clustered: Arc<Clustered>,
        clients_per_second: u16,
        end: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            node,
            clustered,
            clients_per_second: PerSecond(clients_per_second.into()),
            end,
            course: Mutex::default(),
        }
    }

    /// Begins to send the clients elsewhere, and to give up the lead of shards.
    ///
    /// # Errors
    /// The node leaves; nobody is there to take its clients; or the system gives no thread.
    pub(crate) fn drain(self: &Arc<Self>) -> Result<(), Refusal> {
        let mut course = self.course.lock();
        if course.leaves {
            return Err(Refusal::Conflict("this node leaves".to_owned()));
        }
        self.check_successors()?;
        self.clustered.cluster().set_state(State::Draining);
        course.is_recalled = false;
        self.begin(&mut course)
    }

    /// Lets clients in again, and lets the node lead shards. Does nothing if it is not drained.
    ///
    /// # Errors
    /// The node leaves.
    pub(crate) fn end_drain(&self) -> Result<(), Refusal> {
        let mut course = self.course.lock();
        if course.leaves {
            return Err(Refusal::Conflict("this node leaves".to_owned()));
        }
        if course.drains {
            // Its thread would shut them out again.
            course.is_recalled = true;
        } else if self.is_drained() {
            self.open();
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        let cluster = self.clustered.cluster();
        let members = cluster.members();
        let own = members.nodes.get(&cluster.node());
        own.is_some_and(|member| member.state == State::Draining)
    }

    /// With [`Self::course`] locked.
    fn open(&self) {
        all_loops(self.node.rim.loops(), LoopMessage::EndDrain);
        self.clustered.cluster().set_state(State::Up);
        tracing::info!("the drain of this node has ended: it accepts clients");
    }

    /// Begins to drain, and then to give the replicas to others.
    ///
    /// # Errors
    /// Nobody is there to take them; or the system gives no thread.
    pub(crate) fn leave(self: &Arc<Self>) -> Result<(), Refusal> {
        let mut course = self.course.lock();
        if course.leaves {
            return Ok(());
        }
        self.check_successors()?;
        self.clustered.cluster().set_state(State::Leaving);
        course.leaves = true;
        course.is_recalled = false;
        self.begin(&mut course)
    }

    fn check_successors(&self) -> Result<(), Refusal> {
        if successors(&self.clustered).is_empty() {
            return Err(Refusal::Conflict(
                "no other node is up that could take over from this one".to_owned(),
            ));
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, course: &mut Course) -> Result<(), Refusal> {
        if course.drains {
            return Ok(());
        }
        let drain = Arc::clone(self);
        thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || drain.run())
            .map_err(|error| Refusal::Unavailable(error.to_string()))?;
        course.drains = true;
        Ok(())
    }

    fn run(&self) {
        let is_recalled = || self.course.lock().is_recalled;
        send_away(&self.node, &self.clustered, 0);
        await_other_leaders(&self.node, &self.clustered, LEAD, is_recalled);
        self.empty();
        let leaves = {
            let mut course = self.course.lock();
            course.drains = course.leaves;
            if std::mem::take(&mut course.is_recalled) {
                self.open();
            } else {
                tracing::info!("this node is drained: it has no clients");
            }
            course.leaves
        };
        if leaves {
            self.give_up_replicas();
            self.be_forgotten();
            (self.end)();
        }
    }

    /// Sends all clients away, as many in a second as is configured.
    fn empty(&self) {
        let mut pace = Pace::new(self.clients_per_second);
        while self.node.connected.load(Ordering::Relaxed) > 0 && !self.course.lock().is_recalled {
            send_away(&self.node, &self.clustered, pace.step());
            sleep(STEP);
        }
    }

    /// Waits until other nodes have all shards, and until what the last clients asked for is done.
    fn give_up_replicas(&self) {
        let mut said: Option<Instant> = None;
        loop {
            let here = self.shards_here();
            if here == 0 {
                break;
            }
            if said.is_none_or(|said| said.elapsed() >= SAY) {
                tracing::info!(
                    shards = here,
                    others = successors(&self.clustered).len(),
                    "this node leaves when the other nodes have its shards"
                );
                said = Some(Instant::now());
            }
            sleep(STEP);
        }
        let deadline = Instant::now() + LAST_REQUESTS;
        while broker_core::sum(&self.node.stats, |s| &s.pending) > 0 && Instant::now() < deadline {
            sleep(STEP);
        }
    }

    /// Shards that have a replica here, or may have one.
    fn shards_here(&self) -> usize {
        let store = self.node.store();
        let own = store.node();
        let all = store.shards().len();
        let leads = store.leads();
        let elsewhere = leads.iter().filter(|(leader, lead)| {
            *leader != own && !lead.voters.contains(&own) && !lead.learners.contains(&own)
        });
        all - elsewhere.count()
    }

    /// Has the other nodes forget this one. Their answers are lost with the connections, which end then; that
    /// this node is refused is the proof.
    fn be_forgotten(&self) {
        self.clustered.expect_to_be_shut_out();
        while !self.clustered.is_forgotten() {
            let answers: Vec<Result<(), Refusal>> = successors(&self.clustered)
                .into_iter()
                .map(|member| control::ask_to_forget(&self.clustered, member.node))
                .collect();
            let deadline = Instant::now() + SAY;
            while !self.clustered.is_forgotten() && Instant::now() < deadline {
                sleep(STEP);
            }
            if !self.clustered.is_forgotten() {
                tracing::warn!(?answers, "no other node has removed this one yet");
            }
        }
        tracing::info!("this node has left its cluster; it stops");
    }
}

/// Before a node stops: others lead its shards, if they can, and its clients are told of another node.
pub(crate) fn hand_over(node: &Node, clustered: &Clustered) {
    clustered.cluster().set_state(State::Stopping);
    if successors(clustered).is_empty() {
        return;
    }
    send_away(node, clustered, 0);
    await_other_leaders(node, clustered, LEAD_AT_END, || false);
}

/// Lets no client in any more, and sends so many away.
pub(crate) fn send_away(node: &Node, clustered: &Clustered, clients: usize) {
    let elsewhere = clustered.next_of(
        successors(clustered)
            .into_iter()
            .filter_map(|mut member| member.info.remove(MQTT))
            .collect(),
    );
    let permits = Arc::new(AtomicUsize::new(clients));
    all_loops(node.rim.loops(), |done| LoopMessage::SendAway {
        why: SendAway::Drain,
        permits: Arc::clone(&permits),
        elsewhere: elsewhere.clone(),
        done,
    });
}

/// Waits until this node leads nothing, for a while; not if nobody else can lead, or it is called back.
pub(crate) fn await_other_leaders(
    node: &Node,
    clustered: &Clustered,
    patience: Duration,
    is_recalled: impl Fn() -> bool,
) {
    let deadline = Instant::now() + patience;
    let leads = || {
        node.store()
            .stats(mqtt_session::Timestamp(0))
            .stores
            .iter()
            .any(|(_, store)| store.led > 0)
    };
    while leads()
        && Instant::now() < deadline
        && !successors(clustered).is_empty()
        && !is_recalled()
    {
        sleep(STEP);
    }
}

/// The other members that serve, as far as they can be reached.
pub(crate) fn successors(clustered: &Clustered) -> Vec<Member> {
    let cluster = clustered.cluster();
    let members = cluster.members();
    let own = cluster.node();
    let serves = |member: &&Member| {
        member.node != own && member.state == State::Up && member.reach == Reach::Up
    };
    members.nodes.values().filter(serves).cloned().collect()
}
