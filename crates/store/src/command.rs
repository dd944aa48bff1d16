//! What the shards' Raft groups agree on: batches of operations of one of the three stores.

use std::fmt;
use std::sync::Arc;

use consensus::{Command as Agreed, CorruptCommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store_state::Batch;
use store_state::inbox::InboxOp;
use store_state::retain::RetainOp;
use store_state::session::SessionOp;

/// The format of entries; the first byte of each.
const FORMAT: u8 = 1;

/// One log entry of a shard.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// For a session shard.
    Session(Arc<Batch<SessionOp>>),
    /// For an inbox shard.
    Inbox(Arc<Batch<InboxOp>>),
    /// For a retain shard.
    Retain(Arc<Batch<RetainOp>>),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, requests) = match self {
            Self::Session(batch) => ("session", batch.requests.len()),
            Self::Inbox(batch) => ("inbox", batch.requests.len()),
            Self::Retain(batch) => ("retain", batch.requests.len()),
        };
        write!(f, "{requests} requests to the {store} store")
    }
}

impl Agreed for Command {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Session(batch) => write(0, batch, out),
            Self::Inbox(batch) => write(1, batch, out),
            Self::Retain(batch) => write(2, batch, out),
        }
    }

    fn encoded_len_hint(&self) -> usize {
        match self {
            Self::Session(batch) => batch.bytes,
            Self::Inbox(batch) => batch.bytes,
            Self::Retain(batch) => batch.bytes,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, CorruptCommand> {
        match bytes {
            [FORMAT, 0, rest @ ..] => read(rest).map(Self::Session),
            [FORMAT, 1, rest @ ..] => read(rest).map(Self::Inbox),
            [FORMAT, 2, rest @ ..] => read(rest).map(Self::Retain),
            [FORMAT, store, ..] => Err(CorruptCommand(format!("there is no store {store}"))),
            [format, ..] => Err(CorruptCommand(format!(
                "an entry has format {format}, and this version knows format {FORMAT}"
            ))),
            [] => Err(CorruptCommand("an entry is empty".to_owned())),
        }
    }
}

/// Appends to a vector in whole slices; postcard's own way of appending goes byte by byte.
struct Append<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn write<O: Serialize>(store: u8, batch: &Batch<O>, out: &mut Vec<u8>) {
    out.extend_from_slice(&[FORMAT, store]);
    let written = postcard::serialize_with_flavor(batch, Append(out));
    // Only a type that does not know its length fails, and there is none in a batch.
    debug_assert_eq!(written, Ok(()));
}

fn read<O: DeserializeOwned>(bytes: &[u8]) -> Result<Arc<Batch<O>>, CorruptCommand> {
    let (batch, rest) = postcard::take_from_bytes::<Batch<O>>(bytes)
        .map_err(|error| CorruptCommand(format!("an entry cannot be read: {error}")))?;
    if rest.is_empty() {
        // A replica that follows may lead next, and sends entries to others by their size.
        Ok(Arc::new(Batch {
            bytes: bytes.len() + 2,
            ..batch
        }))
    } else {
        Err(CorruptCommand(format!(
            "{} bytes follow an entry",
            rest.len()
        )))
    }
}
