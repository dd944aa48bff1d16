//! What the shards' Raft groups agree on: batches of operations of one of the stores.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use consensus::{Command as Agreed, CorruptCommand, Encoded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store_state::api::StoreId;
use store_state::control::ControlOp;
use store_state::inbox::InboxOp;
use store_state::retain::RetainOp;
use store_state::session::SessionOp;
use store_state::{Batch, ChildShard, Level, ShardVersion, Written};

use crate::kinds::compressed::{self, COMPRESSED};
use crate::shard::request::OVERHEAD;

/// The format of entries that are batches; the first byte of each.
const FORMAT: u8 = 1;

/// The format of entries that split their shard.
const SPLIT: u8 = 2;

/// The format of entries that are batches with the limits of classes behind them. Earlier programs do not read it; it is
/// written only where classes are configured.
const WITH_CLASSES: u8 = 3;

/// The format of entries that raise the level of their shard. Programs that know of no levels do not read it; it is written only
/// when no member of the cluster is one.
const RAISE: u8 = 4;

/// The format of entries at which replicas are compared. As those that raise, they are read by programs that know of levels.
const COMPARE: u8 = 6;

/// The format of entries that begin a store. Programs of earlier levels do not read it.
const BEGIN: u8 = 7;

/// The format of batches at the level of builds for tests: that of a batch, and a byte behind it.
const TRIAL: u8 = 5;

/// What a request of a batch is written with beside its operation, in bytes, at most.
const AROUND_REQUEST: usize = 4;

/// What a batch is written with beside its requests, in bytes, about.
const AROUND_BATCH: usize = 64;

/// One log entry of a shard.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// For a session shard.
    Session(Arc<Batch<SessionOp>>),
    /// For an inbox shard.
    Inbox(Arc<Batch<InboxOp>>),
    /// For a retain shard.
    Retain(Arc<Batch<RetainOp>>),
    /// For the control shard.
    Control(Arc<Batch<ControlOp>>),
    /// For the first shard of the session store: begins this store, if it has not begun.
    Begin(StoreId),
    /// Gives the upper slots of a shard of this store to a new one.
    Split(StoreId, Split),
    /// A shard of this store is at this level from here on.
    Raise(StoreId, Level),
    /// The replicas of a shard of this store compare what they hold as of the entry before.
    Compare(StoreId),
}

/// What an entry says that splits its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Split {
    /// The version that the shard has. If it has another one, it is not split.
    pub(crate) version: ShardVersion,
    /// The first slot of the child, and its number.
    pub(crate) at: ChildShard,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (store, requests) = match self {
            Self::Split(store, Split { at, .. }) => {
                return write!(
                    f,
                    "a split of a shard of the {store} store at slot {}",
                    at.0
                );
            }
            Self::Raise(store, level) => {
                return write!(
                    f,
                    "the raise of a shard of the {store} store to level {level}"
                );
            }
            Self::Compare(store) => {
                return write!(f, "a comparison of a shard of the {store} store");
            }
            Self::Begin(store) => return write!(f, "the beginning of the {store} store"),
            Self::Session(batch) => (StoreId::Session, batch.requests.len()),
            Self::Inbox(batch) => (StoreId::Inbox, batch.requests.len()),
            Self::Retain(batch) => (StoreId::Retain, batch.requests.len()),
            Self::Control(batch) => (StoreId::Control, batch.requests.len()),
        };
        write!(f, "{requests} requests to the {store} store")
    }
}

impl Agreed for Command {
    fn encoded(&self) -> Encoded {
        match self {
            Self::Session(batch) => bytes_of(StoreId::Session, batch, |_| {}),
            Self::Inbox(batch) => bytes_of(StoreId::Inbox, batch, |out| {
                let classes = &batch.header.limits.classes;
                if !classes.is_empty() || is_trial(batch.level) {
                    out[0] = WITH_CLASSES;
                    append(classes, out);
                }
            }),
            Self::Retain(batch) => bytes_of(StoreId::Retain, batch, |_| {}),
            Self::Control(batch) => bytes_of(StoreId::Control, batch, |_| {}),
            Self::Begin(store) => vec![BEGIN, store.number()].into(),
            Self::Raise(store, level) => appended(RAISE, *store, level),
            Self::Compare(store) => vec![COMPARE, store.number()].into(),
            Self::Split(store, split) => appended(SPLIT, *store, split),
        }
    }

    fn encoded_len_hint(&self) -> usize {
        match self {
            Self::Session(batch) => batch.bytes,
            Self::Inbox(batch) => batch.bytes,
            Self::Retain(batch) => batch.bytes,
            Self::Control(batch) => batch.bytes,
            Self::Split(..) | Self::Raise(..) | Self::Compare(_) | Self::Begin(_) => 16,
        }
    }

    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand> {
        match &bytes[..] {
            [COMPRESSED, rest @ ..] => {
                let plain = compressed::plain(rest)?;
                match plain.first() {
                    Some(&(FORMAT | WITH_CLASSES | TRIAL)) => Self::read(bytes, &plain),
                    _ => Err(CorruptCommand("a compressed entry is no batch".to_owned())),
                }
            }
            plain => Self::read(bytes, plain),
        }
    }
}

impl Command {
    /// The command of the plain entry of `entry`.
    fn read(entry: &Bytes, plain: &[u8]) -> Result<Self, CorruptCommand> {
        match plain {
            [FORMAT, store, rest @ ..] => match StoreId::try_from(*store) {
                Ok(StoreId::Session) => read(entry, rest).map(Self::Session),
                Ok(StoreId::Inbox) => read(entry, rest).map(Self::Inbox),
                Ok(StoreId::Retain) => read(entry, rest).map(Self::Retain),
                Ok(StoreId::Control) => read(entry, rest).map(Self::Control),
                Err(unknown) => Err(CorruptCommand(unknown.to_string())),
            },
            [WITH_CLASSES, store, rest @ ..] => match StoreId::try_from(*store) {
                Ok(StoreId::Inbox) => read_with_classes(entry, rest).map(Self::Inbox),
                Ok(other) => Err(CorruptCommand(format!("the {other} store has no classes"))),
                Err(unknown) => Err(CorruptCommand(unknown.to_string())),
            },
            [SPLIT, store, rest @ ..] => {
                let store = StoreId::try_from(*store);
                let store = store.map_err(|unknown| CorruptCommand(unknown.to_string()))?;
                if store == StoreId::Control {
                    let what = "an entry splits the one shard of the control store";
                    return Err(CorruptCommand(what.to_owned()));
                }
                match postcard::take_from_bytes::<Split>(rest) {
                    Ok((split, [])) => Ok(Self::Split(store, split)),
                    _ => Err(CorruptCommand("an entry is no split".to_owned())),
                }
            }
            [RAISE, store, rest @ ..] => {
                let store = StoreId::try_from(*store);
                let store = store.map_err(|unknown| CorruptCommand(unknown.to_string()))?;
                match postcard::take_from_bytes::<Level>(rest) {
                    Ok((level, [])) if level <= Level::NEWEST => Ok(Self::Raise(store, level)),
                    Ok((level, [])) => Err(CorruptCommand(format!(
                        "an entry raises the shard to level {level}, and this program knows the levels up to {}",
                        Level::NEWEST
                    ))),
                    _ => Err(CorruptCommand("an entry is no raise".to_owned())),
                }
            }
            [COMPARE, store] => {
                let store = StoreId::try_from(*store);
                let store = store.map_err(|unknown| CorruptCommand(unknown.to_string()))?;
                Ok(Self::Compare(store))
            }
            [COMPARE, ..] => Err(CorruptCommand("an entry is no comparison".to_owned())),
            [BEGIN, store] => match StoreId::try_from(*store) {
                Ok(StoreId::Control) => Ok(Self::Begin(StoreId::Control)),
                Ok(other) => Err(CorruptCommand(format!("an entry begins the {other} store"))),
                Err(unknown) => Err(CorruptCommand(unknown.to_string())),
            },
            [BEGIN, ..] => Err(CorruptCommand(
                "an entry is no beginning of a store".to_owned(),
            )),
            [TRIAL, store, rest @ .., TRIAL] if Level::NEWEST >= Level::TRIAL => {
                match StoreId::try_from(*store) {
                    Ok(StoreId::Session) => read(entry, rest).map(Self::Session),
                    Ok(StoreId::Inbox) => read_with_classes(entry, rest).map(Self::Inbox),
                    Ok(StoreId::Retain) => read(entry, rest).map(Self::Retain),
                    Ok(StoreId::Control) => read(entry, rest).map(Self::Control),
                    Err(unknown) => Err(CorruptCommand(unknown.to_string())),
                }
            }
            [format, ..] => Err(CorruptCommand(format!(
                "an entry has format {format}, and this version knows format {FORMAT}"
            ))),
            [] => Err(CorruptCommand("an entry is empty".to_owned())),
        }
    }
}

/// Whether a batch is written as only builds for tests do.
fn is_trial(level: Level) -> bool {
    Level::NEWEST >= Level::TRIAL && level >= Level::TRIAL
}

/// A batch as it is written, which it keeps unless it is for one log; `behind` may append to it. Builds for tests write another
/// format at their level.
fn bytes_of<O: Serialize>(
    store: StoreId,
    batch: &Batch<O>,
    behind: impl FnOnce(&mut Vec<u8>),
) -> Encoded {
    let requests = batch.requests.len();
    let plain = || {
        let weighed_more = requests * (OVERHEAD - AROUND_REQUEST);
        let len = batch.bytes.saturating_sub(weighed_more) + AROUND_BATCH;
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&[FORMAT, store.number()]);
        append(batch, &mut out);
        behind(&mut out);
        if is_trial(batch.level) {
            out[0] = TRIAL;
            out.push(TRIAL);
        }
        out
    };
    if batch.written.is_for_one() {
        return plain().into();
    }
    let kept = batch.written.bytes_or(|attempts| match attempts {
        Some(attempts) => compressed::smaller(plain(), requests, attempts),
        None => plain().into(),
    });
    kept.into()
}

fn appended<T: Serialize>(format: u8, store: StoreId, what: &T) -> Encoded {
    let mut out = vec![format, store.number()];
    append(what, &mut out);
    out.into()
}

fn append<T: Serialize>(what: &T, out: &mut Vec<u8>) {
    let written = postcard::serialize_with_flavor(what, Append(out));
    // Only a type that does not know its length fails, and there is none in an entry.
    debug_assert_eq!(written, Ok(()));
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

fn unreadable(error: postcard::Error) -> CorruptCommand {
    CorruptCommand(format!("an entry cannot be read: {error}"))
}

fn read_with_classes(entry: &Bytes, bytes: &[u8]) -> Result<Arc<Batch<InboxOp>>, CorruptCommand> {
    let (mut batch, rest) =
        postcard::take_from_bytes::<Batch<InboxOp>>(bytes).map_err(unreadable)?;
    let (classes, rest) = postcard::take_from_bytes(rest).map_err(unreadable)?;
    batch.header.limits.classes = classes;
    finished(batch, entry, bytes, rest)
}

/// The batch of an entry, which begins behind its format and store.
fn read<O: DeserializeOwned>(entry: &Bytes, bytes: &[u8]) -> Result<Arc<Batch<O>>, CorruptCommand> {
    let (batch, rest) = postcard::take_from_bytes::<Batch<O>>(bytes).map_err(unreadable)?;
    finished(batch, entry, bytes, rest)
}

/// `rest`: what follows the batch.
fn finished<O>(
    batch: Batch<O>,
    entry: &Bytes,
    bytes: &[u8],
    rest: &[u8],
) -> Result<Arc<Batch<O>>, CorruptCommand> {
    if rest.is_empty() {
        // A replica that follows may lead next, and sends entries to others by their size.
        Ok(Arc::new(Batch {
            bytes: bytes.len() + 2,
            written: Written::read(entry.clone()),
            ..batch
        }))
    } else {
        Err(CorruptCommand(format!(
            "{} bytes follow an entry",
            rest.len()
        )))
    }
}

#[cfg(test)]
mod tests {
    use mqtt_session::{Qos0Inbox, QueueFull};
    use store_state::{Header, Limits, ProposedHere, Requeued};

    use super::*;

    fn batch<O>() -> Arc<Batch<O>> {
        Arc::new(Batch {
            header: Header {
                now_ms: 7,
                limits: Limits {
                    queue: store_state::QueueLimits {
                        messages: 1,
                        bytes: 1,
                        full: QueueFull::DropOldest,
                        is_closed: false,
                    },
                    qos0: Qos0Inbox::Offline,
                    retained_messages: 1,
                    retained_bytes: 1,
                    classes: store_state::ClassLimits::NONE,
                },
            },
            requests: Vec::new(),
            bytes: 0,
            requeued: Requeued::default(),
            proposed_here: ProposedHere::default(),
            level: Level::RAISED,
            written: Written::default(),
        })
    }

    /// Disks hold these entries.
    #[test]
    fn an_entry_begins_with_its_format_and_the_number_of_its_store() {
        for (command, store) in [
            (Command::Session(batch()), 0),
            (Command::Inbox(batch()), 1),
            (Command::Retain(batch()), 2),
            (Command::Control(batch()), 3),
        ] {
            let bytes = command.encoded();
            assert_eq!(bytes[..3], [1, store, 7], "{command}");
            let decoded = Command::decode(&Bytes::copy_from_slice(&bytes)).unwrap();
            assert_eq!(decoded.to_string(), command.to_string());
        }
        let split = Split {
            version: ShardVersion(3),
            at: ChildShard(300),
        };
        let bytes = Command::Split(StoreId::Inbox, split).encoded();
        assert_eq!(bytes[..], [2, 1, 3, 0xac, 2]);
        let decoded = Command::decode(&Bytes::copy_from_slice(&bytes)).unwrap();
        assert!(matches!(decoded, Command::Split(StoreId::Inbox, read) if read == split));
        for wrong in [&[2, 1][..], &[2, 3, 3, 1], &[2, 4, 3, 1], &[2, 1, 3, 1, 0]] {
            Command::decode(&Bytes::copy_from_slice(wrong)).unwrap_err();
        }
        let bytes = Command::Raise(StoreId::Retain, Level::RAISED).encoded();
        assert_eq!(bytes[..], [4, 2, 4]);
        let decoded = Command::decode(&Bytes::copy_from_slice(&bytes)).unwrap();
        assert!(matches!(
            decoded,
            Command::Raise(StoreId::Retain, Level::RAISED)
        ));
        let later = Level::NEWEST.0 as u8 + 1;
        for wrong in [&[4, 2][..], &[4, 4, 4], &[4, 2, 4, 0], &[4, 2, later]] {
            Command::decode(&Bytes::copy_from_slice(wrong)).unwrap_err();
        }
        let bytes = Command::Compare(StoreId::Inbox).encoded();
        assert_eq!(bytes[..], [6, 1]);
        let decoded = Command::decode(&Bytes::copy_from_slice(&bytes)).unwrap();
        assert!(matches!(decoded, Command::Compare(StoreId::Inbox)));
        for wrong in [&[6][..], &[6, 4], &[6, 1, 0]] {
            Command::decode(&Bytes::copy_from_slice(wrong)).unwrap_err();
        }
        let bytes = Command::Begin(StoreId::Control).encoded();
        assert_eq!(bytes[..], [7, 3]);
        let decoded = Command::decode(&Bytes::copy_from_slice(&bytes)).unwrap();
        assert!(matches!(decoded, Command::Begin(StoreId::Control)));
        for wrong in [&[7][..], &[7, 0], &[7, 4], &[7, 3, 0]] {
            Command::decode(&Bytes::copy_from_slice(wrong)).unwrap_err();
        }
        let unknown = Command::decode(&Bytes::from_static(&[1, 4, 0])).unwrap_err();
        assert_eq!(unknown.0, "there is no store 4");
    }
}
