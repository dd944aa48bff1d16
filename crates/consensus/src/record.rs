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

use crate::command::{Command, Encoded};
use crate::encoding::{Reader, put_membership};
use crate::types::{Entry, LogId, Membership, Payload};

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Bytes of a record before its command.
pub(crate) const HEADER: usize = 17;

/// One entry, encoded. In two parts, so that a command that keeps its bytes shares them.
#[derive(Clone)]
pub(crate) struct Record {
    /// Kind and position.
    header: [u8; HEADER],
    /// The command or the members; `None`: there were too few bytes for a header.
    payload: Option<Encoded>,
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
            Payload::Blank | Payload::Membership(_) => Encoded::Own(Vec::new()),
        };
        Self {
            header: header(kind, &entry.log_id),
            payload: Some(payload),
        }
    }

    /// The record of a change of members.
    pub(crate) fn of_membership(log_id: &LogId, membership: &Membership) -> Self {
        let mut payload = Vec::new();
        put_membership(membership, &mut payload);
        Self {
            header: header(MEMBERSHIP, log_id),
            payload: Some(payload.into()),
        }
    }

    /// The bytes that [`Record::put`] appended, or others: that is found when they are decoded. They are copied, so that a
    /// record that is kept does not keep the frame or file that it came in.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.split_first_chunk() {
            None => Self::default(),
            Some((header, payload)) => Self {
                header: *header,
                payload: Some(Bytes::copy_from_slice(payload).into()),
            },
        }
    }

    /// Appends its bytes.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        if let Some(payload) = &self.payload {
            out.extend_from_slice(&self.header);
            out.extend_from_slice(payload);
        }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.payload
            .as_ref()
            .map_or(0, |payload| HEADER + payload.len())
    }

    /// The entry, or why there is none in these bytes.
    pub(crate) fn decode<C: Command>(&self) -> Result<Entry<C>, String> {
        let (kind, log_id, payload) = self.parts().ok_or("a record without a header")?;
        let payload = match kind {
            BLANK => Payload::Blank,
            COMMAND => {
                let command = match payload {
                    Encoded::Own(bytes) => C::decode(&Bytes::copy_from_slice(bytes)),
                    Encoded::Shared(bytes) => C::decode(bytes),
                };
                Payload::Normal(command.map_err(|corrupt| corrupt.to_string())?)
            }
            MEMBERSHIP => {
                let members = Reader(payload).membership();
                Payload::Membership(members.ok_or("a broken membership")?)
            }
            other => return Err(format!("a record of the unknown kind {other}")),
        };
        Ok(Entry { log_id, payload })
    }

    /// Its position in the log.
    pub(crate) fn log_id(&self) -> Option<LogId> {
        self.parts().map(|(_, log_id, _)| log_id)
    }

    /// The members that it makes; `None`: it is something else.
    pub(crate) fn membership(&self) -> Option<Membership> {
        let (kind, _, payload) = self.parts()?;
        if kind != MEMBERSHIP {
            return None;
        }
        Reader(payload).membership()
    }

    fn parts(&self) -> Option<(u8, LogId, &Encoded)> {
        let mut reader = Reader(&self.header);
        Some((reader.u8()?, reader.log_id()?, self.payload.as_ref()?))
    }
}

impl Default for Record {
    fn default() -> Self {
        Self {
            header: [0; HEADER],
            payload: None,
        }
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header && self.payload.as_deref() == other.payload.as_deref()
    }
}

fn header(kind: u8, log_id: &LogId) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = kind;
    header[1..9].copy_from_slice(&log_id.leader_id.term.to_le_bytes());
    header[9..].copy_from_slice(&log_id.index.to_le_bytes());
    header
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
        match &self.payload {
            None => Ok(()),
            Some(payload) => {
                out.write_raw_bytes(&self.header)?;
                out.write_raw_bytes(payload)
            }
        }
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
            header: [0; HEADER],
            payload: None,
        };
        &EMPTY
    }
}
