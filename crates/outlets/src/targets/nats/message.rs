//! A message as NATS gets it: its subject and its headers.
//!
//! Clients decide what stands in topics, payloads and User Properties. None of that may end a line of the protocol, reach subjects that
//! the template does not mean, such as the API of JetStream below `$JS`, or become a header that JetStream obeys, such as `Nats-Rollup`.

use std::fmt::Write as _;

use async_nats::jetstream::message::PublishMessage;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use outlet::{Item, StandardProperties, Template};

use crate::epoch::POSITION;
use crate::nats::header::{
    CONTENT_TYPE, CORRELATION, EXPIRES, PAYLOAD_FORMAT, RESPONSE_TOPIC, TOPIC, is_of_server,
};
use crate::path::{PATH, extended, mark};

/// Bytes of the longest subject: with the reply subject and two numbers it has to go in a line of 4,096 bytes, the default of
/// `max_control_line` of the server.
const LONGEST_SUBJECT: usize = 3_000;

/// Headers that the outlet writes, which no User Property becomes.
const OWN: [&str; 7] = [
    TOPIC,
    PATH,
    POSITION,
    RESPONSE_TOPIC,
    CORRELATION,
    PAYLOAD_FORMAT,
    EXPIRES,
];

/// What becomes of messages.
#[derive(Debug)]
pub(super) struct Form {
    subject: Template,
    /// Before the position in the identifier of a message.
    id: String,
    /// The stream that has to take them.
    stream: Option<String>,
    /// This cluster, in paths.
    cluster: String,
    /// What messages have in their paths that this cluster's inlets have brought in from the same servers.
    mark: String,
}

impl Form {
    /// # Errors
    /// The subject is no template, or has what a subject must not have; the stream's name is none.
    pub(super) fn new(
        subject: Option<&str>,
        stream: Option<&str>,
        (cluster, outlet, address): (&str, &str, &str),
    ) -> Result<Self, String> {
        let subject = Template::parse(subject.unwrap_or("${topic}"));
        let subject = subject.map_err(|error| format!("subject: {error}"))?;
        for (_, text) in subject.texts() {
            let wrong = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>');
            if text.contains(wrong) || text.contains("..") {
                return Err(format!(
                    "subject: a subject has no spaces, `*`, `>` and empty tokens, found {text:?}"
                ));
            }
        }
        if let Some(stream) = stream {
            let wrong =
                |c: char| !c.is_ascii_graphic() || matches!(c, '.' | '*' | '>' | '/' | '\\');
            if stream.is_empty() || stream.contains(wrong) {
                return Err(format!("stream: {stream:?} is no name of a stream"));
            }
        }
        Ok(Self {
            subject,
            id: format!("{cluster}.{outlet}."),
            stream: stream.map(str::to_owned),
            cluster: cluster.to_owned(),
            mark: mark(cluster, address),
        })
    }

    /// A subject with a wildcard that all subjects of messages match.
    pub(super) fn pattern(&self) -> String {
        let mut texts = self.subject.texts();
        let first = texts.next().filter(|(is_first, _)| *is_first);
        let first = first.map_or("", |(_, text)| text);
        match first.rfind('.') {
            Some(point) => format!("{}.>", &first[..point]),
            None => ">".to_owned(),
        }
    }

    /// The subject of a message.
    ///
    /// # Errors
    /// The message lacks a piece of the template, or the subject is too long or has an empty token.
    pub(super) fn subject(&self, item: &Item) -> Result<String, String> {
        let subject = self.subject.render_with(item, encode);
        let subject = subject.map_err(|error| error.to_string())?;
        if subject.len() > LONGEST_SUBJECT {
            return Err(format!(
                "the subject has {} bytes, more than {LONGEST_SUBJECT}",
                subject.len()
            ));
        }
        if subject.split('.').any(str::is_empty) {
            return Err(format!("the subject {subject:?} has an empty token"));
        }
        Ok(subject)
    }

    /// The clusters that a message has passed, with this one. `None`: it goes in a circle, or has passed too many.
    pub(super) fn path(&self, item: &Item) -> Option<String> {
        let pairs = item.properties.iter();
        let pairs = pairs.map(|(name, value)| (&**name, &**value));
        extended(pairs, &self.cluster, &self.mark, &self.cluster)
    }

    /// A message with its headers. `path`: that of [`Self::path`], which may have any characters.
    pub(super) fn message(&self, item: &Item, path: &str) -> PublishMessage {
        let mut headers = HeaderMap::new();
        for (name, value) in &item.properties {
            let is_replaced = item.standard.content_type.is_some();
            if is_own(name) || is_replaced && name.eq_ignore_ascii_case(CONTENT_TYPE) {
                continue;
            }
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), value.parse::<HeaderValue>())
            {
                headers.append(name, value);
            }
        }
        headers.insert(TOPIC, visible(&item.topic));
        headers.insert(PATH, visible(path));
        say(&item.standard, &mut headers);
        let mut position = None;
        if let Some(at) = item.position {
            let text = at.to_string();
            headers.insert(POSITION, text.as_str());
            position = Some(text);
        }
        let mut message = PublishMessage::build()
            .payload(item.payload.clone())
            .headers(headers);
        if let Some(position) = position {
            message = message.message_id(format!("{}{position}", self.id));
        }
        if let Some(stream) = &self.stream {
            message = message.expected_stream(stream);
        }
        message
    }
}

/// Whether a User Property does not become a header, as the server or the outlet says something by that name.
fn is_own(name: &str) -> bool {
    name.is_empty() || is_of_server(name) || OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Adds what is said of a message beside its User Properties. A Content Type with a line end is no value of a header, and left out.
fn say(standard: &StandardProperties, headers: &mut HeaderMap) {
    let content_type = standard.content_type.as_deref();
    if let Some(Ok(content_type)) = content_type.map(str::parse::<HeaderValue>) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    if let Some(response_topic) = &standard.response_topic {
        headers.insert(RESPONSE_TOPIC, visible(response_topic));
    }
    if let Some(correlation) = standard.correlation() {
        headers.insert(CORRELATION, correlation);
    }
    if let Some(is_utf8) = standard.is_utf8 {
        headers.insert(PAYLOAD_FORMAT, if is_utf8 { "1" } else { "0" });
    }
    if let Some(expires) = standard.expires {
        headers.insert(EXPIRES, expires.0.to_string());
    }
}

/// Writes a value of a message into a subject: topic levels become tokens.
fn encode(value: &str, is_levels: bool, subject: &mut String) {
    if !is_levels {
        encode_token(value, subject);
        return;
    }
    for (place, level) in value.split('/').enumerate() {
        if place > 0 {
            subject.push('.');
        }
        encode_token(level, subject);
    }
}

/// What a token must not have is written as `%XX`, and an empty one as `%`. A dollar sign at the beginning, too.
fn encode_token(text: &str, subject: &mut String) {
    if text.is_empty() {
        subject.push('%');
    }
    for (place, c) in text.char_indices() {
        let is_encoded = c.is_whitespace()
            || c.is_control()
            || matches!(c, '.' | '*' | '>' | '%')
            || (c == '$' && place == 0);
        if is_encoded {
            percent(c, subject);
        } else {
            subject.push(c);
        }
    }
}

fn percent(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a text cannot fail.
        let _ = write!(out, "%{byte:02X}");
    }
}

/// A text as the value of a header: characters that are no visible ASCII, and `%`, as `%XX`.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_graphic() && c != '%' {
            out.push(c);
        } else {
            percent(c, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlet::{Incarnation, Milliseconds, Position, Sequence};

    use super::*;

    fn item(topic: &str, properties: &[(&str, &str)]) -> Item {
        let properties = properties.iter();
        Item {
            position: Some(Position {
                incarnation: Incarnation(3),
                sequence: Sequence(14),
            }),
            topic: topic.into(),
            payload: Bytes::from_static(b"{\"id\":\"$JS.a *\"}"),
            qos: 1,
            retain: false,
            received: Milliseconds(5),
            properties: properties
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            standard: StandardProperties::default(),
        }
    }

    fn form(subject: Option<&str>) -> Result<Form, String> {
        Form::new(subject, Some("PLANT"), ("c1", "bus", "n1"))
    }

    fn subject(template: &str, topic: &str) -> Result<String, String> {
        form(Some(template)).unwrap().subject(&item(topic, &[]))
    }

    #[test]
    fn a_topic_is_a_subject_and_reaches_no_other() {
        for (topic, wanted) in [
            ("plant/7/state", "plant.7.state"),
            ("a.b/c d/%/x", "a%2Eb.c%20d.%25.x"),
            ("/a//", "%.a.%.%"),
            ("$JS/API/STREAM/DELETE/X", "%24JS.API.STREAM.DELETE.X"),
            ("a/>\r\n*", "a.%3E%0D%0A%2A"),
            ("ü/\u{2028}", "ü.%E2%80%A8"),
        ] {
            assert_eq!(subject("${topic}", topic).as_deref(), Ok(wanted));
        }
        let below = subject("${topic[1..]}", "x/$JS/API/STREAM/DELETE/X");
        assert_eq!(below.as_deref(), Ok("%24JS.API.STREAM.DELETE.X"));
        let of = |template| subject(template, "p/7");
        assert_eq!(of("p.${topic[1]}.s").as_deref(), Ok("p.7.s"));
        let pointed = of("${payload./id}.x");
        assert_eq!(pointed.as_deref(), Ok("%24JS%2Ea%20%2A.x"));
        assert!(of("a.${topic[5]}").unwrap_err().contains("topic[5]"));
        assert!(of("a.${topic[5]:-}").unwrap_err().contains("empty token"));
        let long = "x".repeat(LONGEST_SUBJECT);
        assert!(subject("${topic}", &long).is_ok());
        assert!(subject("y${topic}", &long).unwrap_err().contains("3001"));
    }

    #[test]
    fn what_is_no_subject_or_no_stream_is_refused_at_once() {
        for wrong in ["a.*", "a.>", "a b", "a..b", "${nothing}"] {
            assert!(form(Some(wrong)).unwrap_err().starts_with("subject: "));
        }
        for wrong in ["", "a.b", "a b", "a\n", ">"] {
            let made = Form::new(None, Some(wrong), ("c1", "bus", "n1"));
            assert!(made.unwrap_err().starts_with("stream: "));
        }
    }

    #[test]
    fn a_pattern_takes_all_subjects() {
        for (template, wanted) in [
            (None, ">"),
            (Some("plant.${topic[1]}.state"), "plant.>"),
            (Some("a.b${qos}.c"), "a.>"),
            (Some("b${qos}.c"), ">"),
        ] {
            assert_eq!(form(template).unwrap().pattern(), wanted);
        }
    }

    #[test]
    fn what_else_is_said_of_a_message_stands_in_headers_that_no_user_property_replaces() {
        let written = |content_type: &str| {
            let properties = [
                ("content-type", "text/html"),
                ("HMQ-Correlation", "x"),
                ("hmq-response-topic", "x"),
            ];
            let mut item = item("a", &properties);
            item.standard = StandardProperties {
                is_utf8: Some(true),
                expires: Some(Milliseconds(1_800_000_000_000)),
                content_type: Some(content_type.into()),
                response_topic: Some("re/ü\r\nNats-Rollup: all".into()),
                correlation_data: Some(Bytes::from_static(b"\xff\r\n")),
            };
            let message = form(None)
                .unwrap()
                .message(&item, "c1")
                .outbound_message("s");
            let headers = message.headers.unwrap();
            let mut found: Vec<String> = headers
                .iter()
                .flat_map(|(name, values)| {
                    let values = values.iter();
                    values.map(move |value| format!("{name}: {}", value.as_str()))
                })
                .filter(|line| !line.starts_with("Nats-") && !line.starts_with("hmq-position"))
                .collect();
            found.sort();
            found
        };
        let own = [
            "hmq-correlation: /w0K",
            "hmq-expires: 1800000000000",
            "hmq-path: c1",
            "hmq-payload-format: 1",
            "hmq-response-topic: re/%C3%BC%0D%0ANats-Rollup:%20all",
            "hmq-topic: a",
        ];
        assert_eq!(written("text/x\r\nNats-Rollup: all"), own);
        let with_type = ["Content-Type: text/x; charset=ü"].into_iter().chain(own);
        assert_eq!(written("text/x; charset=ü"), with_type.collect::<Vec<_>>());
    }

    #[test]
    fn user_properties_are_headers_unless_the_server_obeys_them() {
        let properties = [
            ("unit", "K"),
            ("unit", "°C"),
            ("Nats-Rollup", "all"),
            ("nats-msg-id", "1"),
            ("HMQ-position", "9.9"),
            ("hmq-path", "me"),
            ("a b", "x"),
            ("a:b", "x"),
            ("", "x"),
            ("two", "x\r\ny"),
        ];
        let message = form(None).unwrap().message(&item("a/ü", &properties), "c1");
        let message = message.outbound_message("s");
        let headers = message.headers.unwrap();
        let mut found: Vec<(String, Vec<String>)> = headers
            .iter()
            .map(|(name, values)| {
                let values = values.iter().map(|value| value.as_str().to_owned());
                (name.to_string(), values.collect())
            })
            .collect();
        found.sort();
        let wanted = [
            ("Nats-Expected-Stream", vec!["PLANT"]),
            ("Nats-Msg-Id", vec!["c1.bus.3.14"]),
            ("hmq-path", vec!["c1"]),
            ("hmq-position", vec!["3.14"]),
            ("hmq-topic", vec!["a/%C3%BC"]),
            ("unit", vec!["K", "°C"]),
        ];
        let wanted = wanted.map(|(name, values)| {
            let values = values.into_iter().map(str::to_owned);
            (name.to_owned(), values.collect::<Vec<_>>())
        });
        assert_eq!(found, wanted);
    }
}
