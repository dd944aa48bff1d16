//! Any bytes, in every version: the decoder does not panic, and what decodes is written so that it
//! decodes to the same.

use mqtt_proto::{Packet, ProtocolVersion, peek_frame};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "packet",
    run,
    seeds,
};

fn run(bytes: &[u8]) {
    for version in [
        ProtocolVersion::V3_1,
        ProtocolVersion::V3_1_1,
        ProtocolVersion::V5,
    ] {
        let frame = match peek_frame(bytes, Some(version)) {
            Ok(Some(frame)) => bytes.get(..frame.len()).unwrap_or(bytes),
            Ok(None) => bytes,
            Err(error) => {
                assert!(error.reason_code().is_error());
                continue;
            }
        };
        match Packet::decode(frame, version) {
            Ok(packet) => {
                let mut again = Vec::new();
                packet
                    .encode(version, &mut again)
                    .expect("what decodes encodes");
                assert_eq!(Packet::decode(&again, version), Ok(packet));
            }
            Err(error) => assert!(error.reason_code().is_error()),
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [
        &b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01c"[..],
        b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c",
        b"\x32\x0a\0\x03a/b\0\x07\0hi",
        b"\x82\x0c\0\x01\0\0\x06a/+/#x\x01",
        b"\x62\x02\0\x07",
        b"\xf0\x02\x18\0",
        b"\xe0\x02\x8e\0",
        b"\x20\x03\0\0\0",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
