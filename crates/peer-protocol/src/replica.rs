//! Requests to Raft replicas, on channels of their own: the group's number before what consensus writes.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// A request to a replica of a Raft group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaRequest {
    /// The group.
    pub group: u64,
    /// What consensus asks, in its own encoding.
    pub request: Bytes,
}

impl ReplicaRequest {
    /// The request as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(8 + self.request.len());
        bytes.put_u64(self.group);
        bytes.extend_from_slice(&self.request);
        bytes.freeze()
    }

    /// `None`: there is no group.
    #[must_use]
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        let group = bytes.try_get_u64().ok()?;
        let request = bytes;
        Some(Self { group, request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_group() {
        let request = ReplicaRequest {
            group: 7,
            request: Bytes::from_static(b"ab"),
        };
        let bytes = request.encode();
        assert_eq!(&bytes[..], b"\0\0\0\0\0\0\0\x07ab");
        assert_eq!(ReplicaRequest::decode(bytes), Some(request));
        for cut in 0..8 {
            assert_eq!(ReplicaRequest::decode(vec![0; cut].into()), None);
        }
    }
}
