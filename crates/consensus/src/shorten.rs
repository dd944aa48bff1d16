//! The end of a group's log, made where it is still whole.

use std::io;

use crate::encoding::{encoded, encoded_vote};
use crate::group_log::{deleted, purged, stored};
use crate::record::Record;
use crate::request::{Change, key};
use crate::seed;
use crate::types::{LogId, MAX_NUMBER, Vote, log_id};
use crate::wal::{Wal, unreadable};

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

impl Shortened {
    /// Ends the log of a group that nobody serves where it is still whole, and settles its loss, by one synced write: a crash
    /// leaves the log as it was, which is judged again, or as it is to be.
    ///
    /// The engine has no command that cuts the end of a group's entries. It forgets what is behind an entry that is
    /// written again, so that one is read and written, however many stay. If none stays, the group is forgotten and what
    /// was kept beside the entries is written again. A replica without any entry, purged or not, is what a deleted one is.
    pub(crate) async fn write(self, wal: &Wal, group: u64) -> io::Result<()> {
        let purged = purged(wal, group)?;
        let stays = self
            .last
            .filter(|last| !self.begins_anew && Some(*last) > purged);
        let known = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
        let committed = stored(wal, group, key::COMMITTED, |bytes| bytes.log_id())?;
        let committed = committed.min(self.last);
        let floor = deleted(wal, group)?.max(self.floor);
        let is_later = |vote: &Vote| known.is_none_or(|known| *vote > known);
        let vote = self.vote.filter(is_later).or(known);
        let mut puts = vec![
            vote.map(|vote| (key::VOTE, encoded_vote(&vote))),
            committed.map(|id| (key::COMMITTED, encoded(&id))),
            floor.map(|id| (key::DELETED, encoded(&id))),
        ];
        let entries = match stays {
            Some(last) => vec![self.read_entry(wal, group, last)?],
            None => {
                let origin = seed::origin(wal, group)?;
                let tables = wal.get(group, key::TABLES);
                puts.extend([
                    self.last.map(|id| (key::PURGED, encoded(&id))),
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

    fn read_entry(&self, wal: &Wal, group: u64, id: LogId) -> io::Result<Record> {
        let records = wal.read(group, id.index, id.index + 1, 0)?;
        let record = records.into_iter().next();
        record
            .filter(|record| record.log_id() == Some(id))
            .ok_or_else(|| unreadable(group, id.index, "another entry is in its place"))
    }
}
