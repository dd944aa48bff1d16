//! The replicas of a shard are compared, and one that differs from the others is made anew.
//!
//! The leader puts an entry into the log now and then; what becomes of it, `shard/comparison.rs` says. A replica that holds something
//! else than a majority of the voters leaves nothing behind but its vote, and how far its log reached: the leader sends it all, as it
//! does to a node whose disk was lost. A leader that differs lets another voter lead first.
//!
//! Invariants: a replica is made anew only if a majority of the voters holds the same, without it; its log is deleted only when a
//! majority has all that is committed of it, without it, so that what a client was told to be kept stays on a majority of the disks.
//!
//! Cost: one entry of 2 bytes for each shard that has changed in [`Options::compare_every`](crate::Options::compare_every), a checkpoint
//! at each replica, and reading its tables once, in a hundredth of the time of one CPU for all replicas of a node together.
//!
//! Deliberately absent: what was wrong. Both digests are logged, and how many rows there are.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consensus::{Birth, Group, Standing, blocking};
use store_state::api::ShardNumber;
use tokio::time::{Instant, sleep};

use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::node::services::NodeServices;
use crate::node::shutdown::Stop;
use crate::peers::message::Message;
use crate::placement::controller::ReplicaController;
use crate::placement::mending::OpenError;
use crate::shard::comparison::{Comparison, ToRead, Verdict};
use crate::shard::handle::Shard;
use crate::storage::digest::{Digest, Holds, LogIndex, RowHasher};
use crate::storage::snapshot::TableOwner;
use crate::storage::tables::{Tables, TablesError};

/// Voters without which nobody could say who is right.
const VOTERS: usize = 3;

/// Bytes of rows that are read at once, about: a tenth of a millisecond, if the disk does not have to be read.
const PART_BYTES: usize = 64 * 1024;

/// For the time that it has read, a replica pauses so many times as long.
const PAUSES: u32 = 99;

/// How long a replica is not made anew again: whatever is wrong is not mended by that.
const HEAL_AGAIN: Duration = Duration::from_secs(600);

/// How long a table is waited for that is to be removed, and how often it is tried.
const TABLE_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// For so many times the time between two comparisons, a replica that is to be made anew waits until others have all that it has.
const KEPT_WITHIN: u32 = 3;
const KEPT_LEAST: Duration = Duration::from_secs(10);

/// How often a comparison is repeated that a voter has left out, until something has changed.
const REPEATS: Repeats = Repeats(5);

/// For so many times the time between two comparisons, voters that are up are waited for.
const PATIENCE: u32 = 10;

/// How often a comparison was asked for again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Repeats(u32);

/// What a controller remembers of comparisons.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// When this node, as the leader, last asked for one.
    asked: Option<Instant>,
    /// How often it has asked since anything has changed.
    repeats: Repeats,
    /// When the replica here was made anew.
    healed: Option<Instant>,
    /// It is said that it differs, or that nobody knows.
    is_told: bool,
}

impl Comparisons {
    /// Whether another comparison is due now. `has_changed`: something was applied since the last one, which is over for all who are up
    /// if `is_over`, and in which none was left out if `is_complete`.
    fn is_due(
        &mut self,
        every: Duration,
        has_changed: bool,
        is_over: bool,
        is_complete: bool,
    ) -> bool {
        let pause = match is_over {
            true => every,
            false => every * PATIENCE,
        };
        let is_early = self.asked.is_some_and(|asked| asked.elapsed() < pause);
        if has_changed {
            self.repeats = Repeats(0);
        }
        let is_wanted = has_changed || !is_complete && self.repeats < REPEATS;
        if is_early || !is_wanted {
            return false;
        }
        self.asked = Some(Instant::now());
        self.repeats.0 += 1;
        true
    }

    /// Whether the replica may be made anew now.
    fn may_heal<M: Kind>(
        &self,
        shard: &Shard<M>,
        services: &NodeServices,
        voters: &BTreeSet<u64>,
    ) -> bool {
        let healed = self.healed;
        let is_early = healed.is_some_and(|healed| healed.elapsed() < HEAL_AGAIN);
        let node = shard.routing.node;
        let known_peers = &services.known_peers;
        // The others have to do without it for a moment.
        let are_up = voters
            .iter()
            .all(|voter| *voter == node || known_peers.is_up(*voter));
        // What a child begins with is here only; a replica without a table of its own is its parent's.
        !is_early && are_up && !shard.is_seeding() && !shard.has_no_table_yet()
    }
}

impl<M: Kind> ReplicaController<M> {
    /// Does what is due for the comparison of the replicas.
    pub(super) async fn compare(&mut self, group: Arc<Group<Command>>, standing: &Standing) {
        if let Some(to_read) = self.shard.comparison.take_tables() {
            let (shard, services) = (Arc::clone(&self.shard), Arc::clone(&self.services));
            tokio::spawn(read(shard, services, to_read));
        }
        if let Some(holds) = self.shard.comparison.take_left_out() {
            tell::<M>(self.shard.number, &self.services, holds);
        }
        // While they change, there are two sets of them.
        if let [voters] = &standing.members.voters[..] {
            self.judge(group, standing.leads, voters).await;
        }
    }

    async fn judge(&mut self, group: Arc<Group<Command>>, leads: bool, voters: &BTreeSet<u64>) {
        if leads && self.is_comparison_due(&group, voters) {
            let (shard, group) = (Arc::clone(&self.shard), Arc::clone(&group));
            tokio::spawn(async move {
                if let Err(error) = group.propose(Command::Compare(M::STORE)).await {
                    tracing::debug!(store = M::NAME, shard = shard.number, %error, "replicas are not compared for now");
                }
            });
        }
        let node = self.shard.routing.node;
        match self.shard.comparison.verdict(node, voters) {
            Verdict::Unknown => {}
            Verdict::Agrees => self.comparisons.is_told = false,
            Verdict::NoMajority => {
                self.note("the replicas hold different things, and no majority holds the same: they stay as they are");
            }
            Verdict::Differs { own, majority } => {
                self.note(&format!(
                    "the replica here differs from the others: it holds {own}; they hold {majority}"
                ));
                if leads {
                    self.let_another_lead(&group, voters).await;
                } else if self
                    .comparisons
                    .may_heal(&self.shard, &self.services, voters)
                {
                    drop(group);
                    self.heal(own, majority, voters).await;
                }
            }
        }
    }

    fn is_comparison_due(&mut self, group: &Group<Command>, voters: &BTreeSet<u64>) -> bool {
        let every = self.services.compare_every;
        let is_said = self
            .shard
            .standing()
            .is_some_and(|(level, _)| level.is_said());
        if is_said && voters.len() >= VOTERS && self.shard.comparison.take_asked() {
            return true;
        }
        if every.is_zero() || !is_said || voters.len() < VOTERS {
            return false;
        }
        let node = self.shard.routing.node;
        let is_up = |voter: &u64| *voter == node || self.services.known_peers.is_up(*voter);
        let up = voters.iter().copied().filter(is_up);
        let Some(last) = self.shard.comparison.last(node, up) else {
            return self.comparisons.is_due(every, true, true, true);
        };
        let has_changed = group.applied_mark().index() > Some(last.entry.0);
        self.comparisons
            .is_due(every, has_changed, last.is_over, last.is_complete)
    }

    /// Says once what is wrong.
    fn note(&mut self, what: &str) {
        if !std::mem::replace(&mut self.comparisons.is_told, true) {
            tracing::error!(store = M::NAME, shard = self.shard.number, "{what}");
            self.shard.stats.differed.fetch_add(1, Ordering::Relaxed);
        }
        self.shard.comparison.note(what);
    }

    async fn let_another_lead(&self, group: &Group<Command>, voters: &BTreeSet<u64>) {
        let holds = self
            .shard
            .comparison
            .majority(self.shard.routing.node, voters);
        if let Some(node) = holds
            .into_iter()
            .find(|node| self.services.known_peers.is_up(*node))
            && let Err(error) = group.transfer_leader(node).await
        {
            // It is tried again at each look.
            tracing::debug!(store = M::NAME, shard = self.shard.number, %error, "a replica that differs still leads");
        }
    }

    /// Makes the replica anew from what the leader sends.
    async fn heal(&mut self, own: Digest, majority: Digest, voters: &BTreeSet<u64>) {
        self.comparisons.healed = Some(Instant::now());
        // From here on the log here does not grow, and nobody waits for what the replica holds.
        tell::<M>(
            self.shard.number,
            &self.services,
            self.shard.comparison.stopping(),
        );
        self.close().await;
        self.shard.is_written().await;
        let (log, group) = (&self.services.log, self.shard.group());
        let (node, comparison) = (self.shard.routing.node, &self.shard.comparison);
        let emptied: Result<bool, String> = async {
            let last = log.last_index(group).map_err(|error| error.to_string())?;
            let last = LogIndex(last.unwrap_or(0));
            if !is_kept_without(node, comparison, &self.services, last, voters).await {
                return Ok(false);
            }
            let forgotten = log.delete_group(group).await;
            forgotten.map_err(|error| error.to_string())?;
            let tables = self.services.tables_of::<M>();
            clear_table(tables, self.shard.number, Tables::remove).await?;
            Ok(true)
        }
        .await;
        // If it is not emptied, it goes on with what it has.
        let is_emptied = emptied == Ok(true);
        let opened = match emptied {
            Ok(_) => self.open(Birth::Invited).await,
            Err(error) => Err(OpenError::Other(error)),
        };
        match opened {
            Ok(group) => self.serve(group),
            // The next start goes on with what is there: nothing, or what was there.
            Err(error) => {
                let (shard, services) = (&self.shard, &self.services);
                return self.mending.handle_open_error(shard, services, error);
            }
        }
        if !is_emptied {
            tracing::warn!(
                store = M::NAME,
                shard = self.shard.number,
                "the replica here differs, and stays for now: the other nodes have not confirmed that they have all of its data"
            );
            return;
        }
        self.shard.stats.healed.fetch_add(1, Ordering::Relaxed);
        self.shard.comparison.note(&format!(
            "the replica here held {own}; the others held {majority}; it was made anew from them"
        ));
        tracing::warn!(
            store = M::NAME,
            shard = self.shard.number,
            "the replica here is rebuilt from the data of the other nodes"
        );
    }

    /// Begins with nothing, or with the table that is here. A table of a replica whose log was deleted, if the process has ended before the
    /// table was, is of no use.
    pub(super) async fn open_invited(&self) -> Result<Group<Command>, OpenError> {
        match self.open(Birth::Invited).await {
            Err(error) if self.services.log.has_deleted(self.shard.group()) => {
                tracing::warn!(
                    store = M::NAME,
                    shard = self.shard.number,
                    %error,
                    "the table of a replica whose log is deleted is set aside: other nodes have to send it"
                );
                self.shard.close();
                let tables = self.services.tables_of::<M>();
                let set_aside = clear_table(tables, self.shard.number, Tables::set_aside).await;
                set_aside.map_err(OpenError::Other)?;
                self.open(Birth::Invited).await
            }
            opened => opened,
        }
    }
}

/// Takes the table of a shard away. Waits a while for whoever still has it in hand, such as its maintenance.
pub(super) async fn clear_table(
    tables: &Tables,
    shard: ShardNumber,
    clear: impl Fn(&Tables, u64) -> Result<(), TablesError>,
) -> Result<(), String> {
    let end = Instant::now() + TABLE_PATIENCE;
    loop {
        match clear(tables, u64::from(shard)) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= end => return Err(error.to_string()),
            Err(_) => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Waits until a majority of the voters has told that it has all that is committed up to an entry, without the replica here, which is
/// closed. `node`: this one. False: it has not within a while, or the node ends.
async fn is_kept_without(
    node: u64,
    comparison: &Comparison,
    services: &NodeServices,
    last: LogIndex,
    voters: &BTreeSet<u64>,
) -> bool {
    // The leader has them compared again when something has changed, and does not wait for this replica, which has said that it stops.
    let within = (services.compare_every * KEPT_WITHIN).max(KEPT_LEAST);
    let end = Instant::now() + within;
    while !comparison.is_passed(last, node, voters) {
        if Instant::now() >= end || *services.stopping.borrow() != Stop::No {
            return false;
        }
        sleep(LOOK_AGAIN).await;
    }
    true
}

/// Reads the tables of a replica, and tells the other nodes what it holds.
async fn read<M: Kind>(shard: Arc<Shard<M>>, services: Arc<NodeServices>, to_read: ToRead) {
    let entry = to_read.entry;
    let alone = services.comparing.acquire().await;
    let _alone = alone.expect("the semaphore is never closed");
    let digest = digest::<M>(to_read).await;
    if let Err(error) = &digest {
        tracing::error!(store = M::NAME, shard = shard.number, %error, "the tables of a replica cannot be read for a comparison");
    }
    if let Some(holds) = shard.comparison.handle_read(entry, digest.ok()) {
        shard.stats.compared.fetch_add(1, Ordering::Relaxed);
        tell::<M>(shard.number, &services, holds);
    }
}

/// Tells the other nodes what the replica here holds.
pub(super) fn tell<M: Kind>(shard: ShardNumber, services: &NodeServices, holds: Holds) {
    // Without a network nobody has another replica.
    if let Some(peers) = &services.known_peers.network {
        let message = Message::Holds(M::STORE, shard, holds).encode();
        for node in services.known_peers.linked() {
            if peers.knows_digests(node) {
                peers.send(node, message.clone());
            }
        }
    }
}

async fn digest<M: Kind>(to_read: ToRead) -> io::Result<Digest> {
    let ToRead {
        mut reader,
        applied,
        ..
    } = to_read;
    let mut hasher = RowHasher::default();
    loop {
        let begun = Instant::now();
        let part = blocking(move || {
            let more = reader.digest_part(&mut hasher, M::agreed, PART_BYTES);
            (more, reader, hasher)
        });
        let more;
        (more, reader, hasher) = part.await.map_err(io::Error::other)?;
        if !more? {
            return Ok(hasher.finish(applied));
        }
        sleep(begun.elapsed() * PAUSES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_due_when_something_has_changed_or_a_voter_is_silent() {
        let every = Duration::from_millis(1);
        let due = |asked: Option<Instant>, repeats, has_changed, is_over, is_complete| {
            let mut comparisons = Comparisons {
                asked,
                repeats,
                ..Comparisons::default()
            };
            comparisons.is_due(every, has_changed, is_over, is_complete)
        };
        let ago = |times: u32| Instant::now().checked_sub(every * times);
        assert!(due(None, Repeats(0), true, true, false));
        assert!(
            !due(
                Instant::now().checked_add(every),
                Repeats(0),
                true,
                true,
                true
            ),
            "too early"
        );
        assert!(
            !due(None, Repeats(0), false, true, true),
            "nothing has changed"
        );
        assert!(due(None, Repeats(1), false, true, false), "it was left out");
        assert!(!due(None, REPEATS, false, true, false), "it always is");
        assert!(due(None, REPEATS, true, true, false));
        if ago(PATIENCE).is_some() {
            assert!(
                !due(ago(1), Repeats(0), true, false, false),
                "somebody still reads"
            );
            assert!(due(ago(PATIENCE), Repeats(0), true, false, false));
        }
    }
}
