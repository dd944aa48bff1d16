use crate::packet::vectors::{check, refuse};
use crate::{DecodeError, Packet, ProtocolVersion};

#[test]
fn two_bytes_in_every_version() {
    for version in [
        ProtocolVersion::V3_1,
        ProtocolVersion::V3_1_1,
        ProtocolVersion::V5,
    ] {
        check(version, &[0xC0, 0], Packet::PingReq);
        refuse(version, &[0xC0, 1, 0], DecodeError::TrailingBytes);
    }
}
