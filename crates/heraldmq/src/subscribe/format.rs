//! Output formats: `-F '%t %p'`.

use std::{
    io::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use mqtt_proto::Publish;

/// How a message is printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    Topic,
    Payload,
    /// The payload, or `(null)`, as mosquitto_sub -v prints it.
    PayloadOrNull,
    HexLower,
    HexUpper,
    Length,
    Qos,
    Retain,
    PacketId,
    ArrivalTime,
    ContentType,
    ResponseTopic,
    CorrelationData,
    MessageExpiry,
    PayloadFormat,
    UserProperties,
    SubscriptionIds,
}

impl Format {
    /// The payload.
    pub(super) fn plain() -> Self {
        Self(vec![Part::Payload])
    }

    /// Topic name and payload.
    pub(super) fn verbose() -> Self {
        Self(vec![
            Part::Topic,
            Part::Text(b" ".to_vec()),
            Part::PayloadOrNull,
        ])
    }

    /// Reads a format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(format: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut text = Vec::new();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            match character {
                '%' => {
                    let letter = characters.next();
                    if letter == Some('%') {
                        text.push(b'%');
                        continue;
                    }
                    let part = letter.and_then(part).ok_or_else(|| unknown('%', letter))?;
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(part);
                }
                '\\' => {
                    let letter = characters.next();
                    text.push(
                        letter
                            .and_then(escape)
                            .ok_or_else(|| unknown('\\', letter))?,
                    );
                }
                other => text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self(parts))
    }

    /// Appends a message in this format. What the message does not have is left empty.
    pub(super) fn append(&self, message: &Publish<'_>, out: &mut Vec<u8>) {
        for part in &self.0 {
            part.append(message, out);
        }
    }
}

fn part(letter: char) -> Option<Part> {
    Some(match letter {
        't' => Part::Topic,
        'p' => Part::Payload,
        'x' => Part::HexLower,
        'X' => Part::HexUpper,
        'l' => Part::Length,
        'q' => Part::Qos,
        'r' => Part::Retain,
        'm' => Part::PacketId,
        'U' => Part::ArrivalTime,
        'C' => Part::ContentType,
        'R' => Part::ResponseTopic,
        'D' => Part::CorrelationData,
        'E' => Part::MessageExpiry,
        'F' => Part::PayloadFormat,
        'P' => Part::UserProperties,
        'S' => Part::SubscriptionIds,
        _ => return None,
    })
}

fn escape(letter: char) -> Option<u8> {
    Some(match letter {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        _ => return None,
    })
}

fn unknown(mark: char, letter: Option<char>) -> String {
    match letter {
        Some(letter) => format!("{mark}{letter} is unknown; the help lists what there is"),
        None => format!("a single {mark} stands at the end"),
    }
}

impl Part {
    fn append(&self, message: &Publish<'_>, out: &mut Vec<u8>) {
        let properties = &message.properties;
        match self {
            Self::Text(text) => out.extend_from_slice(text),
            Self::Topic => out.extend_from_slice(message.topic.as_bytes()),
            Self::PayloadOrNull if message.payload.is_empty() => out.extend_from_slice(b"(null)"),
            Self::Payload | Self::PayloadOrNull => out.extend_from_slice(message.payload),
            Self::HexLower => {
                message
                    .payload
                    .iter()
                    .for_each(|byte| write(out, format_args!("{byte:02x}")));
            }
            Self::HexUpper => {
                message
                    .payload
                    .iter()
                    .for_each(|byte| write(out, format_args!("{byte:02X}")));
            }
            Self::Length => write(out, format_args!("{}", message.payload.len())),
            Self::Qos => write(out, format_args!("{}", message.qos.as_u8())),
            Self::Retain => write(out, format_args!("{}", u8::from(message.retain))),
            Self::PacketId => {
                write(
                    out,
                    format_args!("{}", message.packet_id.map_or(0, |id| id.get())),
                );
            }
            Self::ArrivalTime => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                write(
                    out,
                    format_args!("{}.{:09}", now.as_secs(), now.subsec_nanos()),
                );
            }
            Self::ContentType => {
                out.extend_from_slice(properties.content_type.unwrap_or_default().as_bytes());
            }
            Self::ResponseTopic => {
                out.extend_from_slice(properties.response_topic.unwrap_or_default().as_bytes());
            }
            Self::CorrelationData => {
                out.extend_from_slice(properties.correlation_data.unwrap_or_default());
            }
            Self::MessageExpiry => {
                if let Some(seconds) = properties.message_expiry_interval {
                    write(out, format_args!("{seconds}"));
                }
            }
            Self::PayloadFormat => {
                if let Some(indicator) = properties.payload_format_indicator {
                    write(out, format_args!("{}", u8::from(indicator)));
                }
            }
            Self::UserProperties => {
                for (index, (name, value)) in properties.user_properties.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write(out, format_args!("{separator}{name}:{value}"));
                }
            }
            Self::SubscriptionIds => {
                for (index, id) in properties.subscription_ids.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "," };
                    write(out, format_args!("{separator}{id}"));
                }
            }
        }
    }
}

/// Appends formatted text; memory takes it all.
fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{PacketId, PublishProperties, QoS, SubscriptionIds, UserProperties};

    use super::*;

    fn check(format: &str, expected: &str) {
        let (mut user, mut ids) = (Vec::new(), Vec::new());
        let message = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "a/b",
            packet_id: PacketId::new(7),
            properties: PublishProperties {
                content_type: Some("text"),
                correlation_data: Some(b"id"),
                message_expiry_interval: Some(60),
                payload_format_indicator: Some(true),
                response_topic: Some("r"),
                user_properties: UserProperties::encode_from(&[("k", "v"), ("k", "w")], &mut user)
                    .unwrap(),
                subscription_ids: SubscriptionIds::encode_from(&[1, 300], &mut ids).unwrap(),
                ..PublishProperties::default()
            },
            payload: b"\xABx",
        };
        let mut out = Vec::new();
        Format::parse(format).unwrap().append(&message, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn each_letter_stands_for_its_value() {
        check("%t %q %r %l %m", "a/b 1 1 2 7");
        check("%x/%X", "ab78/AB78");
        check("%p", "\u{FFFD}x");
        check("%C %D %E %F %R", "text id 60 1 r");
        check("%P|%S", "k:v k:w|1,300");
        check("", "");
    }

    #[test]
    fn text_and_escapes_stand_for_themselves() {
        check("100%% ü\\t%t\\n\\\\", "100% ü\ta/b\n\\");
        check("%%t", "%t");
    }

    #[test]
    fn what_is_unknown_is_named() {
        assert!(Format::parse("%y").unwrap_err().contains("%y"));
        assert!(Format::parse("\\q").unwrap_err().contains("\\q"));
        assert!(Format::parse("50%").unwrap_err().contains("at the end"));
    }

    #[test]
    fn verbose_marks_an_empty_payload() {
        let message = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "a",
            packet_id: None,
            properties: PublishProperties::default(),
            payload: b"",
        };
        let mut out = Vec::new();
        Format::verbose().append(&message, &mut out);
        assert_eq!(out, b"a (null)");
    }
}
