//! A record as it is published here: its topic and its properties.
//!
//! Everybody who may write to a topic of Kafka decides what stands in keys and headers. What MQTT cannot have is left out.

use bytes::Bytes;
use mqtt_proto::validate_topic_name;
use outlet::{Item, Milliseconds, StandardProperties};
use outlets::POSITION;
use rdkafka::message::{Headers as _, Message};

use crate::header::{
    CONTENT_TYPE, CORRELATION, EXPIRES, KEY, PAYLOAD_FORMAT, PLACE, RESPONSE_TOPIC,
};

/// The longest text that MQTT has, in bytes.
const LONGEST_TEXT: usize = 65_535;

/// Bytes of the headers that come along at most. Further ones are left out.
const MOST_BYTES: usize = 256 * 1024;

/// The message of a record.
pub(crate) fn item(record: &impl Message, received: Milliseconds) -> Item {
    let (topic, payload) = (record.topic(), record.payload().unwrap_or_default());
    let place = format!("{topic}-{}-{}", record.partition(), record.offset());
    let mut properties: Vec<(Box<str>, Box<str>)> = vec![(PLACE.into(), place.into())];
    if let Some(key) = record.key().and_then(text) {
        properties.push((KEY.into(), key.into()));
    }
    let mut standard = StandardProperties::default();
    let mut bytes = 0;
    for header in record.headers().into_iter().flat_map(|all| all.iter()) {
        let (name, value) = (header.key, header.value.unwrap_or_default());
        bytes += name.len() + value.len();
        if bytes > MOST_BYTES {
            break;
        }
        if name == CORRELATION {
            let is_short = value.len() <= LONGEST_TEXT;
            standard.correlation_data = is_short.then(|| Bytes::copy_from_slice(value));
            continue;
        }
        // What is no text of MQTT is left out.
        match text(name.as_bytes()).zip(text(value)) {
            None => {}
            Some((name, value)) => say(name, value, &mut standard, &mut properties),
        }
    }
    // A subscriber may take a payload that is said to be UTF-8, and is not, for a Malformed Packet.
    if standard.is_utf8 == Some(true) && std::str::from_utf8(payload).is_err() {
        standard.is_utf8 = None;
    }
    Item {
        position: None,
        topic: topic.replace('.', "/").into(),
        payload: Bytes::copy_from_slice(payload),
        qos: 1,
        retain: false,
        received,
        properties,
        standard,
    }
}

/// Takes a header.
fn say(
    name: &str,
    value: &str,
    standard: &mut StandardProperties,
    properties: &mut Vec<(Box<str>, Box<str>)>,
) {
    match name {
        POSITION | KEY | PLACE => {}
        RESPONSE_TOPIC => {
            let topic = Some(value).filter(|topic| validate_topic_name(topic).is_ok());
            standard.response_topic = topic.map(Into::into);
        }
        PAYLOAD_FORMAT => standard.is_utf8 = Some(value == "1"),
        EXPIRES => standard.expires = value.parse().ok().map(Milliseconds),
        _ if name.eq_ignore_ascii_case(CONTENT_TYPE) => {
            standard.content_type = Some(value.into());
        }
        _ => properties.push((name.into(), value.into())),
    }
}

/// Bytes as a text, if MQTT has such a text [MQTT-1.5.4-2].
fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= LONGEST_TEXT && !text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage};

    use super::*;

    fn of(key: Option<&[u8]>, headers: &[(&str, &[u8])], payload: &[u8]) -> Item {
        let mut all = OwnedHeaders::new();
        for (key, value) in headers {
            let value = Some(*value);
            all = all.insert(Header { key, value });
        }
        let record = OwnedMessage::new(
            Some(payload.to_vec()),
            key.map(<[u8]>::to_vec),
            "plant.7.a_b".to_owned(),
            Timestamp::NotAvailable,
            2,
            42,
            Some(all),
        );
        item(&record, Milliseconds(5))
    }

    fn properties(item: &Item) -> Vec<(&str, &str)> {
        let pairs = item.properties.iter();
        pairs.map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn headers_are_user_properties_unless_they_say_something_else() {
        let headers: [(&str, &[u8]); 11] = [
            ("unit", b"K"),
            ("unit", "°C".as_bytes()),
            ("kafka-key", b"x"),
            ("kafka-position", b"x"),
            ("hmq-position", b"1.2"),
            ("hmq-path", b"you"),
            ("hmq-response-topic", "re/ü".as_bytes()),
            ("hmq-correlation", b"\xff\x00"),
            ("hmq-payload-format", b"1"),
            ("hmq-expires", b"1800000000000"),
            ("Content-Type", b"text/x"),
        ];
        let item = of(Some(b"k1"), &headers, b"x");
        assert_eq!((&*item.topic, item.qos), ("plant/7/a_b", 1));
        let wanted = [
            ("kafka-position", "plant.7.a_b-2-42"),
            ("kafka-key", "k1"),
            ("unit", "K"),
            ("unit", "°C"),
            ("hmq-path", "you"),
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
    fn what_mqtt_cannot_have_is_left_out() {
        let long = vec![b'x'; LONGEST_TEXT + 1];
        let wrong: [(&str, &[u8]); 7] = [
            ("binary", b"\xff"),
            ("zero", b"a\0b"),
            ("long", &long),
            ("hmq-response-topic", b"re/+"),
            ("hmq-correlation", &long),
            ("hmq-payload-format", b"1"),
            ("hmq-expires", b"soon"),
        ];
        let item = of(Some(b"\xff"), &wrong, b"\xff");
        assert_eq!(item.standard, StandardProperties::default());
        assert_eq!(properties(&item), [("kafka-position", "plant.7.a_b-2-42")]);
        let large = &long[1..];
        let many = ["a", "b", "c", "d", "e"].map(|name| (name, large));
        let item = of(None, &many, b"");
        let names: Vec<&str> = properties(&item).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["kafka-position", "a", "b", "c", "d"]);
    }
}
