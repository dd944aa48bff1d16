//! Nanoseconds per decode and encode. `HERALD_BENCH_SMOKE=1` runs each a few times only, to see that it
//! works.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, DeliveryHeader, MessageBody, Packet, PacketId,
    ProtocolVersion, PubAck, Publish, PublishProperties, QoS, ReasonCode, Subscribe,
    SubscribeFilters, SubscribeProperties, SubscriptionOptions, UserProperties,
};

const TOPIC: &str = "site/7/device/1234/telemetry";

/// Prints the best of nine rounds: on a shared machine the fastest round is the least disturbed one.
#[expect(clippy::print_stdout, reason = "the report of a benchmark")]
fn measure(name: &str, mut run: impl FnMut()) {
    let smoke = std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let (rounds, round_time) = if smoke {
        (1, Duration::ZERO)
    } else {
        (9, Duration::from_millis(60))
    };
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        let mut runs = 0_u32;
        loop {
            for _ in 0..1_000 {
                run();
            }
            runs += 1_000;
            if start.elapsed() >= round_time {
                break;
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(runs));
    }
    println!("{name:<44} {best:>8.1} ns");
}

fn decode(name: &str, packet: &Packet<'_>, version: ProtocolVersion) {
    let mut frame = Vec::new();
    packet.encode(version, &mut frame).expect("encodes");
    measure(&format!("decode {name}"), || {
        let decoded = Packet::decode(black_box(&frame), black_box(version));
        assert!(black_box(&decoded).is_ok());
    });
    let mut out = Vec::with_capacity(1024);
    measure(&format!("encode {name}"), || {
        out.clear();
        let encoded = black_box(packet).encode(black_box(version), &mut out);
        assert!(encoded.is_ok());
        black_box(&out);
    });
}

fn main() {
    let v5 = ProtocolVersion::V5;
    let v3 = ProtocolVersion::V3_1_1;
    let id = PacketId::FIRST;
    let small = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: TOPIC,
        packet_id: None,
        properties: PublishProperties::default(),
        payload: &[7; 32],
    };
    decode("PUBLISH QoS 0, 32 B, 3.1.1", &Packet::Publish(small), v3);
    decode("PUBLISH QoS 0, 32 B, 5.0", &Packet::Publish(small), v5);

    let mut buffer = Vec::new();
    let user_properties = UserProperties::encode_from(
        &[("trace", "0af7651916cd43dd"), ("unit", "°C")],
        &mut buffer,
    );
    let full = Publish {
        qos: QoS::AtLeastOnce,
        packet_id: Some(id),
        properties: PublishProperties {
            payload_format_indicator: Some(true),
            message_expiry_interval: Some(60),
            content_type: Some("application/json"),
            user_properties: user_properties.expect("encodes"),
            ..PublishProperties::default()
        },
        payload: &[b'x'; 256],
        ..small
    };
    decode(
        "PUBLISH QoS 1, 256 B, 5.0, properties",
        &Packet::Publish(full),
        v5,
    );

    let connect = Connect {
        version: v5,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "device-1234",
        will: None,
        username: Some("tenant/device-1234"),
        password: Some(b"correct horse battery"),
        properties: ConnectProperties {
            session_expiry_interval: Some(3_600),
            receive_maximum: NonZeroU16::new(100),
            ..ConnectProperties::default()
        },
    };
    decode("CONNECT 5.0", &Packet::Connect(connect), v5);

    let mut buffer = Vec::new();
    let filters = SubscribeFilters::encode_from(
        &[
            (TOPIC, SubscriptionOptions::default()),
            ("site/+/alarm/#", SubscriptionOptions::default()),
        ],
        &mut buffer,
    );
    let subscribe = Subscribe {
        packet_id: id,
        properties: SubscribeProperties::default(),
        filters: filters.expect("encodes"),
    };
    decode(
        "SUBSCRIBE 5.0, 2 filters",
        &Packet::Subscribe(subscribe),
        v5,
    );

    let ack = PubAck {
        packet_id: id,
        reason: ReasonCode::Success,
        properties: AckProperties::default(),
    };
    decode("PUBACK 5.0", &Packet::PubAck(ack), v5);

    measure("MessageBody::from_publish 32 B", || {
        black_box(MessageBody::from_publish(black_box(&small), TOPIC));
    });
    measure("MessageBody::from_publish 256 B, properties", || {
        black_box(MessageBody::from_publish(black_box(&full), TOPIC));
    });
    let mut out = Vec::with_capacity(1024);
    let qos1 = DeliveryHeader {
        qos: QoS::AtLeastOnce,
        packet_id: Some(id),
        ..DeliveryHeader::default()
    };
    for (name, publish, version, header) in [
        ("32 B, QoS 0, 3.1.1", &small, v3, DeliveryHeader::default()),
        ("32 B, QoS 0, 5.0", &small, v5, DeliveryHeader::default()),
        ("32 B, QoS 1, 3.1.1", &small, v3, qos1),
        ("256 B, QoS 1, 5.0, properties", &full, v5, qos1),
    ] {
        let body = MessageBody::from_publish(publish, TOPIC);
        measure(&format!("MessageBody::encode {name}"), || {
            out.clear();
            black_box(&body).encode(black_box(version), black_box(&header), &mut out);
            black_box(&out);
        });
    }
}
