//! The tables of a shard, as consensus carries them to other replicas.

use std::io;
use std::sync::Arc;

use consensus::{Mark, SnapshotReader, SnapshotWriter, Tables};

use crate::kind::Kind;
use crate::shard::Shard;
use crate::tables::{TableReader, TableWriter};

/// Bytes of a chunk.
const CHUNK: usize = 256 * 1024;

/// The tables of one shard.
pub(crate) struct ShardTables<M: Kind>(pub(crate) Arc<Shard<M>>);

impl<M: Kind> Tables for ShardTables<M> {
    fn read(&self) -> io::Result<Option<Box<dyn SnapshotReader>>> {
        let Some(table) = self.0.table() else {
            return Err(closed());
        };
        let Some(reader) = table.reader().map_err(io::Error::other)? else {
            return Ok(None);
        };
        let mark = Mark::decode(reader.mark()).map_err(io::Error::other)?;
        Ok(Some(Box::new(Reader { mark, reader })))
    }

    fn receive(&self) -> io::Result<Box<dyn SnapshotWriter>> {
        let table = self.0.table().ok_or_else(closed)?;
        Ok(Box::new(Writer {
            shard: Arc::clone(&self.0),
            writer: table.receive().map_err(io::Error::other)?,
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

struct Writer<M: Kind> {
    shard: Arc<Shard<M>>,
    writer: TableWriter,
}

impl<M: Kind> SnapshotWriter for Writer<M> {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.writer.write(chunk)
    }

    fn finish(self: Box<Self>, mark: &Mark) -> io::Result<()> {
        let Self { shard, writer } = *self;
        shard.replace(mark, || writer.finish(&mark.encode()))
    }
}
