//! A message as Kafka gets it: its topic, key and headers.
//!
//! Clients decide what stands in MQTT topics, payloads and User Properties. None of that may reach topics of Kafka that the template does
//! not mean, nor say in a header what the outlet says.

use outlet::{Item, StandardProperties, Template};
use outlets::POSITION;
use outlets::path::{PATH, extended, mark};
use rdkafka::message::{Header, OwnedHeaders};

use crate::header::{CONTENT_TYPE, CORRELATION, EXPIRES, PAYLOAD_FORMAT, RESPONSE_TOPIC, TOPIC};

/// Bytes of the longest name of a topic.
const LONGEST_TOPIC: usize = 249;

/// Headers that an outlet writes at most.
const OWN: usize = 8;

/// Before the names of topics that Kafka keeps for itself, such as `__consumer_offsets`.
const INTERNAL: &str = "__";

/// What becomes of messages.
#[derive(Debug)]
pub(crate) struct Form {
    topic: Template,
    /// The topic, if it is the same for each message.
    fixed: Option<String>,
    key: Template,
    /// The topic that messages must not have.
    positions: String,
    /// This cluster, in paths.
    cluster: String,
    /// What messages have in their paths that this cluster's inlets have brought in from the same servers.
    mark: String,
}

impl Form {
    /// # Errors
    /// One of them is no template, or the topic has a character that topics of Kafka do not have.
    pub(crate) fn new(
        (topic, key, positions): (&str, &str, &str),
        (cluster, address): (&str, &str),
    ) -> Result<Self, String> {
        if !is_topic(positions) {
            return Err(format!(
                "positionsTopic: {positions:?} is no topic of Kafka for messages"
            ));
        }
        if topic == positions {
            return Err("topic: it is the topic of positions".to_owned());
        }
        // No topic of Kafka has a dollar sign.
        let fixed = (!topic.contains('$')).then(|| topic.to_owned());
        let topic = Template::parse(topic).map_err(|error| format!("topic: {error}"))?;
        let key = Template::parse(key).map_err(|error| format!("key: {error}"))?;
        for (is_first, text) in topic.texts() {
            if let Some(wrong) = text.chars().find(|c| !is_allowed(*c)) {
                return Err(format!(
                    "topic: a topic of Kafka has letters, digits, `.`, `_` and `-`, found {wrong:?}"
                ));
            }
            if is_first && text.starts_with(INTERNAL) {
                return Err(format!(
                    "topic: topics that begin with {INTERNAL} are those of Kafka itself"
                ));
            }
            if text.len() > LONGEST_TOPIC {
                return Err(format!("topic: longer than {LONGEST_TOPIC} bytes"));
            }
        }
        Ok(Self {
            topic,
            fixed,
            key,
            positions: positions.to_owned(),
            cluster: cluster.to_owned(),
            mark: mark(cluster, address),
        })
    }

    /// The topic, if it is the same for each message.
    pub(crate) fn fixed_topic(&self) -> Option<&str> {
        self.fixed.as_deref()
    }

    /// The topic of a message.
    ///
    /// # Errors
    /// The message lacks a piece of the template, or what it has is no name of a topic.
    pub(crate) fn topic(&self, item: &Item) -> Result<String, String> {
        let mut wrong = None;
        let topic = self.topic.render_with(item, |value, is_levels, topic| {
            for c in value.chars() {
                match c {
                    '/' if is_levels => topic.push('.'),
                    // It would reach what has levels there.
                    '.' if is_levels => wrong = wrong.or(Some(c)),
                    c if is_allowed(c) => topic.push(c),
                    c => wrong = wrong.or(Some(c)),
                }
            }
        });
        let topic = topic.map_err(|error| error.to_string())?;
        if let Some(wrong) = wrong {
            return Err(format!(
                "the topic of Kafka would have {wrong:?} of a message's value"
            ));
        }
        if topic.len() > LONGEST_TOPIC {
            return Err(format!(
                "the topic of Kafka would have {} bytes, more than {LONGEST_TOPIC}",
                topic.len()
            ));
        }
        if !is_topic(&topic) || topic == self.positions {
            return Err(format!("{topic:?} is no topic of Kafka for messages"));
        }
        Ok(topic)
    }

    /// The clusters that a message has passed, with this one. `None`: it goes in a circle, or has passed too many.
    pub(crate) fn path(&self, item: &Item) -> Option<String> {
        let pairs = item.properties.iter();
        let pairs = pairs.map(|(name, value)| (&**name, &**value));
        extended(pairs, &self.cluster, &self.mark, &self.cluster)
    }

    /// Whether a message can be a record, or is dropped as it goes in a circle.
    ///
    /// # Errors
    /// As those of [`Self::topic`] and [`Self::key`].
    pub(crate) fn check(&self, item: &Item) -> Result<(), String> {
        if self.path(item).is_none() {
            return Ok(());
        }
        self.topic(item)?;
        self.key(item).map(drop)
    }

    /// The key of a message.
    ///
    /// # Errors
    /// The message lacks a piece of the template.
    pub(crate) fn key(&self, item: &Item) -> Result<String, String> {
        self.key.render(item).map_err(|error| error.to_string())
    }

    /// The headers of a message: its User Properties in their order, and behind them those of the outlet. `path`: that of [`Self::path`].
    pub(crate) fn headers(item: &Item, path: &str) -> OwnedHeaders {
        let has_type = item.standard.content_type.is_some();
        let theirs = item.properties.iter().filter(|(name, _)| {
            is_theirs(name) && !(has_type && name.eq_ignore_ascii_case(CONTENT_TYPE))
        });
        let mut headers = OwnedHeaders::new_with_capacity(item.properties.len() + OWN);
        for (key, value) in theirs {
            let value = Some(value.as_bytes());
            headers = headers.insert(Header { key, value });
        }
        headers = headers.insert(Header {
            key: TOPIC,
            value: Some(item.topic.as_bytes()),
        });
        headers = headers.insert(Header {
            key: PATH,
            value: Some(path.as_bytes()),
        });
        headers = said(&item.standard, headers);
        if let Some(position) = item.position {
            let value = Some(&position.to_string());
            headers = headers.insert(Header {
                key: POSITION,
                value,
            });
        }
        headers
    }
}

/// Adds what is said of a message beside its User Properties.
fn said(standard: &StandardProperties, mut headers: OwnedHeaders) -> OwnedHeaders {
    let expires = standard.expires.map(|expires| expires.0.to_string());
    let is_utf8 = standard.is_utf8.map(|is_utf8| match is_utf8 {
        true => "1",
        false => "0",
    });
    let content_type = standard.content_type.as_deref().map(str::as_bytes);
    let response_topic = standard.response_topic.as_deref().map(str::as_bytes);
    for (key, value) in [
        (CONTENT_TYPE, content_type),
        (RESPONSE_TOPIC, response_topic),
        (CORRELATION, standard.correlation_data.as_deref()),
        (PAYLOAD_FORMAT, is_utf8.map(str::as_bytes)),
        (EXPIRES, expires.as_deref().map(str::as_bytes)),
    ] {
        if value.is_some() {
            headers = headers.insert(Header { key, value });
        }
    }
    headers
}

/// Whether a User Property becomes a header: what begins with `hmq-` is the outlet's, and the library takes no NUL.
fn is_theirs(name: &str) -> bool {
    let begins = name.get(..4);
    !begins.is_some_and(|begins| begins.eq_ignore_ascii_case("hmq-")) && !name.contains('\0')
}

/// Whether it is the name of a topic that is not one of Kafka's own.
fn is_topic(name: &str) -> bool {
    let is_name = (1..=LONGEST_TOPIC).contains(&name.len()) && name.chars().all(is_allowed);
    is_name && !matches!(name, "." | "..") && !name.starts_with(INTERNAL)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlet::{Incarnation, Milliseconds, Position, Sequence};
    use rdkafka::message::Headers as _;

    use super::*;

    fn item(topic: &str, properties: &[(&str, &str)]) -> Item {
        let properties = properties.iter();
        Item {
            position: Some(Position {
                incarnation: Incarnation(3),
                sequence: Sequence(14),
            }),
            topic: topic.into(),
            payload: "{\"id\":\"a b\"}".into(),
            qos: 1,
            retain: false,
            received: Milliseconds(5),
            properties: properties
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            standard: StandardProperties::default(),
        }
    }

    fn form(topic: &str, key: &str) -> Result<Form, String> {
        Form::new((topic, key, "positions"), ("me", "k1:9092"))
    }

    fn topic(template: &str, of: &str) -> Result<String, String> {
        form(template, "k").unwrap().topic(&item(of, &[]))
    }

    #[test]
    fn a_topic_is_a_name_that_the_template_means() {
        for (template, of, wanted) in [
            ("${topic}", "plant/7/state", "plant.7.state"),
            ("plant.${topic[1]}", "plant/pump.7_a-B", "plant.pump.7_a-B"),
            ("${topic[1..]}", "x/y/z", "y.z"),
        ] {
            assert_eq!(topic(template, of).as_deref(), Ok(wanted));
        }
        for (template, of, why) in [
            ("${topic}", "a/b c", "' '"),
            ("${topic}", "a/ü", "'ü'"),
            ("p.${topic[0]}", "a\0/b", "'\\0'"),
            ("${topic}", "a.b/c", "'.'"),
            ("${payload./id}", "a", "' '"),
            ("${topic[0]}", "__consumer_offsets", "__consumer_offsets"),
            ("${topic[0]}", "positions", "positions"),
            ("${topic[0]}", "..", "\"..\""),
            ("${topic[0]}", "/a", "\"\""),
            ("a.${topic[4]}", "a", "topic[4]"),
        ] {
            let said = topic(template, of).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let long = "x".repeat(LONGEST_TOPIC);
        assert!(topic("${topic}", &long).is_ok());
        assert!(topic("y${topic}", &long).unwrap_err().contains("250"));
    }

    #[test]
    fn what_is_no_topic_is_refused_at_once() {
        for (template, why) in [
            ("a b", "' '"),
            ("a/${topic}", "'/'"),
            ("__${topic}", "__"),
            ("positions", "positions"),
            ("${nothing}", "nothing"),
        ] {
            let said = form(template, "k").unwrap_err();
            assert!(said.starts_with("topic: ") && said.contains(why), "{said}");
        }
        let said = form("a", "${nothing}").unwrap_err();
        assert!(said.starts_with("key: "), "{said}");
    }

    #[test]
    fn headers_are_those_of_the_publisher_and_then_those_of_the_outlet() {
        let properties = [
            ("u", "1"),
            ("HMQ-topic", "x"),
            ("u", "ü\r\n"),
            ("Content-Type", "y"),
        ];
        let mut item = item("a/ü", &properties);
        item.standard = StandardProperties {
            is_utf8: Some(true),
            expires: Some(Milliseconds(7)),
            content_type: Some("text/x".into()),
            response_topic: Some("re/ü".into()),
            correlation_data: Some(Bytes::from_static(b"\xff\x00")),
        };
        let headers = Form::headers(&item, "you,me");
        let found: Vec<_> = headers
            .iter()
            .map(|header| (header.key, header.value.unwrap()))
            .collect();
        let wanted: [(&str, &[u8]); 10] = [
            ("u", b"1"),
            ("u", "ü\r\n".as_bytes()),
            ("hmq-topic", "a/ü".as_bytes()),
            ("hmq-path", b"you,me"),
            ("content-type", b"text/x"),
            ("hmq-response-topic", "re/ü".as_bytes()),
            ("hmq-correlation", b"\xff\x00"),
            ("hmq-payload-format", b"1"),
            ("hmq-expires", b"7"),
            ("hmq-position", b"3.14"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_was_here_or_has_come_from_the_same_servers_goes_in_a_circle() {
        let form = form("${topic}", "k").unwrap();
        let path = |passed: &str| form.path(&item("a.b", &[("hmq-path", passed)]));
        assert_eq!(path("you").as_deref(), Some("you,me"));
        assert_eq!(path("me"), None);
        assert_eq!(path(&mark("me", "K1:9092")), None);
        // What is dropped is not refused as well.
        assert!(form.check(&item("a.b", &[("hmq-path", "me")])).is_ok());
        assert!(form.check(&item("a.b", &[])).is_err());
    }
}
