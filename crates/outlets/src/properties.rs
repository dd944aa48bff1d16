//! What a PUBLISH says of its message beside its User Properties.

use bytes::Bytes;
use mqtt_proto::PublishProperties;
use outlet::{Milliseconds, StandardProperties};

/// The properties of a message that came at this time.
pub(crate) fn standard(
    properties: &PublishProperties<'_>,
    received: Milliseconds,
) -> StandardProperties {
    let expiry = properties.message_expiry_interval;
    let expiry = expiry.map(|seconds| Milliseconds(u64::from(seconds) * 1_000));
    StandardProperties {
        is_utf8: properties.payload_format_indicator,
        expires: expiry.map(|expiry| received.after(expiry)),
        content_type: properties.content_type.map(Into::into),
        response_topic: properties.response_topic.map(Into::into),
        correlation_data: properties.correlation_data.map(Bytes::copy_from_slice),
    }
}
