//! The replica of a shard on this node: its beginning, its place among the others, its end.
//!
//! A node has a replica of a shard if it founded it, or if the leader has made it a member; it removes it
//! when it is a member no more. While this node leads, the keeper also says which nodes are gone, and has
//! the replicas placed as `placement.rs` wants them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Birth, ChangeError, Group, GroupOptions, Progress, Standing};
use store_state::Ticket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::command::Command;
use crate::kind::Kind;
use crate::neighbours::{Member, Names};
use crate::node::{Stop, is_full};
use crate::placement::{Place, Placed, Situation, Step};
use crate::shard::{Duty, Replica, Shard, Written, checkpoint, write_checkpoint};
use crate::starting::{Means, OVERHEAD, single, work};

/// Entries of a shard that stay in the log behind its checkpoint, whoever may want them: a thousand entries
/// can be half a gigabyte.
const LOG_KEPT: u64 = 0;

/// How often a keeper looks after its shard.
const LOOK: Duration = Duration::from_millis(500);

/// How long a node is not heard until what it had connected is closed.
const GONE_AFTER: Duration = Duration::from_secs(4);

/// How long a change of members may take until the keeper looks after other things.
const CHANGE: Duration = Duration::from_secs(10);

/// How long this node waits for another one to lead before it ends.
const HAND_OVER: Duration = Duration::from_secs(2);

/// How long a replica stays that is not a member: whoever says so may not be up to date.
const FAREWELL: Duration = Duration::from_secs(10);

/// How old may be what a leader says of its members.
const NEWS: Duration = Duration::from_secs(3);

/// How long a majority may be silent before a leader serves no more. It takes no proposals then, and believes
/// that it knows the routes of the shard: others wait for 3 s until they go on without it.
const MAJORITY_SILENT: Duration = Duration::from_millis(1_500);

/// Entries that a learner may lack when it begins to vote.
const LAG: u64 = 64;

/// Looks after one shard.
pub(crate) struct Keeper<M: Kind> {
    shard: Arc<Shard<M>>,
    means: Arc<Means>,
    invited: mpsc::Receiver<()>,
    /// Writes checkpoints of the replica.
    checkpoints: Option<JoinHandle<Written>>,
    /// Says what the replica is to do.
    duty: Option<JoinHandle<()>>,
    /// The replica that is here has not begun: nobody has confirmed the data folder yet.
    waits: bool,
    /// Since when the leader has not had the replica as a member, and how often one had sent it something.
    left_out: Option<(Instant, u64)>,
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

impl<M: Kind> Keeper<M> {
    pub(crate) fn new(
        shard: Arc<Shard<M>>,
        means: Arc<Means>,
        invited: mpsc::Receiver<()>,
    ) -> Self {
        Self {
            shard,
            means,
            invited,
            checkpoints: None,
            duty: None,
            waits: false,
            left_out: None,
        }
    }

    /// Begins with the replica that is here, or that is to be founded here; later, if nobody has confirmed the data
    /// folder yet.
    ///
    /// # Errors
    /// What is here cannot be used.
    pub(crate) async fn begin(&mut self) -> Result<(), String> {
        let peers = self.means.neighbours.peers.as_ref();
        self.waits = peers.is_some_and(|peers| !*peers.admitted().borrow());
        match self.waits {
            true => Ok(()),
            false => self.recover().await,
        }
    }

    async fn recover(&mut self) -> Result<(), String> {
        let is_here = self.means.log.has_replica(self.shard.group());
        if !is_here && !self.means.founds {
            return Ok(());
        }
        let group = self.open(Birth::Alone).await?;
        if self.means.neighbours.peers.is_none() {
            group.recovered().await.map_err(|error| error.to_string())?;
            self.record_start(&group).await?;
        }
        self.serve(group);
        Ok(())
    }

    async fn open(&self, birth: Birth) -> Result<Group<Command>, String> {
        let number = u64::from(self.shard.number);
        let tables = self.means.tables_of::<M>();
        let table = tables.shard(number).map_err(|error| error.to_string())?;
        let durable = self.shard.load(table, &self.means.listener)?;
        let replica = Replica {
            shard: Arc::clone(&self.shard),
            listener: Arc::clone(&self.means.listener),
            durable,
        };
        let options = GroupOptions {
            keep: LOG_KEPT,
            ..GroupOptions::default()
        };
        let group = Group::start(
            self.shard.group(),
            self.shard.place.node,
            &self.means.log,
            replica,
            self.means.network(),
            birth,
            &options,
        );
        group.await.map_err(|error| error.to_string())
    }

    /// What an earlier process of this node had connected is closed.
    async fn record_start(&self, group: &Group<Command>) -> Result<(), String> {
        let Some(op) = self.means.node_up::<M>() else {
            return Ok(());
        };
        let batch = single(op, &*self.means.listener);
        let applied = match group.propose(M::command(Arc::new(batch))).await {
            Ok(proposal) => proposal.await,
            Err(error) => Err(error),
        };
        applied.map(drop).map_err(|error| error.to_string())
    }

    fn serve(&mut self, group: Group<Command>) {
        let group = Arc::new(group);
        let checkpoints = checkpoint(
            Arc::clone(&self.shard),
            Arc::clone(&group),
            self.means.stopping.clone(),
        );
        self.checkpoints = Some(tokio::spawn(checkpoints));
        self.left_out = None;
        self.shard
            .place
            .group
            .send_replace(Some(Arc::clone(&group)));
        self.duty = Some(tokio::spawn(watch_duty(Arc::clone(&self.shard), group)));
    }

    /// Looks after the shard until the node ends.
    pub(crate) async fn run(mut self) -> Self {
        let mut stopping = self.means.stopping.clone();
        let mut look = interval(LOOK);
        let mut members = self.means.neighbours.members.subscribe();
        let mut ended = BTreeSet::new();
        let peers = self.means.neighbours.peers.as_ref();
        let mut admitted = peers.map(|peers| peers.admitted());
        loop {
            tokio::select! {
                biased;
                () = stops(&mut stopping) => break,
                () = is_admitted(admitted.as_mut()), if self.waits => {
                    self.waits = false;
                    if let Err(error) = self.recover().await {
                        self.shard.tell_damage(&error);
                    }
                }
                Some(()) = self.invited.recv() => self.accept().await,
                // The sender lives as long as the means.
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
        if self.group().is_some() {
            return;
        }
        match self.open(Birth::Invited).await {
            Ok(group) => self.serve(group),
            Err(error) => {
                tracing::error!(
                    store = M::NAME,
                    shard = self.shard.number,
                    error,
                    "a replica cannot be made"
                );
                self.shard.close();
            }
        }
    }

    fn group(&self) -> Option<Arc<Group<Command>>> {
        self.shard.place.group.borrow().clone()
    }

    async fn look_after(&mut self) {
        let Some(group) = self.group() else {
            return;
        };
        let standing = group.watch().borrow().clone();
        // A leader that was handing over sends nothing: if others then went on without it, nobody answers that they
        // have.
        if self.is_left_out(&group) {
            drop(group);
            self.remove().await;
        } else if standing.leads {
            // Whom nobody hears says nothing of others, now or later.
            if self.shard.place.duty.borrow().leads {
                self.declare_gone();
            }
            self.place(&group, &standing).await;
        }
    }

    /// Closes what nodes have connected that are gone. Whom only this node does not hear is not.
    fn declare_gone(&self) {
        let neighbours = &self.means.neighbours;
        let listener = &self.means.listener;
        let (now, clock) = (listener.now_ms(), listener.clock_ms());
        let members = neighbours.members.borrow().clone();
        for member in members.iter().filter(|member| is_gone(member, clock)) {
            if neighbours.is_reached_by_others(member.node) {
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
                self.shard.give(work(Ticket::NONE, op, true), OVERHEAD);
            }
        }
    }

    /// Takes the next step towards the members and the leader that the shard should have.
    async fn place(&self, group: &Group<Command>, standing: &Standing) {
        let Some(own) = self.placed(standing) else {
            return;
        };
        let wanted = self.means.voters_of::<M>();
        let step = if standing.members.voters.len() > 1 {
            // An earlier leader did not get to the end of it.
            Some(Step::ChangeVoters(own.voters.clone()))
        } else {
            self.situation(&own).next_step(&own, wanted)
        };
        let Some(step) = step else {
            return;
        };
        let outcome = timeout(CHANGE, self.take_step(group, standing, &own, &step)).await;
        if let Ok(Err(error)) = outcome {
            tracing::debug!(
                store = M::NAME,
                shard = self.shard.number,
                ?step,
                %error,
                "a change of members has to be tried again"
            );
        }
        self.means.neighbours.tell();
    }

    async fn take_step(
        &self,
        group: &Group<Command>,
        standing: &Standing,
        own: &Placed,
        step: &Step,
    ) -> Result<(), ChangeError> {
        match step {
            Step::AddLearner(node) => {
                tracing::info!(
                    store = M::NAME,
                    shard = self.shard.number,
                    node = format_args!("{node:016x}"),
                    "a new replica"
                );
                group.add_learner(*node).await
            }
            Step::ChangeVoters(voters) => {
                // In a change that an earlier leader has begun they vote already, and one of them may be gone
                // for good: it is replaced afterwards.
                let has_begun = standing.members.voters.len() > 1;
                let can_vote = group.progress().is_some_and(|progress| {
                    can_vote(&progress, &own.voters, voters, self.shard.place.node)
                });
                if !has_begun && !can_vote {
                    return Ok(());
                }
                tracing::info!(
                    store = M::NAME,
                    shard = self.shard.number,
                    voters = %Names(voters),
                    "other replicas vote"
                );
                group.change_voters(voters.clone()).await
            }
            Step::RemoveLearner(node) if standing.members.contains(*node) => {
                group.remove(*node).await
            }
            Step::RemoveLearner(_) => Ok(()),
            Step::Transfer(node) => {
                if !group.progress().is_some_and(|p| has_caught_up(&p, *node)) {
                    return Ok(());
                }
                tracing::info!(
                    store = M::NAME,
                    shard = self.shard.number,
                    node = format_args!("{node:016x}"),
                    "another leader"
                );
                group.transfer_leader(*node).await
            }
        }
    }

    /// This shard as it is, or is about to be; `None`: it has no members yet.
    fn placed(&self, standing: &Standing) -> Option<Placed> {
        let [.., voters] = standing.members.voters.as_slice() else {
            return None;
        };
        Some(Placed {
            shard: (M::NUMBER as u8, self.shard.number),
            leader: self.shard.place.node,
            voters: voters.clone(),
            learners: standing.members.learners.clone(),
        })
    }

    fn situation(&self, own: &Placed) -> Situation {
        let neighbours = &self.means.neighbours;
        let now = self.means.listener.clock_ms();
        let members = neighbours.members.borrow().clone();
        let own_node = self.shard.place.node;
        let is_reached = |node: u64| node == own_node || neighbours.is_linked(node);
        let health = neighbours.own_health(is_full(&self.means.log.watch().borrow()));
        let strains = neighbours.strains(own_node, &health);
        let place = |member: &Member| Place {
            node: member.node,
            is_up: member.is_up && is_reached(member.node),
            role: member.role,
            down_for: Duration::from_millis(now.saturating_sub(member.last_heard_ms)),
            strain: strains.of(member.node),
        };
        let mut shards: Vec<Placed> = neighbours
            .leads()
            .into_iter()
            .map(|(leader, lead)| Placed {
                shard: (lead.store, lead.shard),
                leader,
                voters: lead.voters,
                learners: lead.learners,
            })
            .filter(|placed| placed.shard != own.shard)
            .collect();
        shards.push(own.clone());
        Situation {
            places: members.iter().map(place).collect(),
            shards,
            replace_after: self.means.replace_after,
        }
    }

    /// Whether the leader has not had this replica as a member for a while; it answers no leader any more then.
    fn is_left_out(&mut self, group: &Group<Command>) -> bool {
        let id = (M::NUMBER as u8, self.shard.number);
        let node = self.shard.place.node;
        let contacts = group.contacts();
        let lead = self.means.neighbours.lead_within(id, NEWS);
        let is_left_out = lead.is_some_and(|(leader, lead)| {
            leader != node
                && lead.reign.term >= group.followed_term()
                && !lead.voters.contains(&node)
                && !lead.learners.contains(&node)
        });
        let known = self.left_out.filter(|(_, known)| *known == contacts);
        self.left_out = is_left_out.then(|| known.unwrap_or((Instant::now(), contacts)));
        self.left_out
            .is_some_and(|(since, _)| since.elapsed() >= FAREWELL && group.retire(contacts))
    }

    /// The shard goes on without this node.
    async fn remove(&mut self) {
        self.left_out = None;
        self.close().await;
        let number = u64::from(self.shard.number);
        let forgotten = self.means.log.delete_group(self.shard.group()).await;
        let tables = self.means.tables_of::<M>();
        let removed = tables.remove(number);
        tracing::info!(
            store = M::NAME,
            shard = self.shard.number,
            log = forgotten.err().map(tracing::field::display),
            tables = removed.err().map(tracing::field::display),
            "the replica here is removed: other nodes have the shard"
        );
    }

    /// Ends the replica.
    async fn close(&mut self) {
        self.end_duty().await;
        let group = self.shard.place.group.send_replace(None);
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.abort();
            let _ = checkpoints.await;
        }
        shut_down(group).await;
        self.shard.close();
    }

    async fn end_duty(&mut self) {
        if let Some(duty) = self.duty.take() {
            duty.abort();
            let _ = duty.await;
        }
        self.shard.place.duty.send_replace(Duty::default());
    }

    /// Before this node ends: another one leads.
    async fn hand_over(&self) {
        let Some(group) = self.group() else {
            return;
        };
        let mut standing = group.watch();
        let successor = group.progress().and_then(|progress| {
            let members = standing.borrow().members.clone();
            let others = progress.next.into_iter();
            let voters = others.filter(|(node, _)| members.has_voter(*node));
            let linked = voters.filter(|(node, _)| self.means.neighbours.is_linked(*node));
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
        let Some(group) = self.group() else {
            return;
        };
        // The checkpoint under way is waited for: a second one beside it would be of a part only.
        if let Some(checkpoints) = self.checkpoints.take()
            && !matches!(checkpoints.await, Ok(Written::GivenUp) | Err(_))
        {
            write_checkpoint(&self.shard, &group, &self.means.stopping).await;
        }
        self.end_duty().await;
        self.shard.place.group.send_replace(None);
        shut_down(Some(group)).await;
    }
}

/// Says what a replica is to do. A leader that no majority answers lets others say so: what it is asked
/// may never be done.
async fn watch_duty<M: Kind>(shard: Arc<Shard<M>>, group: Arc<Group<Command>>) {
    let mut standing = group.watch();
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            changed = standing.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = look.tick() => {}
        }
        let Standing { leads, term, .. } = *standing.borrow_and_update();
        let silence = group.majority_silence();
        let duty = Duty {
            leads: leads && silence.is_none_or(|silence| silence < MAJORITY_SILENT),
            term,
        };
        shard.place.duty.send_if_modified(|known| {
            let is_new = *known != duty;
            *known = duty;
            is_new
        });
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

/// Whether another node has the log, but for a few entries.
fn has_caught_up(progress: &Progress, node: u64) -> bool {
    let next = progress.next.get(&node);
    next.is_some_and(|next| *next > 0 && next + LAG >= progress.log_next)
}

/// Whether other voters can take over at once: all new ones have the log, and a majority of all. One that votes
/// already and is down keeps nobody waiting. `own`: the leader.
fn can_vote(progress: &Progress, now: &BTreeSet<u64>, wanted: &BTreeSet<u64>, own: u64) -> bool {
    let has_log = |node: &&u64| **node == own || has_caught_up(progress, **node);
    wanted.difference(now).all(|node| has_log(&node))
        && 2 * wanted.iter().filter(has_log).count() > wanted.len()
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
    tracing::warn!("a group is still in use when it ends");
}

/// Waits until the store ends.
async fn stops(stopping: &mut watch::Receiver<Stop>) {
    // An error: the store itself is gone.
    let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
}

/// Waits until the shard is served here.
pub(crate) async fn served<M: Kind>(shard: &Shard<M>) {
    let mut seat = shard.place.seat.subscribe();
    let node = shard.place.node;
    // An error: the shard is gone.
    let _ = seat.wait_for(|seat| seat.leader == node).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(next: &[(u64, u64)]) -> Progress {
        Progress {
            next: next.iter().copied().collect(),
            log_next: 10_000,
        }
    }

    fn voters(nodes: &[u64]) -> BTreeSet<u64> {
        nodes.iter().copied().collect()
    }

    #[test]
    fn new_voters_have_the_log_and_old_ones_may_be_down() {
        let now = voters(&[1, 2, 3]);
        let of = |next: &[(u64, u64)], wanted: &[u64], own| {
            can_vote(&progress(next), &now, &voters(wanted), own)
        };
        // Node 1 leads and leaves, node 2 is down.
        let next = &[(2, 5), (3, 10_000), (4, 10_000)];
        assert!(of(next, &[2, 3, 4], 1));
        // Of these two one has the log.
        assert!(!of(next, &[1, 2], 3));
        assert!(!of(&[(2, 10_000), (3, 10_000), (4, 5)], &[2, 3, 4], 1));
        assert!(!of(&[(2, 5), (3, 5), (4, 10_000)], &[2, 3, 4], 1));
        // It has said nothing yet.
        assert!(!of(&[(2, 10_000), (3, 10_000), (4, 0)], &[2, 3, 4], 1));
        assert!(!of(&[(2, 10_000), (3, 10_000)], &[2, 3, 4], 1));
    }
}
