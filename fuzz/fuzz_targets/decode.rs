//! Any bytes, in every version: the decoder does not panic, and what decodes is written so that it
//! decodes to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_proto::{Packet, ProtocolVersion, peek_frame};

fuzz_target!(|bytes: &[u8]| {
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
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
                packet.encode(version, &mut again).expect("what decodes encodes");
                assert_eq!(Packet::decode(&again, version), Ok(packet));
            }
            Err(error) => assert!(error.reason_code().is_error()),
        }
    }
});
