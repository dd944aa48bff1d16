//! Limits, and arbitrary bytes.

use std::time::Duration;

use mqtt_proto::*;
use proptest::prelude::*;

use crate::*;

const V3: ProtocolVersion = ProtocolVersion::V3_1_1;

fn connect(version: ProtocolVersion) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }
}

fn client() -> Client<u32> {
    let mut client = Client::new(Acknowledgements::Automatic);
    client.connect(&connect(V3)).unwrap();
    let events = receive(&mut client, &[0x20, 2, 0, 0]);
    assert_eq!(events, Ok(1));
    transmit(&mut client);
    client
}

/// How many events the bytes are.
fn receive(client: &mut Client<u32>, bytes: &[u8]) -> Result<usize, ProtocolError> {
    let mut arrival = client.handle_bytes(bytes);
    let mut events = 0;
    while client.poll_event(&mut arrival)?.is_some() {
        events += 1;
    }
    Ok(events)
}

fn transmit(client: &mut Client<u32>) {
    let count = client.poll_transmit().len();
    client.handle_transmitted(count, Duration::ZERO);
}

fn message(qos: QoS, payload: &[u8]) -> Publish<'_> {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: "t",
        packet_id: None,
        properties: PublishProperties::default(),
        payload,
    }
}

#[test]
fn a_client_stays_small() {
    assert!(
        size_of::<Client<u64>>() <= 264,
        "{}",
        size_of::<Client<u64>>()
    );
}

#[test]
fn messages_wait_for_room_to_be_sent() {
    let mut client = client();
    let payload = [0; 1000];
    let mut published = 0;
    while client.has_room(QoS::AtMostOnce) {
        let done = client.publish(message(QoS::AtMostOnce, &payload), 0);
        assert_eq!(done, Ok(None));
        published += 1;
    }
    assert_eq!(published, TRANSMIT_LIMIT / 1006 + 1);
    let refused = client.publish(message(QoS::AtMostOnce, &payload), 0);
    assert_eq!(refused, Err(CommandError::NoRoom));
    // What is left after a part was sent is still whole.
    let waiting = client.poll_transmit().to_vec();
    client.handle_transmitted(0, Duration::ZERO);
    client.handle_transmitted(1007, Duration::ZERO);
    assert_eq!(client.poll_transmit(), &waiting[1007..]);
    assert!(client.has_room(QoS::AtMostOnce));
}

#[test]
fn messages_wait_for_room_to_be_sent_again() {
    let mut client = client();
    let payload = [0; 1000];
    for known_by in 0..300 {
        let published = client.publish(message(QoS::AtLeastOnce, &payload), known_by);
        assert!(published.is_ok());
        transmit(&mut client);
    }
    client.connect(&connect(V3)).unwrap();
    transmit(&mut client);
    assert_eq!(receive(&mut client, &[0x20, 2, 0, 0]), Ok(1));
    let mut resent = Vec::new();
    for _ in 0..2 {
        while let Some(&known_by) = client.poll_resend() {
            resent.push(known_by);
            let again = client.resend(message(QoS::AtLeastOnce, &payload));
            assert_eq!(again, Ok(()));
        }
        assert!(client.poll_transmit().len() < TRANSMIT_LIMIT + 1008);
        transmit(&mut client);
    }
    assert!(resent.into_iter().eq(0..300));
}

#[test]
fn a_server_that_reads_no_answers_is_given_up() {
    let mut client = client();
    let releases: Vec<u8> = [0x62, 2, 0, 1].repeat(ANSWERS_LIMIT / 4 + 1);
    let given_up = ProtocolError::Violation(Violation::AnswersNotRead);
    assert_eq!(receive(&mut client, &releases), Err(given_up));
    assert_eq!(client.poll_transmit(), b"");
    let mut client = self::client();
    let receipts: Vec<u8> = [0x50, 2, 0, 1].repeat(ANSWERS_LIMIT / 4 + 1);
    assert_eq!(receive(&mut client, &receipts), Err(given_up));
}

#[test]
fn requests_have_a_limit() {
    let mut client = client();
    for _ in 0..REQUESTS_LIMIT {
        let asked = client.subscribe(&[("f", SubscriptionOptions::default())], Default::default());
        assert!(asked.is_ok());
        transmit(&mut client);
    }
    let refused = client.unsubscribe(&["f"], Default::default());
    assert_eq!(refused, Err(CommandError::NoRoom));
    assert_eq!(receive(&mut client, &[0x90, 3, 0, 1, 0]), Ok(1));
    assert!(client.unsubscribe(&["f"], Default::default()).is_ok());
}

/// [MQTT-2.2.1-3] [MQTT-4.3.2-1] [MQTT-4.3.3-1] also past the highest one.
#[test]
fn identifiers_go_round_and_skip_those_in_use() {
    let mut client = client();
    let asked = client.subscribe(&[("f", SubscriptionOptions::default())], Default::default());
    assert_eq!(asked.map(PacketId::get), Ok(1));
    let oldest = client.publish(message(QoS::ExactlyOnce, b""), 0);
    assert_eq!(oldest.map(|id| id.map(PacketId::get)), Ok(Some(2)));
    // All but those of the request and the oldest message.
    for expected in 3..=u16::MAX {
        let id = client.publish(message(QoS::AtLeastOnce, b""), 1);
        assert_eq!(id.map(|id| id.map(PacketId::get)), Ok(Some(expected)));
        let [high, low] = expected.to_be_bytes();
        assert_eq!(receive(&mut client, &[0x40, 2, high, low]), Ok(1));
        transmit(&mut client);
    }
    assert!(!client.has_room(QoS::AtLeastOnce));
    assert!(client.has_room(QoS::AtMostOnce));
    // PUBREC, PUBCOMP of the oldest.
    assert_eq!(receive(&mut client, &[0x50, 2, 0, 2, 0x70, 2, 0, 2]), Ok(2));
    let next = client.publish(message(QoS::AtLeastOnce, b""), 1);
    assert_eq!(next.map(|id| id.map(PacketId::get)), Ok(Some(2)));
    // Places are found past the highest identifier, too.
    client.next_id = PacketId::new(65_534).unwrap();
    assert_eq!(receive(&mut client, &[0x40, 2, 0, 2]), Ok(1));
    for known_by in 0..4 {
        client
            .publish(message(QoS::AtLeastOnce, b""), known_by)
            .unwrap();
    }
    let ids = client.in_flight.iter().map(|sent| sent.packet_id.get());
    assert!(ids.eq([65_534, 65_535, 2, 3]));
    for (id, known_by) in [(2_u16, 2), (65_535, 1), (3, 3), (65_534, 0)] {
        let [high, low] = id.to_be_bytes();
        let puback = [0x40, 2, high, low];
        let mut arrival = client.handle_bytes(&puback);
        let event = client.poll_event(&mut arrival);
        let Ok(Some(Event::Acknowledged(ack))) = event else {
            panic!("{event:?}");
        };
        assert_eq!(ack.message, known_by);
    }
}

#[test]
fn a_large_packet_arrives_in_pieces() {
    let mut frame = Vec::new();
    let payload = vec![7; 100_000];
    let publish = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: None,
        properties: PublishProperties::default(),
        payload: &payload,
    };
    publish.encode(V3, &mut frame).unwrap();
    // And the start of the next one.
    frame.extend_from_slice(&[0x30, 4, 0]);
    let mut client = client();
    let (start, end) = frame.split_at(60_000);
    assert_eq!(receive(&mut client, start), Ok(0));
    assert_eq!(client.partial.len(), 60_000);
    let mut arrival = client.handle_bytes(end);
    let event = client.poll_event(&mut arrival).unwrap();
    let Some(Event::Message(incoming)) = event else {
        panic!("{event:?}");
    };
    assert_eq!(incoming.publish, publish);
    assert_eq!(client.poll_event(&mut arrival), Ok(None));
    assert_eq!(client.partial, [0x30, 4, 0]);
    assert_eq!(receive(&mut client, &[1, b't', 9]), Ok(1));
    assert_eq!(client.partial.capacity(), 0);
}

#[test]
fn errors_have_words() {
    let decode = ProtocolError::from(DecodeError::QosInvalid);
    assert_eq!(decode.statement(), Some("MQTT-3.3.1-4"));
    let encode = CommandError::from(EncodeError::NulInString);
    let source = std::error::Error::source(&encode).map(ToString::to_string);
    assert_eq!(source, Some(EncodeError::NulInString.to_string()));
    assert!(std::error::Error::source(&CommandError::NoRoom).is_none());
}

fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Beginnings of packets that a server sends, so that many get far.
    let known = prop::sample::select(vec![
        vec![0x20, 2, 0, 0],
        vec![0x20, 3, 1, 0, 0],
        vec![0x30, 4, 0, 1, b't', 0],
        vec![0x32, 6, 0, 1, b't', 0, 5, 0],
        vec![0x34, 6, 0, 1, b't', 0, 6, 0],
        vec![0x40, 2, 0, 1],
        vec![0x50, 2, 0, 2],
        vec![0x62, 2, 0, 6],
        vec![0x70, 2, 0, 2],
        vec![0x90, 4, 0, 3, 0, 0],
        vec![0xB0, 2, 0, 4],
        vec![0xD0, 0],
        vec![0xE0, 0],
        vec![0x30, 0xFF],
    ]);
    let noise = prop::collection::vec(any::<u8>(), 0..12);
    prop::collection::vec(prop_oneof![6 => known, 1 => noise], 0..24)
}

proptest! {
    /// Whatever arrives, in whatever pieces: no panic, the same events, and no more kept than has arrived.
    #[test]
    fn arbitrary_bytes(pieces in pieces(), cut in 1_usize..9, is_v5: bool) {
        let version = if is_v5 { ProtocolVersion::V5 } else { V3 };
        let bytes = pieces.concat();
        let play = |cut: usize| {
            let mut client: Client<u32> = Client::new(Acknowledgements::Automatic);
            client.connect(&connect(version)).unwrap();
            // Messages for the acknowledgements among the bytes, once CONNACK has come.
            let mut to_publish = [QoS::AtLeastOnce, QoS::ExactlyOnce].iter();
            let mut told = Vec::new();
            for piece in bytes.chunks(cut) {
                let mut arrival = client.handle_bytes(piece);
                loop {
                    match client.poll_event(&mut arrival) {
                        Ok(Some(event)) => {
                            told.push(format!("{event:?}"));
                            while client.is_connected()
                                && let Some(qos) = to_publish.next()
                            {
                                let published = client.publish(message(*qos, b"x"), 1);
                                told.push(format!("{published:?}"));
                            }
                        }
                        Ok(None) => break,
                        Err(error) => {
                            told.push(format!("{error:?}"));
                            break;
                        }
                    }
                }
                assert!(client.partial.len() <= bytes.len());
            }
            (told, client.poll_transmit().to_vec())
        };
        prop_assert_eq!(play(cut), play(usize::MAX));
    }
}
