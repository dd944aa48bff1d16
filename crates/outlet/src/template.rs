//! Texts of the configuration with pieces of the message: `plant.${topic[1]}`.
//!
//! | Written | Stands for |
//! |---|---|
//! | `${topic}`, `${topic[n]}`, `${topic[n..]}` | the topic, its level n, from 0, its levels from n on |
//! | `${payload}` | the payload, which must be UTF-8 |
//! | `${payload./a/b}` | a value in a payload of JSON, by its JSON pointer (RFC 6901): a string as it is, else as JSON |
//! | `${property.NAME}` | the first User Property of that name |
//! | `${contentType}`, `${responseTopic}`, `${correlation}` | the Content Type; the Response Topic; the Correlation Data in Base64 |
//! | `${qos}`, `${retain}`, `${time}`, `${position}` | 0 to 2; `true` or `false`; Unix time in ms at which the outlet got it; where it stands in the queue |
//! | `${…:-TEXT}` | TEXT if the message does not have the piece |
//! | `$$` | a dollar sign |
//!
//! A message that does not have a piece, without a text for that case, cannot be rendered: the target would get what nobody has written.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde_json::Value;

use crate::item::Item;

/// A text with pieces of messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(Box<str>),
    Piece {
        piece: Piece,
        otherwise: Option<Box<str>>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Topic,
    Level(usize),
    LevelsFrom(usize),
    Payload,
    Pointer(Box<str>),
    Property(Box<str>),
    ContentType,
    ResponseTopic,
    Correlation,
    Qos,
    Retain,
    Time,
    Position,
}

/// Why a text is no template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseTemplateError {
    /// A dollar sign is followed by neither `{` nor `$`.
    Dollar,
    /// There is no `}` for this `${`.
    Open(Box<str>),
    /// Messages have no such piece.
    Unknown(Box<str>),
}

impl fmt::Display for ParseTemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dollar => f.write_str("a $ is followed by {…}; a dollar sign is written $$"),
            Self::Open(rest) => write!(f, "${{{rest} has no }}"),
            Self::Unknown(piece) => write!(
                f,
                "a message has no {piece}: topic, topic[n], topic[n..], payload, payload./json/pointer, property.NAME, contentType, responseTopic, correlation, qos, retain, time or position"
            ),
        }
    }
}

impl std::error::Error for ParseTemplateError {}

/// A message does not have this piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenderError(Box<str>);

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message has no {}", self.0)
    }
}

impl std::error::Error for RenderError {}

impl Template {
    /// The template that a text is.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, ParseTemplateError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('$') {
            plain.push_str(before);
            if let Some(behind) = behind.strip_prefix('$') {
                plain.push('$');
                rest = behind;
                continue;
            }
            let inner = behind.strip_prefix('{').ok_or(ParseTemplateError::Dollar)?;
            let Some((inner, behind)) = inner.split_once('}') else {
                return Err(ParseTemplateError::Open(inner.into()));
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            let (name, otherwise) = match inner.split_once(":-") {
                Some((name, otherwise)) => (name, Some(otherwise.into())),
                None => (inner, None),
            };
            let piece = piece(name).ok_or_else(|| ParseTemplateError::Unknown(name.into()))?;
            parts.push(Part::Piece { piece, otherwise });
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Self(parts))
    }

    /// The texts between its pieces, and whether each stands at the beginning.
    pub fn texts(&self) -> impl Iterator<Item = (bool, &str)> {
        let parts = self.0.iter().enumerate();
        parts.filter_map(|(place, part)| match part {
            Part::Text(text) => Some((place == 0, &**text)),
            Part::Piece { .. } => None,
        })
    }

    /// What it says of a message. The payload is parsed once, if a value in it is named.
    ///
    /// # Errors
    /// The message lacks a piece for which there is no other text.
    pub fn render(&self, item: &Item) -> Result<String, RenderError> {
        self.render_with(item, |value, _, out| out.push_str(value))
    }

    /// What it says of a message, where `write` writes the values of the message, for a target that gives some characters a meaning. It
    /// is told whether a value is several topic levels with `/` between them. What stands behind `:-` is written as it is.
    ///
    /// # Errors
    /// The message lacks a piece for which there is no other text.
    pub fn render_with(
        &self,
        item: &Item,
        mut write: impl FnMut(&str, bool, &mut String),
    ) -> Result<String, RenderError> {
        let mut out = String::new();
        let mut json = None;
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Piece { piece, otherwise } => {
                    match (value(piece, item, &mut json), otherwise) {
                        (Some(value), _) => {
                            let is_levels = matches!(piece, Piece::Topic | Piece::LevelsFrom(_));
                            write(&value, is_levels, &mut out);
                        }
                        (None, Some(otherwise)) => out.push_str(otherwise),
                        (None, None) => return Err(RenderError(piece.to_string().into())),
                    }
                }
            }
        }
        Ok(out)
    }
}

fn piece(name: &str) -> Option<Piece> {
    let piece = match name {
        "topic" => Piece::Topic,
        "payload" => Piece::Payload,
        "contentType" => Piece::ContentType,
        "responseTopic" => Piece::ResponseTopic,
        "correlation" => Piece::Correlation,
        "qos" => Piece::Qos,
        "retain" => Piece::Retain,
        "time" => Piece::Time,
        "position" => Piece::Position,
        _ => {
            let level = name
                .strip_prefix("topic[")
                .and_then(|rest| rest.strip_suffix(']'));
            let pointer = name
                .strip_prefix("payload.")
                .filter(|pointer| pointer.starts_with('/'));
            let property = name
                .strip_prefix("property.")
                .filter(|name| !name.is_empty());
            return level
                .and_then(|level| match level.strip_suffix("..") {
                    Some(first) => first.parse().ok().map(Piece::LevelsFrom),
                    None => level.parse().ok().map(Piece::Level),
                })
                .or_else(|| pointer.map(|pointer| Piece::Pointer(pointer.into())))
                .or_else(|| property.map(|name| Piece::Property(name.into())));
        }
    };
    Some(piece)
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("topic"),
            Self::Level(level) => write!(f, "topic[{level}]"),
            Self::LevelsFrom(first) => write!(f, "topic[{first}..]"),
            Self::Payload => f.write_str("payload of UTF-8"),
            Self::Pointer(pointer) => write!(f, "payload.{pointer}"),
            Self::Property(name) => write!(f, "property.{name}"),
            Self::ContentType => f.write_str("contentType"),
            Self::ResponseTopic => f.write_str("responseTopic"),
            Self::Correlation => f.write_str("correlation"),
            Self::Qos => f.write_str("qos"),
            Self::Retain => f.write_str("retain"),
            Self::Time => f.write_str("time"),
            Self::Position => f.write_str("position"),
        }
    }
}

/// `json`: the payload, once it was parsed; within it `None`: it is no JSON.
fn value<'a>(
    piece: &Piece,
    item: &'a Item,
    json: &mut Option<Option<Value>>,
) -> Option<Cow<'a, str>> {
    let shown = |value: &dyn fmt::Display| {
        let mut text = String::new();
        write!(text, "{value}").ok()?;
        Some(Cow::Owned(text))
    };
    match piece {
        Piece::Topic => Some(Cow::Borrowed(&*item.topic)),
        Piece::Level(level) => item.topic.split('/').nth(*level).map(Cow::Borrowed),
        Piece::LevelsFrom(first) => {
            let mut rest = &*item.topic;
            for _ in 0..*first {
                (_, rest) = rest.split_once('/')?;
            }
            Some(Cow::Borrowed(rest))
        }
        Piece::Payload => std::str::from_utf8(&item.payload).ok().map(Cow::Borrowed),
        Piece::Pointer(pointer) => {
            let json = json.get_or_insert_with(|| serde_json::from_slice(&item.payload).ok());
            match json.as_ref()?.pointer(pointer)? {
                Value::String(text) => Some(Cow::Owned(text.clone())),
                other => shown(other),
            }
        }
        Piece::Property(name) => {
            let mut properties = item.properties.iter();
            let found = properties.find(|(found, _)| found == name);
            found.map(|(_, value)| Cow::Borrowed(&**value))
        }
        Piece::ContentType => item.standard.content_type.as_deref().map(Cow::Borrowed),
        Piece::ResponseTopic => item.standard.response_topic.as_deref().map(Cow::Borrowed),
        Piece::Correlation => item.standard.correlation().map(Cow::Owned),
        Piece::Qos => shown(&item.qos),
        Piece::Retain => shown(&item.retain),
        Piece::Time => shown(&item.received.0),
        Piece::Position => item
            .position
            .map(|position| Cow::Owned(position.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::item::{Incarnation, Milliseconds, Position, Sequence};
    use crate::properties::StandardProperties;

    fn item(payload: &'static [u8]) -> Item {
        Item {
            position: Some(Position {
                incarnation: Incarnation(3),
                sequence: Sequence(14),
            }),
            topic: "plant/7/state".into(),
            payload: Bytes::from_static(payload),
            qos: 1,
            retain: false,
            received: Milliseconds(1_800_000_000_000),
            properties: vec![("unit".into(), "°C".into()), ("unit".into(), "K".into())],
            standard: StandardProperties {
                content_type: Some("text/plain".into()),
                correlation_data: Some(Bytes::from_static(b"\xff\x00")),
                ..StandardProperties::default()
            },
        }
    }

    fn rendered(text: &str, payload: &'static [u8]) -> Result<String, String> {
        let template = Template::parse(text).unwrap();
        template
            .render(&item(payload))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn pieces_of_a_message_are_put_into_the_text() {
        let payload =
            br#"{"device": "d-1", "values": {"temp": 41.5, "on": true}, "list": [1, null]}"#;
        for (text, expected) in [
            ("", ""),
            ("plain }{ text", "plain }{ text"),
            ("${topic}", "plant/7/state"),
            ("plant.${topic[1]}-${topic[0]}", "plant.7-plant"),
            (
                "${topic[0..]} ${topic[1..]} ${topic[2..]}",
                "plant/7/state 7/state state",
            ),
            ("${topic[3..]:-none}", "none"),
            ("${payload./device}", "d-1"),
            (
                "${payload./values/temp},${payload./values/on},${payload./list/1}",
                "41.5,true,null",
            ),
            ("${payload./values}", r#"{"on":true,"temp":41.5}"#),
            ("${property.unit}", "°C"),
            (
                "${contentType} ${correlation} ${responseTopic:-none}",
                "text/plain /wA= none",
            ),
            (
                "${qos} ${retain} ${time} ${position}",
                "1 false 1800000000000 3.14",
            ),
            ("${topic[9]:-none}${payload./no:-}", "none"),
            ("$$${qos}$${qos}", "$1${qos}"),
        ] {
            assert_eq!(rendered(text, payload).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(rendered("${payload}", b"21.5").unwrap(), "21.5");
    }

    #[test]
    fn a_message_without_a_piece_is_not_rendered() {
        for (text, payload, expected) in [
            ("${topic[3]}", &b""[..], "the message has no topic[3]"),
            ("${topic[3..]}", b"", "the message has no topic[3..]"),
            ("${payload}", b"\xff", "the message has no payload of UTF-8"),
            ("${payload./a}", b"no json", "the message has no payload./a"),
            ("${payload./a}", b"{}", "the message has no payload./a"),
            ("${responseTopic}", b"", "the message has no responseTopic"),
            (
                "${property.other}",
                b"",
                "the message has no property.other",
            ),
        ] {
            assert_eq!(rendered(text, payload).unwrap_err(), expected);
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_a_reason() {
        for (text, expected) in [
            (
                "cost: 5$",
                "a $ is followed by {…}; a dollar sign is written $$",
            ),
            (
                "$topic",
                "a $ is followed by {…}; a dollar sign is written $$",
            ),
            ("a ${topic", "${topic has no }"),
            ("${payload.a}", "a message has no payload.a: "),
            ("${topic[-1]}", "a message has no topic[-1]: "),
            ("${topic[..]}", "a message has no topic[..]: "),
            ("${topic[1..2]}", "a message has no topic[1..2]: "),
            ("${property.}", "a message has no property.: "),
            ("${}", "a message has no : "),
        ] {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
