//! Replicas whose log may lack entries that they have acknowledged.
//!
//! Purpose: a replica among other voters whose log is damaged loses the log and keeps its vote. What is left of the
//! log begins below a *floor*: a position that no acknowledged entry of the lost log is behind. The log of a replica that was
//! deleted leaves one, too.
//!
//! Invariants: below its floor a replica votes for nobody whose log ends below the floor (`handle.rs`), and does not
//! campaign. It follows and acknowledges as any other: the leader counts what is on the disk here now.
//!
//! The floor ends when the last entry on the disk is not below it, or when all is here that the leader of the floor's
//! term or of a later one had when it was asked, in this life of the process. What the replica has acknowledged in
//! the floor's term went to one leader, whose log only grows in that term; what went to earlier leaders that one has.
//! `tests/floor_model.rs` visits all orders of events, and finds a loss with each of these rules left out.
//!
//! Deliberately absent: an end after some time; a floor of a sole voter, which nobody could end; the decision where a
//! log is still whole.

use std::io;
use std::time::Duration;

use openraft::Raft;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::command::Command;
use crate::group_log::{GroupLog, deleted, encoded, encoded_vote, purged, stored};
use crate::machine::Machine;
use crate::network::Peers;
use crate::record::Record;
use crate::rpc::{End, MAX_NUMBER};
use crate::standing::Standing;
use crate::types::{LogId, Types, Vote, log_id};
use crate::wal::{Change, Wal, key, unreadable};
use crate::{Group, seed};

/// How long after one question for the leader's end the next is asked; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// And how long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The task that ends a replica's floor. It ends with this.
pub(crate) struct Floor(JoinHandle<()>);

impl Floor {
    pub(crate) fn spawn<C: Command>(
        log: GroupLog<C>,
        raft: Raft<Types<C>, Machine<C>>,
        peers: Peers,
        standing: watch::Receiver<Standing>,
    ) -> Self {
        Self(tokio::spawn(leave(log, raft, peers, standing)))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks the leader until the floor can end, and ends it. While no leader is known it costs nothing.
async fn leave<C: Command>(
    log: GroupLog<C>,
    raft: Raft<Types<C>, Machine<C>>,
    peers: Peers,
    mut standing: watch::Receiver<Standing>,
) {
    let mut end: Option<End> = None;
    let mut pause = FIRST_PAUSE;
    let may_end =
        |end: Option<&End>| !log.is_below_floor() || end.is_some_and(|end| log.has_all_of(end));
    while !may_end(end.as_ref()) {
        let Some(leader) = next_leader(&mut standing, peers.own).await else {
            return;
        };
        // An earlier answer stays good. One that does not come is asked for again.
        if let Ok(answer) = peers.ask_for_end::<C>(leader).await {
            end = Some(answer);
        }
        if !may_end(end.as_ref()) {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
    let group = log.group();
    match log.end_floor().await {
        Ok(()) => {
            raft.runtime_config().elect(true);
            tracing::info!(
                group,
                "the log has everything again that was acknowledged here"
            );
        }
        // The log has failed, and says so.
        Err(error) => tracing::warn!(group, %error, "the floor of the log stays"),
    }
}

/// Waits until another node leads; `None`: the replica has stopped.
async fn next_leader(standing: &mut watch::Receiver<Standing>, own: u64) -> Option<u64> {
    let other = |now: &Standing| now.leader.filter(|leader| *leader != own);
    let now = standing.wait_for(|now| now.stopped.is_some() || other(now).is_some());
    let now = now.await.ok()?;
    other(&now).filter(|_| now.stopped.is_none())
}

impl<C: Command> Group<C> {
    /// Whether the log here may lack entries that this replica has acknowledged, because it was damaged or deleted. Until
    /// the leader has sent everything again the replica does not campaign, and may refuse its vote.
    pub fn is_below_floor(&self) -> bool {
        self.log.is_below_floor()
    }
}

/// Where a log ends that has lost what was behind.
pub(crate) struct Shortened {
    /// The last entry that stays, or the last one that is in the tables.
    pub(crate) last: Option<LogId>,
    /// No entry stays: the tables are ahead of what is whole, and the log begins anew behind them.
    pub(crate) begins_anew: bool,
    /// A vote that counts if the log has an earlier one.
    pub(crate) vote: Option<Vote>,
    /// No entry that was acknowledged here is behind it; `None`: nobody else votes, or may have what is missing.
    pub(crate) floor: Option<LogId>,
}

/// The floor of a replica that has voted in no later term than `term`: it may have acknowledged anything in that one.
pub(crate) fn floor_of(term: u64) -> LogId {
    log_id(term, MAX_NUMBER)
}

/// Ends the log of a group that nobody serves where it is still whole, and settles its loss, by one synced write: a crash
/// leaves the log as it was, which is judged again, or as it is to be.
///
/// The engine has no command that cuts the end of a group's entries. It forgets what is behind an entry that is
/// written again, so that one is read and written, however many stay. If none stays, the group is forgotten and what
/// was kept beside the entries is written again. A replica without any entry, purged or not, is what a deleted one is.
pub(crate) async fn shorten(wal: &Wal, group: u64, cut: Shortened) -> io::Result<()> {
    let purged = purged(wal, group)?;
    let stays = cut
        .last
        .filter(|last| !cut.begins_anew && Some(*last) > purged);
    let known = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
    let committed = stored(wal, group, key::COMMITTED, |bytes| bytes.log_id())?;
    let committed = committed.min(cut.last);
    let floor = deleted(wal, group)?.max(cut.floor);
    let is_later = |vote: &Vote| known.is_none_or(|known| *vote > known);
    let vote = cut.vote.filter(is_later).or(known);
    let mut puts = vec![
        vote.map(|vote| (key::VOTE, encoded_vote(&vote))),
        committed.map(|id| (key::COMMITTED, encoded(&id))),
        floor.map(|id| (key::DELETED, encoded(&id))),
    ];
    let entries = match stays {
        Some(last) => vec![read_entry(wal, group, last)?],
        None => {
            let origin = seed::origin(wal, group)?;
            let tables = wal.get(group, key::TABLES);
            puts.extend([
                cut.last.map(|id| (key::PURGED, encoded(&id))),
                origin.map(|origin| (key::ORIGIN, origin.encode())),
                tables.map(|tables| (key::TABLES, tables)),
            ]);
            Vec::new()
        }
    };
    let change = Change {
        group,
        clean: stays.is_none(),
        entries,
        puts: puts.into_iter().flatten().collect(),
        deletes: if stays.is_some() {
            vec![key::LOSS]
        } else {
            Vec::new()
        },
        ..Change::default()
    };
    wal.change(change).await
}

fn read_entry(wal: &Wal, group: u64, id: LogId) -> io::Result<Record> {
    let records = wal.read(group, id.index, id.index + 1, 0)?;
    let record = records.into_iter().next();
    record
        .filter(|record| record.log_id() == Some(id))
        .ok_or_else(|| unreadable(group, id.index, "another entry is in its place"))
}

#[cfg(feature = "simulation")]
impl crate::Log {
    /// For tests: the log of a group that is not started loses its entries from this index on, as if they were damaged,
    /// and begins below a floor.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub async fn lose_from(&self, group: u64, index: u64) -> io::Result<()> {
        let wal = self.wal();
        let vote = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
        let purged = purged(wal, group)?;
        let last = match index.checked_sub(1) {
            Some(last) if purged.is_none_or(|purged| purged.index < last) => {
                let records = wal.read(group, last, last + 1, 0)?;
                records.first().and_then(Record::log_id)
            }
            _ => purged,
        };
        let cut = Shortened {
            last,
            begins_anew: false,
            vote,
            floor: Some(floor_of(vote.map_or(0, |vote| vote.leader_id.term))),
        };
        shorten(wal, group, cut).await
    }
}
