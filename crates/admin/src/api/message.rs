//! Messages: retained ones, queued ones, and those that operators publish.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;

/// How a payload is written as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As it is.
    #[default]
    Utf8,
    /// With padding.
    Base64,
}

impl Encoding {
    /// Bytes as text, in the form that people can read if there is one.
    #[must_use]
    pub fn write(bytes: &[u8]) -> (Self, String) {
        match std::str::from_utf8(bytes) {
            Ok(text) => (Self::Utf8, text.to_owned()),
            Err(_) => (Self::Base64, Self::base64(bytes)),
        }
    }

    /// Bytes in base64.
    #[must_use]
    pub fn base64(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    /// The bytes of a text; `None`: it is no base64.
    #[must_use]
    pub fn read(self, text: String) -> Option<Vec<u8>> {
        match self {
            Self::Utf8 => Some(text.into_bytes()),
            Self::Base64 => STANDARD.decode(text).ok(),
        }
    }
}

/// A name and a value that go with a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserProperty {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A message that is to be published.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The topic name. It does not begin with `$SYS/`.
    pub topic: String,
    /// The payload, empty if it is not given.
    #[serde(default)]
    pub payload: String,
    /// How `payload` is written.
    #[serde(default)]
    pub encoding: Encoding,
    /// 0, 1 or 2. With 1, if it is not given, and 2 each durable session that gets the message has it when this is answered.
    #[serde(default = "one")]
    #[schema(minimum = 0, maximum = 2)]
    pub qos: u8,
    /// Whether the message becomes the retained one of its topic; without a payload, the topic has none any more.
    #[serde(default)]
    pub retain: bool,
    /// Seconds after which nobody gets it any more.
    #[serde(default)]
    pub message_expiry_s: Option<u32>,
    /// Whether the payload is announced as UTF-8.
    #[serde(default)]
    pub payload_is_utf8: bool,
    /// What the payload is.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Where an answer is to be published.
    #[serde(default)]
    pub response_topic: Option<String>,
    /// What the answer is to carry, in base64.
    #[serde(default)]
    pub correlation_data: Option<String>,
    /// Names and values for whoever receives the message.
    #[serde(default)]
    pub user_properties: Vec<UserProperty>,
}

const fn one() -> u8 {
    1
}

impl NewMessage {
    /// One that removes the retained message of a topic.
    pub(crate) fn empty(topic: String) -> Self {
        Self {
            topic,
            payload: String::new(),
            encoding: Encoding::Utf8,
            qos: 1,
            retain: true,
            message_expiry_s: None,
            payload_is_utf8: false,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
        }
    }
}

/// What became of a message that was published: what an acknowledgement would say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PublishedMessage {
    /// The topic name.
    pub topic: String,
    /// That of PUBACK: 0, or 16 if nobody has subscribed to the topic.
    #[schema(value_type = u8)]
    pub reason_code: u8,
    /// Somebody has subscribed to the topic.
    pub matched: bool,
    /// Whether the message is the retained one of its topic; `null`: it was not to be.
    pub retained: Option<bool>,
}

/// A retained message in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetainedRow {
    /// Its topic.
    pub topic: String,
    /// The QoS that it was published with.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Size of its payload.
    pub payload_bytes: u64,
    /// When it ends; `null`: it does not.
    pub expires_at: Option<At>,
    /// When it was retained, by which rules remove it; `null`: before that was kept.
    #[serde(default)]
    pub retained_at: Option<At>,
}

/// A level of topics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetainedLevelRow {
    /// The topic up to this level.
    pub topic: String,
    /// It has a retained message itself.
    pub has_message: bool,
    /// Topics below it have.
    pub has_more_below: bool,
}

/// A message with its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// The QoS that it was published with.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// The payload; `null`: it is larger than 128 KiB.
    pub payload: Option<String>,
    /// How `payload` is written.
    pub encoding: Encoding,
    /// Size of the payload.
    pub payload_bytes: u64,
    /// When the message ends; `null`: it does not.
    pub expires_at: Option<At>,
    /// Whether the payload is announced as UTF-8.
    pub payload_is_utf8: bool,
    /// What the payload is.
    pub content_type: Option<String>,
    /// Where an answer is to be published.
    pub response_topic: Option<String>,
    /// What the answer is to carry, in base64.
    pub correlation_data: Option<String>,
    /// Names and values, about 16 KiB of them at most.
    pub user_properties: Vec<UserProperty>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for bytes in [&b"plain"[..], b"", b"\xff\x00", "ü".as_bytes()] {
            let (encoding, text) = Encoding::write(bytes);
            assert_eq!(encoding.read(text).unwrap(), bytes);
        }
        assert_eq!(Encoding::Base64.read("?".to_owned()), None);
    }
}
