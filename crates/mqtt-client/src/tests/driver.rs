//! Plays a dialogue with one client in virtual time and compares the transcript.
//!
//! A line of a script is an input or an expected output; the transcript has to be the script:
//!
//! ```text
//! $ command …         a command of the application
//! < PACKET …          a packet from the server; `< RAW 30 01 …`: bytes
//! + 1500              milliseconds pass
//! ? facts             prints them
//! > PACKET …          the client sends this
//! ! …                 an event, or an error
//! = …                 facts
//! # …                 a comment
//! ```
//!
//! A message is known by a number, `m=1`. Each script is played twice: packets arrive whole, and byte by byte.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use mqtt_proto::*;

use crate::*;

/// Plays `script` and compares.
#[track_caller]
pub(super) fn check(script: &str) {
    play(script, Acknowledgements::Automatic);
}

/// As [`check`]; messages are acknowledged by `$ answer`.
#[track_caller]
pub(super) fn check_manual(script: &str) {
    play(script, Acknowledgements::Manual);
}

#[track_caller]
fn play(script: &str, acknowledgements: Acknowledgements) {
    let lines: Vec<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let expected = lines.join("\n");
    for piece in [usize::MAX, 1] {
        let mut driver = Driver {
            client: Client::new(acknowledgements),
            now: Duration::ZERO,
            piece,
            messages: BTreeMap::new(),
            answers: Vec::new(),
            transcript: Vec::new(),
        };
        lines.iter().for_each(|line| driver.line(line));
        let actual = driver.transcript.join("\n");
        assert!(
            actual == expected,
            "\n--- expected\n{expected}\n--- actual, by {piece} bytes\n{actual}\n"
        );
    }
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

    fn all(&self, key: &str) -> Vec<&'a str> {
        let named = self.0.iter().filter(|(name, _)| *name == key);
        named.map(|(_, value)| *value).collect()
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.all(key).first().copied()
    }

    fn has(&self, key: &str) -> bool {
        self.text(key).is_some()
    }

    fn number<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        let number = self.text(key).map(parse)?;
        Some(T::try_from(number).ok().expect("in range"))
    }

    fn qos(&self) -> QoS {
        QoS::from_u8(self.number("qos").unwrap_or(0)).expect("QoS 0, 1 or 2")
    }

    fn id(&self) -> PacketId {
        PacketId::new(self.number("id").expect("id=")).expect("an identifier above 0")
    }

    fn reason(&self) -> ReasonCode {
        reason(self.number("reason").unwrap_or(0))
    }

    fn reasons(&self) -> Vec<ReasonCode> {
        let list = self.text("reasons").unwrap_or_default();
        let codes = list.split_terminator(',').map(parse);
        codes.map(|code| reason(code as u8)).collect()
    }

    fn ack_properties(&self) -> AckProperties<'a> {
        AckProperties {
            reason_string: self.text("why"),
            ..AckProperties::default()
        }
    }
}

fn parse(text: &str) -> u64 {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|_| panic!("no number: {text}"))
}

fn reason(code: u8) -> ReasonCode {
    ReasonCode::from_u8(code).expect("a reason code")
}

struct Driver {
    client: Client<u32>,
    now: Duration,
    /// Bytes that arrive at once.
    piece: usize,
    /// What was published, for sending it again.
    messages: BTreeMap<u32, (String, QoS)>,
    answers: Vec<Answer>,
    transcript: Vec<String>,
}

impl Driver {
    fn say(&mut self, text: impl Into<String>) {
        self.transcript.push(text.into());
    }

    fn line(&mut self, line: &str) {
        let (kind, rest) = line.split_at(1);
        if matches!(kind, ">" | "!" | "=") {
            return;
        }
        self.say(line);
        match kind {
            "$" => self.command(&Words::new(rest)),
            "<" => self.receive(&Words::new(rest)),
            "+" => self.pass(parse(rest.trim())),
            "?" => self.facts(),
            _ => panic!("{line}"),
        }
        self.transmit();
    }

    fn command(&mut self, words: &Words<'_>) {
        let done = match words.name() {
            "connect" => {
                self.connect(words);
                Ok(())
            }
            "publish" => self.publish(words),
            "resend" => self.resend(),
            "subscribe" => {
                let options = SubscriptionOptions {
                    qos: words.qos(),
                    ..SubscriptionOptions::default()
                };
                let filters = words.all("filter");
                let filters: Vec<_> = filters.iter().map(|filter| (*filter, options)).collect();
                let asked = self.client.subscribe(&filters, Default::default());
                asked.map(drop)
            }
            "unsubscribe" => {
                let filters = words.all("filter");
                let asked = self.client.unsubscribe(&filters, Default::default());
                asked.map(drop)
            }
            "answer" => {
                let place = self
                    .answers
                    .iter()
                    .position(|answer| answer.packet_id() == words.id());
                let answer = self.answers.remove(place.expect("an answer is owed"));
                let kind = answer.packet_type();
                if !self.client.answer(answer) {
                    self.say(format!("! {kind:?} is not sent"));
                }
                Ok(())
            }
            "ping" => self.client.ping(),
            "disconnect" => self.client.disconnect(&Disconnect {
                reason: words.reason(),
                properties: DisconnectProperties {
                    session_expiry_interval: words.number("expiry"),
                    ..DisconnectProperties::default()
                },
            }),
            "close" => {
                self.client.handle_connection_closed();
                Ok(())
            }
            other => panic!("command {other}"),
        };
        if let Err(error) = done {
            self.say(format!("! refused: {error}"));
        }
    }

    fn connect(&mut self, words: &Words<'_>) {
        let connect = Connect {
            version: match words.text("v") {
                Some("3.1") => ProtocolVersion::V3_1,
                Some("3.1.1") => ProtocolVersion::V3_1_1,
                _ => ProtocolVersion::V5,
            },
            is_bridge: false,
            clean_start: words.has("clean"),
            keep_alive: words.number("ka").unwrap_or(0),
            client_id: words.text("id").unwrap_or("c"),
            will: None,
            username: words.text("user"),
            password: words.text("password").map(str::as_bytes),
            properties: ConnectProperties {
                receive_maximum: words.number("rm").and_then(NonZeroU16::new),
                maximum_packet_size: words.number("mps").and_then(NonZeroU32::new),
                ..ConnectProperties::default()
            },
        };
        if let Err(error) = self.client.connect(&connect) {
            self.say(format!("! refused: {error}"));
        }
    }

    fn publish(&mut self, words: &Words<'_>) -> Result<(), CommandError> {
        let (topic, qos) = (words.text("topic").unwrap_or("t"), words.qos());
        let payload = vec![b'x'; words.number("size").unwrap_or(0)];
        // What the client sets is set wrong.
        let packet = Publish {
            dup: true,
            qos,
            retain: words.has("retain"),
            topic,
            packet_id: PacketId::new(77),
            properties: PublishProperties::default(),
            payload: &payload,
        };
        let known_by = words.number("m").unwrap_or(0);
        self.messages.insert(known_by, (topic.to_owned(), qos));
        let has_room = self.client.has_room(qos);
        let published = self.client.publish(packet, known_by);
        assert_eq!(
            matches!(published, Err(CommandError::NoRoom)),
            !has_room && self.client.check_publish(qos, packet.retain).is_ok()
        );
        published.map(|id| assert_eq!(id.is_some(), qos > QoS::AtMostOnce))
    }

    /// All that can be sent again.
    fn resend(&mut self) -> Result<(), CommandError> {
        while let Some(known_by) = self.client.poll_resend() {
            let (topic, qos) = &self.messages[known_by];
            self.client.resend(Publish {
                dup: false,
                qos: *qos,
                retain: false,
                topic,
                packet_id: None,
                properties: PublishProperties::default(),
                payload: b"",
            })?;
        }
        Ok(())
    }

    fn receive(&mut self, words: &Words<'_>) {
        let mut bytes = Vec::new();
        if words.name() == "RAW" {
            let hex = |(byte, _): &(&str, &str)| u8::from_str_radix(byte, 16).expect("a byte");
            bytes.extend(words.0[1..].iter().map(hex));
        } else {
            server_packet(words, self.client.version(), &mut bytes);
        }
        for piece in bytes.chunks(self.piece.min(bytes.len())) {
            let mut arrival = self.client.handle_bytes(piece);
            loop {
                match self.client.poll_event(&mut arrival) {
                    Ok(Some(event)) => {
                        let answer = match &event {
                            Event::Message(incoming) | Event::Duplicate(incoming) => {
                                incoming.answer
                            }
                            Event::Released { answer, .. } => *answer,
                            _ => None,
                        };
                        self.answers.extend(answer);
                        self.transcript.push(print_event(&event));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let statement = error.statement().unwrap_or("no number");
                        let reason = error.reason_code().as_u8();
                        let why = std::error::Error::source(&error).expect("a cause");
                        self.transcript
                            .push(format!("! {error}: {why} [{statement}] 0x{reason:02X}"));
                        break;
                    }
                }
            }
        }
        assert!(self.client.partial.is_empty(), "all was whole packets");
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        if self.client.handle_deadline(self.now) == Deadline::KeepAliveTimeout {
            self.say("! keep alive timeout");
        }
        assert!(
            self.client
                .poll_deadline()
                .is_none_or(|deadline| deadline > self.now)
        );
    }

    fn facts(&mut self) {
        let client = &self.client;
        let mut facts = vec![format!("in_flight={}", client.in_flight())];
        for (holds, fact) in [
            (client.is_connected(), "connected"),
            (client.is_leaving(), "leaving"),
            (client.has_room(QoS::AtLeastOnce), "room"),
            (client.poll_resend().is_some(), "resend"),
            (client.awaiting_release().next().is_some(), "unreleased"),
            (client.out.capacity() > 0, "buffer"),
        ] {
            facts.extend(holds.then(|| fact.to_owned()));
        }
        self.say(format!("= {}", facts.join(" ")));
    }

    fn transmit(&mut self) {
        let bytes = self.client.poll_transmit().to_vec();
        let version = self.client.version();
        let mut rest = bytes.as_slice();
        while let Some(frame) = peek_frame(rest, Some(version)).expect("the client's good frames") {
            let (first, after) = rest.split_at(frame.len());
            let packet = Packet::decode(first, version).expect("the client's good packets");
            self.say(format!("> {}", print_packet(&packet)));
            rest = after;
        }
        assert!(rest.is_empty(), "the client sends whole packets");
        self.client.handle_transmitted(bytes.len(), self.now);
        assert!(self.client.poll_transmit().is_empty());
    }
}

fn server_packet(words: &Words<'_>, version: ProtocolVersion, out: &mut Vec<u8>) {
    let reasons = words.reasons();
    let mut filters = Vec::new();
    let packet = match words.name() {
        "CONNACK" => Packet::ConnAck(ConnAck {
            session_present: words.has("present"),
            reason: words.reason(),
            properties: ConnAckProperties {
                receive_maximum: words.number("rm").and_then(NonZeroU16::new),
                maximum_packet_size: words.number("mps").and_then(NonZeroU32::new),
                maximum_qos: words.number("maximum_qos").and_then(QoS::from_u8),
                retain_available: words.has("no_retain").then_some(false),
                server_keep_alive: words.number("ka"),
                reason_string: words.text("why"),
                ..ConnAckProperties::default()
            },
        }),
        "PUBLISH" => Packet::Publish(Publish {
            dup: words.has("dup"),
            qos: words.qos(),
            retain: words.has("retain"),
            topic: words.text("topic").unwrap_or("t"),
            packet_id: words.has("id").then(|| words.id()),
            properties: PublishProperties {
                topic_alias: words.number("alias").and_then(NonZeroU16::new),
                ..PublishProperties::default()
            },
            payload: words.text("payload").unwrap_or_default().as_bytes(),
        }),
        "PUBACK" => Packet::PubAck(PubAck {
            packet_id: words.id(),
            reason: words.reason(),
            properties: words.ack_properties(),
        }),
        "PUBREC" => Packet::PubRec(PubRec {
            packet_id: words.id(),
            reason: words.reason(),
            properties: words.ack_properties(),
        }),
        "PUBREL" => Packet::PubRel(PubRel {
            packet_id: words.id(),
            reason: words.reason(),
            properties: words.ack_properties(),
        }),
        "PUBCOMP" => Packet::PubComp(PubComp {
            packet_id: words.id(),
            reason: words.reason(),
            properties: words.ack_properties(),
        }),
        "SUBACK" => Packet::SubAck(SubAck {
            packet_id: words.id(),
            properties: words.ack_properties(),
            reasons: reasons.as_slice().into(),
        }),
        "UNSUBACK" => Packet::UnsubAck(UnsubAck {
            packet_id: words.id(),
            properties: words.ack_properties(),
            reasons: reasons.as_slice().into(),
        }),
        "PINGRESP" => Packet::PingResp,
        "DISCONNECT" => Packet::Disconnect(Disconnect {
            reason: words.reason(),
            properties: DisconnectProperties {
                reason_string: words.text("why"),
                ..DisconnectProperties::default()
            },
        }),
        "AUTH" => Packet::Auth(Auth {
            reason: ReasonCode::ContinueAuthentication,
            properties: AuthProperties {
                authentication_method: Some("m"),
                ..AuthProperties::default()
            },
        }),
        // What no server sends.
        "PINGREQ" => Packet::PingReq,
        "UNSUBSCRIBE" => Packet::Unsubscribe(Unsubscribe {
            packet_id: words.id(),
            properties: UnsubscribeProperties::default(),
            filters: UnsubscribeFilters::encode_from(&["f"], &mut filters).expect("a filter"),
        }),
        other => panic!("packet {other}"),
    };
    packet
        .encode(version, out)
        .expect("the script's good packets");
}

/// A line of words; those without a value are left out.
fn line(name: &str, words: &[(&str, Option<String>)]) -> String {
    let mut line = name.to_owned();
    for (key, value) in words {
        match value.as_deref() {
            Some("") => line += &format!(" {key}"),
            Some(value) => line += &format!(" {key}={value}"),
            None => {}
        }
    }
    line
}

fn flag(set: bool) -> Option<String> {
    set.then(String::new)
}

fn id(id: PacketId) -> Option<String> {
    Some(id.to_string())
}

fn code(reason: ReasonCode) -> Option<String> {
    (reason != ReasonCode::Success).then(|| format!("0x{:02X}", reason.as_u8()))
}

fn codes(reasons: ReasonCodes<'_>) -> Option<String> {
    let list: Vec<_> = reasons
        .iter()
        .map(|reason| format!("0x{:02X}", reason.as_u8()))
        .collect();
    Some(list.join(",")).filter(|list| !list.is_empty())
}

fn text(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn print_publish(name: &str, publish: &Publish<'_>) -> String {
    let payload = String::from_utf8_lossy(publish.payload);
    line(
        name,
        &[
            ("id", publish.packet_id.and_then(id)),
            (
                "qos",
                Some(publish.qos.as_u8().to_string()).filter(|qos| qos != "0"),
            ),
            ("dup", flag(publish.dup)),
            ("retain", flag(publish.retain)),
            ("topic", text(Some(publish.topic))),
            (
                "payload",
                Some(payload.into_owned()).filter(|payload| !payload.is_empty()),
            ),
        ],
    )
}

fn print_event(event: &Event<'_, u32>) -> String {
    match event {
        Event::Connected(ack) => line("! connected", &[("present", flag(ack.session_present))]),
        Event::Refused(ack) => line(
            "! refused",
            &[
                ("reason", code(ack.reason)),
                ("why", text(ack.properties.reason_string)),
            ],
        ),
        Event::Disconnected(packet) => line(
            "! disconnected",
            &[
                ("reason", code(packet.reason)),
                ("why", text(packet.properties.reason_string)),
            ],
        ),
        Event::Message(incoming) => print_publish("! message", &incoming.publish),
        Event::Duplicate(incoming) => print_publish("! duplicate", &incoming.publish),
        Event::Released { packet_id, .. } => line("! released", &[("id", id(*packet_id))]),
        Event::Received(message) => format!("! received m={message}"),
        Event::Acknowledged(ack) => line(
            "! acknowledged",
            &[
                ("m", Some(ack.message.to_string())),
                ("by", Some(format!("{:?}", ack.packet_type))),
                ("reason", code(ack.reason)),
                ("why", text(ack.reason_string)),
            ],
        ),
        Event::Discarded(message) => format!("! discarded m={message}"),
        Event::Subscribed(ack) => line(
            "! subscribed",
            &[
                ("id", id(ack.packet_id)),
                ("reasons", codes(ack.reasons)),
                ("why", text(ack.properties.reason_string)),
            ],
        ),
        Event::Unsubscribed(ack) => line(
            "! unsubscribed",
            &[("id", id(ack.packet_id)), ("reasons", codes(ack.reasons))],
        ),
        Event::PingResp => "! ping answered".to_owned(),
        Event::Stray {
            packet_type,
            packet_id,
        } => format!("! stray {packet_type:?} id={packet_id}"),
    }
}

fn print_packet(packet: &Packet<'_>) -> String {
    let ack = |name: &str, packet_id, reason| {
        line(name, &[("id", id(packet_id)), ("reason", code(reason))])
    };
    match packet {
        Packet::Connect(connect) => line(
            "CONNECT",
            &[
                ("clean", flag(connect.clean_start)),
                (
                    "ka",
                    Some(connect.keep_alive.to_string()).filter(|seconds| seconds != "0"),
                ),
                ("user", text(connect.username)),
            ],
        ),
        Packet::Publish(publish) => {
            let shown = Publish {
                payload: b"",
                ..*publish
            };
            print_publish("PUBLISH", &shown)
        }
        Packet::PubAck(packet) => ack("PUBACK", packet.packet_id, packet.reason),
        Packet::PubRec(packet) => ack("PUBREC", packet.packet_id, packet.reason),
        Packet::PubRel(packet) => ack("PUBREL", packet.packet_id, packet.reason),
        Packet::PubComp(packet) => ack("PUBCOMP", packet.packet_id, packet.reason),
        Packet::Subscribe(packet) => {
            let filters = packet.filters.iter();
            let filters: Vec<_> = filters
                .map(|(filter, options)| format!("{filter}:{}", options.qos.as_u8()))
                .collect();
            line(
                "SUBSCRIBE",
                &[
                    ("id", id(packet.packet_id)),
                    ("filters", Some(filters.join(","))),
                ],
            )
        }
        Packet::Unsubscribe(packet) => {
            let filters: Vec<_> = packet.filters.iter().collect();
            line(
                "UNSUBSCRIBE",
                &[
                    ("id", id(packet.packet_id)),
                    ("filters", Some(filters.join(","))),
                ],
            )
        }
        Packet::PingReq => "PINGREQ".to_owned(),
        Packet::Disconnect(packet) => line(
            "DISCONNECT",
            &[
                ("reason", code(packet.reason)),
                (
                    "expiry",
                    packet
                        .properties
                        .session_expiry_interval
                        .map(|seconds| seconds.to_string()),
                ),
            ],
        ),
        _ => panic!("a client does not send {packet:?}"),
    }
}
