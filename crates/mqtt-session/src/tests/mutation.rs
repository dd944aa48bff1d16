//! Arbitrary packets in arbitrary order, good and mutated, under arbitrary policies: never a panic,
//! never a packet that does not decode, never more than the limits, nothing left in the end.
//!
//! `HERALD_FUZZ_SECONDS` sets how long (2 by default), `HERALD_FUZZ_SEED` repeats a run.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqtt_proto::*;

use crate::*;

const ASSIGNED: Accepted<'_> = Accepted {
    assigned: true,
    authentication_data: None,
    class: ClassId::DEFAULT,
    epoch: None,
    incarnation: None,
};

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(4) == 0).then(|| value(self))
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn id(&mut self) -> PacketId {
        PacketId::new(1 + self.below(6) as u16).expect("above 0")
    }

    fn qos(&mut self) -> QoS {
        self.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
    }

    fn topic(&mut self) -> &'static str {
        self.pick(&["a", "a/b/c/d/e", "long/topic", "other/topic", "$SYS/x"])
    }

    fn reason(&mut self) -> ReasonCode {
        self.pick(&[
            ReasonCode::Success,
            ReasonCode::NoMatchingSubscribers,
            ReasonCode::UnspecifiedError,
            ReasonCode::QuotaExceeded,
            ReasonCode::PacketIdentifierNotFound,
            ReasonCode::SessionTakenOver,
            ReasonCode::UseAnotherServer,
        ])
    }

    fn policy(&mut self) -> Policy {
        Policy {
            maximum_qos: self.pick(&[QoS::ExactlyOnce, QoS::ExactlyOnce, QoS::AtLeastOnce]),
            retain_available: self.below(8) != 0,
            subscription_identifier_available: self.flag(),
            topic_alias_maximum: self.below(4) as u16,
            topic_alias_maximum_out: self.below(4) as u16,
            keep_alive_maximum: self.below(3) as u16,
            session_expiry_maximum: self.pick(&[0, 5, NEVER_EXPIRES]),
            check_payload_format: self.flag(),
            response_information: self.maybe(|_| "reply".into()),
            server_reference: self.maybe(|_| "elsewhere".into()),
            receive_maximum: self.below(8) as u16,
            inflight_maximum: self.below(8) as u16,
            maximum_packet_size: self.pick(&[100, u32::MAX]),
            topic_levels: self.pick(&[3, 128]),
            queue_messages: self.below(20) as u32,
            queue_bytes: self.below(4_000),
            queue_full: self.pick(&[QueueFull::DropNewest, QueueFull::DropOldest]),
            qos0_inbox: self.pick(&[Qos0Inbox::Offline, Qos0Inbox::Never]),
            subscriptions: self.below(4) as u32,
            ..Policy::default()
        }
    }

    fn connect(&mut self) -> Connect<'static> {
        let version = self.pick(&[
            ProtocolVersion::V5,
            ProtocolVersion::V3_1_1,
            ProtocolVersion::V3_1,
        ]);
        let v5 = version.is_v5();
        Connect {
            version,
            is_bridge: version != ProtocolVersion::V5 && self.below(4) == 0,
            clean_start: self.flag(),
            keep_alive: self.below(3) as u16,
            client_id: self.pick(&["", "c"]),
            will: self.maybe(|random| LastWill {
                topic: random.topic(),
                payload: b"gone",
                qos: random.qos(),
                retain: random.flag(),
                properties: WillProperties {
                    will_delay_interval: Some(random.below(5) as u32).filter(|_| v5),
                    ..WillProperties::default()
                },
            }),
            username: self.maybe(|_| "user"),
            password: None,
            properties: if v5 {
                ConnectProperties {
                    session_expiry_interval: self.maybe(|random| random.pick(&[0, 3, u32::MAX])),
                    receive_maximum: self
                        .maybe(|random| random.below(4) as u16)
                        .and_then(NonZeroU16::new),
                    maximum_packet_size: self
                        .maybe(|random| random.pick(&[3, 10, 40, 200]))
                        .and_then(NonZeroU32::new),
                    topic_alias_maximum: self.maybe(|random| random.below(4) as u16),
                    request_response_information: self.maybe(Self::flag),
                    request_problem_information: self.maybe(Self::flag),
                    authentication_method: (self.below(30) == 0).then_some("m"),
                    ..ConnectProperties::default()
                }
            } else {
                ConnectProperties::default()
            },
        }
    }

    fn open(&mut self, connect: &Connect<'_>, policy: &Policy, now: Timestamp) -> Session {
        if self.flag() {
            return Session::open(connect, "c".into(), ASSIGNED, policy, now);
        }
        let restored = Restored {
            subscriptions: Vec::new(),
            received: (0..self.below(3)).map(|_| self.id()).collect(),
        };
        let present = self.flag();
        Session::open_durable(
            connect,
            "c".into(),
            ASSIGNED,
            present,
            restored,
            policy,
            now,
        )
    }

    /// A packet of any type, encoded; a few bytes may be changed.
    fn frame(&mut self, version: ProtocolVersion) -> Vec<u8> {
        let (packet_id, reason, properties) = (self.id(), self.reason(), AckProperties::default());
        let (mut filters, mut frame) = (Vec::new(), Vec::new());
        let packet = match self.below(20) {
            0..=6 => {
                let qos = self.qos();
                Packet::Publish(Publish {
                    dup: qos != QoS::AtMostOnce && self.flag(),
                    qos,
                    retain: self.below(8) == 0,
                    topic: self.topic(),
                    packet_id: (qos != QoS::AtMostOnce).then_some(packet_id),
                    properties: PublishProperties {
                        topic_alias: self
                            .maybe(|random| random.below(4) as u16)
                            .and_then(NonZeroU16::new),
                        message_expiry_interval: self.maybe(|random| random.below(3) as u32),
                        payload_format_indicator: self.maybe(Self::flag),
                        ..PublishProperties::default()
                    },
                    payload: self.pick(&[b"", b"payload", b"\xFF\xFE"]),
                })
            }
            7 | 8 => Packet::PubAck(PubAck {
                packet_id,
                reason,
                properties,
            }),
            9 | 10 => Packet::PubRec(PubRec {
                packet_id,
                reason,
                properties,
            }),
            11 | 12 => Packet::PubRel(PubRel {
                packet_id,
                reason,
                properties,
            }),
            13 | 14 => Packet::PubComp(PubComp {
                packet_id,
                reason,
                properties,
            }),
            15 => {
                let filter = self.pick(&["a", "#", "bad#", "$share/g/a", "$queue/a", "$share/g"]);
                let options = SubscriptionOptions {
                    qos: self.qos(),
                    no_local: self.below(8) == 0 && !filter.starts_with("$share"),
                    ..SubscriptionOptions::default()
                };
                let filters = SubscribeFilters::encode_from(&[(filter, options)], &mut filters);
                Packet::Subscribe(Subscribe {
                    packet_id,
                    properties: SubscribeProperties {
                        subscription_id: self.maybe(|_| 7),
                        ..SubscribeProperties::default()
                    },
                    filters: filters.expect("good filters"),
                })
            }
            16 => Packet::Unsubscribe(Unsubscribe {
                packet_id,
                properties: Default::default(),
                filters: UnsubscribeFilters::encode_from(&["a"], &mut filters).expect("a filter"),
            }),
            17 => Packet::PingReq,
            18 if self.flag() => Packet::Disconnect(Disconnect {
                reason: self.pick(&[ReasonCode::Success, ReasonCode::DisconnectWithWill]),
                properties: DisconnectProperties {
                    session_expiry_interval: self.maybe(|random| random.pick(&[0, 3])),
                    ..DisconnectProperties::default()
                },
            }),
            _ if self.below(8) == 0 => Packet::Connect(self.connect()),
            _ => Packet::PingReq,
        };
        if packet.encode(version, &mut frame).is_err() {
            frame.clear();
        }
        if self.below(8) == 0 && !frame.is_empty() {
            let index = self.below(frame.len() as u64) as usize;
            frame[index] ^= 1 << self.below(8);
        }
        frame
    }
}

struct Fuzz {
    random: Random,
    policy: Policy,
    now: Timestamp,
    session: Session,
    /// The last sequence number of a durable session's inbox, and those it has acknowledged.
    sequence: u64,
    acknowledged: BTreeSet<u64>,
}

impl Fuzz {
    fn step(&mut self) {
        let random = &mut self.random;
        let policy = &self.policy;
        let session = &mut self.session;
        match random.below(12) {
            0..=5 => {
                let frame = random.frame(session.version());
                if let Ok(packet) = Packet::decode(&frame, session.version()) {
                    match session.handle_packet(&packet, 1, policy, self.now) {
                        Ok(Action::Subscribe(subscribe)) => {
                            subscribe_all(session, &subscribe, policy);
                        }
                        Ok(Action::Unsubscribe(unsubscribe)) => {
                            for filter in unsubscribe.filters.iter() {
                                session.remove_subscription(filter);
                            }
                            let id = unsubscribe.packet_id;
                            session.complete_unsubscribe(id, &[ReasonCode::Success]);
                        }
                        Err(violation) => session.disconnect_for(violation, policy),
                        Ok(_) => {}
                    }
                }
            }
            6 | 7 => {
                let qos = random.qos();
                let message = ApplicationMessage {
                    body: MessageBody::new(random.topic(), &vec![0; random.below(60) as usize]),
                    qos,
                    retain: false,
                    publisher: 0,
                    publisher_hash: 0,
                    expires_at: random
                        .maybe(|random| random.below(3_000))
                        .map(|millis| self.now.add_millis(millis)),
                    taken_up: None,
                };
                let delivery = Delivery {
                    message: Arc::new(message),
                    qos,
                    retain: random.flag(),
                    subscription_ids: (0..random.below(3)).map(|id| id as u32 + 1).collect(),
                    group: NonZeroU32::new(random.below(3) as u32),
                };
                if session.is_durable() && (qos != QoS::AtMostOnce || random.flag()) {
                    self.sequence += random.pick(&[1, 1, 1, 2, 9, 65_534, 65_535]);
                    let state = random.pick(&[StoredState::New, StoredState::Sent]);
                    session.deliver_stored(delivery, self.sequence, state);
                    return;
                }
                let before = session.queue_len();
                let delivered = session.deliver(delivery, policy, self.now);
                let limit = policy.queue_messages as usize;
                assert!(session.queue_len() <= limit.max(before), "{delivered:?}");
                if !matches!(delivered, Delivered::Dropped(_)) {
                    assert!(session.queue_bytes() <= policy.queue_bytes);
                }
            }
            8 => match random.below(4) {
                0 => session.complete_receipt(self.sequence.saturating_sub(random.below(9))),
                1 => session.complete_release(random.id()),
                2 => {
                    self.sequence += 1;
                    session.owe_pubrel(self.sequence);
                }
                _ => session.complete_publish(random.id(), random.reason(), None),
            },
            9 => {
                self.now = self.now.add_millis(random.below(1_500));
                match session.handle_deadline(self.now) {
                    Deadline::Expired { .. } => self.restart(),
                    Deadline::KeepAliveTimeout => {
                        session.disconnect(ReasonCode::KeepAliveTimeout, policy);
                    }
                    Deadline::None | Deadline::WillDue(_) => {}
                }
            }
            10 => match random.below(12) {
                0 => session.disconnect(random.reason(), policy),
                1 => {
                    if let Some(group) = NonZeroU32::new(random.below(3) as u32) {
                        let _taken = session.take_group(group);
                    }
                }
                2 => self.close(),
                3 => self.policy = random.policy(),
                _ => {
                    if !session.is_online() {
                        let connect = random.connect();
                        session.resume(&connect, policy, self.now);
                    }
                }
            },
            _ => self.transmit(),
        }
    }

    fn transmit(&mut self) {
        let (mut out, mut outcome) = (Vec::new(), Outcome::default());
        let budget = self.random.below(200) as usize;
        let version = self.session.version();
        let transmit =
            self.session
                .poll_transmit(&mut out, budget, &mut outcome, &self.policy, self.now);
        let mut rest = out.as_slice();
        while let Some(frame) = peek_frame(rest, Some(version)).expect("good frames") {
            let (first, others) = rest.split_at(frame.len());
            // [MQTT-3.1.2-24]
            assert!(first.len() <= self.session.rare.client_maximum_packet_size() as usize);
            Packet::decode(first, version).expect("the session sends good packets");
            rest = others;
        }
        assert!(rest.is_empty(), "the session sends whole packets");
        if transmit == Transmit::Close {
            self.close();
        }
    }

    fn close(&mut self) {
        let ended = self.session.handle_connection_closed(self.now).ended;
        if ended || self.session.is_durable() {
            self.restart();
        }
    }

    /// Each sequence number once, and only what was handed over.
    fn take_acknowledged(&mut self) {
        let mut acknowledged = Vec::new();
        self.session.take_acknowledged(&mut acknowledged);
        for sequence in acknowledged {
            assert!((1..=self.sequence).contains(&sequence));
            assert!(self.acknowledged.insert(sequence), "{sequence} twice");
        }
    }

    /// The session ends, and the next one begins.
    fn restart(&mut self) {
        if self.session.is_online() {
            let _detached = self.session.handle_connection_closed(self.now);
        }
        self.take_acknowledged();
        let _ended = self.session.end(self.now);
        assert_eq!(
            self.session.queue_bytes(),
            0,
            "an ended session holds no messages"
        );
        assert_eq!(self.session.in_flight() + self.session.queue_len(), 0);
        loop {
            let connect = self.random.connect();
            if check_connect(&connect, &self.policy).is_ok() {
                self.session = self.random.open(&connect, &self.policy, self.now);
                self.sequence = 0;
                self.acknowledged.clear();
                return;
            }
        }
    }
}

fn subscribe_all(session: &mut Session, subscribe: &Subscribe<'_>, policy: &Policy) {
    let mut reasons = Vec::new();
    for (filter, options) in subscribe.filters.iter() {
        reasons.push(match session.check_filter(filter, options, policy) {
            Ok((_, options)) => {
                let id = subscribe.properties.subscription_id;
                let filter = filter.into();
                session.add_subscription(Subscription {
                    filter,
                    options,
                    id,
                    group: None,
                });
                ReasonCode::Success
            }
            Err(reason) => reason,
        });
    }
    session.complete_subscribe(subscribe.packet_id, &reasons);
}

#[test]
#[expect(clippy::print_stderr, reason = "a failure has to be repeatable")]
fn arbitrary_packets_in_arbitrary_order() {
    let variable = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seconds = variable("HERALD_FUZZ_SECONDS").unwrap_or(2);
    let seed = variable("HERALD_FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    eprintln!("HERALD_FUZZ_SEED={seed}");
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(seed | 1);
    let (policy, now) = (random.policy(), Timestamp(1_000));
    let connect = random.connect();
    let session = random.open(&connect, &policy, now);
    let mut fuzz = Fuzz {
        random,
        policy,
        now,
        session,
        sequence: 0,
        acknowledged: BTreeSet::new(),
    };
    while Instant::now() < deadline {
        (0..1_000).for_each(|_| fuzz.step());
        fuzz.restart();
    }
}
