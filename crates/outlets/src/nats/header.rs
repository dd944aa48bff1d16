//! Headers of NATS that say what MQTT says otherwise: an outlet writes them, an inlet reads them.

/// The topic.
pub(crate) const TOPIC: &str = "hmq-topic";

/// The Content Type: NATS gives it no meaning, and its users know it from HTTP.
pub(crate) const CONTENT_TYPE: &str = "Content-Type";

/// The Response Topic, which is a topic of the broker, and no subject of NATS.
pub(crate) const RESPONSE_TOPIC: &str = "hmq-response-topic";

/// The Correlation Data in Base64.
pub(crate) const CORRELATION: &str = "hmq-correlation";

/// The Payload Format Indicator, 0 or 1.
pub(crate) const PAYLOAD_FORMAT: &str = "hmq-payload-format";

/// The Unix time in ms at which the message expires.
pub(crate) const EXPIRES: &str = "hmq-expires";

/// Before the names of headers that JetStream obeys, in lower case.
const OBEYED: &str = "nats-";

/// Whether JetStream gives a header of this name a meaning.
pub(crate) fn is_of_server(name: &str) -> bool {
    let begins = name.get(..OBEYED.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(OBEYED))
}
