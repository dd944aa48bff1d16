//! The tables of a shard, as consensus carries them to other replicas.

use std::io;
use std::sync::Arc;

use consensus::{Mark, SnapshotReader, SnapshotWriter, Tables};

use crate::storage::folder::Folder;
use crate::storage::tables::{ShardTable, TableReader, TableWriter};

/// Bytes of a chunk.
const CHUNK: usize = 256 * 1024;

/// How many bytes of another replica's tables have come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceivedBytes(pub u64);

/// Has the tables of a shard, and can have them replaced.
pub(crate) trait TableOwner: Send + Sync + 'static {
    /// The table; `None`: the shard is closed, or has none yet.
    fn table(&self) -> Option<Arc<ShardTable>>;

    /// Whether the shard has just been split off, and has no table of its own yet.
    fn has_no_table_yet(&self) -> bool;

    /// Whether a shard that was split off of this one begins with the table, and has none of its own yet.
    fn is_seeding(&self) -> bool;

    /// Of another replica's tables that are being sent, so many bytes have come; 0: a transfer begins.
    fn handle_received(&self, bytes: ReceivedBytes);

    /// `replace` puts another replica's tables into the place of these; the state follows them.
    ///
    /// # Errors
    /// The shard is closed, `replace` fails, or the new tables cannot be loaded.
    fn replace(&self, mark: &Mark, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()>;
}

/// The tables of one shard, in a data folder.
pub(crate) struct ShardTables<S> {
    pub(crate) shard: Arc<S>,
    pub(crate) folder: Arc<Folder>,
}

impl<S: TableOwner> Tables for ShardTables<S> {
    fn read(&self) -> io::Result<Option<Box<dyn SnapshotReader>>> {
        let Some(table) = self.shard.table() else {
            return match self.shard.has_no_table_yet() {
                // Its log is all there is, and will soon be in a table.
                true => Ok(None),
                false => Err(closed()),
            };
        };
        let Some(reader) = table.reader().map_err(io::Error::other)? else {
            return Ok(None);
        };
        let mark = Mark::decode(reader.mark()).map_err(io::Error::other)?;
        Ok(Some(Box::new(Reader { mark, reader })))
    }

    fn receive(&self) -> io::Result<Box<dyn SnapshotWriter>> {
        if self.shard.is_seeding() {
            return Err(io::Error::other("a child of the shard has no table yet"));
        }
        let table = self.shard.table().ok_or_else(closed)?;
        self.shard.handle_received(ReceivedBytes::default());
        Ok(Box::new(Writer {
            shard: Arc::clone(&self.shard),
            folder: Arc::clone(&self.folder),
            writer: table.receive().map_err(io::Error::other)?,
            received: ReceivedBytes::default(),
        }))
    }
}

fn closed() -> io::Error {
    io::Error::other("the shard is closed")
}

struct Reader {
    mark: Mark,
    reader: TableReader,
}

impl SnapshotReader for Reader {
    fn mark(&self) -> Mark {
        self.mark.clone()
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.reader.next(CHUNK)
    }
}

struct Writer<S> {
    shard: Arc<S>,
    folder: Arc<Folder>,
    writer: TableWriter,
    received: ReceivedBytes,
}

impl<S: TableOwner> SnapshotWriter for Writer<S> {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.writer.write(chunk)?;
        self.received.0 += chunk.len() as u64;
        self.shard.handle_received(self.received);
        Ok(())
    }

    fn finish(self: Box<Self>, mark: &Mark) -> io::Result<()> {
        let Self {
            shard,
            folder,
            writer,
            received: _,
        } = *self;
        if writer.has_descriptor() {
            // The shard was split elsewhere, or made by a split.
            folder.note_split().map_err(io::Error::other)?;
        }
        if let Some(level) = writer.level()? {
            folder.note_level(level).map_err(io::Error::other)?;
        }
        shard.replace(mark, || writer.finish(&mark.encode()))
    }
}
