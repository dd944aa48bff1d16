//! Reads all that is on the disk, round after round, and hands on what it finds.
//!
//! A damaged table is handed to its shard, as if a read had met the damage. Of a damaged file of the log, the log takes note, and the
//! next start mends it. A small file is written again from its copy.
//!
//! Invariants: what is read comes from the disk, not from the page cache; a table counts as damaged only if a second reading finds it
//! damaged, too; tables, the log and the shards are locked for no longer than it takes to ask which files they have.
//!
//! Deliberately absent: the order and the pace (`tour.rs`); the files of the cluster, which are in memory while a node runs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use consensus::{LogScrub, Scrubbed, SyncedFile, blocking};
use durable_file::Repair;
use store_state::api::{PerStore, ShardNumber, StoreId};
use tokio::time::{Instant, sleep};

use super::tour::{GIVE_WAY, Step, SyncCount, SyncTimes, Syncs, Tour};
use crate::node::services::NodeServices;
use crate::scrub::shards::ScrubbedShards;
use crate::storage::tables::{TableFile, TableReading};

/// Bytes of requests that wait for the log: the node has enough to do.
const WAITING_BYTES: u64 = 1 << 20;

/// Something that has files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    SmallFiles,
    Log,
    Shard(StoreId, ShardNumber),
}

/// A file that is to be read.
enum ToRead {
    SmallFiles,
    Log(SyncedFile),
    Table(StoreId, ShardNumber, TableFile),
}

/// A file that is being read.
enum Reading {
    Log(LogScrub),
    Table(StoreId, ShardNumber, Box<TableReading>),
}

/// What came of a part of a file.
enum Part {
    Read(u64),
    End,
}

/// Reads for as long as the store lives.
pub(crate) async fn scrub(services: Arc<NodeServices>, shards: PerStore<Arc<dyn ScrubbedShards>>) {
    let every = services.scrubbed.every;
    let mut scrub = Scrub {
        services,
        shards,
        reading: None,
    };
    let begun = Instant::now();
    let mut tour = Tour::new(every);
    let mut times = SyncTimes::default();
    let (mut is_slow, mut looked) = (false, None::<Instant>);
    loop {
        if looked.is_none_or(|looked| looked.elapsed() >= GIVE_WAY) {
            is_slow = scrub.is_slow(&mut times);
            looked = Some(Instant::now());
        }
        match tour.poll_step(begun.elapsed(), is_slow) {
            // The times of syncs are looked at meanwhile.
            Step::Wait(time) => sleep(time.min(GIVE_WAY)).await,
            Step::Begin => {
                let bytes = scrub.bytes();
                let first = scrub.services.folder.node();
                tour.begin(begun.elapsed(), scrub.places(), first, bytes);
            }
            Step::End => scrub.end(),
            Step::List(place) => tour.handle_files(scrub.files_of(place)),
            Step::Open(file) => {
                let reading = scrub.open(file).await;
                handle(&mut tour, begun, scrub.read(reading).await);
            }
            Step::Continue => {
                let reading = scrub.reading.take();
                handle(&mut tour, begun, scrub.read(reading).await);
            }
        }
    }
}

fn handle(tour: &mut Tour<Place, ToRead>, begun: Instant, part: Part) {
    match part {
        Part::Read(bytes) => tour.handle_read(begun.elapsed(), bytes),
        Part::End => tour.handle_end_of_file(),
    }
}

/// Whether a file or its copy was damaged.
fn is_damage(found: &Repair) -> bool {
    match found {
        Repair::Nothing | Repair::CopyMade => false,
        Repair::CopyRepaired | Repair::FileRepaired | Repair::Failed => true,
        Repair::BothDamaged => {
            tracing::error!(
                "a small file of the data folder and its copy are damaged: the node does not start with them"
            );
            true
        }
    }
}

struct Scrub {
    services: Arc<NodeServices>,
    shards: PerStore<Arc<dyn ScrubbedShards>>,
    reading: Option<Reading>,
}

impl Scrub {
    /// Whether the disk has enough to do; to be asked each [`GIVE_WAY`].
    fn is_slow(&self, times: &mut SyncTimes) -> bool {
        let log = self.services.log.stats();
        let are_slow = times.handle_period(Syncs {
            count: SyncCount(log.syncs),
            time: log.sync_time,
        });
        are_slow || log.waiting_bytes >= WAITING_BYTES
    }

    fn places(&self) -> Vec<Place> {
        let mut places = vec![Place::SmallFiles, Place::Log];
        for (store, shards) in self.shards.iter() {
            let numbers = shards.numbers().into_iter();
            places.extend(numbers.map(|shard| Place::Shard(store, shard)));
        }
        places
    }

    /// Of all files, about.
    fn bytes(&self) -> u64 {
        let tables = self.services.tables.iter();
        let tables: u64 = tables.map(|(_, tables)| tables.open_bytes()).sum();
        let log = self.services.log.synced_files();
        tables + log.iter().map(SyncedFile::bytes).sum::<u64>()
    }

    fn end(&self) {
        let counters = &self.services.scrubbed;
        counters.rounds.fetch_add(1, Relaxed);
        *counters.ended.lock() = Some(Instant::now());
        tracing::debug!("all that is on the disk is read");
    }

    fn files_of(&self, place: Place) -> Vec<ToRead> {
        match place {
            Place::SmallFiles => vec![ToRead::SmallFiles],
            Place::Log => {
                let files = self.services.log.synced_files().into_iter();
                files.map(ToRead::Log).collect()
            }
            Place::Shard(store, shard) => {
                let files = self.services.tables[store].files_of(u64::from(shard));
                let file = |file| ToRead::Table(store, shard, file);
                files.into_iter().map(file).collect()
            }
        }
    }

    /// `None`: nothing more is to be read of it.
    async fn open(&self, file: ToRead) -> Option<Reading> {
        match file {
            ToRead::SmallFiles => {
                let services = Arc::clone(&self.services);
                let repaired = blocking(move || {
                    let mut found = services.folder.repair();
                    found.extend(services.log.repair_format());
                    found.into_iter().filter(is_damage).count()
                });
                // An error: the store ends.
                let repaired = repaired.await.unwrap_or_default();
                let counter = &self.services.scrubbed.small_files;
                counter.fetch_add(repaired as u64, Relaxed);
                None
            }
            ToRead::Log(file) => match file.open() {
                Ok(open) => open.map(Reading::Log),
                Err(error) => {
                    tracing::warn!(%error, "a file of the log cannot be read again");
                    None
                }
            },
            ToRead::Table(store, shard, file) => {
                Some(Reading::Table(store, shard, Box::new(file.reading())))
            }
        }
    }

    /// Reads a part, and keeps what is read if there is more.
    async fn read(&mut self, reading: Option<Reading>) -> Part {
        let part = match reading {
            None => return Part::End,
            Some(Reading::Log(mut log)) => {
                let read = blocking(move || (log.read_next(), log)).await;
                // An error: the store ends.
                let Ok((read, log)) = read else {
                    return Part::End;
                };
                match read {
                    Ok(Scrubbed::Whole(bytes)) => {
                        self.reading = Some(Reading::Log(log));
                        bytes
                    }
                    Ok(Scrubbed::End) => 0,
                    Ok(Scrubbed::Damaged(finding)) => {
                        if self.services.log.note_damage(finding) {
                            self.services.scrubbed.log_places.fetch_add(1, Relaxed);
                        }
                        0
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a file of the log cannot be read again");
                        0
                    }
                }
            }
            Some(Reading::Table(store, shard, mut table)) => {
                let read = blocking(move || (table.read_next(), table)).await;
                let Ok((read, table)) = read else {
                    return Part::End;
                };
                match read {
                    Ok(0) => 0,
                    Ok(bytes) => {
                        self.reading = Some(Reading::Table(store, shard, table));
                        bytes
                    }
                    Err(error) => {
                        tracing::error!(store = store.name(), shard, %error, "a table is damaged on the disk");
                        self.services.scrubbed.tables.fetch_add(1, Relaxed);
                        self.shards[store].meet_damage(shard, &error);
                        0
                    }
                }
            }
        };
        match part {
            0 => Part::End,
            bytes => {
                self.services.scrubbed.bytes.fetch_add(bytes, Relaxed);
                Part::Read(bytes)
            }
        }
    }
}
