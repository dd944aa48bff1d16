//! Control packets as words: `PUBLISH t hello 1 #5`, `SUBACK #1 [01 80]`.

use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, Disconnect, DisconnectProperties, LastWill, Packet,
    PacketId, ProtocolVersion, PubAck, PubComp, PubRec, PubRel, Publish, PublishProperties, QoS,
    ReasonCode, Subscribe, SubscribeFilters, SubscribeProperties, SubscriptionOptions, Unsubscribe,
    UnsubscribeFilters, UnsubscribeProperties, UserProperties, WillProperties, peek_frame,
};

/// So many equal things, or more, are said as one, with their number.
pub(crate) const MANY: usize = 16;

fn id(word: &str) -> PacketId {
    let number = word.strip_prefix('#').and_then(|n| n.parse().ok());
    number
        .and_then(PacketId::new)
        .unwrap_or_else(|| panic!("{word} is no packet identifier"))
}

fn qos(word: &str) -> QoS {
    match word {
        "0" => QoS::AtMostOnce,
        "1" => QoS::AtLeastOnce,
        "2" => QoS::ExactlyOnce,
        _ => panic!("{word} is no QoS"),
    }
}

/// CONNECT: `[v3] [durable] [resume] [will TOPIC PAYLOAD [DELAY]] [inflight N] [keepalive S]`.
pub(crate) fn connect(client_id: &str, words: &[&str]) -> (ProtocolVersion, Vec<u8>) {
    let has = |word: &str| words.contains(&word);
    let after = |word: &str, n: usize| {
        let at = words.iter().position(|w| *w == word)?;
        words.get(at + n).copied()
    };
    let version = match has("v3") || has("bridge") {
        true => ProtocolVersion::V3_1_1,
        false => ProtocolVersion::V5,
    };
    let is_v5 = version == ProtocolVersion::V5;
    let durable = has("durable") || has("resume");
    let will = after("will", 1).map(|topic| LastWill {
        topic,
        payload: after("will", 2).unwrap_or_default().as_bytes(),
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: WillProperties {
            will_delay_interval: after("will", 3).and_then(|delay| delay.parse().ok()),
            ..WillProperties::default()
        },
    });
    let connect = Connect {
        version,
        is_bridge: has("bridge"),
        clean_start: !has("resume") && (is_v5 || !durable),
        keep_alive: after("keepalive", 1).map_or(0, |s| s.parse().unwrap()),
        client_id,
        will,
        username: None,
        password: None,
        properties: ConnectProperties {
            session_expiry_interval: (is_v5 && durable).then_some(3_600),
            receive_maximum: after("inflight", 1).and_then(|n| n.parse().ok()),
            ..ConnectProperties::default()
        },
    };
    let mut bytes = Vec::new();
    connect.encode(&mut bytes).unwrap();
    (version, bytes)
}

/// Any other packet of a client.
pub(crate) fn packet(version: ProtocolVersion, words: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buffer = Vec::new();
    let user_properties = UserProperties::default();
    let properties = AckProperties {
        user_properties,
        ..AckProperties::default()
    };
    let word = |n: usize| words.get(n).copied().unwrap_or_default();
    let packet = match word(0) {
        "PUBLISH" => Packet::Publish(Publish {
            dup: words.contains(&"dup"),
            qos: qos(word(3)),
            retain: words.contains(&"retain"),
            topic: word(1),
            packet_id: word(4).starts_with('#').then(|| id(word(4))),
            properties: PublishProperties::default(),
            payload: word(2).trim_matches('"').as_bytes(),
        }),
        "PUBACK" => Packet::PubAck(PubAck {
            packet_id: id(word(1)),
            reason: ReasonCode::Success,
            properties,
        }),
        "PUBREC" => Packet::PubRec(PubRec {
            packet_id: id(word(1)),
            reason: ReasonCode::Success,
            properties,
        }),
        "PUBREL" => Packet::PubRel(PubRel {
            packet_id: id(word(1)),
            reason: ReasonCode::Success,
            properties,
        }),
        "PUBCOMP" => Packet::PubComp(PubComp {
            packet_id: id(word(1)),
            reason: ReasonCode::Success,
            properties,
        }),
        "SUBSCRIBE" => {
            let filters: Vec<_> = words[2..]
                .chunks(2)
                .map(|pair| {
                    // The QoS, then `n` for No Local and `r` for Retain As Published.
                    let (level, flags) = pair[1].split_at(1);
                    let options = SubscriptionOptions {
                        qos: qos(level),
                        no_local: flags.contains('n'),
                        retain_as_published: flags.contains('r'),
                        ..SubscriptionOptions::default()
                    };
                    (pair[0], options)
                })
                .collect();
            Packet::Subscribe(Subscribe {
                packet_id: id(word(1)),
                properties: SubscribeProperties::default(),
                filters: SubscribeFilters::encode_from(&filters, &mut buffer).unwrap(),
            })
        }
        "UNSUBSCRIBE" => Packet::Unsubscribe(Unsubscribe {
            packet_id: id(word(1)),
            properties: UnsubscribeProperties::default(),
            filters: UnsubscribeFilters::encode_from(&words[2..], &mut buffer).unwrap(),
        }),
        "CONNECT" => return connect("again", &[]).1,
        "PINGREQ" => Packet::PingReq,
        "DISCONNECT" => Packet::Disconnect(Disconnect {
            reason: match word(1) {
                "with-will" => ReasonCode::DisconnectWithWill,
                _ => ReasonCode::Success,
            },
            properties: DisconnectProperties::default(),
        }),
        other => panic!("{other} is no packet"),
    };
    packet.encode(version, &mut out).unwrap();
    out
}

/// Packets of the broker, one word-line for each.
pub(crate) fn describe(version: ProtocolVersion, mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(frame) = peek_frame(bytes, Some(version)).unwrap() {
        let (whole, rest) = bytes.split_at(frame.len());
        lines.push(describe_one(&Packet::decode(whole, version).unwrap()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the broker sent half a packet");
    lines
}

fn describe_one(packet: &Packet<'_>) -> String {
    let with_reason = |name: &str, id: PacketId, reason: ReasonCode| match reason {
        ReasonCode::Success => format!("{name} #{id}"),
        reason => format!("{name} #{id} {:#04x}", reason.as_u8()),
    };
    let codes = |codes: &mqtt_proto::ReasonCodes<'_>| {
        let codes: Vec<u8> = codes.iter().map(|code| code.as_u8()).collect();
        match codes[..] {
            [first, ..] if codes.len() >= MANY && codes.iter().all(|code| *code == first) => {
                format!("{first:02x} for each of {}", codes.len())
            }
            _ => {
                let codes = codes.iter().map(|code| format!("{code:02x}"));
                codes.collect::<Vec<_>>().join(" ")
            }
        }
    };
    match packet {
        Packet::ConnAck(ack) => {
            let present = if ack.session_present { " present" } else { "" };
            format!("CONNACK {:#04x}{present}", ack.reason.as_u8())
        }
        Packet::Publish(publish) => {
            let payload = String::from_utf8_lossy(publish.payload);
            let mut line = format!(
                "PUBLISH {} {payload} {}",
                publish.topic,
                publish.qos.as_u8()
            );
            if let Some(id) = publish.packet_id {
                line += &format!(" #{id}");
            }
            for (is, word) in [(publish.retain, " retain"), (publish.dup, " dup")] {
                line += if is { word } else { "" };
            }
            line
        }
        Packet::PubAck(ack) => with_reason("PUBACK", ack.packet_id, ack.reason),
        Packet::PubRec(ack) => with_reason("PUBREC", ack.packet_id, ack.reason),
        Packet::PubRel(ack) => with_reason("PUBREL", ack.packet_id, ack.reason),
        Packet::PubComp(ack) => with_reason("PUBCOMP", ack.packet_id, ack.reason),
        Packet::SubAck(ack) => format!("SUBACK #{} [{}]", ack.packet_id, codes(&ack.reasons)),
        Packet::UnsubAck(ack) => format!("UNSUBACK #{} [{}]", ack.packet_id, codes(&ack.reasons)),
        Packet::PingResp => "PINGRESP".to_owned(),
        Packet::Disconnect(disconnect) => {
            format!("DISCONNECT {:#04x}", disconnect.reason.as_u8())
        }
        other => panic!("a broker does not send {other:?}"),
    }
}
