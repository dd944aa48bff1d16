//! What is written of a message where no template says it: a JSON object.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outlet::{Item, ParseTemplateError, RenderError, Template};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// How messages are written.
#[derive(Debug)]
pub(crate) enum Record {
    /// As JSON objects.
    Object,
    /// As a template says.
    Text(Template),
}

impl Record {
    /// As `template` says; without one, as JSON objects.
    pub(crate) fn new(template: Option<&str>) -> Result<Self, ParseTemplateError> {
        match template {
            Some(template) => Ok(Self::Text(Template::parse(template)?)),
            None => Ok(Self::Object),
        }
    }

    /// Appends what is written of a message; nothing if there is an error.
    pub(crate) fn write(&self, item: &Item, out: &mut Vec<u8>) -> Result<(), Arc<str>> {
        match self {
            Self::Object => {
                let start = out.len();
                serde_json::to_writer(&mut *out, &Object(item)).map_err(|error| {
                    out.truncate(start);
                    Arc::from(error.to_string())
                })
            }
            Self::Text(template) => {
                let text = template.render(item);
                let text = text.map_err(|error: RenderError| Arc::from(error.to_string()))?;
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }
}

/// A message as a JSON object: `topic`, `qos`, `retain`, `time` (Unix time in ms), `position` if it has one, `properties` (pairs) if
/// there are some, `contentType`, `responseTopic` and `correlation` (Base64) if it has them, and its payload: as `json` if it is JSON, as `text` if it is UTF-8, else as `base64`.
struct Object<'a>(&'a Item);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let item = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("topic", &*item.topic)?;
        map.serialize_entry("qos", &item.qos)?;
        map.serialize_entry("retain", &item.retain)?;
        map.serialize_entry("time", &item.received.0)?;
        if let Some(position) = item.position {
            map.serialize_entry("position", &position.to_string())?;
        }
        if !item.properties.is_empty() {
            map.serialize_entry("properties", &item.properties)?;
        }
        let standard = &item.standard;
        if let Some(content_type) = &standard.content_type {
            map.serialize_entry("contentType", content_type)?;
        }
        if let Some(response_topic) = &standard.response_topic {
            map.serialize_entry("responseTopic", response_topic)?;
        }
        if let Some(correlation) = standard.correlation() {
            map.serialize_entry("correlation", &correlation)?;
        }
        match std::str::from_utf8(&item.payload) {
            Ok(text) => match one_line_of_json(text) {
                Some(json) => map.serialize_entry("json", json)?,
                None => map.serialize_entry("text", text)?,
            },
            Err(_) => map.serialize_entry("base64", &STANDARD.encode(&item.payload))?,
        }
        map.end()
    }
}

/// The JSON that a text is, as it is written there: numbers keep their digits. A text with line ends within it is none here, as
/// records are lines.
fn one_line_of_json(text: &str) -> Option<&RawValue> {
    let json: &RawValue = serde_json::from_str(text).ok()?;
    (!json.get().contains(['\n', '\r'])).then_some(json)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlet::{Milliseconds, StandardProperties};

    use super::*;

    fn written(payload: &'static [u8]) -> String {
        let item = Item {
            position: None,
            topic: "a/\"b\"".into(),
            payload: Bytes::from_static(payload),
            qos: 0,
            retain: true,
            received: Milliseconds(5),
            properties: Vec::new(),
            standard: StandardProperties::default(),
        };
        let mut out = b"before ".to_vec();
        Record::Object.write(&item, &mut out).unwrap();
        let head = r#"before {"topic":"a/\"b\"","qos":0,"retain":true,"time":5,"#;
        let text = String::from_utf8(out).unwrap();
        text.strip_prefix(head).expect(&text).to_owned()
    }

    #[test]
    fn a_payload_is_json_text_or_base64() {
        // A number that no f64 has keeps its digits.
        assert_eq!(written(b"{\"n\": 1.10}"), r#""json":{"n": 1.10}}"#);
        assert_eq!(
            written(b"123456789012345678901"),
            r#""json":123456789012345678901}"#
        );
        assert_eq!(
            written(b"plain \"text\"\n"),
            r#""text":"plain \"text\"\n"}"#
        );
        assert_eq!(written(b""), r#""text":""}"#);
        assert_eq!(written(b"\xff"), r#""base64":"/w=="}"#);
        // JSON over several lines would not be one record.
        assert_eq!(written(b"[1,\n2]"), r#""text":"[1,\n2]"}"#);
    }
}
