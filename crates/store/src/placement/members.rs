//! The leader of a shard changes its members, one step at a time.
//!
//! Invariant: a node votes only when it has the log, but for a few entries, so that a change of voters never leaves a shard without
//! a majority that can answer.

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::{ChangeError, Group, Progress, Standing};
use tokio::time::timeout;

use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::node::disk::is_full;
use crate::peers::member::{Member, Names};
use crate::placement::controller::ReplicaController;
use crate::placement::rules::{Place, Placed, Situation, Step};

/// How long a change of members may take until the controller looks after other things.
const CHANGE: Duration = Duration::from_secs(10);

/// How long a node leads a shard until the shard's load may move it: long enough for all nodes to know what it uses there.
pub(crate) const SETTLED: Duration = Duration::from_secs(60);

/// Entries that a learner may lack when it begins to vote.
const LAG: u64 = 64;

impl<M: Kind> ReplicaController<M> {
    /// Takes the next step towards the members and the leader that the shard should have.
    pub(super) async fn place(&self, group: &Group<Command>, standing: &Standing) {
        // A group that has just been created has no members yet; its first entry names them.
        let Some(own) = self.placed(standing) else {
            return;
        };
        let wanted = self.services.voters_of::<M>();
        let step = if standing.members.voters.len() > 1 {
            // An earlier leader did not get to the end of it.
            Some(Step::ChangeVoters(own.voters.clone()))
        } else {
            self.situation(&own).next_step(&own, wanted)
        };
        // Replicas and leader are as the rules want them.
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
        self.services.known_peers.tell();
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
                    "a shard gets a new replica"
                );
                group.add_learner(*node).await
            }
            Step::ChangeVoters(voters) => {
                // In a change that an earlier leader has begun they vote already, and one of them may be gone
                // for good: it is replaced afterwards.
                let has_begun = standing.members.voters.len() > 1;
                let can_vote = group.progress().is_some_and(|progress| {
                    can_vote(&progress, &own.voters, voters, self.shard.routing.node)
                });
                if !has_begun && !can_vote {
                    return Ok(());
                }
                tracing::info!(
                    store = M::NAME,
                    shard = self.shard.number,
                    voters = %Names(voters),
                    "the voters of a shard change"
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
                // It would let another one lead again before it is made anew, and so on, twice a second.
                if let [voters] = &standing.members.voters[..] {
                    let (own, comparison) = (self.shard.routing.node, &self.shard.comparison);
                    if comparison.differs(*node, own, voters) {
                        return Ok(());
                    }
                }
                tracing::info!(
                    store = M::NAME,
                    shard = self.shard.number,
                    node = format_args!("{node:016x}"),
                    "a shard gets another leader"
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
            shard: (M::STORE, self.shard.number),
            leader: self.shard.routing.node,
            voters: voters.clone(),
            learners: standing.members.learners.clone(),
            load: self.shard.load().map_or(Duration::ZERO, |load| load.cpu()),
            is_settled: self
                .led_since
                .is_some_and(|since| since.elapsed() >= SETTLED),
        })
    }

    fn situation(&self, own: &Placed) -> Situation {
        let known_peers = &self.services.known_peers;
        let now = self.services.listener.clock_ms();
        let members = known_peers.members.borrow().clone();
        let own_node = self.shard.routing.node;
        let is_reached = |node: u64| node == own_node || known_peers.is_linked(node);
        let health = known_peers.own_health(is_full(&self.services.log.watch().borrow()));
        let strains = known_peers.strains(own_node, &health);
        let place = |member: &Member| Place {
            node: member.node,
            is_up: member.is_up && is_reached(member.node),
            role: member.role,
            down_for: Duration::from_millis(now.saturating_sub(member.last_heard_ms)),
            strain: strains.of(member.node),
        };
        let mut shards: Vec<Placed> = known_peers
            .leads()
            .into_iter()
            .map(|(leader, lead)| Placed {
                shard: (lead.store, lead.shard),
                leader,
                voters: lead.voters,
                learners: lead.learners,
                load: known_peers.recent_load(leader, (lead.store, lead.shard)),
                // Its own leader decides about it.
                is_settled: true,
            })
            .filter(|placed| placed.shard != own.shard)
            .collect();
        shards.push(own.clone());
        Situation {
            places: members.iter().map(place).collect(),
            shards,
            replace_after: self.services.replace_after,
        }
    }
}

/// Whether another node has the log, but for a few entries.
fn has_caught_up(progress: &Progress, node: u64) -> bool {
    let next = progress.next.get(&node);
    next.is_some_and(|next| *next > 0 && next + LAG >= progress.log_next)
}

/// A voter of a shard that would not do at once what is agreed on: it is not reached, or lacks more than a few entries. `own`: the
/// leader.
pub(crate) fn find_late_voter(
    progress: &Progress,
    voters: &BTreeSet<u64>,
    own: u64,
    is_reached: impl Fn(u64) -> bool,
) -> Option<u64> {
    let mut others = voters.iter().copied().filter(|node| *node != own);
    others.find(|node| !is_reached(*node) || !has_caught_up(progress, *node))
}

/// Whether other voters can take over at once: all new ones have the log, and a majority of all. One that votes
/// already and is down keeps nobody waiting. `own`: the leader.
fn can_vote(progress: &Progress, now: &BTreeSet<u64>, wanted: &BTreeSet<u64>, own: u64) -> bool {
    let has_log = |node: &&u64| **node == own || has_caught_up(progress, **node);
    wanted.difference(now).all(|node| has_log(&node))
        && 2 * wanted.iter().filter(has_log).count() > wanted.len()
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
    fn a_voter_is_late_that_is_not_reached_or_lacks_entries() {
        let of = |next: &[(u64, u64)], reached: &[u64]| {
            let is_reached = |node| reached.contains(&node);
            find_late_voter(&progress(next), &voters(&[1, 2, 3]), 1, is_reached)
        };
        assert_eq!(of(&[(2, 10_000), (3, 9_936)], &[2, 3]), None);
        assert_eq!(of(&[(2, 10_000), (3, 9_935)], &[2, 3]), Some(3));
        assert_eq!(of(&[(2, 10_000), (3, 10_000)], &[3]), Some(2));
        assert_eq!(of(&[(3, 10_000)], &[2, 3]), Some(2));
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
