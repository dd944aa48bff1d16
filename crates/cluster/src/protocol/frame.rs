//! What travels on a link after its handshake: frames behind their length, 4 bytes, big-endian.
//!
//! ```text
//! (empty)                 keep-alive
//! 0  bytes                a message
//! 1  call (8)  bytes      a request
//! 2  call (8)  bytes      its answer, on the connection of the other direction
//! 3  call (8)             there will be no answer
//! ```

use bytes::{Buf, BufMut, Bytes};

/// The longest frame, in bytes behind its length.
///
/// Limit: a frame between nodes | {:bytes}; {connect::STRANGER_FRAME_LIMIT:bytes} before the handshake is done | not
/// sent; the connection is closed
pub(crate) const FRAME_LIMIT: usize = 64 * 1024 * 1024;

/// What a frame adds to its payload at most: length, kind, call.
pub(crate) const OVERHEAD: usize = 4 + 1 + 8;

/// The bytes of a keep-alive.
pub(crate) const KEEP_ALIVE: [u8; 4] = [0; 4];

const MESSAGE: u8 = 0;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const NO_ANSWER: u8 = 3;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Message,
    Request(u64),
    Answer(u64),
    NoAnswer(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) payload: Bytes,
}

impl Frame {
    pub(crate) fn message(payload: Bytes) -> Self {
        let kind = Kind::Message;
        Self { kind, payload }
    }

    pub(crate) fn request(call: u64, payload: Bytes) -> Self {
        let kind = Kind::Request(call);
        Self { kind, payload }
    }

    pub(crate) fn answer(call: u64, payload: Bytes) -> Self {
        let kind = Kind::Answer(call);
        Self { kind, payload }
    }

    pub(crate) fn no_answer(call: u64) -> Self {
        let kind = Kind::NoAnswer(call);
        let payload = Bytes::new();
        Self { kind, payload }
    }

    /// Bytes on the wire at most, with the length.
    pub(crate) fn size(&self) -> usize {
        OVERHEAD + self.payload.len()
    }

    /// Appends all but the payload.
    pub(crate) fn encode_head(&self, into: &mut impl BufMut) {
        let (kind, call) = match self.kind {
            Kind::Message => (MESSAGE, None),
            Kind::Request(call) => (REQUEST, Some(call)),
            Kind::Answer(call) => (ANSWER, Some(call)),
            Kind::NoAnswer(call) => (NO_ANSWER, Some(call)),
        };
        let head = 1 + call.map_or(0, |_| 8);
        let length = u32::try_from(head + self.payload.len());
        into.put_u32(length.expect("a payload is limited"));
        into.put_u8(kind);
        if let Some(call) = call {
            into.put_u64(call);
        }
    }

    /// What stands behind a length of at least 1. `None`: no frame of ours.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let kind = bytes.try_get_u8().ok()?;
        let kind = match kind {
            MESSAGE => Kind::Message,
            REQUEST => Kind::Request(bytes.try_get_u64().ok()?),
            ANSWER => Kind::Answer(bytes.try_get_u64().ok()?),
            NO_ANSWER => Kind::NoAnswer(bytes.try_get_u64().ok()?),
            _ => return None,
        };
        let payload = bytes;
        Some(Self { kind, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn encoded(frame: &Frame) -> BytesMut {
        let mut bytes = BytesMut::new();
        frame.encode_head(&mut bytes);
        bytes.extend_from_slice(&frame.payload);
        bytes
    }

    #[test]
    fn frames_look_as_they_are_documented() {
        let payload = Bytes::from_static(b"ab");
        assert_eq!(
            &encoded(&Frame::message(payload.clone()))[..],
            b"\0\0\0\x03\0ab"
        );
        assert_eq!(
            &encoded(&Frame::request(1, payload))[..],
            b"\0\0\0\x0b\x01\0\0\0\0\0\0\0\x01ab"
        );
        assert_eq!(
            &encoded(&Frame::no_answer(2))[..],
            b"\0\0\0\x09\x03\0\0\0\0\0\0\0\x02"
        );
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let payload = Bytes::from_static(b"abc");
        for frame in [
            Frame::message(payload.clone()),
            Frame::message(Bytes::new()),
            Frame::request(7, payload.clone()),
            Frame::answer(u64::MAX, payload),
            Frame::no_answer(9),
        ] {
            let mut bytes = encoded(&frame).freeze();
            assert!(bytes.len() <= frame.size());
            let length = bytes.get_u32() as usize;
            assert_eq!(length, bytes.len());
            assert_eq!(Frame::decode(bytes), Some(frame));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            let _ = Frame::decode(bytes.into());
        }
    }
}
