//! Output formats: `-F '%t %p'`, as mosquitto_sub reads them.
//!
//! What is printed is what mosquitto_sub 2.0 prints, byte by byte, but for two things: a width longer than a short payload does not
//! cut it in hexadecimal, and `\\xHH` is known, as in 2.1.

use std::io::Write as _;

use jiff::Zoned;
use jiff::fmt::strtime;
use mqtt_proto::Publish;

use super::json::Json;

/// The widest field.
const WIDEST: usize = 65_535;

/// Conversions of strftime in C.
const CONVERSIONS: &str = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";

/// How a message is printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Vec<u8>),
    /// The payload, or `(null)`, as mosquitto_sub -v prints it.
    PayloadOrNull,
    Field(Field, Shape),
    /// `@Y`: a part of the time of arrival, as strftime of C has it.
    Time(char),
    /// `@N`: the nanoseconds of its second.
    Nanoseconds,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Topic,
    Payload,
    HexLower,
    HexUpper,
    Length,
    Qos,
    Retain,
    PacketId,
    /// Seconds since 1970.
    UnixTime,
    /// As ISO 8601 has it.
    IsoTime,
    TopicAlias,
    ContentType,
    ResponseTopic,
    CorrelationData,
    MessageExpiry,
    PayloadFormat,
    UserProperties,
    SubscriptionIds,
    /// All of the message as JSON, with the payload as text.
    Json,
    /// The same with the payload as JSON.
    JsonOfJson,
    Percent,
}

/// How much room a field has: `%-010.3t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Shape {
    is_left: bool,
    has_zeros: bool,
    /// 0: as much as it needs.
    width: usize,
    /// The most bytes of a text; `None`: all.
    precision: Option<usize>,
}

/// Why a message is not printed: its payload is not JSON, and the format asks for JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotJson;

impl Format {
    /// The payload.
    pub(super) fn plain() -> Self {
        Self(vec![Part::Field(Field::Payload, Shape::default())])
    }

    /// Topic name and payload.
    pub(super) fn verbose() -> Self {
        Self(vec![
            Part::Field(Field::Topic, Shape::default()),
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
        let mut rest = format;
        while let Some(character) = take(&mut rest) {
            let part = match character {
                '%' => field(&mut rest)?,
                '@' => match take(&mut rest) {
                    None => return Err(unknown('@', None)),
                    Some('@') => Part::Text(b"@".to_vec()),
                    Some('N') => Part::Nanoseconds,
                    Some(letter) => Part::Time(letter),
                },
                '\\' => Part::Text(vec![escape(&mut rest)?]),
                other => Part::Text(other.to_string().into_bytes()),
            };
            match part {
                Part::Text(more) => text.extend(more),
                part => {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(part);
                }
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self(parts))
    }

    /// Appends a message that has come now in this format. What the message does not have is left empty. `is_pretty`: JSON has a line
    /// for each member.
    ///
    /// # Errors
    /// The payload is not JSON, as the format asks for.
    pub(super) fn append(
        &self,
        message: &Publish<'_>,
        now: &Zoned,
        is_pretty: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), NotJson> {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::PayloadOrNull if message.payload.is_empty() => {
                    out.extend_from_slice(b"(null)");
                }
                Part::PayloadOrNull => out.extend_from_slice(message.payload),
                Part::Time(letter) => time(*letter, now, out),
                Part::Nanoseconds => write(out, format_args!("{:09}", now.subsec_nanosecond())),
                Part::Field(field @ (Field::Json | Field::JsonOfJson), _) => {
                    let json = json(message, now, *field == Field::JsonOfJson)?;
                    match is_pretty {
                        true => json.append_pretty(out),
                        false => json.append(out),
                    }
                }
                Part::Field(field, shape) => shape.append(*field, message, now, out),
            }
        }
        Ok(())
    }
}

fn take(rest: &mut &str) -> Option<char> {
    let mut characters = rest.chars();
    let first = characters.next();
    *rest = characters.as_str();
    first
}

/// What stands behind a percent sign.
fn field(rest: &mut &str) -> Result<Part, String> {
    let mut shape = Shape::default();
    let mut flag = |wanted: char| {
        let behind = rest.strip_prefix(wanted);
        *rest = behind.unwrap_or(rest);
        behind.is_some()
    };
    shape.is_left = flag('-');
    shape.has_zeros = flag('0');
    shape.width = number(rest)?;
    if let Some(behind) = rest.strip_prefix('.') {
        *rest = behind;
        shape.precision = Some(number(rest)?);
    }
    let letter = take(rest);
    let field = match letter {
        Some('%') => Field::Percent,
        Some('t') => Field::Topic,
        Some('p') => Field::Payload,
        Some('x') => Field::HexLower,
        Some('X') => Field::HexUpper,
        Some('l') => Field::Length,
        Some('q') => Field::Qos,
        Some('r') => Field::Retain,
        Some('m') => Field::PacketId,
        Some('U') => Field::UnixTime,
        Some('I') => Field::IsoTime,
        Some('A') => Field::TopicAlias,
        Some('C') => Field::ContentType,
        Some('R') => Field::ResponseTopic,
        Some('D') => Field::CorrelationData,
        Some('E') => Field::MessageExpiry,
        Some('F') => Field::PayloadFormat,
        Some('P') => Field::UserProperties,
        Some('S') => Field::SubscriptionIds,
        Some('j') => Field::Json,
        Some('J') => Field::JsonOfJson,
        _ => return Err(unknown('%', letter)),
    };
    Ok(match field {
        Field::Percent => Part::Text(b"%".to_vec()),
        field => Part::Field(field, shape),
    })
}

/// The digits that come next; 0 if there are none.
fn number(rest: &mut &str) -> Result<usize, String> {
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let (digits, behind) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = behind;
    match digits {
        "" => Ok(0),
        digits => match digits.parse() {
            Ok(number) if number <= WIDEST => Ok(number),
            _ => Err(format!(
                "{digits} is too wide; a field has at most {WIDEST}"
            )),
        },
    }
}

/// What stands behind a backslash.
fn escape(rest: &mut &str) -> Result<u8, String> {
    let letter = take(rest);
    Ok(match letter {
        Some('\\') => b'\\',
        Some('0') => 0,
        Some('a') => 0x07,
        Some('e') => 0x1b,
        Some('n') => b'\n',
        Some('r') => b'\r',
        Some('t') => b'\t',
        Some('v') => 0x0b,
        Some('x') => {
            let digits = rest
                .get(..2)
                .filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
            let digits = digits.ok_or("\\x needs two hexadecimal digits, as in \\x41")?;
            *rest = rest.get(2..).unwrap_or_default();
            u8::from_str_radix(digits, 16).expect("two hexadecimal digits are a byte")
        }
        _ => return Err(unknown('\\', letter)),
    })
}

fn unknown(mark: char, letter: Option<char>) -> String {
    match letter {
        Some(letter) => format!("{mark}{letter} is unknown; the help lists what there is"),
        None => format!("a single {mark} stands at the end"),
    }
}

impl Shape {
    fn append(self, field: Field, message: &Publish<'_>, now: &Zoned, out: &mut Vec<u8>) {
        let properties = &message.properties;
        match field {
            Field::Topic => self.text(message.topic.as_bytes(), out),
            Field::ContentType => {
                self.text(properties.content_type.unwrap_or_default().as_bytes(), out);
            }
            Field::ResponseTopic => {
                self.text(
                    properties.response_topic.unwrap_or_default().as_bytes(),
                    out,
                );
            }
            Field::IsoTime => self.text(iso(now, "").as_bytes(), out),
            Field::Payload => self.payload(message.payload, out),
            Field::HexLower => self.hex(message.payload, |b| format!("{b:02x}"), out),
            Field::HexUpper => self.hex(message.payload, |b| format!("{b:02X}"), out),
            Field::Length => self.number(Some(message.payload.len() as u64), out),
            Field::PacketId => {
                let id = message.packet_id.map_or(0, |id| id.get());
                self.number(Some(id.into()), out);
            }
            Field::MessageExpiry => {
                self.number(properties.message_expiry_interval.map(u64::from), out);
            }
            Field::PayloadFormat => {
                self.number(properties.payload_format_indicator.map(u64::from), out);
            }
            // This client accepts none.
            Field::TopicAlias => self.number(None, out),
            Field::SubscriptionIds => {
                let ids: Vec<String> = properties
                    .subscription_ids
                    .iter()
                    .map(|id| id.to_string())
                    .collect();
                let is_one = ids.len() == 1;
                self.padded(ids.join(",").as_bytes(), is_one && self.has_zeros, out);
            }
            // These have no width.
            Field::CorrelationData => {
                out.extend_from_slice(properties.correlation_data.unwrap_or_default());
            }
            Field::Qos => write(out, format_args!("{}", message.qos.as_u8())),
            Field::Retain => write(out, format_args!("{}", u8::from(message.retain))),
            Field::UnixTime => {
                let at = now.timestamp();
                let (seconds, nanoseconds) = (at.as_second(), at.subsec_nanosecond());
                write(out, format_args!("{seconds}.{nanoseconds:09}"));
            }
            Field::UserProperties => {
                for (index, (name, value)) in properties.user_properties.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write(out, format_args!("{separator}{name}:{value}"));
                }
            }
            Field::Json | Field::JsonOfJson | Field::Percent => {
                unreachable!("what has no shape is no field of one")
            }
        }
    }

    fn text(self, text: &[u8], out: &mut Vec<u8>) {
        let most = self.precision.unwrap_or(text.len()).min(text.len());
        self.padded(text.get(..most).unwrap_or_default(), false, out);
    }

    /// A payload is cut at the width.
    fn payload(self, payload: &[u8], out: &mut Vec<u8>) {
        let most = match self.width {
            0 => payload.len(),
            width => width.min(payload.len()),
        };
        let payload = payload.get(..most).unwrap_or_default();
        self.padded(payload, self.has_zeros, out);
    }

    /// Two digits a byte; of those that do not fit into the width whole bytes are left out.
    fn hex(self, payload: &[u8], digits: fn(u8) -> String, out: &mut Vec<u8>) {
        let most = match self.width {
            0 => payload.len(),
            width => (width / 2).min(payload.len()),
        };
        let payload = payload.iter().take(most);
        let digits: Vec<u8> = payload.flat_map(|b| digits(*b).into_bytes()).collect();
        self.padded(&digits, self.has_zeros, out);
    }

    fn number(self, number: Option<u64>, out: &mut Vec<u8>) {
        match number {
            Some(number) => self.padded(number.to_string().as_bytes(), self.has_zeros, out),
            None => {
                let pad = if self.has_zeros { b'0' } else { b' ' };
                out.extend(std::iter::repeat_n(pad, self.width));
            }
        }
    }

    fn padded(self, text: &[u8], has_zeros: bool, out: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(text.len());
        let pad = if has_zeros { b'0' } else { b' ' };
        if self.is_left {
            out.extend_from_slice(text);
            out.extend(std::iter::repeat_n(b' ', missing));
        } else {
            out.extend(std::iter::repeat_n(pad, missing));
            out.extend_from_slice(text);
        }
    }
}

/// A time in this time zone, with something behind its seconds.
fn iso(now: &Zoned, behind: &str) -> String {
    let time = now.strftime("%Y-%m-%dT%H:%M:%S");
    format!("{time}{behind}{}", now.strftime("%z"))
}

/// A conversion that is not known stands for itself, as in the C library.
fn time(letter: char, now: &Zoned, out: &mut Vec<u8>) {
    // What depends on the language is that of the locale "C", as in programs that choose none.
    let conversion = match letter {
        'c' => "%a %b %e %H:%M:%S %Y".to_owned(),
        'r' => "%I:%M:%S %p".to_owned(),
        'x' => "%m/%d/%y".to_owned(),
        'X' => "%H:%M:%S".to_owned(),
        letter => format!("%{letter}"),
    };
    let text = CONVERSIONS
        .contains(letter)
        .then(|| strtime::format(conversion, now));
    let text = text
        .and_then(Result::ok)
        .unwrap_or_else(|| format!("%{letter}"));
    out.extend_from_slice(text.as_bytes());
}

fn json(message: &Publish<'_>, now: &Zoned, has_json: bool) -> Result<Json, NotJson> {
    let properties = &message.properties;
    let text = |text: &str| Json::Text(text.to_owned());
    let whole = |number: u32| Json::Whole(number.into());
    let ids: Vec<Json> = properties.subscription_ids.iter().map(whole).collect();
    let user = properties.user_properties.iter();
    let user: Vec<(String, Json)> = user
        .map(|(name, value)| (name.to_owned(), text(value)))
        .collect();
    let of_message = [
        (
            "message-expiry-interval",
            properties.message_expiry_interval.map(whole),
        ),
        (
            "subscription-identifier",
            match ids.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                _ => Some(Json::List(ids)),
            },
        ),
        (
            "payload-format-indicator",
            properties
                .payload_format_indicator
                .map(|is_text| whole(is_text.into())),
        ),
        ("content-type", properties.content_type.map(text)),
        ("response-topic", properties.response_topic.map(text)),
        (
            "correlation-data",
            properties.correlation_data.map(Json::text),
        ),
        (
            "user-properties",
            (!user.is_empty()).then_some(Json::Object(user)),
        ),
    ];
    let of_message: Vec<(String, Json)> = of_message
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    let microseconds = now.subsec_nanosecond() / 1_000;
    let payload = match message.payload {
        b"" => Json::Null,
        payload if has_json => Json::parse(payload).ok_or(NotJson)?,
        payload => Json::text(payload),
    };
    let members = [
        (
            "tst",
            Some(text(&iso(now, &format!(".{microseconds:06}Z")))),
        ),
        ("topic", Some(text(message.topic))),
        ("qos", Some(whole(message.qos.as_u8().into()))),
        ("retain", Some(whole(message.retain.into()))),
        (
            "payloadlen",
            Some(Json::Whole(message.payload.len() as i128)),
        ),
        ("mid", message.packet_id.map(|id| whole(id.get().into()))),
        (
            "properties",
            (!of_message.is_empty()).then_some(Json::Object(of_message)),
        ),
        ("payload", Some(payload)),
    ];
    let members = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Json::Object(members.collect()))
}

/// Appends formatted text; memory takes it all.
fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory takes any text");
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
        let format = Format::parse(format).unwrap();
        format.append(&message, &now(), false, &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    fn now() -> Zoned {
        "2026-11-29T08:05:01.000512345+02:00[Africa/Cairo]"
            .parse()
            .unwrap()
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
    fn fields_have_the_width_that_is_asked_for() {
        check("[%5t|%-5t|%.2t|%5.1t|%05t]", "[  a/b|a/b  |a/|    a|  a/b]");
        check("[%4l|%-4l|%04l|%-04l]", "[   2|2   |0002|2   ]");
        check("[%8x|%3x|%-6X|%1p]", "[    ab78| ab|AB78  |\u{FFFD}]");
        check("[%5q|%5r|%3A|%03A]", "[1|1|   |000]");
    }

    #[test]
    fn times_are_those_of_the_time_zone() {
        check("%I %U", "2026-11-29T08:05:01+0200 1795932301.000512345");
        check(
            "@Y-@m-@d @H:@M:@S.@N @z @Z @@ @j @Q",
            "2026-11-29 08:05:01.000512345 +0200 EET @ 333 %Q",
        );
    }

    #[test]
    fn a_message_is_json_with_its_payload_as_text_or_as_json() {
        check(
            "%j",
            "{\"tst\":\"2026-11-29T08:05:01.000512Z+0200\",\"topic\":\"a/b\",\"qos\":1,\"retain\":1,\"payloadlen\":2,\"mid\":7,\
             \"properties\":{\"message-expiry-interval\":60,\"subscription-identifier\":[1,300],\"payload-format-indicator\":1,\"content-type\":\"text\",\"response-topic\":\"r\",\
             \"correlation-data\":\"id\",\"user-properties\":{\"k\":\"v\",\"k\":\"w\"}},\"payload\":\"\u{FFFD}x\"}",
        );
        let mut message = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "a",
            packet_id: None,
            properties: PublishProperties::default(),
            payload: b"[1, 2]",
        };
        let of_json = Format::parse("%J").unwrap();
        let mut out = Vec::new();
        of_json.append(&message, &now(), false, &mut out).unwrap();
        let expected = "{\"tst\":\"2026-11-29T08:05:01.000512Z+0200\",\"topic\":\"a\",\"qos\":0,\"retain\":0,\"payloadlen\":6,\"payload\":[1,2]}";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        message.payload = b"1, 2";
        assert_eq!(
            of_json.append(&message, &now(), false, &mut out),
            Err(NotJson)
        );
    }

    #[test]
    fn text_and_escapes_stand_for_themselves() {
        check("100%% ü\\t%t\\n\\\\", "100% ü\ta/b\n\\");
        check("%%t %5%", "%t %");
        check("\\x41\\x7e\\a\\e\\v", "A~\u{7}\u{1b}\u{b}");
    }

    #[test]
    fn what_is_unknown_is_named() {
        assert!(Format::parse("%y").unwrap_err().contains("%y"));
        assert!(Format::parse("\\q").unwrap_err().contains("\\q"));
        assert!(Format::parse("50%").unwrap_err().contains("at the end"));
        assert!(Format::parse("a@").unwrap_err().contains("at the end"));
        assert!(Format::parse("%0-5l").unwrap_err().contains("%-"));
        assert!(Format::parse("%65536t").unwrap_err().contains("65535"));
        assert!(
            Format::parse("\\x4")
                .unwrap_err()
                .contains("two hexadecimal digits")
        );
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
        let verbose = Format::verbose();
        verbose.append(&message, &now(), false, &mut out).unwrap();
        assert_eq!(out, b"a (null)");
    }
}
