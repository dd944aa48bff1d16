//! Plays a dialogue with one session in virtual time and compares the transcript.
//!
//! A line of a script is an input or an expected output; the transcript has to be the script:
//!
//! ```text
//! % key=value …       policy from here on
//! > PACKET …          a packet from the client
//! $ command …         a command of the server
//! + 1500              milliseconds pass
//! ? facts             prints them
//! < PACKET …          the session sends this; `< close` ends the network connection
//! ! …                 the session wants this done, or reports it
//! = …                 facts
//! # …                 a comment
//!
//! `> CONNECT … durable [present] [received=1,2]` opens a durable session; what it acknowledges is
//! reported after each line.
//! ```

use std::fmt::Write as _;
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::sync::Arc;

use mqtt_proto::*;

use crate::*;

/// Plays `script` and compares.
#[track_caller]
pub(super) fn check(script: &str) {
    let lines: Vec<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut driver = Driver::new();
    for line in &lines {
        driver.line(line);
    }
    let expected = lines.join("\n");
    let actual = driver.transcript.trim_end();
    assert!(
        actual == expected,
        "\n--- expected\n{expected}\n--- actual\n{actual}\n"
    );
}

/// The policy of scripts: announces nothing, so that CONNACK is bare.
pub(super) fn quiet_policy() -> Policy {
    Policy {
        topic_alias_maximum: 0,
        receive_maximum: u16::MAX,
        maximum_packet_size: u32::MAX,
        ..Policy::default()
    }
}

/// The client identifier's session and a transcript.
struct Driver {
    session: Option<Session>,
    policy: Policy,
    now: Timestamp,
    transcript: String,
}

/// `word key=value flag` of one line.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        let split = |word: &'a str| word.split_once('=').unwrap_or((word, ""));
        Self(text.split_whitespace().map(split).collect())
    }

    fn name(&self) -> &'a str {
        self.0[0].0
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }

    fn has(&self, key: &str) -> bool {
        self.text(key).is_some()
    }

    fn number<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        let number = self.text(key).map(parse_number)?;
        Some(
            T::try_from(number)
                .ok()
                .unwrap_or_else(|| panic!("{key}={number} is out of range")),
        )
    }

    fn qos(&self, key: &str) -> QoS {
        QoS::from_u8(self.number(key).unwrap_or(0)).expect("QoS 0, 1 or 2")
    }

    fn id(&self) -> PacketId {
        PacketId::new(self.number("id").expect("id=")).expect("an identifier above 0")
    }

    fn sequence(&self) -> u64 {
        self.number("seq").expect("seq=")
    }

    fn reason(&self) -> ReasonCode {
        ReasonCode::from_u8(self.number("reason").unwrap_or(0)).expect("a reason code")
    }
}

fn parse_number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text} is not a number"))
}

fn parse_reasons(text: &str) -> Vec<ReasonCode> {
    let code = |number| ReasonCode::from_u8(parse_number(number) as u8).expect("a reason code");
    text.split(',').map(code).collect()
}

impl Driver {
    fn new() -> Self {
        Self {
            session: None,
            policy: quiet_policy(),
            now: Timestamp(1_000_000),
            transcript: String::new(),
        }
    }

    fn say(&mut self, text: impl AsRef<str>) {
        self.transcript.push_str(text.as_ref());
        self.transcript.push('\n');
    }

    fn line(&mut self, line: &str) {
        let (kind, rest) = line.split_at(1);
        match kind {
            "<" | "!" | "=" => return,
            _ => self.say(line),
        }
        match kind {
            "%" => return self.set_policy(&Words::new(rest)),
            ">" => self.packet(&Words::new(rest)),
            "$" => self.command(&Words::new(rest)),
            "+" => self.pass(parse_number(rest.trim())),
            "?" => self.facts(),
            _ => panic!("{line}"),
        }
        self.transmit();
        self.print_acknowledged();
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("CONNECT comes first")
    }

    fn set_policy(&mut self, words: &Words<'_>) {
        let policy = &mut self.policy;
        for (key, value) in &words.0 {
            let number = || parse_number(value);
            let flag = || parse_number(value) != 0;
            match *key {
                "maximum_qos" => policy.maximum_qos = words.qos(key),
                "retain" => policy.retain_available = flag(),
                "wildcard" => policy.wildcard_subscription_available = flag(),
                "shared" => policy.shared_subscription_available = flag(),
                "subids" => policy.subscription_identifier_available = flag(),
                "tam" => policy.topic_alias_maximum = number() as u16,
                "tam_out" => policy.topic_alias_maximum_out = number() as u16,
                "ka" => policy.keep_alive_maximum = number() as u16,
                "expiry" => policy.session_expiry_maximum = number() as u32,
                "response" => policy.response_information = Some((*value).into()),
                "reference" => policy.server_reference = Some((*value).into()),
                "strict_ids" => policy.strict_client_id_v3_1 = flag(),
                "check_payload" => policy.check_payload_format = flag(),
                "rm" => policy.receive_maximum = number() as u16,
                "inflight" => policy.inflight_maximum = number() as u16,
                "mps" => policy.maximum_packet_size = number() as u32,
                "client_id_length" => policy.client_id_length = number() as u16,
                "levels" => policy.topic_levels = number() as u16,
                "queue" => policy.queue_messages = number() as u32,
                "queue_bytes" => policy.queue_bytes = number(),
                "drop_oldest" => policy.queue_full = QueueFull::DropOldest,
                "subscriptions" => policy.subscriptions = number() as u32,
                "qos0" if *value == "never" => policy.qos0_inbox = Qos0Inbox::Never,
                _ => panic!("policy {key}"),
            }
        }
    }

    fn packet(&mut self, words: &Words<'_>) {
        let mut filters = Vec::new();
        let mut ids = Vec::new();
        let packet = client_packet(words, &mut filters, &mut ids);
        let version = match &packet {
            Packet::Connect(connect) => connect.version,
            _ => self.session().version(),
        };
        let mut frame = Vec::new();
        packet
            .encode(version, &mut frame)
            .expect("the script's packet can be encoded");
        let packet = Packet::decode(&frame, version).expect("and decoded");
        let fresh = self
            .session
            .as_ref()
            .is_none_or(|session| !session.is_online())
            || words.has("takeover");
        match &packet {
            Packet::Connect(connect) if fresh => self.connect(connect, words),
            _ => self.handle(&packet),
        }
    }

    fn connect(&mut self, connect: &Connect<'_>, words: &Words<'_>) {
        if let Err(reason) = check_connect(connect, &self.policy) {
            let mut out = Vec::new();
            encode_refusal(connect.version, reason, &self.policy, &mut out);
            self.print_packets(&out, connect.version);
            return;
        }
        self.close();
        if let Some(session) = &mut self.session {
            if !connect.clean_start {
                session.resume(connect, &self.policy, self.now);
                return;
            }
            self.end();
        }
        let (client_id, assigned) = match connect.client_id {
            "" => ("assigned", true),
            client_id => (client_id, false),
        };
        let accepted = Accepted {
            assigned,
            authentication_data: words.text("data").map(str::as_bytes),
            class: ClassId::DEFAULT,
            epoch: words.number("epoch").map(Epoch),
            incarnation: words.number("incarnation").map(|number: u64| {
                Incarnation(NonZeroU64::new(number).expect("an incarnation above 0"))
            }),
        };
        let (client_id, policy, now) = (client_id.into(), &self.policy, self.now);
        self.session = Some(if words.has("durable") {
            let present = words.has("present");
            let restored = restored(words);
            Session::open_durable(connect, client_id, accepted, present, restored, policy, now)
        } else {
            Session::open(connect, client_id, accepted, policy, now)
        });
    }

    fn handle(&mut self, packet: &Packet<'_>) {
        let (policy, now) = (self.policy.clone(), self.now);
        match self.session().handle_packet(packet, 7, &policy, now) {
            Err(violation) => {
                self.say(format!("! violation {violation:?}"));
                self.session().disconnect_for(violation, &policy);
            }
            Ok(Action::None | Action::Acknowledged) => {}
            Ok(Action::Receipt { sequence }) => self.say(format!("! receipt {sequence}")),
            Ok(Action::Release { packet_id }) => self.say(format!("! release {packet_id}")),
            Ok(Action::Publish { message, packet_id }) => {
                assert_eq!(message.publisher, 7);
                let id = packet_id.map_or(String::new(), |id| format!(" id={}", id.get()));
                let text = print_message(&message, now);
                self.say(format!("! publish{id} {text}"));
            }
            Ok(Action::Refused(dropped)) => self.print_dropped(&dropped),
            Ok(Action::Subscribe(subscribe)) => {
                let mut reasons = Vec::new();
                for (filter, options) in subscribe.filters.iter() {
                    let id = subscribe.properties.subscription_id;
                    let checked = self.session().check_filter(filter, options, &policy);
                    let reason = match checked {
                        Ok((_, options)) => {
                            let filter = filter.into();
                            let subscription = Subscription {
                                filter,
                                options,
                                id,
                                group: None,
                            };
                            self.session().add_subscription(subscription);
                            ReasonCode::from_u8(options.qos.as_u8()).expect("granted QoS")
                        }
                        Err(reason) => reason,
                    };
                    reasons.push(reason);
                }
                self.session()
                    .complete_subscribe(subscribe.packet_id, &reasons);
            }
            Ok(Action::Unsubscribe(unsubscribe)) => {
                let mut reasons = Vec::new();
                for filter in unsubscribe.filters.iter() {
                    reasons.push(match self.session().remove_subscription(filter) {
                        Some(_) => ReasonCode::Success,
                        None => ReasonCode::NoSubscriptionExisted,
                    });
                }
                self.session()
                    .complete_unsubscribe(unsubscribe.packet_id, &reasons);
            }
            Ok(Action::Authenticate) => self.say("! authenticate"),
            Ok(Action::Disconnect) => self.say("! disconnect"),
        }
    }

    fn command(&mut self, words: &Words<'_>) {
        let (policy, now) = (self.policy.clone(), self.now);
        match words.name() {
            "deliver" => {
                let delivery = delivery(words, now);
                match self.session().deliver(delivery, &policy, now) {
                    Delivered::Queued => {}
                    Delivered::QueuedDropping(dropped) => {
                        dropped
                            .iter()
                            .for_each(|dropped| self.print_dropped(dropped));
                    }
                    Delivered::Dropped(dropped) => {
                        self.say(format!("! refused {}", dropped.reason.as_str()))
                    }
                }
            }
            "stored" => {
                let state = if words.has("sent") {
                    StoredState::Sent
                } else {
                    StoredState::New
                };
                let (delivery, sequence) = (delivery(words, now), words.sequence());
                self.session().deliver_stored(delivery, sequence, state);
            }
            "skip" => {
                let (qos, sequence) = (words.qos("qos"), words.sequence());
                let state = if words.has("sent") {
                    StoredState::Sent
                } else {
                    StoredState::New
                };
                self.session().skip_stored(qos, sequence, state);
            }
            "forbid" => {
                let topic = words.text("topic").expect("topic=").to_owned();
                let dropped = self.session().drop_waiting(|m| m.body.topic() != topic);
                for delivery in dropped {
                    self.say(format!("! forbidden {}", delivery.message.body.topic()));
                }
            }
            "owe" => self.session().owe_pubrel(words.sequence()),
            "recorded" => self.session().complete_receipt(words.sequence()),
            "released" => self.session().complete_release(words.id()),
            "done" => self
                .session()
                .complete_publish(words.id(), words.reason(), None),
            "suback" => {
                let reasons = parse_reasons(words.text("reasons").expect("reasons="));
                self.session().complete_subscribe(words.id(), &reasons);
            }
            "auth" => {
                let method = words.text("method").expect("method=");
                let data = words.text("data").unwrap_or_default().as_bytes();
                self.session().send_auth(words.reason(), method, data);
            }
            "disconnect" => self.session().disconnect(words.reason(), &policy),
            "close" => self.close(),
            "end" => self.end(),
            "take" => {
                let group = words
                    .number("group")
                    .and_then(NonZeroU32::new)
                    .expect("group=");
                for delivery in self.session().take_group(group) {
                    self.say(format!("! took {}", delivery.message.body.topic()));
                }
            }
            other => panic!("command {other}"),
        }
    }

    fn close(&mut self) {
        let now = self.now;
        let Some(session) = self.session.as_mut().filter(|session| session.is_online()) else {
            return;
        };
        let detached = session.handle_connection_closed(now);
        assert!(
            !session.wants_transmit(),
            "nothing to send without a network connection"
        );
        if let Some(will) = detached.will {
            let will = print_message(&will, now);
            self.say(format!("! will {will}"));
        }
        detached
            .dropped
            .iter()
            .for_each(|dropped| self.print_dropped(dropped));
        self.print_acknowledged();
        if detached.ended {
            self.say("! ended");
            self.end();
        } else if self.session().is_durable() {
            self.forget();
        }
    }

    /// Of a durable session nothing is kept.
    fn forget(&mut self) {
        let session = self.session.take().expect("a session");
        assert_eq!((session.queue_len(), session.queue_bytes()), (0, 0));
        if session.has_will() {
            self.say("! will waits");
        }
    }

    fn print_acknowledged(&mut self) {
        let mut acknowledged = Vec::new();
        if let Some(session) = &mut self.session {
            session.take_acknowledged(&mut acknowledged);
        }
        if !acknowledged.is_empty() {
            let list: Vec<_> = acknowledged.iter().map(u64::to_string).collect();
            self.say(format!("! acknowledged {}", list.join(",")));
        }
    }

    fn end(&mut self) {
        let now = self.now;
        let Some(mut session) = self.session.take() else {
            return;
        };
        let ended = session.end(now);
        assert_eq!(
            session.queue_bytes(),
            0,
            "an ended session holds no messages"
        );
        if let Some(will) = &ended.will {
            self.say(format!("! will {}", print_message(will, now)));
        }
        for delivery in &ended.redispatch {
            self.say(format!("! redispatch {}", delivery.message.body.topic()));
        }
        ended
            .dropped
            .iter()
            .for_each(|dropped| self.print_dropped(dropped));
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.add_millis(millis);
        let (policy, now) = (self.policy.clone(), self.now);
        while self
            .session
            .as_ref()
            .and_then(Session::poll_deadline)
            .is_some_and(|at| at <= now)
        {
            match self.session().handle_deadline(now) {
                Deadline::None => panic!("a deadline passed and nothing came of it"),
                Deadline::KeepAliveTimeout => {
                    self.say("! keep alive timeout");
                    self.session()
                        .disconnect(ReasonCode::KeepAliveTimeout, &policy);
                    return;
                }
                Deadline::WillDue(will) => {
                    let will = print_message(&will, now);
                    self.say(format!("! will {will}"));
                }
                Deadline::Expired { will } => {
                    if let Some(will) = will {
                        let will = print_message(&will, now);
                        self.say(format!("! will {will}"));
                    }
                    self.say("! expired");
                    self.end();
                }
            }
        }
        // A timer that fires early does no harm.
        if let Some(session) = &mut self.session {
            assert!(matches!(session.handle_deadline(now), Deadline::None));
        }
    }

    fn facts(&mut self) {
        let text = match &self.session {
            None => "= no session".to_owned(),
            Some(session) => format!(
                "= waiting={} in_flight={} room={}{}{}",
                session.queue_len(),
                session.in_flight(),
                session.room(),
                if session.queue_bytes() == 0 {
                    " empty"
                } else {
                    ""
                },
                if session.is_durable() {
                    format!(" sent={}", session.sent_sequence())
                } else {
                    String::new()
                },
            ),
        };
        self.say(text);
    }

    fn transmit(&mut self) {
        let (policy, now) = (self.policy.clone(), self.now);
        loop {
            let Some(session) = &mut self.session else {
                return;
            };
            let version = session.version();
            let wanted = session.wants_transmit();
            let (mut out, mut outcome) = (Vec::new(), Outcome::default());
            let transmit = session.poll_transmit(&mut out, 1, &mut outcome, &policy, now);
            assert_eq!(
                wanted,
                transmit == Transmit::Close || !out.is_empty() || !outcome.dropped.is_empty()
            );
            self.print_packets(&out, version);
            outcome
                .dropped
                .iter()
                .for_each(|dropped| self.print_dropped(dropped));
            match transmit {
                Transmit::More => {}
                Transmit::Idle => return,
                Transmit::Close => {
                    self.say("< close");
                    self.close();
                    return;
                }
            }
        }
    }

    fn print_dropped(&mut self, dropped: &Dropped) {
        let topic = dropped.message.body.topic();
        self.say(format!("! dropped {topic} {}", dropped.reason.as_str()));
    }

    fn print_packets(&mut self, mut bytes: &[u8], version: ProtocolVersion) {
        while let Some(frame) =
            peek_frame(bytes, Some(version)).expect("the session's frames are good")
        {
            let (first, rest) = bytes.split_at(frame.len());
            let packet = Packet::decode(first, version).expect("the session's packets are good");
            self.say(format!("< {}", print_packet(&packet)));
            bytes = rest;
        }
        assert!(bytes.is_empty(), "the session sends whole packets");
    }
}

fn restored(words: &Words<'_>) -> Restored {
    let subscription = |filter: &str| Subscription {
        filter: filter.into(),
        options: SubscriptionOptions::default(),
        id: None,
        group: None,
    };
    let list = |key| words.text(key).unwrap_or_default().split_terminator(',');
    let id = |text| PacketId::new(parse_number(text) as u16).expect("above 0");
    Restored {
        subscriptions: list("filters").map(subscription).collect(),
        received: list("received").map(id).collect(),
    }
}

fn delivery(words: &Words<'_>, now: Timestamp) -> Delivery {
    let topic = words.text("topic").expect("topic=");
    let size = words.number("size").unwrap_or(0_usize);
    let qos = words.qos("qos");
    let message = ApplicationMessage {
        body: MessageBody::new(topic, &vec![b'x'; size]),
        qos,
        retain: words.has("retain"),
        publisher: 1,
        publisher_hash: 0,
        expires_at: words.number("expiry").map(|secs| now.add_secs(secs)),
        taken_up: None,
    };
    let ids = words.text("ids").unwrap_or_default();
    Delivery {
        message: Arc::new(message),
        qos,
        retain: words.has("retain"),
        subscription_ids: ids
            .split_terminator(',')
            .map(|id| parse_number(id) as u32)
            .collect(),
        group: words.number("group").and_then(NonZeroU32::new),
    }
}

fn client_packet<'a>(
    words: &Words<'a>,
    filters: &'a mut Vec<u8>,
    ids: &'a mut Vec<u8>,
) -> Packet<'a> {
    let ack = AckProperties::default();
    match words.name() {
        "CONNECT" => Packet::Connect(Connect {
            version: match words.text("v") {
                Some("3.1") => ProtocolVersion::V3_1,
                Some("3.1.1") => ProtocolVersion::V3_1_1,
                _ => ProtocolVersion::V5,
            },
            is_bridge: words.has("bridge"),
            clean_start: words.has("clean"),
            keep_alive: words.number("ka").unwrap_or(0),
            client_id: words.text("id").unwrap_or("c"),
            will: words.text("will").map(|topic| LastWill {
                topic,
                payload: if words.has("wbad") { b"\xFF" } else { b"gone" },
                qos: words.qos("wqos"),
                retain: words.has("wretain"),
                properties: WillProperties {
                    will_delay_interval: words.number("delay"),
                    message_expiry_interval: words.number("wexpiry"),
                    payload_format_indicator: words.has("wutf8").then_some(true),
                    ..WillProperties::default()
                },
            }),
            username: words.text("user"),
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: words.number("expiry"),
                receive_maximum: words.number("rm").and_then(NonZeroU16::new),
                maximum_packet_size: words.number("mps").and_then(NonZeroU32::new),
                topic_alias_maximum: words.number("tam"),
                request_response_information: words.has("rri").then_some(true),
                request_problem_information: words.has("no_problem").then_some(false),
                authentication_method: words.text("auth"),
                ..ConnectProperties::default()
            },
        }),
        "PUBLISH" => {
            let subscription_ids = match words.number("subid") {
                Some(id) => SubscriptionIds::encode_from(&[id], ids).expect("in range"),
                None => SubscriptionIds::default(),
            };
            Packet::Publish(Publish {
                dup: words.has("dup"),
                qos: words.qos("qos"),
                retain: words.has("retain"),
                topic: words.text("topic").unwrap_or(""),
                packet_id: words.has("id").then(|| words.id()),
                properties: PublishProperties {
                    topic_alias: words.number("alias").and_then(NonZeroU16::new),
                    message_expiry_interval: words.number("expiry"),
                    payload_format_indicator: words.has("utf8").then_some(true),
                    subscription_ids,
                    ..PublishProperties::default()
                },
                payload: if words.has("bad") { b"\xFF" } else { b"" },
            })
        }
        "PUBACK" => Packet::PubAck(PubAck {
            packet_id: words.id(),
            reason: words.reason(),
            properties: ack,
        }),
        "PUBREC" => Packet::PubRec(PubRec {
            packet_id: words.id(),
            reason: words.reason(),
            properties: ack,
        }),
        "PUBREL" => Packet::PubRel(PubRel {
            packet_id: words.id(),
            reason: words.reason(),
            properties: ack,
        }),
        "PUBCOMP" => Packet::PubComp(PubComp {
            packet_id: words.id(),
            reason: words.reason(),
            properties: ack,
        }),
        "SUBSCRIBE" => {
            let options = SubscriptionOptions {
                qos: words.qos("qos"),
                no_local: words.has("no_local"),
                ..SubscriptionOptions::default()
            };
            let list: Vec<_> = words
                .0
                .iter()
                .filter(|(key, _)| *key == "filter")
                .map(|(_, filter)| (*filter, options))
                .collect();
            let properties = SubscribeProperties {
                subscription_id: words.number("subid"),
                ..SubscribeProperties::default()
            };
            let filters = SubscribeFilters::encode_from(&list, filters).expect("good filters");
            Packet::Subscribe(Subscribe {
                packet_id: words.id(),
                properties,
                filters,
            })
        }
        "UNSUBSCRIBE" => {
            let filter = words.text("filter").expect("filter=");
            Packet::Unsubscribe(Unsubscribe {
                packet_id: words.id(),
                properties: Default::default(),
                filters: UnsubscribeFilters::encode_from(&[filter], filters).expect("good filter"),
            })
        }
        "PINGREQ" => Packet::PingReq,
        "PINGRESP" => Packet::PingResp,
        "DISCONNECT" => Packet::Disconnect(Disconnect {
            reason: words.reason(),
            properties: DisconnectProperties {
                session_expiry_interval: words.number("expiry"),
                ..DisconnectProperties::default()
            },
        }),
        "AUTH" => Packet::Auth(Auth {
            reason: ReasonCode::Reauthenticate,
            properties: AuthProperties {
                authentication_method: Some("m"),
                ..AuthProperties::default()
            },
        }),
        other => panic!("packet {other}"),
    }
}

fn print_message(message: &ApplicationMessage, now: Timestamp) -> String {
    let mut text = format!("topic={}", message.body.topic());
    if message.qos != QoS::AtMostOnce {
        write!(text, " qos={}", message.qos.as_u8()).expect("a string");
    }
    if message.retain {
        text.push_str(" retain");
    }
    if let Some(at) = message.expires_at {
        write!(text, " expires_in={}ms", at.saturating_since(now)).expect("a string");
    }
    text
}

fn print_packet(packet: &Packet<'_>) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut put = |key: &str, value: Option<String>| {
        words.extend(value.map(|value| {
            if value.is_empty() {
                key.into()
            } else {
                format!("{key}={value}")
            }
        }));
    };
    let flag = |set: bool| set.then(String::new);
    let reason = |reason: ReasonCode| {
        (reason != ReasonCode::Success).then(|| format!("0x{:02X}", reason.as_u8()))
    };
    let reasons = |list: ReasonCodes<'_>| {
        list.iter()
            .map(|code| format!("0x{:02X}", code.as_u8()))
            .collect::<Vec<_>>()
            .join(",")
    };
    fn show<T: ToString>(value: Option<T>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    let name = match packet {
        Packet::ConnAck(p) => {
            put("session_present", flag(p.session_present));
            put("reason", reason(p.reason));
            put("expiry", show(p.properties.session_expiry_interval));
            put("rm", show(p.properties.receive_maximum));
            put(
                "maximum_qos",
                p.properties.maximum_qos.map(|qos| qos.as_u8().to_string()),
            );
            put("retain", show(p.properties.retain_available));
            put("mps", show(p.properties.maximum_packet_size));
            put("assigned", show(p.properties.assigned_client_identifier));
            put("tam", show(p.properties.topic_alias_maximum));
            put(
                "wildcard",
                show(p.properties.wildcard_subscription_available),
            );
            put(
                "subids",
                show(p.properties.subscription_identifiers_available),
            );
            put("shared", show(p.properties.shared_subscription_available));
            put("ka", show(p.properties.server_keep_alive));
            put("response", show(p.properties.response_information));
            put("reference", show(p.properties.server_reference));
            put("auth", show(p.properties.authentication_method));
            put("data", p.properties.authentication_data.map(text_of));
            for (name, value) in p.properties.user_properties.iter() {
                put(name, Some(value.to_owned()));
            }
            "CONNACK"
        }
        Packet::Publish(p) => {
            put("id", p.packet_id.map(|id| id.get().to_string()));
            put(
                "qos",
                flag(p.qos != QoS::AtMostOnce).map(|_| p.qos.as_u8().to_string()),
            );
            put("dup", flag(p.dup));
            put("retain", flag(p.retain));
            put(
                "topic",
                Some(p.topic.to_owned()).filter(|topic| !topic.is_empty()),
            );
            put("alias", show(p.properties.topic_alias));
            put("expiry", show(p.properties.message_expiry_interval));
            let ids: Vec<_> = p
                .properties
                .subscription_ids
                .iter()
                .map(|id| id.to_string())
                .collect();
            put("ids", Some(ids.join(",")).filter(|ids| !ids.is_empty()));
            for (name, value) in p.properties.user_properties.iter() {
                put(name, Some(value.to_owned()));
            }
            "PUBLISH"
        }
        Packet::PubAck(p) => {
            put("id", show(Some(p.packet_id.get())));
            put("reason", reason(p.reason));
            put("words", flag(p.properties.reason_string.is_some()));
            "PUBACK"
        }
        Packet::PubRec(p) => {
            put("id", show(Some(p.packet_id.get())));
            put("reason", reason(p.reason));
            put("words", flag(p.properties.reason_string.is_some()));
            "PUBREC"
        }
        Packet::PubRel(p) => {
            put("id", show(Some(p.packet_id.get())));
            put("reason", reason(p.reason));
            "PUBREL"
        }
        Packet::PubComp(p) => {
            put("id", show(Some(p.packet_id.get())));
            put("reason", reason(p.reason));
            "PUBCOMP"
        }
        Packet::SubAck(p) => {
            put("id", show(Some(p.packet_id.get())));
            put("reasons", Some(reasons(p.reasons)));
            "SUBACK"
        }
        Packet::UnsubAck(p) => {
            put("id", show(Some(p.packet_id.get())));
            put(
                "reasons",
                Some(reasons(p.reasons)).filter(|list| !list.is_empty()),
            );
            "UNSUBACK"
        }
        Packet::PingResp => "PINGRESP",
        Packet::Auth(p) => {
            put("reason", reason(p.reason));
            put("auth", show(p.properties.authentication_method));
            put("data", p.properties.authentication_data.map(text_of));
            "AUTH"
        }
        Packet::Disconnect(p) => {
            assert_eq!(
                p.properties.session_expiry_interval, None,
                "[MQTT-3.14.2-2]"
            );
            put("reason", reason(p.reason));
            put("words", flag(p.properties.reason_string.is_some()));
            put("reference", show(p.properties.server_reference));
            "DISCONNECT"
        }
        _ => panic!("a server does not send {packet:?}"),
    };
    words.insert(0, name.to_owned());
    words.join(" ")
}

fn text_of(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
