//! Snapshots: what a replica's tables hold, carried in chunks to one that the log does not reach.
//!
//! Invariant: of a snapshot nothing is seen before all of it is there. A transfer that is cut goes on with
//! the chunk that was lost, or begins again; what was received of it is then forgotten.

use std::io;
use std::sync::Arc;

use crate::blocking::blocking as run;
use crate::mark::Mark;
use crate::rpc::{Chunk, Received};
use crate::types::Vote;

/// The tables of a replica, as other replicas get them. Called beside everything that the state machine
/// does, where blocking is fine.
pub trait Tables: Send + Sync + 'static {
    /// What the tables hold now, as of their last checkpoint, whatever is written to them meanwhile. `None`
    /// before their first checkpoint. Also called when a group starts, so it should cost little.
    fn read(&self) -> io::Result<Option<Box<dyn SnapshotReader>>>;

    /// An empty place beside what the tables hold; what an earlier call has left there is removed.
    fn receive(&self) -> io::Result<Box<dyn SnapshotWriter>>;
}

/// Reads a snapshot.
pub trait SnapshotReader: Send {
    /// How far it reaches.
    fn mark(&self) -> Mark;

    /// The next chunk, at most 256 KiB; `None` behind the last one.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// Takes up a snapshot. Dropped before [`SnapshotWriter::finish`] it leaves the tables as they are.
pub trait SnapshotWriter: Send {
    /// Takes a chunk, in the order in which [`SnapshotReader::next`] gave them. What comes from a peer may
    /// be broken: that is an error.
    fn write(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// Puts what was received in the place of everything that the tables and the state machine hold:
    /// atomically and durably, with `mark`, which [`StateMachine::durable`] then says. Nothing is applied
    /// meanwhile.
    ///
    /// [`StateMachine::durable`]: crate::StateMachine::durable
    fn finish(self: Box<Self>, mark: &Mark) -> io::Result<()>;
}

/// Those of a machine of which there is no other replica.
pub(crate) struct NoTables;

impl Tables for NoTables {
    fn read(&self) -> io::Result<Option<Box<dyn SnapshotReader>>> {
        Ok(None)
    }

    fn receive(&self) -> io::Result<Box<dyn SnapshotWriter>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What goes with a snapshot through openraft.
pub(crate) enum Contents {
    /// Of a checkpoint: it is in the tables. Or of a seed that no table holds yet.
    Nothing,
    /// To be sent.
    Read(Box<dyn SnapshotReader>),
    /// Received, and to be taken up.
    Received(Box<dyn SnapshotWriter>),
}

/// The transfer that goes on to this replica.
pub(crate) struct Receiving {
    tables: Arc<dyn Tables>,
    transfer: tokio::sync::Mutex<Option<Transfer>>,
}

struct Transfer {
    /// Which one.
    id: (Vote, u64),
    mark: Mark,
    /// Number of the next chunk.
    next: u64,
    writer: Box<dyn SnapshotWriter>,
}

/// What follows from a chunk.
pub(crate) enum Step {
    Answer(Received),
    /// All is here: take it up and answer then.
    Install(Mark, Box<dyn SnapshotWriter>),
}

impl Receiving {
    pub(crate) fn new(tables: Arc<dyn Tables>) -> Self {
        Self {
            tables,
            transfer: tokio::sync::Mutex::default(),
        }
    }

    /// Takes a chunk. An error ends the transfer.
    pub(crate) async fn take(&self, chunk: Chunk) -> io::Result<Step> {
        let id = (chunk.vote, chunk.transfer);
        let mut current = self.transfer.lock().await;
        let going_on = current.take_if(|transfer| transfer.id == id);
        let mut transfer = match going_on {
            Some(transfer) => transfer,
            None if chunk.number == 0 => {
                // What an older transfer has left is removed first.
                *current = None;
                let tables = self.tables.clone();
                Transfer {
                    id,
                    mark: chunk.mark.clone(),
                    next: 0,
                    writer: blocking(move || tables.receive()).await?,
                }
            }
            None => return Ok(Step::Answer(Received::Lost)),
        };
        let outcome = match chunk.bytes {
            // The answer to it was lost.
            Some(_) if chunk.number + 1 == transfer.next => Received::Next,
            _ if chunk.number != transfer.next || chunk.mark != transfer.mark => Received::Lost,
            None => return Ok(Step::Install(transfer.mark, transfer.writer)),
            Some(bytes) => {
                let mut writer = transfer.writer;
                transfer.writer = blocking(move || writer.write(&bytes).map(|()| writer)).await?;
                transfer.next += 1;
                Received::Next
            }
        };
        if outcome == Received::Next {
            *current = Some(transfer);
        }
        Ok(Step::Answer(outcome))
    }
}

/// Does what may block where that is fine.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = run(work).await;
    done.unwrap_or_else(|ended| Err(io::Error::other(ended)))
}
