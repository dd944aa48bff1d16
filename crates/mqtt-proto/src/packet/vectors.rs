//! Golden vectors: a frame, and the packet it stands for.

use crate::{DecodeError, Packet, ProtocolVersion};

/// `frame` decodes to `packet`, and `packet` encodes to `frame`.
#[track_caller]
pub(super) fn check(version: ProtocolVersion, frame: &[u8], packet: Packet<'_>) {
    decodes(version, frame, packet);
    let mut out = vec![0xEE];
    packet
        .encode(version, &mut out)
        .expect("a golden packet encodes");
    assert_eq!(&out[1..], frame, "encoded differs");
}

/// `frame` decodes to `packet`, though there is a shorter way to say the same.
#[track_caller]
pub(super) fn decodes(version: ProtocolVersion, frame: &[u8], packet: Packet<'_>) {
    assert_eq!(Packet::decode(frame, version), Ok(packet));
    // Every proper prefix and every longer frame is refused.
    for len in 0..frame.len() {
        assert!(
            Packet::decode(&frame[..len], version).is_err(),
            "prefix of {len} bytes"
        );
    }
    assert!(Packet::decode(&[frame, &[0]].concat(), version).is_err());
}

/// `frame` is refused with `error`.
#[track_caller]
pub(super) fn refuse(version: ProtocolVersion, frame: &[u8], error: DecodeError) {
    assert_eq!(Packet::decode(frame, version), Err(error));
    assert!(error.reason_code().is_error());
}
