//! A log entry as raft-engine keeps it.
//!
//! raft-engine wants protobuf messages. A record is one that brings its own bytes: kind, term, index,
//! then the command or the membership.

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use protobuf::reflect::MessageDescriptor;
use protobuf::{
    Clear, CodedInputStream, CodedOutputStream, Message, ProtobufResult, UnknownFields,
};
use raft_engine::MessageExt;

use crate::command::Command;
use crate::encoding::{Reader, put_log_id, put_membership};
use crate::types::{Entry, LogId, Membership, Payload};

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Bytes of a record before its command.
pub(crate) const HEADER: usize = 17;

/// One entry, encoded. In two parts, so that a command that keeps its bytes shares them.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Record {
    /// Kind and position; shorter than [`HEADER`] only of bytes that are no record.
    header: Bytes,
    /// The command or the members.
    payload: Bytes,
}

impl Record {
    pub(crate) fn encode<C: Command>(entry: &Entry<C>) -> Self {
        let kind = match &entry.payload {
            Payload::Blank => BLANK,
            Payload::Normal(_) => COMMAND,
            Payload::Membership(membership) => {
                return Self::of_membership(&entry.log_id, membership);
            }
        };
        let payload = match &entry.payload {
            Payload::Normal(command) => command.encoded(),
            Payload::Blank | Payload::Membership(_) => Bytes::new(),
        };
        Self {
            header: header(kind, &entry.log_id),
            payload,
        }
    }

    /// The record of a change of members.
    pub(crate) fn of_membership(log_id: &LogId, membership: &Membership) -> Self {
        let mut payload = Vec::new();
        put_membership(membership, &mut payload);
        Self {
            header: header(MEMBERSHIP, log_id),
            payload: payload.into(),
        }
    }

    /// The bytes that [`Record::put`] appended, or others: that is found when they are decoded. They are copied, so that a
    /// record that is kept does not keep the frame or file that it came in.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut header = Bytes::copy_from_slice(bytes);
        let payload = header.split_off(HEADER.min(bytes.len()));
        Self { header, payload }
    }

    /// Appends its bytes.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.payload);
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// The entry, or why there is none in these bytes.
    pub(crate) fn decode<C: Command>(&self) -> Result<Entry<C>, String> {
        let (kind, log_id) = self.header().ok_or("a record without a header")?;
        let payload = match kind {
            BLANK => Payload::Blank,
            COMMAND => {
                Payload::Normal(C::decode(&self.payload).map_err(|corrupt| corrupt.to_string())?)
            }
            MEMBERSHIP => {
                let members = Reader(&self.payload).membership();
                Payload::Membership(members.ok_or("a broken membership")?)
            }
            other => return Err(format!("a record of the unknown kind {other}")),
        };
        Ok(Entry { log_id, payload })
    }

    /// Its position in the log.
    pub(crate) fn log_id(&self) -> Option<LogId> {
        self.header().map(|(_, log_id)| log_id)
    }

    /// The members that it makes; `None`: it is something else.
    pub(crate) fn membership(&self) -> Option<Membership> {
        let (kind, _) = self.header()?;
        if kind != MEMBERSHIP {
            return None;
        }
        Reader(&self.payload).membership()
    }

    fn header(&self) -> Option<(u8, LogId)> {
        let mut reader = Reader(&self.header);
        Some((reader.u8()?, reader.log_id()?))
    }
}

fn header(kind: u8, log_id: &LogId) -> Bytes {
    let mut header = Vec::with_capacity(HEADER);
    header.push(kind);
    put_log_id(log_id, &mut header);
    header.into()
}

/// About how many bytes an entry takes in the log and in memory.
pub(crate) fn len_hint<C: Command>(entry: &Entry<C>) -> usize {
    HEADER + payload_len_hint(&entry.payload)
}

fn payload_len_hint<C: Command>(payload: &Payload<C>) -> usize {
    match payload {
        Payload::Normal(command) => command.encoded_len_hint(),
        Payload::Blank | Payload::Membership(_) => 0,
    }
}

/// Tells raft-engine where a record stands in its group's log.
pub(crate) struct Records;

impl MessageExt for Records {
    type Entry = Record;

    fn index(record: &Record) -> u64 {
        // A record that is too short has no index; the engine then finds that it is not the one it
        // looked for.
        record.log_id().map_or(u64::MAX, |id| id.index)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record of {} bytes", self.len())
    }
}

impl Clear for Record {
    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Message for Record {
    fn write_to_vec(&self, out: &mut Vec<u8>) -> ProtobufResult<()> {
        self.put(out);
        Ok(())
    }

    fn parse_from_bytes(bytes: &[u8]) -> ProtobufResult<Self> {
        Ok(Self::from_bytes(bytes))
    }

    fn merge_from(&mut self, input: &mut CodedInputStream<'_>) -> ProtobufResult<()> {
        let mut bytes = Vec::with_capacity(self.len());
        self.put(&mut bytes);
        while !input.eof()? {
            bytes.push(input.read_raw_byte()?);
        }
        *self = Self::from_bytes(&bytes);
        Ok(())
    }

    fn write_to_with_cached_sizes(&self, out: &mut CodedOutputStream<'_>) -> ProtobufResult<()> {
        out.write_raw_bytes(&self.header)?;
        out.write_raw_bytes(&self.payload)
    }

    fn compute_size(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    fn get_cached_size(&self) -> u32 {
        self.compute_size()
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn new() -> Self {
        Self::default()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    // A record has no fields, so none of what describes fields is ever asked for.
    fn descriptor(&self) -> &'static MessageDescriptor {
        unreachable!("a record has no descriptor")
    }

    fn get_unknown_fields(&self) -> &UnknownFields {
        unreachable!("a record has no fields")
    }

    fn mut_unknown_fields(&mut self) -> &mut UnknownFields {
        unreachable!("a record has no fields")
    }

    fn default_instance() -> &'static Self {
        static EMPTY: Record = Record {
            header: Bytes::new(),
            payload: Bytes::new(),
        };
        &EMPTY
    }
}
