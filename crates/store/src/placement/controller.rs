//! The replica of a shard on this node: its beginning, its place among the others, its end.
//!
//! A node has a replica of a shard if it founded the shard, or if the leader has made the node a member; the controller removes the
//! replica when the node is a member no more. While this node leads, the controller also says which nodes are gone, and changes the
//! members towards what `rules.rs` wants (`members.rs`).
//!
//! A replica whose tables are damaged is closed: it neither leads, votes nor acknowledges until it is made anew from what other
//! replicas have (`mending.rs`); if there are none, its log and its tables stay as they are.
//!
//! Invariant: a replica that is removed has been told so by a leader, and has answered no other one since.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Birth, Group, GroupOptions, Mark, Origin, StartError};
use control::Revision;
use store_state::CorrelationId;
use store_state::api::StoreId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::kinds::command::Command;
use crate::kinds::group::shard_of_group;
use crate::kinds::kind::Kind;
use crate::leadership::first_election::elect_first;
use crate::leadership::state::Leadership;
use crate::leadership::watch::watch_leadership;
use crate::node::services::NodeServices;
use crate::node::shutdown::stops;
use crate::peers::member::Member;
use crate::placement::healing::Comparisons;
use crate::placement::mending::{Mending, OpenError};
use crate::shard::apply::Replica;
use crate::shard::checkpoint::{Written, checkpoint, write_checkpoint};
use crate::shard::handle::Shard;
use crate::shard::request::{OVERHEAD, single, work};
use crate::storage::snapshot::TableOwner as _;

/// Entries of a shard that stay in the log behind its checkpoint, whoever may want them: a thousand entries
/// can be half a gigabyte.
const LOG_KEPT: u64 = 0;

/// How often a controller looks after its shard.
const LOOK: Duration = Duration::from_millis(500);

/// How long a node is not heard until what it had connected is closed.
const GONE_AFTER: Duration = Duration::from_secs(4);

/// How long this node waits for another one to lead before it ends.
const HAND_OVER: Duration = Duration::from_secs(2);

/// How long a replica stays that is not a member: whoever says so may not be up to date.
const FAREWELL: Duration = Duration::from_secs(10);

/// How old may be what a leader says of its members.
pub(super) const NEWS: Duration = Duration::from_secs(3);

/// Looks after one shard.
pub(crate) struct ReplicaController<M: Kind> {
    pub(super) shard: Arc<Shard<M>>,
    pub(super) services: Arc<NodeServices>,
    pub(super) invited: mpsc::Receiver<()>,
    /// Writes checkpoints of the replica.
    pub(super) checkpoints: Option<JoinHandle<Written>>,
    /// Says what the replica is to do.
    pub(super) leadership: Option<JoinHandle<()>>,
    /// Has the replica campaign that was just split off.
    pub(super) election: Option<JoinHandle<()>>,
    /// The replica that is here has not begun: nobody has confirmed the data folder yet.
    pub(super) waits: bool,
    /// The start of this process is in the log of the replica, or it was asked for.
    pub(super) has_recorded_start: bool,
    /// Since when this node leads the shard.
    pub(super) led_since: Option<Instant>,
    /// Since when the leader has not had the replica as a member, and how often one had sent it something.
    pub(super) left_out: Option<(Instant, u64)>,
    pub(super) comparisons: Comparisons,
    pub(super) mending: Mending,
}

/// Returns when the replicas of this node may begin.
async fn is_admitted(admitted: Option<&mut watch::Receiver<bool>>) {
    if let Some(admitted) = admitted {
        // An error: the cluster has ended, and lets nobody in any more.
        if admitted.wait_for(|admitted| *admitted).await.is_err() {
            std::future::pending().await
        }
    }
}

impl<M: Kind> ReplicaController<M> {
    pub(crate) fn new(
        shard: Arc<Shard<M>>,
        services: Arc<NodeServices>,
        invited: mpsc::Receiver<()>,
    ) -> Self {
        Self {
            shard,
            services,
            invited,
            checkpoints: None,
            leadership: None,
            election: None,
            waits: false,
            has_recorded_start: false,
            led_since: None,
            left_out: None,
            comparisons: Comparisons::default(),
            mending: Mending::default(),
        }
    }

    /// Begins with the replica that is here, or that is to be founded here; later, if nobody has confirmed the data
    /// folder yet.
    ///
    /// # Errors
    /// What is here cannot be used.
    pub(crate) async fn begin(&mut self) -> Result<(), String> {
        let peers = self.services.known_peers.network.as_ref();
        self.waits = peers.is_some_and(|peers| !*peers.admitted().borrow());
        match self.waits {
            true => Ok(()),
            false => self
                .recover_or_mend()
                .await
                .map_err(|error| error.to_string()),
        }
    }

    /// As [`recover`](Self::recover). A damaged table is no error if other nodes may have the shard.
    async fn recover_or_mend(&mut self) -> Result<(), OpenError> {
        match self.recover().await {
            Err(OpenError::Table(what)) if self.services.known_peers.network.is_some() => {
                let (shard, services) = (&self.shard, &self.services);
                self.mending.handle_found(shard, services, what);
                Ok(())
            }
            recovered => recovered,
        }
    }

    async fn recover(&mut self) -> Result<(), OpenError> {
        let is_here = self.services.log.has_replica(self.shard.group());
        let founds = self.services.founds && self.shard.is_first() && !M::BEGINS_LATER;
        let is_founded = is_here || founds;
        if !is_founded || self.unborn().map_err(OpenError::Other)?.is_some() {
            return Ok(());
        }
        let left = self.leave_terms_behind().await;
        left.map_err(OpenError::Other)?;
        // One that its log says is no member any more was to be removed when the process ended, or still is a member if that
        // was never committed: it follows, and is removed if the leader says so as well.
        let birth = match is_here && self.services.known_peers.network.is_some() {
            true => Birth::Invited,
            false => Birth::Alone,
        };
        let group = self.open(birth).await?;
        if self.services.known_peers.network.is_none() {
            let recovered = async {
                group.recovered().await.map_err(|error| error.to_string())?;
                self.record_start(&group).await
            };
            tokio::select! {
                biased;
                // The log has an entry that needs what is damaged: it is never applied.
                what = self.shard.damage.found() => {
                    group.shutdown().await;
                    return Err(OpenError::Table(what));
                }
                recovered = recovered => recovered.map_err(OpenError::Other)?,
            }
            self.has_recorded_start = true;
            // Nobody else can have changed anything.
            if M::BEGINS_LATER {
                self.services.listener.control_confirmed(Revision(0));
            }
        }
        self.serve(group);
        Ok(())
    }

    /// The entry of the parent that makes again what the replica here begins with, when the parent is started: a crash came
    /// before that was in tables. `None`: the replica needs no parent.
    pub(super) fn unborn(&self) -> Result<Option<Origin>, String> {
        let origin = self.services.log.origin(self.shard.group());
        let origin = origin.map_err(|error| error.to_string())?;
        let tables = self.services.tables_of::<M>().shards();
        let tables = tables.map_err(|error| error.to_string())?;
        Ok(origin.filter(|_| !tables.contains(&u64::from(self.shard.number))))
    }

    /// Whether the replica of this node is to come from the parent's, which has not applied the split yet: one that came
    /// from elsewhere would be in its way.
    fn comes_from_parent(&self) -> Result<bool, String> {
        if self.unborn()?.is_some() {
            return Ok(true);
        }
        // Those that the store began with have none.
        let shards = self.shard.shards().filter(|_| !self.shard.is_first());
        let ancestors = shards.map(|shards| shards.ancestors(self.shard.number));
        let ancestors = ancestors.unwrap_or_default();
        let first_slot = self.shard.number;
        Ok(ancestors.iter().any(|ancestor| {
            let has_slot = ancestor.look_within(|_, own| own.contains(first_slot));
            // One that has not begun may be the parent.
            has_slot.unwrap_or_else(|| self.services.log.has_replica(ancestor.group()))
        }))
    }

    /// Deletes the group, but for its vote, if nothing will make again what the replica here begins with: the parent's is behind
    /// the entry already, by a snapshot, or it is gone. Then other members send it.
    async fn forget_orphan(&self) {
        let forgotten = match self.is_orphan() {
            Ok(false) => return,
            Ok(true) => {
                let deleted = self.services.log.delete_group(self.shard.group());
                deleted.await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error),
        };
        tracing::info!(
            store = M::NAME,
            shard = self.shard.number,
            error = forgotten.err(),
            "the data that the replica here would start from is gone: other nodes have to send it"
        );
    }

    fn is_orphan(&self) -> Result<bool, String> {
        // On a node that is alone nobody would send it, and no snapshot of the parent has come.
        if self.group().is_some() || self.services.known_peers.network.is_none() {
            return Ok(false);
        }
        let origin = self.unborn()?;
        Ok(origin.is_some_and(|origin| self.is_behind(origin)))
    }

    /// Whether no replica of the parent will apply an entry here any more, and what the entry makes is not waiting here.
    fn is_behind(&self, origin: Origin) -> bool {
        let applied = match shard_of_group(origin.parent.0) {
            Some((store, number)) if store == M::STORE => {
                let shards = self.shard.shards();
                let parent = shards.and_then(|shards| shards.get(number));
                parent.and_then(|parent| parent.applied_index())
            }
            Some((StoreId::Session, number)) => {
                let beginnings = self.services.beginnings.get();
                beginnings.and_then(|beginnings| beginnings.applied_by_session(number))
            }
            _ => None,
        };
        let is_applied = applied.is_some_and(|applied| applied >= origin.index.0);
        let is_gone = !self.services.log.has_replica(origin.parent.0);
        // What it makes is there before the entry counts as applied.
        (is_applied || is_gone) && !self.shard.has_seed()
    }

    /// What is here may be an old copy.
    async fn leave_terms_behind(&self) -> Result<(), String> {
        let (log, node) = (&self.services.log, self.shard.routing.node);
        let left = match self.services.accepts_folder {
            Some(term) => log.leave_terms_behind(self.shard.group(), node, term).await,
            None => Ok(()),
        };
        left.map_err(|error| error.to_string())
    }

    pub(super) async fn open(&self, birth: Birth) -> Result<Group<Command>, OpenError> {
        let number = u64::from(self.shard.number);
        let table = self.services.tables_of::<M>().shard(number)?;
        let durable = self.shard.open(table, &self.services.listener);
        let durable = durable.map_err(OpenError::Table)?;
        self.start(birth, durable).await
    }

    /// The parent's replica has made what the replica here begins with.
    async fn be_born(&mut self) {
        let seed = self.shard.take_seed();
        debug_assert!(seed.is_some(), "who is told of a seed finds it");
        if let Some(seed) = seed {
            let (by, mark) = (seed.by, seed.mark.clone());
            let is_to_lead = seed.is_parent_led_here;
            let may_seed = self.services.log.may_seed(self.shard.group(), by);
            if self.group().is_some() || matches!(may_seed, Ok(false)) {
                return seed.give_up();
            }
            self.shard.begin_with(seed, &self.services.listener);
            match self.start(Birth::Seeded(by), Some(mark)).await {
                Ok(group) => {
                    self.serve(group);
                    let group = self.group().filter(|_| is_to_lead);
                    self.election = group.map(|group| tokio::spawn(elect_first(group)));
                }
                Err(error) => self.shard.tell_damage(&error.to_string()),
            }
        }
    }

    async fn start(
        &self,
        birth: Birth,
        durable: Option<Mark>,
    ) -> Result<Group<Command>, OpenError> {
        let replica = Replica {
            shard: Arc::clone(&self.shard),
            listener: Arc::clone(&self.services.listener),
            services: Arc::clone(&self.services),
            durable,
        };
        let options = GroupOptions {
            keep: LOG_KEPT,
            writes_idle: self.services.known_peers.network.is_none(),
            ..GroupOptions::default()
        };
        let group = Group::start(
            self.shard.group(),
            self.shard.routing.node,
            &self.services.log,
            replica,
            self.services.network(),
            birth,
            &options,
        );
        group.await.map_err(|error| match error {
            StartError::Lost(_) => OpenError::Other(format!(
                "{error}. No other node has that; `heraldmq store recover DIR --accept-damage {}/{}` goes on without it",
                M::NAME,
                self.shard.number
            )),
            StartError::TablesTooOld { .. } => OpenError::Table(error.to_string()),
            error => OpenError::Other(error.to_string()),
        })
    }

    /// What an earlier process of this node had connected is closed.
    async fn record_start(&self, group: &Group<Command>) -> Result<(), String> {
        // The retain store knows of no connections.
        let Some(op) = self.services.node_up::<M>() else {
            return Ok(());
        };
        let standing = self.shard.standing();
        let level = standing.map_or(self.services.folder.level(), |(level, _)| level);
        let batch = single(op, &*self.services.listener, level);
        let applied = match group.propose(M::command(Arc::new(batch))).await {
            Ok(proposal) => proposal.await,
            Err(error) => Err(error),
        };
        applied.map(drop).map_err(|error| error.to_string())
    }

    pub(super) fn serve(&mut self, group: Group<Command>) {
        let group = Arc::new(group);
        let checkpoints = checkpoint(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            Arc::clone(&self.services.tables[M::STORE]),
            self.services.stopping.clone(),
        );
        self.checkpoints = Some(tokio::spawn(checkpoints));
        self.shard.fault.clear();
        self.left_out = None;
        self.shard
            .routing
            .group
            .send_replace(Some(Arc::clone(&group)));
        self.leadership = Some(tokio::spawn(watch_leadership(
            Arc::clone(&self.shard),
            group,
        )));
        // A store that a cluster may not have is asked nothing before.
        if M::BEGINS_LATER
            && !self.has_recorded_start
            && let Some(op) = self.services.node_up::<M>()
        {
            self.has_recorded_start = true;
            let correlation_id = CorrelationId {
                peer: 0,
                loop_number: CorrelationId::THREADS,
                token: CorrelationId::NODE_UP,
            };
            self.shard.give(work(correlation_id, op, true), OVERHEAD);
        }
    }

    /// Looks after the shard until the node ends.
    pub(crate) async fn run(mut self) -> Self {
        let mut stopping = self.services.stopping.clone();
        let mut look = interval(LOOK);
        let mut members = self.services.known_peers.members.subscribe();
        let mut ended = BTreeSet::new();
        let peers = self.services.known_peers.network.as_ref();
        let mut admitted = peers.map(|peers| peers.admitted());
        loop {
            tokio::select! {
                biased;
                () = stops(&mut stopping) => break,
                what = self.shard.damage.found(), if self.group().is_some() => {
                    // From here on nothing is proposed here: what is asked waits for the next leader.
                    self.end_leadership().await;
                    self.hand_over().await;
                    self.close().await;
                    let (shard, services) = (&self.shard, &self.services);
                    self.mending.handle_found(shard, services, what);
                }
                () = is_admitted(admitted.as_mut()), if self.waits => {
                    self.waits = false;
                    if let Err(error) = self.recover_or_mend().await {
                        self.shard.tell_damage(&error.to_string());
                    }
                }
                () = self.shard.is_to_be_born() => self.be_born().await,
                Some(()) = self.invited.recv() => self.accept().await,
                // The sender lives as long as the services.
                Ok(()) = members.changed() => {
                    let now = have_ended(&members.borrow_and_update());
                    for node in now.difference(&ended) {
                        self.replace(*node).await;
                    }
                    ended = now;
                }
                _ = look.tick() => self.look_after().await,
            }
        }
        self.hand_over().await;
        self
    }

    /// A node's process has ended. If it led, nobody waits until it has been silent for long.
    async fn replace(&self, node: u64) {
        if let Some(group) = self.group() {
            group.presume_dead(node).await;
        }
    }

    /// A leader wants this node to have a replica.
    async fn accept(&mut self) {
        // What was damaged is damaged until it is mended.
        if self.group().is_some() || self.mending.is_damaged(&self.shard) {
            return;
        }
        self.forget_orphan().await;
        let opened = match self.comes_from_parent() {
            Ok(true) => return,
            Ok(false) => self.open_invited().await,
            Err(error) => Err(OpenError::Other(error)),
        };
        match opened {
            Ok(group) => self.serve(group),
            Err(error) => {
                let error = error.to_string();
                tracing::error!(
                    store = M::NAME,
                    shard = self.shard.number,
                    error,
                    "a replica cannot be created"
                );
                self.shard.fault.note(&error);
                self.shard.close();
            }
        }
    }

    pub(super) fn group(&self) -> Option<Arc<Group<Command>>> {
        self.shard.routing.group.borrow().clone()
    }

    async fn look_after(&mut self) {
        // This node has no replica of the shard that runs.
        let Some(group) = self.group() else {
            match self.mending.is_damaged(&self.shard) {
                true => self.mend().await,
                false => self.forget_orphan().await,
            }
            return;
        };
        let standing = group.watch().borrow().clone();
        let unreadable = group.unreadable().filter(|_| !standing.leads);
        self.note_unreadable(unreadable);
        self.mending.look_after(&self.shard, &group);
        self.led_since = match self.led_since {
            since if standing.leads => since.or(Some(Instant::now())),
            _ => None,
        };
        // A leader that was handing over sends nothing: if others then went on without it, nobody answers that they
        // have.
        if self.is_left_out(&group) {
            drop(group);
            self.remove().await;
        } else if standing.leads {
            // Whom nobody hears says nothing of others, now or later.
            if self.shard.routing.leadership.borrow().leads {
                self.declare_gone();
            }
            let shard = Arc::clone(&self.shard);
            tokio::select! {
                biased;
                // Then nothing is applied here any more, and a change of members would wait for ever.
                _ = shard.damage.found() => {}
                () = self.place(&group, &standing) => self.compare(group, &standing).await,
            }
        } else {
            self.compare(group, &standing).await;
        }
    }

    /// Says at each node that the replica here does not understand what its leader sends: an entry of a later program.
    fn note_unreadable(&self, unreadable: Option<String>) {
        match unreadable {
            None => self.shard.fault.clear(),
            Some(error) => {
                if self.shard.fault.note(&error) {
                    tracing::error!(
                        store = M::NAME,
                        shard = self.shard.number,
                        error,
                        "a replica cannot read what its leader sends, and falls behind"
                    );
                }
            }
        }
    }

    /// Closes what nodes have connected that are gone. Whom only this node does not hear is not.
    fn declare_gone(&self) {
        let known_peers = &self.services.known_peers;
        let listener = &self.services.listener;
        let (now, clock) = (listener.now_ms(), listener.clock_ms());
        let members = known_peers.members.borrow().clone();
        for member in members.iter().filter(|member| is_gone(member, clock)) {
            if known_peers.is_reached_by_others(member.node) {
                continue;
            }
            let known = self.shard.look(|machine| machine.incarnation(member.node));
            // A node of which the shard has not heard has nothing connected in it.
            if known.is_none_or(|known| known == 0 || known > member.incarnation) {
                continue;
            }
            let silent = clock.saturating_sub(member.last_heard_ms);
            let last_alive = now.saturating_sub(silent);
            if let Some(op) = M::node_up(member.node, member.incarnation + 1, last_alive) {
                // It ends with the leadership: this node may have stood still, and the others have gone on without it.
                let found = work(CorrelationId::LEADER, op, true);
                self.shard
                    .routing
                    .while_here(|| self.shard.give(found, OVERHEAD));
            }
        }
    }

    /// Whether the leader has not had this replica as a member for a while; it answers no leader any more then.
    fn is_left_out(&mut self, group: &Group<Command>) -> bool {
        let id = (M::STORE, self.shard.number);
        let node = self.shard.routing.node;
        let contacts = group.contacts();
        let lead = self.services.known_peers.lead_within(id, NEWS);
        let is_left_out = lead.is_some_and(|(leader, lead)| {
            leader != node
                && lead.leadership_epoch.term >= group.followed_term()
                && !lead.voters.contains(&node)
                && !lead.learners.contains(&node)
        });
        let known = self.left_out.filter(|(_, known)| *known == contacts);
        self.left_out = is_left_out.then(|| known.unwrap_or((Instant::now(), contacts)));
        // What a child begins with is here only.
        let is_needed = self.shard.is_seeding();
        self.left_out.is_some_and(|(since, _)| {
            since.elapsed() >= FAREWELL && !is_needed && group.retire(contacts)
        })
    }

    /// The shard goes on without this node.
    async fn remove(&mut self) {
        self.left_out = None;
        let parent = self.shard.leave_parent();
        self.close().await;
        if parent.is_some() {
            self.shard.is_written().await;
        }
        let number = u64::from(self.shard.number);
        let forgotten = self.services.log.delete_group(self.shard.group()).await;
        let tables = self.services.tables_of::<M>();
        let removed = tables.remove(number);
        tracing::info!(
            store = M::NAME,
            shard = self.shard.number,
            log = forgotten.err().map(tracing::field::display),
            tables = removed.err().map(tracing::field::display),
            "the replica here is removed: other nodes have the shard"
        );
        self.shard.fault.clear();
        self.shard.recovery.clear();
        if let Some(parent) = parent {
            parent.is_seeded();
        }
    }

    /// Ends the replica.
    pub(super) async fn close(&mut self) {
        self.end_leadership().await;
        let group = self.shard.routing.group.send_replace(None);
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.abort();
            let _ = checkpoints.await;
        }
        shut_down(group).await;
        self.shard.close();
    }

    async fn end_leadership(&mut self) {
        if let Some(election) = self.election.take() {
            election.abort();
            let _ = election.await;
        }
        if let Some(leadership) = self.leadership.take() {
            leadership.abort();
            let _ = leadership.await;
        }
        self.shard
            .routing
            .leadership
            .send_replace(Leadership::default());
    }

    /// Before this node ends: another one leads.
    async fn hand_over(&self) {
        // This node has no replica of the shard, and so leads nothing.
        let Some(group) = self.group() else {
            return;
        };
        let mut standing = group.watch();
        let successor = group.progress().and_then(|progress| {
            let members = standing.borrow().members.clone();
            let others = progress.next.into_iter();
            let voters = others.filter(|(node, _)| members.has_voter(*node));
            let linked = voters.filter(|(node, _)| self.services.known_peers.is_linked(*node));
            linked.max_by_key(|(_, next)| *next)
        });
        if let Some((node, _)) = successor
            && group.transfer_leader(node).await.is_ok()
        {
            let gone = standing.wait_for(|standing| !standing.leads);
            let _ = timeout(HAND_OVER, gone).await;
        }
    }

    /// Writes a last checkpoint, and ends the replica.
    pub(crate) async fn finish(mut self) {
        // This node has no replica of the shard: nothing is to be written.
        let Some(group) = self.group() else {
            return;
        };
        // The checkpoint under way is waited for: a second one beside it would be of a part only.
        if let Some(checkpoints) = self.checkpoints.take()
            && !matches!(checkpoints.await, Ok(Written::Abandoned) | Err(_))
        {
            let tables = &self.services.tables[M::STORE];
            write_checkpoint(&self.shard, &group, tables, &self.services.stopping).await;
        }
        self.end_leadership().await;
        self.shard.routing.group.send_replace(None);
        shut_down(Some(group)).await;
    }
}

/// The nodes whose processes have ended.
fn have_ended(members: &[Member]) -> BTreeSet<u64> {
    let ended = members.iter().filter(|member| member.has_ended);
    ended.map(|member| member.node).collect()
}

fn is_gone(member: &Member, now_ms: u64) -> bool {
    let silent = now_ms.saturating_sub(member.last_heard_ms);
    !member.is_up && silent >= GONE_AFTER.as_millis() as u64
}

/// Ends a group when nobody uses it any more.
async fn shut_down(group: Option<Arc<Group<Command>>>) {
    let Some(mut group) = group else {
        return;
    };
    for _ in 0..200 {
        match Arc::try_unwrap(group) {
            Ok(group) => return group.shutdown().await,
            Err(used) => group = used,
        }
        sleep(Duration::from_millis(5)).await;
    }
    tracing::warn!("a consensus group is still in use when it ends");
}
