//! What is answered: the clocks of a node, and what people ask of a cluster.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store_state::api::{Slot, StoreId};

use crate::message::{Encode, read, write};
use crate::{Carriage, Kind, Violation};

/// A request of one node to another on their common channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerRequest {
    /// What your clocks say; the answer is a [`ClockReading`].
    Clock,
    /// What somebody has asked of this node and only you can do; the answer is a [`NodeAnswer`].
    Node(NodeRequest),
    /// What people ask of all nodes, in a form that only those know who ask and answer it.
    Inspection(Bytes),
}

/// What one node has another do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeRequest {
    /// Let another node lead a shard that you lead.
    TransferLeader {
        /// The store.
        store: StoreId,
        /// The shard.
        shard: u16,
        /// The node that is to lead it.
        to: u64,
    },
    /// I have left: evict me.
    Forget,
    /// Split a shard that you lead.
    Split {
        /// The store.
        store: StoreId,
        /// The shard.
        shard: u16,
        /// The first slot of the new shard.
        at: Slot,
    },
    /// Have the control store begin, since you lead the shard that begins it.
    BeginControl,
    /// Say when an operation of the control store counts for logins and connected clients of yours. A refusal: not in time.
    CountControl {
        /// The operation.
        revision: u64,
    },
}

/// The answer to a [`NodeRequest`].
pub type NodeAnswer = Result<(), Refusal>;

/// Why a change was not made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such node or shard.
    Unknown(String),
    /// The state of the cluster does not allow it.
    Conflict(String),
    /// Nobody who could decide it can be reached now; it can be tried again.
    Unavailable(String),
}

/// The clocks of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// The process.
    pub incarnation: u64,
    /// Its own clock, in ms since 1970.
    pub clock_ms: u64,
    /// The system's clock, in ms since 1970.
    pub system_ms: u64,
}

impl PeerRequest {
    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Clock => Kind::Clock,
            Self::Node(_) => Kind::Node,
            Self::Inspection(_) => Kind::Inspection,
        }
    }

    /// Reads a request of a peer. `version`: of the link that it came on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8], version: u16) -> Result<Self, Violation> {
        match Kind::read(bytes, Carriage::Request, version)? {
            // Its limit leaves nothing behind the tag.
            (Kind::Clock, _) => Ok(Self::Clock),
            (Kind::Inspection, question) => Ok(Self::Inspection(Bytes::copy_from_slice(question))),
            (kind, rest) => read(kind, rest).map(Self::Node),
        }
    }
}

impl Encode for PeerRequest {
    fn encode(self, version: u16) -> Result<Bytes, Violation> {
        let kind = self.kind();
        let bytes = match self {
            Self::Clock => kind.begin(),
            Self::Node(request) => write(&request, kind.begin()),
            Self::Inspection(question) => [&kind.begin()[..], &question].concat(),
        };
        kind.check(bytes.len(), version)?;
        Ok(bytes.into())
    }
}

impl NodeRequest {
    /// The answer as bytes.
    #[must_use]
    pub fn encode_answer(answer: &NodeAnswer) -> Bytes {
        write(answer, Vec::new()).into()
    }

    /// Reads the answer to a request.
    ///
    /// # Errors
    /// It is none.
    pub fn decode_answer(bytes: &[u8]) -> Result<NodeAnswer, Violation> {
        Kind::Node.check_answer(bytes.len())?;
        read(Kind::Node, bytes)
    }
}

impl PeerRequest {
    /// Whether an answer to [`PeerRequest::Inspection`] is not longer than it may be.
    ///
    /// # Errors
    /// It is.
    pub fn check_inspected(answer: &[u8]) -> Result<(), Violation> {
        Kind::Inspection.check_answer(answer.len())
    }
}

impl ClockReading {
    /// The answer as bytes: the tag of the request, and three numbers.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut bytes = Kind::Clock.begin();
        for number in [self.incarnation, self.clock_ms, self.system_ms] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.into()
    }

    /// Reads the answer to [`PeerRequest::Clock`].
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        const TAG: u8 = Kind::Clock.tag();
        Kind::Clock.check_answer(bytes.len())?;
        let malformed = Violation::Encoding(Kind::Clock);
        let [TAG, rest @ ..] = bytes else {
            return Err(malformed);
        };
        match rest.as_chunks::<8>() {
            ([incarnation, clock_ms, system_ms], []) => Ok(Self {
                incarnation: u64::from_be_bytes(*incarnation),
                clock_ms: u64::from_be_bytes(*clock_ms),
                system_ms: u64::from_be_bytes(*system_ms),
            }),
            _ => Err(malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INSPECTION_SINCE;

    #[test]
    fn inspections_are_read_as_they_were_written_since_a_version() {
        let request = PeerRequest::Inspection(Bytes::from_static(b"{}"));
        let bytes = request.clone().encode(INSPECTION_SINCE).unwrap();
        assert_eq!(
            PeerRequest::decode(&bytes, INSPECTION_SINCE),
            Ok(request.clone())
        );
        assert!(request.encode(INSPECTION_SINCE - 1).is_err());
        assert!(PeerRequest::decode(&bytes, INSPECTION_SINCE - 1).is_err());
        let long = PeerRequest::Inspection(vec![0; 512 * 1024].into());
        assert!(long.encode(INSPECTION_SINCE).is_err());
        assert!(PeerRequest::check_inspected(&[0; 2 * 1024 * 1024]).is_ok());
        assert!(PeerRequest::check_inspected(&[0; 2 * 1024 * 1024 + 1]).is_err());
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let transfer = NodeRequest::TransferLeader {
            store: StoreId::Inbox,
            shard: 300,
            to: u64::MAX,
        };
        for request in [
            PeerRequest::Clock,
            PeerRequest::Node(transfer),
            PeerRequest::Node(NodeRequest::Forget),
        ] {
            let bytes = request.clone().encode(1).unwrap();
            assert_eq!(PeerRequest::decode(&bytes, 1), Ok(request));
            let longer = [&bytes[..], &[0]].concat();
            assert!(PeerRequest::decode(&longer, 1).is_err());
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        for answer in [Ok(()), Err(Refusal::Conflict("it leads".to_owned()))] {
            let bytes = NodeRequest::encode_answer(&answer);
            assert_eq!(NodeRequest::decode_answer(&bytes), Ok(answer));
        }
        let long = NodeRequest::encode_answer(&Err(Refusal::Unknown("x".repeat(70_000))));
        let read = NodeRequest::decode_answer(&long);
        assert!(matches!(read, Err(Violation::TooLong { .. })), "{read:?}");
        assert_eq!(
            NodeRequest::decode_answer(&[]),
            Err(Violation::Encoding(Kind::Node))
        );
    }

    #[test]
    fn clocks_are_read_as_they_were_written() {
        let reading = ClockReading {
            incarnation: 1,
            clock_ms: 2,
            system_ms: u64::MAX,
        };
        let bytes = reading.encode();
        assert_eq!(bytes.len(), 25);
        assert_eq!(ClockReading::decode(&bytes), Ok(reading));
        let malformed = Err(Violation::Encoding(Kind::Clock));
        assert_eq!(ClockReading::decode(&bytes[1..]), malformed);
        let mut wrong = bytes.to_vec();
        wrong[0] = 36;
        assert_eq!(ClockReading::decode(&wrong), malformed);
    }
}
