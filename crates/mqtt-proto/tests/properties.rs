//! decode ∘ encode is the identity for every packet in every version, and no bytes make the decoder
//! panic.

use mqtt_proto::{MessageBody, Packet, peek_frame};
use proptest::collection::vec;
use proptest::prelude::*;

mod generate;

use generate::{Source, VERSIONS, check_any_bytes, packet};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..Default::default() })]

    #[test]
    fn decode_after_encode_is_identity(choices in vec(any::<u8>(), 0..300)) {
        for version in VERSIONS {
            let packet = packet(&mut Source(&mut choices.iter().copied()), version);
            let mut out = vec![0xEE];
            packet.encode(version, &mut out).expect("a generated packet encodes");
            let frame = &out[1..];
            let header = peek_frame(frame, Some(version)).expect("valid").expect("complete");
            prop_assert_eq!(header.len(), frame.len());
            prop_assert_eq!(header.packet_type, packet.packet_type());
            prop_assert_eq!(Packet::decode(frame, version), Ok(packet));
        }
    }

    #[test]
    fn a_message_body_keeps_topic_properties_and_payload(choices in vec(any::<u8>(), 0..300)) {
        // The third kind of packet is PUBLISH.
        let choices = std::iter::once(2).chain(choices);
        let mut choices = choices.into_iter();
        let packet = packet(&mut Source(&mut choices), mqtt_proto::ProtocolVersion::V5);
        let Packet::Publish(publish) = packet else { panic!("not a PUBLISH: {packet:?}") };
        let body = MessageBody::from_publish(&publish, "topic");
        let mut expect = publish.properties;
        expect.topic_alias = None;
        expect.message_expiry_interval = None;
        expect.subscription_ids = Default::default();
        prop_assert_eq!(body.topic(), "topic");
        prop_assert_eq!(body.properties(), expect);
        prop_assert_eq!(body.payload(), publish.payload);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        check_any_bytes(&bytes);
    }

    /// As above behind a believable fixed header, so that the body is reached.
    #[test]
    fn arbitrary_bodies_never_panic(kind in 1_u8..16, flags in 0_u8..16, body in vec(any::<u8>(), 0..120)) {
        let flags = match kind { 3 => flags, 6 | 8 | 10 => 2, _ => 0 };
        let frame = [&[kind << 4 | flags, body.len() as u8], &body[..]].concat();
        check_any_bytes(&frame);
    }
}
