//! Valid packets made of arbitrary bytes: the same bytes make the same packet.
//!
//! Text and data are leaked: a packet borrows, and a test process that ends soon needs no owner for them.

use std::num::{NonZeroU16, NonZeroU32};

use mqtt_proto::{
    AckProperties, Auth, AuthProperties, ConnAck, ConnAckProperties, Connect, ConnectProperties,
    ConnectReturnCode, Disconnect, DisconnectProperties, LastWill, Packet, PacketId,
    ProtocolVersion, PubAck, PubComp, PubRec, PubRel, Publish, PublishProperties, QoS, ReasonCode,
    ReasonCodes, RetainHandling, SubAck, Subscribe, SubscribeFilters, SubscribeProperties,
    SubscriptionIds, SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeFilters,
    UnsubscribeProperties, UserProperties, WillProperties,
};

/// Every version.
pub(crate) const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V3_1,
    ProtocolVersion::V3_1_1,
    ProtocolVersion::V5,
];

/// Where the choices come from; zeros when exhausted.
pub(crate) struct Source<'s>(pub(crate) &'s mut dyn Iterator<Item = u8>);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().unwrap_or(0)
    }

    fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    fn text(&mut self) -> &'static str {
        const LETTERS: [char; 10] = ['a', 'Z', '/', '+', '#', '$', 'é', '\u{FEFF}', '😀', '\u{1}'];
        let len = self.below(20);
        let text: String = (0..len)
            .map(|_| LETTERS[usize::from(self.below(10))])
            .collect();
        // Now and then long enough for a length of two or three bytes.
        let times = [1, 1, 1, 20, 900][usize::from(self.below(5))];
        text.repeat(times).leak()
    }

    fn filter(&mut self) -> &'static str {
        let text = self.text();
        if text.is_empty() { "#" } else { text }
    }

    fn topic(&mut self) -> &'static str {
        let text = self.text().replace(['+', '#'], "x");
        if text.is_empty() { "t" } else { text.leak() }
    }

    fn data(&mut self) -> &'static [u8] {
        let len = [0, 1, 7, 130, 20_000][usize::from(self.below(5))];
        vec![self.byte(); len].leak()
    }

    fn packet_id(&mut self) -> PacketId {
        PacketId::new(self.u16()).unwrap_or(PacketId::FIRST)
    }

    fn qos(&mut self) -> QoS {
        QoS::from_u8(self.below(3)).unwrap_or_default()
    }

    fn subscription_id(&mut self) -> u32 {
        (self.u32() >> self.below(28)).clamp(1, 268_435_455)
    }

    fn user_properties(&mut self) -> UserProperties<'static> {
        let pairs: Vec<_> = (0..self.below(4))
            .map(|_| (self.text(), self.text()))
            .collect();
        let buffer = Box::leak(Box::default());
        UserProperties::encode_from(&pairs, buffer).expect("short and without U+0000")
    }

    fn reason(&mut self) -> ReasonCode {
        let all = ReasonCode::ALL;
        all[usize::from(self.byte()) % all.len()]
    }

    fn non_zero_u16(&mut self) -> NonZeroU16 {
        NonZeroU16::new(self.u16()).unwrap_or(NonZeroU16::MIN)
    }

    fn non_zero_u32(&mut self) -> NonZeroU32 {
        NonZeroU32::new(self.u32()).unwrap_or(NonZeroU32::MIN)
    }
}

/// A packet that `version` can say in full.
pub(crate) fn packet(source: &mut Source<'_>, version: ProtocolVersion) -> Packet<'static> {
    let v5 = version.is_v5();
    let kinds = if v5 { 15 } else { 14 };
    let packet = match source.below(kinds) {
        0 => Packet::Connect(connect(source, version)),
        1 => Packet::ConnAck(connack(source, version)),
        2 => Packet::Publish(publish(source, v5)),
        3 => {
            let (packet_id, reason, properties) = ack(source, v5);
            Packet::PubAck(PubAck {
                packet_id,
                reason,
                properties,
            })
        }
        4 => {
            let (packet_id, reason, properties) = ack(source, v5);
            Packet::PubRec(PubRec {
                packet_id,
                reason,
                properties,
            })
        }
        5 => {
            let (packet_id, reason, properties) = ack(source, v5);
            Packet::PubRel(PubRel {
                packet_id,
                reason,
                properties,
            })
        }
        6 => {
            let (packet_id, reason, properties) = ack(source, v5);
            Packet::PubComp(PubComp {
                packet_id,
                reason,
                properties,
            })
        }
        7 => Packet::Subscribe(subscribe(source, v5)),
        8 => suback(source, v5),
        9 => unsubscribe(source, v5),
        10 => unsuback(source, v5),
        11 => Packet::PingReq,
        12 => Packet::PingResp,
        13 => disconnect(source, v5),
        _ => auth(source),
    };
    // A reason code of some other packet is as good as none.
    match packet.encode(version, &mut Vec::new()) {
        Ok(()) => packet,
        Err(_) => with_success(packet),
    }
}

fn with_success(mut packet: Packet<'static>) -> Packet<'static> {
    let reason = match &mut packet {
        Packet::ConnAck(packet) => &mut packet.reason,
        Packet::PubAck(packet) => &mut packet.reason,
        Packet::PubRec(packet) => &mut packet.reason,
        Packet::PubRel(packet) => &mut packet.reason,
        Packet::PubComp(packet) => &mut packet.reason,
        Packet::Disconnect(packet) => &mut packet.reason,
        Packet::SubAck(packet) => {
            packet.reasons = ReasonCodes::from(&[ReasonCode::Success][..]);
            return Packet::SubAck(*packet);
        }
        Packet::UnsubAck(packet) => {
            packet.reasons = ReasonCodes::from(&[ReasonCode::Success][..]);
            return Packet::UnsubAck(*packet);
        }
        _ => return packet,
    };
    *reason = ReasonCode::Success;
    packet
}

fn connect(source: &mut Source<'_>, version: ProtocolVersion) -> Connect<'static> {
    let v5 = version.is_v5();
    let username = source.maybe(Source::text);
    let password = source
        .maybe(Source::data)
        .filter(|_| v5 || username.is_some());
    let mut properties = ConnectProperties::default();
    if v5 {
        properties = ConnectProperties {
            session_expiry_interval: source.maybe(Source::u32),
            receive_maximum: source.maybe(Source::non_zero_u16),
            maximum_packet_size: source.maybe(Source::non_zero_u32),
            topic_alias_maximum: source.maybe(Source::u16),
            request_response_information: source.maybe(Source::flag),
            request_problem_information: source.maybe(Source::flag),
            authentication_method: source.maybe(Source::text),
            authentication_data: source.maybe(Source::data),
            user_properties: source.user_properties(),
        };
        if properties.authentication_method.is_none() {
            properties.authentication_data = None;
        }
    }
    Connect {
        version,
        is_bridge: !v5 && source.flag(),
        clean_start: source.flag(),
        keep_alive: source.u16(),
        client_id: source.text(),
        will: source.maybe(|source| will(source, v5)),
        username,
        password,
        properties,
    }
}

fn will(source: &mut Source<'_>, v5: bool) -> LastWill<'static> {
    let mut properties = WillProperties::default();
    if v5 {
        properties = WillProperties {
            will_delay_interval: source.maybe(Source::u32),
            payload_format_indicator: source.maybe(Source::flag),
            message_expiry_interval: source.maybe(Source::u32),
            content_type: source.maybe(Source::text),
            response_topic: source.maybe(Source::topic),
            correlation_data: source.maybe(Source::data),
            user_properties: source.user_properties(),
        };
    }
    LastWill {
        topic: source.topic(),
        payload: source.data(),
        qos: source.qos(),
        retain: source.flag(),
        properties,
    }
}

fn connack(source: &mut Source<'_>, version: ProtocolVersion) -> ConnAck<'static> {
    if !version.is_v5() {
        let code = ConnectReturnCode::from_u8(source.below(6)).expect("0 to 5 are defined");
        let reason = code.reason_code();
        let session_present =
            source.flag() && reason == ReasonCode::Success && version != ProtocolVersion::V3_1;
        return ConnAck {
            session_present,
            reason,
            properties: ConnAckProperties::default(),
        };
    }
    let reason = source.reason();
    ConnAck {
        session_present: source.flag() && reason == ReasonCode::Success,
        reason,
        properties: ConnAckProperties {
            session_expiry_interval: source.maybe(Source::u32),
            receive_maximum: source.maybe(Source::non_zero_u16),
            maximum_qos: source.maybe(|source| source.qos().min(QoS::AtLeastOnce)),
            retain_available: source.maybe(Source::flag),
            maximum_packet_size: source.maybe(Source::non_zero_u32),
            assigned_client_identifier: source.maybe(Source::text),
            topic_alias_maximum: source.maybe(Source::u16),
            reason_string: source.maybe(Source::text),
            wildcard_subscription_available: source.maybe(Source::flag),
            subscription_identifiers_available: source.maybe(Source::flag),
            shared_subscription_available: source.maybe(Source::flag),
            server_keep_alive: source.maybe(Source::u16),
            response_information: source.maybe(Source::text),
            server_reference: source.maybe(Source::text),
            authentication_method: source.maybe(Source::text),
            authentication_data: source.maybe(Source::data),
            user_properties: source.user_properties(),
        },
    }
}

fn publish(source: &mut Source<'_>, v5: bool) -> Publish<'static> {
    let qos = source.qos();
    let mut topic = source.topic();
    let mut properties = PublishProperties::default();
    if v5 {
        let ids: Vec<_> = (0..source.below(4))
            .map(|_| source.subscription_id())
            .collect();
        properties = PublishProperties {
            payload_format_indicator: source.maybe(Source::flag),
            message_expiry_interval: source.maybe(Source::u32),
            topic_alias: source.maybe(Source::non_zero_u16),
            response_topic: source.maybe(Source::topic),
            correlation_data: source.maybe(Source::data),
            content_type: source.maybe(Source::text),
            subscription_ids: SubscriptionIds::encode_from(&ids, Box::leak(Box::default()))
                .expect("in range"),
            user_properties: source.user_properties(),
        };
        if properties.topic_alias.is_some() && source.flag() {
            topic = "";
        }
    }
    Publish {
        dup: source.flag() && qos > QoS::AtMostOnce,
        qos,
        retain: source.flag(),
        topic,
        packet_id: (qos > QoS::AtMostOnce).then(|| source.packet_id()),
        properties,
        payload: source.data(),
    }
}

fn ack_properties(source: &mut Source<'_>, v5: bool) -> AckProperties<'static> {
    if !v5 {
        return AckProperties::default();
    }
    AckProperties {
        reason_string: source.maybe(Source::text),
        user_properties: source.user_properties(),
    }
}

fn ack(source: &mut Source<'_>, v5: bool) -> (PacketId, ReasonCode, AckProperties<'static>) {
    let reason = if v5 {
        source.reason()
    } else {
        ReasonCode::Success
    };
    (source.packet_id(), reason, ack_properties(source, v5))
}

fn subscribe(source: &mut Source<'_>, v5: bool) -> Subscribe<'static> {
    let mut properties = SubscribeProperties::default();
    if v5 {
        properties = SubscribeProperties {
            subscription_id: source.maybe(Source::subscription_id),
            user_properties: source.user_properties(),
        };
    }
    let filters: Vec<_> = (0..=source.below(4))
        .map(|_| {
            let qos = source.qos();
            let mut options = SubscriptionOptions {
                qos,
                ..SubscriptionOptions::default()
            };
            if v5 {
                options.no_local = source.flag();
                options.retain_as_published = source.flag();
                options.retain_handling = [
                    RetainHandling::SendAtSubscribe,
                    RetainHandling::SendIfNew,
                    RetainHandling::DoNotSend,
                ][usize::from(source.below(3))];
            }
            (source.filter(), options)
        })
        .collect();
    Subscribe {
        packet_id: source.packet_id(),
        properties,
        filters: SubscribeFilters::encode_from(&filters, Box::leak(Box::default()))
            .expect("short and without U+0000"),
    }
}

fn suback(source: &mut Source<'_>, v5: bool) -> Packet<'static> {
    const BEFORE_V5: [ReasonCode; 4] = [
        ReasonCode::Success,
        ReasonCode::GrantedQoS1,
        ReasonCode::GrantedQoS2,
        ReasonCode::UnspecifiedError,
    ];
    let reasons: Vec<_> = (0..source.below(5))
        .map(|_| {
            if v5 {
                source.reason()
            } else {
                BEFORE_V5[usize::from(source.below(4))]
            }
        })
        .collect();
    Packet::SubAck(SubAck {
        packet_id: source.packet_id(),
        properties: ack_properties(source, v5),
        reasons: ReasonCodes::from(&*reasons.leak()),
    })
}

fn unsubscribe(source: &mut Source<'_>, v5: bool) -> Packet<'static> {
    let mut properties = UnsubscribeProperties::default();
    if v5 {
        properties.user_properties = source.user_properties();
    }
    let filters: Vec<_> = (0..=source.below(4)).map(|_| source.filter()).collect();
    Packet::Unsubscribe(Unsubscribe {
        packet_id: source.packet_id(),
        properties,
        filters: UnsubscribeFilters::encode_from(&filters, Box::leak(Box::default()))
            .expect("short and without U+0000"),
    })
}

fn unsuback(source: &mut Source<'_>, v5: bool) -> Packet<'static> {
    let count = if v5 { source.below(5) } else { 0 };
    let reasons: Vec<_> = (0..count).map(|_| source.reason()).collect();
    Packet::UnsubAck(UnsubAck {
        packet_id: source.packet_id(),
        properties: ack_properties(source, v5),
        reasons: ReasonCodes::from(&*reasons.leak()),
    })
}

fn disconnect(source: &mut Source<'_>, v5: bool) -> Packet<'static> {
    let (mut reason, mut properties) = (ReasonCode::Success, DisconnectProperties::default());
    if v5 {
        reason = source.reason();
        properties = DisconnectProperties {
            session_expiry_interval: source.maybe(Source::u32),
            reason_string: source.maybe(Source::text),
            server_reference: source.maybe(Source::text),
            user_properties: source.user_properties(),
        };
    }
    Packet::Disconnect(Disconnect { reason, properties })
}

fn auth(source: &mut Source<'_>) -> Packet<'static> {
    if source.below(4) == 0 {
        let properties = AuthProperties::default();
        return Packet::Auth(Auth {
            reason: ReasonCode::Success,
            properties,
        });
    }
    let reasons = [
        ReasonCode::Success,
        ReasonCode::ContinueAuthentication,
        ReasonCode::Reauthenticate,
    ];
    Packet::Auth(Auth {
        reason: reasons[usize::from(source.below(3))],
        properties: AuthProperties {
            authentication_method: Some(source.text()),
            authentication_data: source.maybe(Source::data),
            reason_string: source.maybe(Source::text),
            user_properties: source.user_properties(),
        },
    })
}

/// What must hold of any bytes at all: nothing panics, nothing is read behind the frame, a refusal has
/// a reason, and what decodes is written so that it decodes to the same.
pub(crate) fn check_any_bytes(bytes: &[u8]) {
    for version in VERSIONS {
        let frame = match mqtt_proto::peek_frame(bytes, Some(version)) {
            Ok(Some(frame)) => bytes.get(..frame.len()).unwrap_or(bytes),
            Ok(None) => bytes,
            Err(error) => {
                assert!(error.reason_code().is_error());
                bytes
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
            Err(error) => {
                assert!(error.reason_code().is_error());
                assert!(!error.to_string().is_empty());
            }
        }
    }
}
