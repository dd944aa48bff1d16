//! A message of NATS as it is published here: its topic and its properties.
//!
//! Everybody who may publish to the stream decides what stands in subjects and headers. What MQTT cannot have is left out of a
//! message, or the message is refused when its topic is checked.

use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mqtt_proto::validate_topic_name;
use outlet::{Item, Milliseconds, StandardProperties};

use crate::epoch::POSITION;
use crate::nats::header::{
    CONTENT_TYPE, CORRELATION, EXPIRES, PAYLOAD_FORMAT, RESPONSE_TOPIC, TOPIC, is_of_server,
};

/// The User Property with the place of a message in its stream.
const SEQUENCE: &str = "nats-sequence";

/// The longest text that MQTT has, in bytes.
const LONGEST_TEXT: usize = 65_535;

/// Bytes of the headers that come along at most. Further ones are left out, in the order of their names.
const MOST_BYTES: usize = 256 * 1024;

/// The message of a subject. `sequence`: its place in the stream.
pub(super) fn item(
    (subject, sequence): (&str, u64),
    headers: Option<&HeaderMap>,
    payload: Bytes,
    received: Milliseconds,
) -> Item {
    let mut properties = vec![(SEQUENCE.into(), sequence.to_string().into())];
    let mut standard = StandardProperties::default();
    for (name, value) in sorted(headers) {
        match name {
            _ if is_of_server(name) || name.eq_ignore_ascii_case(POSITION) => {}
            TOPIC => properties.push((TOPIC.into(), decoded(value).into())),
            RESPONSE_TOPIC => {
                let topic = Some(decoded(value)).filter(|topic| validate_topic_name(topic).is_ok());
                standard.response_topic = topic.map(Into::into);
            }
            CORRELATION => {
                let data = STANDARD.decode(value).ok();
                let data = data.filter(|data| data.len() <= LONGEST_TEXT);
                standard.correlation_data = data.map(Into::into);
            }
            PAYLOAD_FORMAT => standard.is_utf8 = Some(value == "1"),
            EXPIRES => standard.expires = value.parse().ok().map(Milliseconds),
            _ if name.eq_ignore_ascii_case(CONTENT_TYPE) => {
                standard.content_type = Some(value.into());
            }
            _ => properties.push((name.into(), value.into())),
        }
    }
    // A subscriber may take a payload that is said to be UTF-8, and is not, for a Malformed Packet.
    if standard.is_utf8 == Some(true) && std::str::from_utf8(&payload).is_err() {
        standard.is_utf8 = None;
    }
    Item {
        position: None,
        topic: topic(subject).into(),
        payload,
        qos: 1,
        retain: false,
        received,
        properties,
        standard,
    }
}

/// The headers that MQTT can have, by their names, those of one name in their order.
fn sorted(headers: Option<&HeaderMap>) -> Vec<(&str, &str)> {
    let headers = headers.into_iter().flat_map(HeaderMap::iter);
    let mut pairs: Vec<(&str, &str)> = headers
        .flat_map(|(name, values)| {
            let values = values.iter();
            values.map(move |value| (AsRef::<str>::as_ref(name), value.as_str()))
        })
        .filter(|(name, value)| is_text(name) && is_text(value))
        .collect();
    pairs.sort_by_key(|(name, _)| *name);
    let mut bytes = 0;
    pairs.retain(|(name, value)| {
        bytes += name.len() + value.len();
        bytes <= MOST_BYTES
    });
    pairs
}

/// Whether MQTT has such a text [MQTT-1.5.4-2].
fn is_text(text: &str) -> bool {
    text.len() <= LONGEST_TEXT && !text.contains('\0')
}

/// The topic of a subject: tokens are levels, and what an outlet has encoded in them is decoded.
fn topic(subject: &str) -> String {
    let levels = subject.split('.').map(|token| match token {
        "%" => String::new(),
        token => decoded(token),
    });
    let levels: Vec<String> = levels.collect();
    levels.join("/")
}

/// A text with its bytes that stand as `%XX`. A text in which that is not UTF-8, or has a NUL, is as it stands.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let byte = match (first, behind) {
            (b'%', [high, low, ..]) => hexadecimal(*high, *low),
            _ => None,
        };
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    let decoded = String::from_utf8(out).ok();
    let decoded = decoded.filter(|decoded| !decoded.contains('\0'));
    decoded.unwrap_or_else(|| text.to_owned())
}

fn hexadecimal(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&str, &str)], payload: &'static [u8]) -> Item {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        let payload = Bytes::from_static(payload);
        item(("plant.7", 42), Some(&map), payload, Milliseconds(5))
    }

    fn properties(item: &Item) -> Vec<(&str, &str)> {
        let pairs = item.properties.iter();
        pairs.map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn a_subject_is_a_topic_with_what_an_outlet_has_encoded() {
        for (subject, wanted) in [
            ("plant.7.state", "plant/7/state"),
            ("a%2Eb.c%20d.%25.x", "a.b/c d/%/x"),
            ("%.a.%.%", "/a//"),
            ("%24JS.API", "$JS/API"),
            ("ü.%E2%80%A8", "ü/\u{2028}"),
            ("a%.%4.%zz.%FF.%00", "a%/%4/%zz/%FF/%00"),
            ("a.%2B.%23", "a/+/#"),
        ] {
            assert_eq!(topic(subject), wanted);
        }
    }

    #[test]
    fn headers_are_user_properties_unless_they_say_something_else() {
        let headers = [
            ("unit", "K"),
            ("unit", "°C"),
            ("Nats-Msg-Id", "x"),
            ("nats-sequence", "7"),
            ("hmq-position", "1.2"),
            ("hmq-path", "me"),
            ("hmq-topic", "a/%C3%BC"),
            ("hmq-response-topic", "re/%C3%BC"),
            ("hmq-correlation", "/wA="),
            ("hmq-payload-format", "1"),
            ("hmq-expires", "1800000000000"),
            ("content-type", "text/x"),
            ("zero", "a\0b"),
        ];
        let item = of(&headers, b"x");
        assert_eq!((&*item.topic, item.qos), ("plant/7", 1));
        let wanted = [
            ("nats-sequence", "42"),
            ("hmq-path", "me"),
            ("hmq-topic", "a/ü"),
            ("unit", "K"),
            ("unit", "°C"),
        ];
        assert_eq!(properties(&item), wanted);
        let wanted = StandardProperties {
            is_utf8: Some(true),
            expires: Some(Milliseconds(1_800_000_000_000)),
            content_type: Some("text/x".into()),
            response_topic: Some("re/ü".into()),
            correlation_data: Some(Bytes::from_static(b"\xff\x00")),
        };
        assert_eq!(item.standard, wanted);
    }

    #[test]
    fn headers_that_are_wrong_or_too_much_are_left_out() {
        let wrong = [
            ("hmq-response-topic", "re/+"),
            ("hmq-correlation", "no base64"),
            ("hmq-payload-format", "1"),
            ("hmq-expires", "soon"),
        ];
        assert_eq!(of(&wrong, b"\xff").standard, StandardProperties::default());
        let (long, longer) = ("x".repeat(65_535), "x".repeat(65_536));
        let many = [
            ("a", longer.as_str()),
            ("b", &long),
            ("c", &long),
            ("d", &long),
            ("e", &long),
            ("f", &long),
        ];
        let item = of(&many, b"");
        let names: Vec<&str> = properties(&item).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["nats-sequence", "b", "c", "d", "e"]);
    }
}
