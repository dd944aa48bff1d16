//! Arbitrary packets, commands, deliveries and passing time, under arbitrary policies: a session does
//! not panic, sends whole packets that decode, keeps to its limits, and leaves nothing behind.
//!
//! The input is read as a list of steps: one byte says what, the following ones with what. Packets are
//! taken from the input as they are, so a corpus of the decoder serves here too.

use std::num::NonZeroU32;
use std::sync::Arc;

use mqtt_proto::{MessageBody, Packet, PacketId, ProtocolVersion, QoS, ReasonCode, peek_frame};
use mqtt_session::{
    Accepted, Action, ApplicationMessage, Deadline, Delivered, Delivery, NEVER_EXPIRES, Outcome,
    Policy, Qos0Inbox, QueueFull, Session, Subscription, Timestamp, Transmit, check_connect,
};

use crate::{Input, Target};

/// What a session is given, chosen by the input.
impl Input<'_> {
    fn qos(&mut self) -> QoS {
        match self.below(3) {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    /// Few, so that they meet.
    fn packet_id(&mut self) -> PacketId {
        PacketId::new(1 + u16::from(self.below(6))).unwrap_or(PacketId::FIRST)
    }

    fn reason(&mut self) -> ReasonCode {
        match self.below(4) {
            0 => ReasonCode::Success,
            1 => ReasonCode::NoMatchingSubscribers,
            2 => ReasonCode::QuotaExceeded,
            _ => ReasonCode::SessionTakenOver,
        }
    }

    fn policy(&mut self) -> Policy {
        let policy = Policy::default();
        Policy {
            maximum_qos: self.qos(),
            retain_available: self.flag(),
            wildcard_subscription_available: self.flag(),
            shared_subscription_available: self.flag(),
            subscription_identifier_available: self.flag(),
            topic_alias_maximum: self.below(4).into(),
            topic_alias_maximum_out: self.below(4).into(),
            keep_alive_maximum: self.below(3).into(),
            session_expiry_maximum: if self.flag() { NEVER_EXPIRES } else { 5 },
            server_reference: self.flag().then(|| "elsewhere".into()),
            check_payload_format: self.flag(),
            receive_maximum: 1 + u16::from(self.below(8)),
            inflight_maximum: self.below(8).into(),
            topic_levels: 1 + u16::from(self.below(8)),
            queue_messages: self.below(20).into(),
            queue_bytes: u64::from(self.byte()) * 16,
            queue_full: if self.flag() {
                QueueFull::DropNewest
            } else {
                QueueFull::DropOldest
            },
            subscriptions: self.below(4).into(),
            qos0_inbox: if self.flag() {
                Qos0Inbox::Offline
            } else {
                Qos0Inbox::Never
            },
            ..policy
        }
    }

    fn delivery(&mut self, now: Timestamp) -> Delivery {
        let qos = self.qos();
        let topic = if self.flag() { "a" } else { "long/topic" };
        let payload = vec![0; self.below(60).into()];
        Delivery {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new(topic, &payload),
                qos,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: self
                    .flag()
                    .then(|| now.add_millis(u64::from(self.byte()) * 20)),
                taken_up: None,
            }),
            qos,
            retain: self.flag(),
            subscription_ids: (0..self.below(3)).map(|id| u32::from(id) + 1).collect(),
            group: NonZeroU32::new(self.below(3).into()),
        }
    }
}

struct Fuzz<'a> {
    input: Input<'a>,
    policy: Policy,
    now: Timestamp,
    session: Session,
    /// What the client said in its CONNECT, in bytes.
    client_maximum: usize,
}

/// The next frame of the input as a CONNECT that the policy accepts, and its client's Maximum Packet
/// Size. Without one: a plain CONNECT.
fn session(input: &mut Input<'_>, policy: &Policy, now: Timestamp) -> (Session, usize) {
    let frame = connect_frame(input, policy);
    match Packet::decode(frame, ProtocolVersion::V5) {
        Ok(Packet::Connect(connect)) => {
            let maximum = connect.properties.maximum_packet_size;
            let session = Session::open(&connect, "c".into(), Accepted::default(), policy, now);
            (session, maximum.map_or(usize::MAX, |n| n.get() as usize))
        }
        _ => unreachable!("a frame that was decoded before"),
    }
}

fn connect_frame<'a>(input: &mut Input<'a>, policy: &Policy) -> &'a [u8] {
    const PLAIN: &[u8] = b"\x10\x0e\0\x04MQTT\x05\0\0\0\0\0\x01c";
    let frame = match peek_frame(input.0, None) {
        Ok(Some(frame)) => input.take(frame.len()),
        _ => return PLAIN,
    };
    match Packet::decode(frame, ProtocolVersion::V5) {
        Ok(Packet::Connect(connect)) if check_connect(&connect, policy).is_ok() => frame,
        _ => PLAIN,
    }
}

impl Fuzz<'_> {
    fn step(&mut self) {
        match self.input.below(12) {
            0..=3 => self.packet(),
            4 | 5 => {
                let delivery = self.input.delivery(self.now);
                let before = self.session.queue_len();
                let delivered = self.session.deliver(delivery, &self.policy, self.now);
                let limit = self.policy.queue_messages as usize;
                assert!(self.session.queue_len() <= limit.max(before));
                if !matches!(delivered, Delivered::Dropped(_)) {
                    assert!(self.session.queue_bytes() <= self.policy.queue_bytes);
                }
            }
            6 => {
                let packet_id = self.input.packet_id();
                let reason = self.input.reason();
                self.session.complete_publish(packet_id, reason, None);
            }
            7 => {
                self.now = self.now.add_millis(u64::from(self.input.byte()) * 50);
                match self.session.handle_deadline(self.now) {
                    Deadline::Expired { .. } => self.restart(),
                    Deadline::KeepAliveTimeout => self
                        .session
                        .disconnect(ReasonCode::KeepAliveTimeout, &self.policy),
                    Deadline::None | Deadline::WillDue(_) => {}
                }
            }
            8 => match self.input.below(5) {
                0 => self.session.disconnect(self.input.reason(), &self.policy),
                1 => {
                    if let Some(group) = NonZeroU32::new(self.input.below(3).into()) {
                        drop(self.session.take_group(group));
                    }
                }
                2 => self.policy = self.input.policy(),
                _ => self.close(),
            },
            9 if !self.session.is_online() => self.resume(),
            _ => self.transmit(),
        }
    }

    /// A frame of the input, as the client's.
    fn packet(&mut self) {
        let version = self.session.version();
        let frame = match peek_frame(self.input.0, Some(version)) {
            Ok(Some(frame)) => self.input.take(frame.len()),
            _ => return,
        };
        let Ok(packet) = Packet::decode(frame, version) else {
            return;
        };
        match self
            .session
            .handle_packet(&packet, 1, &self.policy, self.now)
        {
            Ok(Action::Publish {
                packet_id: Some(packet_id),
                ..
            }) if self.input.flag() => {
                // Otherwise it is completed late, or never.
                self.session
                    .complete_publish(packet_id, ReasonCode::Success, None);
            }
            Ok(Action::Subscribe(subscribe)) => {
                let mut reasons = Vec::new();
                for (text, options) in subscribe.filters.iter() {
                    let checked = self.session.check_filter(text, options, &self.policy);
                    reasons.push(checked.map_or_else(|reason| reason, |_| ReasonCode::Success));
                    if let Ok((_, options)) = checked {
                        self.session.add_subscription(Subscription {
                            filter: text.into(),
                            options,
                            id: subscribe.properties.subscription_id,
                            group: None,
                        });
                    }
                }
                assert!(self.session.subscriptions().len() <= 4);
                self.session
                    .complete_subscribe(subscribe.packet_id, &reasons);
            }
            Ok(Action::Unsubscribe(unsubscribe)) => {
                let mut reasons = Vec::new();
                for text in unsubscribe.filters.iter() {
                    let removed = self.session.remove_subscription(text);
                    reasons.push(match removed {
                        Some(_) => ReasonCode::Success,
                        None => ReasonCode::NoSubscriptionExisted,
                    });
                }
                self.session
                    .complete_unsubscribe(unsubscribe.packet_id, &reasons);
            }
            Ok(Action::Disconnect) => self.close(),
            Ok(_) => {}
            Err(violation) => {
                assert!(violation.reason_code().is_error());
                self.session.disconnect_for(violation, &self.policy);
            }
        }
    }

    fn transmit(&mut self) {
        let (mut out, mut outcome) = (Vec::new(), Outcome::default());
        let version = self.session.version();
        let budget = self.input.byte().into();
        let transmit =
            self.session
                .poll_transmit(&mut out, budget, &mut outcome, &self.policy, self.now);
        let mut rest = out.as_slice();
        while let Some(frame) = peek_frame(rest, Some(version)).expect("good frames") {
            let (first, others) = rest.split_at(frame.len());
            // [MQTT-3.1.2-24]
            assert!(first.len() <= self.client_maximum);
            Packet::decode(first, version).expect("the session sends good packets");
            rest = others;
        }
        assert!(rest.is_empty(), "the session sends whole packets");
        match transmit {
            Transmit::Close => self.close(),
            Transmit::Idle => assert!(
                !self.session.wants_transmit(),
                "idle means that all is said"
            ),
            Transmit::More => {}
        }
    }

    fn resume(&mut self) {
        let frame = connect_frame(&mut self.input, &self.policy);
        if let Ok(Packet::Connect(connect)) = Packet::decode(frame, ProtocolVersion::V5) {
            let maximum = connect.properties.maximum_packet_size;
            self.client_maximum = maximum.map_or(usize::MAX, |n| n.get() as usize);
            self.session.resume(&connect, &self.policy, self.now);
        }
    }

    fn close(&mut self) {
        if self.session.is_online() && self.session.handle_connection_closed(self.now).ended {
            self.restart();
        }
    }

    /// The session ends, and the next one begins.
    fn restart(&mut self) {
        if self.session.is_online() {
            let _detached = self.session.handle_connection_closed(self.now);
        }
        let _ended = self.session.end(self.now);
        assert_eq!(self.session.queue_bytes(), 0);
        assert_eq!(self.session.in_flight() + self.session.queue_len(), 0);
        (self.session, self.client_maximum) = session(&mut self.input, &self.policy, self.now);
    }
}

pub(crate) const TARGET: Target = Target {
    name: "session",
    run,
    seeds,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (policy, now) = (input.policy(), Timestamp(1_000));
    let (session, client_maximum) = session(&mut input, &policy, now);
    let mut fuzz = Fuzz {
        input,
        policy,
        now,
        session,
        client_maximum,
    };
    while !fuzz.input.0.is_empty() {
        fuzz.step();
    }
    fuzz.restart();
}

fn seeds() -> Vec<Vec<u8>> {
    let mut input = vec![2, 1, 1, 1, 1, 3, 3, 0, 1, 0, 1, 7, 7, 7, 19, 255, 0, 3, 0];
    input.extend(b"\x10\x0e\0\x04MQTT\x05\0\0\0\0\0\x01c");
    input.extend(
        b"\0\x82\x09\0\x01\0\0\x03a/b\x01\x0a\xff\x04\x01\x01\x20\0\0\0\x0a\xff\x07\x01\x06\x01\0",
    );
    vec![input, vec![0; 64]]
}
