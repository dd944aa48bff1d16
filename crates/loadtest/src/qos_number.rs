//! QoS as its number, for `#[serde(with)]`.

use mqtt_proto::QoS;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(qos: &QoS, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(qos.as_u8())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<QoS, D::Error> {
    let number = u8::deserialize(from)?;
    QoS::from_u8(number).ok_or_else(|| D::Error::custom("QoS is 0, 1 or 2"))
}
