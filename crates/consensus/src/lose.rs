//! For tests: logs that lose entries.

use std::io;

use crate::Log;
use crate::group_log::{purged, stored};
use crate::record::Record;
use crate::request::key;
use crate::shorten::{Shortened, floor_of};

impl Log {
    /// The log of a group that is not started loses its entries from this index on, as if they were damaged,
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
        cut.write(wal, group).await
    }
}
