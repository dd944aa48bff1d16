//! A replica whose table is damaged is made anew from what the other replicas have, without a person.
//!
//! ```text
//! damage is found ─► the replica is closed ─► a leader elsewhere has the others confirm that they have all ─► the log is deleted,
//!   at a start, or while it serves                      the table is set aside ─► the leader sends the table ─► it is whole again
//! ```
//!
//! The closed replica tells the other nodes that it has stopped. The leader then puts an entry that compares replicas into the log,
//! and each replica that applies this entry says so: it has everything before it (`shard/comparison.rs`). The log of the closed
//! replica is deleted but for its vote and its end, so that it votes for no replica that lacks what was acknowledged here.
//!
//! Invariants: log and table stay as they are until a majority of the voters, without this one, has all entries of the log here;
//! another voter that is down, or that is damaged too, is no part of this majority. A replica without other nodes is not touched.
//!
//! A disk that damages the same replica again and again has it made anew after longer and longer pauses, [`PAUSES`].
//!
//! Deliberately absent: the comparison of replicas (`healing.rs`); damaged logs (`consensus`); a shard of two voters, in which the
//! other one can commit no entry alone, and a shard of which a majority is damaged: nobody leads these, and a person decides.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consensus::{Birth, Group};
use tokio::time::Instant;

use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::node::services::NodeServices;
use crate::placement::controller::{NEWS, ReplicaController};
use crate::placement::healing::{clear_table, tell};
use crate::shard::handle::Shard;
use crate::shard::recovery::{Recovery, RecoveryWait};
use crate::storage::digest::LogIndex;
use crate::storage::snapshot::TableOwner as _;
use crate::storage::tables::{Tables, TablesError};

/// How long a replica is left closed before it is made anew: the first time, the second, and so on; the last one from then on.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// After so long without damage, the pauses begin with the first one again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// How long after the first time the other nodes are asked again to confirm; each time twice as long.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// And how long at most.
const ASK_AGAIN_MOST: Duration = Duration::from_secs(60);

/// Why a replica could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Its table is damaged, or is not the one that the log belongs to.
    Table(String),
    /// Another reason.
    Other(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(what) | Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<TablesError> for OpenError {
    fn from(error: TablesError) -> Self {
        let what = error.to_string();
        match error {
            TablesError::Damaged { .. } => Self::Table(what),
            // The table may be whole.
            TablesError::Full { .. }
            | TablesError::Io { .. }
            | TablesError::StillOpen { .. }
            | TablesError::Exists { .. }
            | TablesError::KeyTooLong { .. } => Self::Other(what),
        }
    }
}

/// How often the replica was damaged, or could not be made anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Failures(usize);

/// How often the other nodes were asked to confirm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Questions(u32);

/// A replica that is closed since its table is damaged.
#[derive(Debug)]
struct Hurt {
    /// What is damaged.
    what: String,
    /// It is not made anew before.
    not_before: Instant,
    /// When the other nodes are asked again.
    ask_at: Instant,
    questions: Questions,
    /// What people were told that it waits for.
    told: Option<RecoveryWait>,
}

/// | stage | input | then |
/// |---|---|---|
/// | any | damage is found | `Hurt` |
/// | `Hurt` | the others confirm; log and table are taken away | `Receives`, up to the last entry of the log that was here |
/// | `Receives` | it has applied that entry | `Whole` |
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Whole,
    Hurt(Hurt),
    Receives(LogIndex),
}

/// How far a damaged replica is with being made anew.
#[derive(Debug, Default)]
pub(super) struct Mending {
    stage: Stage,
    failures: Failures,
    failed: Option<Instant>,
    /// The last entry of the log that was deleted, or is about to be.
    last: LogIndex,
}

impl Mending {
    /// The table is damaged, or the replica could not be made anew.
    fn handle_damage(&mut self, what: String, now: Instant) {
        let is_forgotten = self
            .failed
            .is_some_and(|at| now.duration_since(at) >= FORGOTTEN_AFTER);
        if is_forgotten {
            self.failures = Failures(0);
        }
        let [.., longest] = PAUSES;
        let pause = PAUSES.get(self.failures.0).copied().unwrap_or(longest);
        self.failures.0 += 1;
        self.failed = Some(now);
        self.stage = Stage::Hurt(Hurt {
            what,
            not_before: now + pause,
            ask_at: now + pause,
            questions: Questions(0),
            told: None,
        });
    }

    /// The log is about to be deleted, which ends with this entry. It is empty if something else has failed when it was deleted
    /// before.
    fn handle_deletion(&mut self, last: LogIndex) {
        self.last = last.max(self.last);
    }

    /// The replica begins with nothing.
    fn handle_begun(&mut self) {
        self.stage = Stage::Receives(self.last);
    }

    /// The replica has applied all up to an entry. Whether it is whole now, and was not before.
    fn handle_applied(&mut self, applied: LogIndex) -> bool {
        let is_all = matches!(self.stage, Stage::Receives(last) if applied >= last);
        if is_all {
            self.stage = Stage::Whole;
        }
        is_all
    }

    fn is_hurt(&self) -> bool {
        matches!(self.stage, Stage::Hurt(_))
    }
}

impl Hurt {
    /// Whether the other nodes are to be asked to confirm now.
    fn is_question_due(&mut self, now: Instant) -> bool {
        if now < self.ask_at {
            return false;
        }
        let factor = 1 << self.questions.0.min(10);
        self.questions.0 = self.questions.0.saturating_add(1);
        self.ask_at = now + ASK_AGAIN_MOST.min(ASK_AGAIN * factor);
        true
    }
}

impl Mending {
    /// Whether the replica here is closed since it is damaged.
    pub(super) fn is_damaged<M: Kind>(&self, shard: &Shard<M>) -> bool {
        self.is_hurt() || shard.damage.is_found()
    }

    /// The replica could not be opened.
    pub(super) fn handle_open_error<M: Kind>(
        &mut self,
        shard: &Shard<M>,
        services: &NodeServices,
        error: OpenError,
    ) {
        match error {
            OpenError::Table(what) => self.handle_found(shard, services, what),
            OpenError::Other(what) => shard.tell_damage(&what),
        }
    }

    /// The table of the replica here is damaged, and the replica is closed.
    pub(super) fn handle_found<M: Kind>(
        &mut self,
        shard: &Shard<M>,
        services: &NodeServices,
        what: String,
    ) {
        shard.tell_damage(&what);
        if services.known_peers.network.is_some() {
            let pause = Recovery::Waits(RecoveryWait::Pause);
            shard.recovery.handle_step(pause);
            self.handle_damage(what, Instant::now());
        }
    }

    /// The last entry of the log here, if the replica may be made anew now: enough voters have everything up to it. Asks
    /// them again if that is due. `has_origin`: another replica here makes again what this one begins with.
    ///
    /// # Errors
    /// What it waits for, or that the log cannot be read.
    fn kept<M: Kind>(
        &mut self,
        shard: &Shard<M>,
        services: &NodeServices,
        has_origin: bool,
    ) -> Result<LogIndex, NotYet> {
        let now = Instant::now();
        let node = shard.routing.node;
        let known = &services.known_peers;
        let lead = known.lead_within((M::STORE, shard.number), NEWS);
        let lead = lead.filter(|(leader, _)| *leader != node);
        let is_served = lead.is_some();
        shard.stats.is_hurt.store(is_served, Ordering::Relaxed);
        let Stage::Hurt(hurt) = &mut self.stage else {
            unreachable!("only of a damaged replica it is asked what the others have");
        };
        let Some((_, lead)) = lead else {
            return Err(NotYet::Waits(RecoveryWait::Leader));
        };
        if now < hurt.not_before {
            return Err(NotYet::Waits(RecoveryWait::Pause));
        }
        if !lead.voters.contains(&node) && !lead.learners.contains(&node) {
            return Err(NotYet::Waits(RecoveryWait::Membership));
        }
        let is_down = |voter: &&u64| **voter != node && !known.is_up(**voter);
        if let Some(voter) = lead.voters.iter().find(is_down) {
            return Err(NotYet::Waits(RecoveryWait::Node(*voter)));
        }
        if shard.is_seeding() || has_origin {
            return Err(NotYet::Waits(RecoveryWait::Split));
        }
        let last = services.log.last_index(shard.group());
        let last = last.map_err(|error| NotYet::Failed(error.to_string()))?;
        let last = LogIndex(last.unwrap_or(0));
        if shard.comparison.is_kept(last, node, &lead.voters) {
            return Ok(last);
        }
        if hurt.is_question_due(now) {
            tell::<M>(shard.number, services, shard.comparison.stopping());
        }
        Err(NotYet::Waits(RecoveryWait::Voters))
    }

    /// It is tried again, after a longer pause.
    fn handle_failure<M: Kind>(&mut self, shard: &Shard<M>, error: String) {
        tracing::error!(
            store = M::NAME,
            shard = shard.number,
            error,
            "the damaged replica here cannot be made anew for now"
        );
        shard.fault.note(&error);
        shard.recovery.handle_damage(&error);
        let pause = Recovery::Waits(RecoveryWait::Pause);
        shard.recovery.handle_step(pause);
        self.handle_damage(error, Instant::now());
    }

    /// Says what the replica waits for, if that has changed.
    fn tell_wait<M: Kind>(&mut self, shard: &Shard<M>, wait: RecoveryWait) {
        if let Stage::Hurt(hurt) = &mut self.stage
            && hurt.told.as_ref() != Some(&wait)
        {
            tracing::info!(
                store = M::NAME,
                shard = shard.number,
                %wait,
                damage = hurt.what,
                "the replica here is damaged, and is to be made anew from the other nodes"
            );
            shard.fault.note(&format!("{wait}: {}", hurt.what));
            shard.recovery.handle_step(Recovery::Waits(wait.clone()));
            hurt.told = Some(wait);
        }
    }

    /// Looks how far the replica is that was made anew.
    pub(super) fn look_after<M: Kind>(&mut self, shard: &Shard<M>, group: &Group<Command>) {
        let applied = LogIndex(group.applied_mark().index().unwrap_or(0));
        let is_mended = self.handle_applied(applied);
        if matches!(self.stage, Stage::Whole) {
            shard.recovery.clear();
        }
        if is_mended {
            shard.stats.mended.fetch_add(1, Ordering::Relaxed);
            shard.fault.clear();
            tracing::info!(
                store = M::NAME,
                shard = shard.number,
                "the replica here that was damaged has all again"
            );
        }
        let receives = matches!(self.stage, Stage::Receives(_));
        if receives {
            let told = "its table was damaged; it receives all from the leader";
            shard.fault.note(told);
        }
        shard.stats.is_hurt.store(receives, Ordering::Relaxed);
    }
}

/// Why a replica is not made anew now.
enum NotYet {
    Waits(RecoveryWait),
    /// It cannot be.
    Failed(String),
}

impl<M: Kind> ReplicaController<M> {
    /// Makes the replica here anew, if it is damaged and that is possible now.
    pub(super) async fn mend(&mut self) {
        if !self.mending.is_hurt() {
            // A lone node's: nobody else has it.
            return self.shard.stats.is_hurt.store(false, Ordering::Relaxed);
        }
        let has_origin = !matches!(self.unborn(), Ok(None));
        let kept = self.mending.kept(&self.shard, &self.services, has_origin);
        let last = match kept {
            Ok(last) => last,
            Err(NotYet::Waits(wait)) => return self.mending.tell_wait(&self.shard, wait),
            Err(NotYet::Failed(error)) => return self.mending.handle_failure(&self.shard, error),
        };
        self.mending.handle_deletion(last);
        // The other nodes have all up to the last entry of the log here.
        let opened = async {
            self.shard.is_written().await;
            let forgotten = self.services.log.delete_group(self.shard.group()).await;
            forgotten.map_err(|error| error.to_string())?;
            // If the process ends here, the next leader that sends something has the table set aside (`open_invited`).
            let tables = self.services.tables_of::<M>();
            clear_table(tables, self.shard.number, Tables::set_aside).await?;
            // The leader may send the table as soon as the replica is open.
            self.shard.recovery.handle_step(Recovery::RECEIVES);
            self.open(Birth::Invited).await.map_err(|error| {
                self.shard.close();
                error.to_string()
            })
        };
        match opened.await {
            Ok(group) => {
                self.mending.handle_begun();
                self.serve(group);
                tracing::warn!(
                    store = M::NAME,
                    shard = self.shard.number,
                    last = last.0,
                    "the damaged replica here is rebuilt from the data of the other nodes"
                );
            }
            Err(error) => self.mending.handle_failure(&self.shard, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the replica is left closed after so many damages with `between` from one to the next.
    fn pauses(between: Duration) -> Vec<u64> {
        let mut mending = Mending::default();
        let mut now = Instant::now();
        let mut pause = || {
            now += between;
            mending.handle_damage("a block".to_owned(), now);
            let Stage::Hurt(hurt) = &mending.stage else {
                panic!("it is hurt");
            };
            (hurt.not_before - now).as_secs()
        };
        (0..6).map(|_| pause()).collect()
    }

    #[test]
    fn a_replica_that_is_damaged_again_waits_longer() {
        assert_eq!(pauses(Duration::from_secs(60)), [1, 10, 60, 600, 600, 600]);
        assert_eq!(pauses(FORGOTTEN_AFTER), [1; 6]);
    }

    #[test]
    fn the_others_are_asked_again_after_longer_and_longer_times() {
        let begun = Instant::now();
        let mut mending = Mending::default();
        mending.handle_damage("a block".to_owned(), begun);
        let Stage::Hurt(hurt) = &mut mending.stage else {
            panic!("it is hurt");
        };
        let second = Duration::from_secs(1);
        let asked = (0..200).filter(|n| hurt.is_question_due(begun + second * *n));
        assert_eq!(asked.collect::<Vec<_>>(), [1, 3, 7, 15, 31, 63, 123, 183]);
    }

    #[test]
    fn a_replica_is_whole_when_it_has_applied_what_its_log_had() {
        let mut mending = Mending::default();
        assert!(!mending.handle_applied(LogIndex(9)), "nothing was wrong");
        mending.handle_damage("a block".to_owned(), Instant::now());
        assert!(mending.is_hurt());
        assert!(!mending.handle_applied(LogIndex(9)), "it is closed");
        // The first attempt has deleted the log, and failed then.
        mending.handle_deletion(LogIndex(9));
        mending.handle_damage("a disk".to_owned(), Instant::now());
        mending.handle_deletion(LogIndex(0));
        mending.handle_begun();
        assert!(!mending.handle_applied(LogIndex(8)));
        assert!(mending.handle_applied(LogIndex(9)));
        assert!(!mending.handle_applied(LogIndex(10)), "it was before");
    }
}
