//! What MQTT 5.0 says of a message beside its User Properties (§3.3.2.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::item::Milliseconds;

/// The properties of a message that have a meaning of their own. Its publisher chooses them: up to 64 KiB each, texts with any
/// character that MQTT allows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StandardProperties {
    /// Payload Format Indicator: whether the payload is said to be UTF-8. `None`: nothing is said.
    pub is_utf8: Option<bool>,
    /// Unix time at which the message expires, from its Message Expiry Interval.
    pub expires: Option<Milliseconds>,
    /// Content Type.
    pub content_type: Option<Box<str>>,
    /// Response Topic.
    pub response_topic: Option<Box<str>>,
    /// Correlation Data, binary.
    pub correlation_data: Option<Bytes>,
}

impl StandardProperties {
    /// What they take in memory beside the structure, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.content_type, &self.response_topic];
        let texts = texts.into_iter().flatten().map(|text| text.len());
        let data = self.correlation_data.as_ref().map_or(0, Bytes::len);
        texts.sum::<usize>() + data
    }

    /// The Correlation Data in Base64 (RFC 4648 §4, with padding), where a text is needed.
    #[must_use]
    pub fn correlation(&self) -> Option<String> {
        self.correlation_data
            .as_ref()
            .map(|data| STANDARD.encode(data))
    }

    /// The Message Expiry Interval from now on, in s, rounded up: 1 at least, as the message was not expired when the outlet got it
    /// [MQTT-3.3.2-6]. `None`: it does not expire.
    #[must_use]
    pub fn expiry_interval_s(&self, now: Milliseconds) -> Option<u32> {
        let remains_ms = self.expires?.0.saturating_sub(now.0);
        let remains_s = remains_ms.div_ceil(1_000).max(1);
        Some(u32::try_from(remains_s).unwrap_or(u32::MAX))
    }

    /// Those of a message that has got another payload: what was said of the payload is not said of the new one.
    #[must_use]
    pub fn without_payload(self) -> Self {
        Self {
            is_utf8: None,
            content_type: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_interval_is_what_remains_and_one_second_at_least() {
        let of = |expires: Option<u64>, now| {
            let properties = StandardProperties {
                expires: expires.map(Milliseconds),
                ..StandardProperties::default()
            };
            properties.expiry_interval_s(Milliseconds(now))
        };
        assert_eq!(of(None, 5), None);
        assert_eq!(of(Some(10_000), 0), Some(10));
        assert_eq!(of(Some(10_000), 8_500), Some(2));
        assert_eq!(of(Some(10_000), 10_000), Some(1));
        assert_eq!(of(Some(10_000), 90_000), Some(1));
        assert_eq!(of(Some(u64::MAX), 0), Some(u32::MAX));
    }

    #[test]
    fn correlation_data_is_base64_as_a_text() {
        let properties = StandardProperties {
            correlation_data: Some(Bytes::from_static(b"\xff\x00\xfe")),
            content_type: Some("text".into()),
            ..StandardProperties::default()
        };
        assert_eq!(properties.correlation().as_deref(), Some("/wD+"));
        assert_eq!(properties.bytes(), 7);
    }
}
