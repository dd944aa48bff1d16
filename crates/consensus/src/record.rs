//! A log entry as raft-engine keeps it.
//!
//! raft-engine wants protobuf messages. A record is one that brings its own bytes: kind, term, index,
//! then the command or the membership.

use std::any::Any;
use std::fmt;

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

/// One entry, encoded.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    pub(crate) fn encode<C: Command>(entry: &Entry<C>) -> Self {
        let kind = match &entry.payload {
            Payload::Blank => BLANK,
            Payload::Normal(_) => COMMAND,
            Payload::Membership(membership) => {
                return Self::of_membership(&entry.log_id, membership);
            }
        };
        let mut out = Vec::with_capacity(HEADER + payload_len_hint(&entry.payload));
        out.push(kind);
        put_log_id(&entry.log_id, &mut out);
        if let Payload::Normal(command) = &entry.payload {
            command.encode(&mut out);
        }
        Self(out)
    }

    /// The record of a change of members.
    pub(crate) fn of_membership(log_id: &LogId, membership: &Membership) -> Self {
        let mut out = vec![MEMBERSHIP];
        put_log_id(log_id, &mut out);
        put_membership(membership, &mut out);
        Self(out)
    }

    /// The bytes that [`Record::as_bytes`] gave, or others: that is found when they are decoded.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The entry, or why there is none in these bytes.
    pub(crate) fn decode<C: Command>(&self) -> Result<Entry<C>, String> {
        let mut reader = Reader(&self.0);
        let (kind, log_id) = self.header().ok_or("a record without a header")?;
        reader.0 = &reader.0[HEADER..];
        let payload = match kind {
            BLANK => Payload::Blank,
            COMMAND => Payload::Normal(C::decode(reader.0).map_err(|corrupt| corrupt.to_string())?),
            MEMBERSHIP => Payload::Membership(reader.membership().ok_or("a broken membership")?),
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
        let rest = self.0.get(HEADER..).filter(|_| kind == MEMBERSHIP)?;
        Reader(rest).membership()
    }

    fn header(&self) -> Option<(u8, LogId)> {
        let mut reader = Reader(&self.0);
        Some((reader.u8()?, reader.log_id()?))
    }
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
        write!(f, "record of {} bytes", self.0.len())
    }
}

impl Clear for Record {
    fn clear(&mut self) {
        self.0.clear();
    }
}

impl Message for Record {
    fn write_to_vec(&self, out: &mut Vec<u8>) -> ProtobufResult<()> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn parse_from_bytes(bytes: &[u8]) -> ProtobufResult<Self> {
        Ok(Self(bytes.to_vec()))
    }

    fn merge_from(&mut self, input: &mut CodedInputStream<'_>) -> ProtobufResult<()> {
        while !input.eof()? {
            self.0.push(input.read_raw_byte()?);
        }
        Ok(())
    }

    fn write_to_with_cached_sizes(&self, out: &mut CodedOutputStream<'_>) -> ProtobufResult<()> {
        out.write_raw_bytes(&self.0)
    }

    fn compute_size(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
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
        static EMPTY: Record = Record(Vec::new());
        &EMPTY
    }
}
