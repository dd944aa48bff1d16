//! Headers of records that say what MQTT says otherwise: an outlet writes them, an inlet reads them.

/// The topic.
pub(crate) const TOPIC: &str = "hmq-topic";

/// The Content Type, by the name that the users of Kafka give it.
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// The Response Topic, which is a topic of the broker, and none of Kafka.
pub(crate) const RESPONSE_TOPIC: &str = "hmq-response-topic";

/// The Correlation Data, as it is: headers of Kafka are binary.
pub(crate) const CORRELATION: &str = "hmq-correlation";

/// The Payload Format Indicator, 0 or 1.
pub(crate) const PAYLOAD_FORMAT: &str = "hmq-payload-format";

/// The Unix time in ms at which the message expires.
pub(crate) const EXPIRES: &str = "hmq-expires";

/// The User Property with the place of a record: topic, partition and offset.
pub(crate) const PLACE: &str = "kafka-position";

/// The User Property with the key of a record.
pub(crate) const KEY: &str = "kafka-key";
