//! Properties from the command line: `-D PACKET PROPERTY VALUE`, with the words of mosquitto_pub.

use std::num::{NonZeroU16, NonZeroU32};

use mqtt_proto::{
    ConnectProperties, DisconnectProperties, EncodeError, PublishProperties, SubscribeProperties,
    UnsubscribeProperties, UserProperties, WillProperties,
};

/// The packet that a property goes with; the will is a part of CONNECT with properties of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    Connect,
    Publish,
    Subscribe,
    Unsubscribe,
    Disconnect,
    Will,
}

/// One property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Property {
    ContentType(String),
    CorrelationData(String),
    MaximumPacketSize(NonZeroU32),
    MessageExpiryInterval(u32),
    PayloadFormatIndicator(bool),
    ReceiveMaximum(NonZeroU16),
    RequestProblemInformation(bool),
    ResponseTopic(String),
    SubscriptionIdentifier(u32),
    User(String, String),
    WillDelayInterval(u32),
}

/// All properties of a command line, in order.
#[derive(Default, Debug)]
pub(crate) struct Properties(Vec<(Packet, Property)>);

const USER_PROPERTY: &str = "user-property";

impl Properties {
    /// Reads the words of all `-D` options, one after the other.
    ///
    /// # Errors
    /// One line that names the word which is wrong.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut properties = Vec::new();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let packet = packet(word)?;
            let mut value = |name| {
                words
                    .next()
                    .ok_or_else(|| format!("-D {word} {name}: no value"))
            };
            let name = value("PROPERTY")?;
            let property = if name == USER_PROPERTY {
                Property::User(value(name)?.to_owned(), value(name)?.to_owned())
            } else {
                let text = value(name)?;
                property(packet, name, text)
                    .map_err(|reason| format!("-D {word} {name}: {reason}"))?
            };
            let twice = |(at, earlier): &(Packet, Property)| {
                *at == packet
                    && name != USER_PROPERTY
                    && std::mem::discriminant(earlier) == std::mem::discriminant(&property)
            };
            if properties.iter().any(twice) {
                return Err(format!("-D {word} {name}: given twice"));
            }
            properties.push((packet, property));
        }
        Ok(Self(properties))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The properties of one packet, in order.
    pub(crate) fn of(&self, packet: Packet) -> impl Iterator<Item = &Property> {
        self.0
            .iter()
            .filter(move |(at, _)| *at == packet)
            .map(|(_, property)| property)
    }

    fn user<'a>(
        &self,
        packet: Packet,
        buffer: &'a mut Vec<u8>,
    ) -> Result<UserProperties<'a>, EncodeError> {
        let pairs: Vec<(&str, &str)> = self
            .of(packet)
            .filter_map(|property| match property {
                Property::User(name, value) => Some((name.as_str(), value.as_str())),
                _ => None,
            })
            .collect();
        UserProperties::encode_from(&pairs, buffer)
    }

    /// `buffer` holds the user properties.
    pub(super) fn connect<'a>(
        &'a self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<ConnectProperties<'a>, EncodeError> {
        let mut properties = ConnectProperties {
            user_properties: self.user(Packet::Connect, buffer)?,
            ..ConnectProperties::default()
        };
        for property in self.of(Packet::Connect) {
            match property {
                Property::ReceiveMaximum(value) => properties.receive_maximum = Some(*value),
                Property::MaximumPacketSize(value) => properties.maximum_packet_size = Some(*value),
                Property::RequestProblemInformation(value) => {
                    properties.request_problem_information = Some(*value);
                }
                _ => {}
            }
        }
        Ok(properties)
    }

    /// `buffer` holds the user properties.
    pub(super) fn will<'a>(
        &'a self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<WillProperties<'a>, EncodeError> {
        let mut properties = WillProperties {
            user_properties: self.user(Packet::Will, buffer)?,
            ..WillProperties::default()
        };
        for property in self.of(Packet::Will) {
            match property {
                Property::ContentType(value) => properties.content_type = Some(value),
                Property::CorrelationData(value) => {
                    properties.correlation_data = Some(value.as_bytes());
                }
                Property::MessageExpiryInterval(value) => {
                    properties.message_expiry_interval = Some(*value);
                }
                Property::PayloadFormatIndicator(value) => {
                    properties.payload_format_indicator = Some(*value);
                }
                Property::ResponseTopic(value) => properties.response_topic = Some(value),
                Property::WillDelayInterval(value) => properties.will_delay_interval = Some(*value),
                _ => {}
            }
        }
        Ok(properties)
    }

    /// `buffer` holds the user properties.
    ///
    /// # Errors
    /// A user property that is too long or holds U+0000.
    pub(crate) fn publish<'a>(
        &'a self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<PublishProperties<'a>, EncodeError> {
        let mut properties = PublishProperties {
            user_properties: self.user(Packet::Publish, buffer)?,
            ..PublishProperties::default()
        };
        for property in self.of(Packet::Publish) {
            match property {
                Property::ContentType(value) => properties.content_type = Some(value),
                Property::CorrelationData(value) => {
                    properties.correlation_data = Some(value.as_bytes());
                }
                Property::MessageExpiryInterval(value) => {
                    properties.message_expiry_interval = Some(*value);
                }
                Property::PayloadFormatIndicator(value) => {
                    properties.payload_format_indicator = Some(*value);
                }
                Property::ResponseTopic(value) => properties.response_topic = Some(value),
                _ => {}
            }
        }
        Ok(properties)
    }

    /// `buffer` holds the user properties.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn subscribe<'a>(
        &'a self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<SubscribeProperties<'a>, EncodeError> {
        let mut properties = SubscribeProperties {
            user_properties: self.user(Packet::Subscribe, buffer)?,
            ..SubscribeProperties::default()
        };
        for property in self.of(Packet::Subscribe) {
            if let Property::SubscriptionIdentifier(value) = property {
                properties.subscription_id = Some(*value);
            }
        }
        Ok(properties)
    }

    /// `buffer` holds the user properties.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub(crate) fn unsubscribe<'a>(
        &self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<UnsubscribeProperties<'a>, EncodeError> {
        let user_properties = self.user(Packet::Unsubscribe, buffer)?;
        Ok(UnsubscribeProperties { user_properties })
    }

    /// `buffer` holds the user properties.
    pub(super) fn disconnect<'a>(
        &self,
        buffer: &'a mut Vec<u8>,
    ) -> Result<DisconnectProperties<'a>, EncodeError> {
        Ok(DisconnectProperties {
            user_properties: self.user(Packet::Disconnect, buffer)?,
            ..DisconnectProperties::default()
        })
    }
}

fn packet(word: &str) -> Result<Packet, String> {
    Ok(match word {
        "connect" => Packet::Connect,
        "publish" => Packet::Publish,
        "subscribe" => Packet::Subscribe,
        "unsubscribe" => Packet::Unsubscribe,
        "disconnect" => Packet::Disconnect,
        "will" => Packet::Will,
        _ => {
            return Err(format!(
                "-D: expected connect, publish, subscribe, unsubscribe, disconnect or will, \
                 found \"{word}\""
            ));
        }
    })
}

/// One property other than a user property. The error is the end of a line.
fn property(packet: Packet, name: &str, text: &str) -> Result<Property, String> {
    let owned = || text.to_owned();
    let in_message = matches!(packet, Packet::Publish | Packet::Will);
    Ok(match (name, packet) {
        ("content-type", _) if in_message => Property::ContentType(owned()),
        ("correlation-data", _) if in_message => Property::CorrelationData(owned()),
        ("response-topic", _) if in_message => Property::ResponseTopic(owned()),
        ("message-expiry-interval", _) if in_message => {
            Property::MessageExpiryInterval(number(text, "seconds")?)
        }
        ("payload-format-indicator", _) if in_message => {
            Property::PayloadFormatIndicator(flag(text)?)
        }
        ("will-delay-interval", Packet::Will) => {
            Property::WillDelayInterval(number(text, "seconds")?)
        }
        ("receive-maximum", Packet::Connect) => {
            Property::ReceiveMaximum(number(text, "1 to 65535")?)
        }
        ("maximum-packet-size", Packet::Connect) => {
            Property::MaximumPacketSize(number(text, "a number of bytes above 0")?)
        }
        ("request-problem-information", Packet::Connect) => {
            Property::RequestProblemInformation(flag(text)?)
        }
        ("subscription-identifier", Packet::Subscribe) => {
            let id = number(text, "1 to 268435455")?;
            if !(1..=268_435_455).contains(&id) {
                return Err(format!("expected 1 to 268435455, found \"{text}\""));
            }
            Property::SubscriptionIdentifier(id)
        }
        _ => return Err("this packet has no such property here".to_owned()),
    })
}

fn number<T: std::str::FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("expected {expected}, found \"{text}\""))
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("expected 0 or 1, found \"{text}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Properties, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Properties::parse(&words)
    }

    #[test]
    fn properties_reach_their_packet_in_order() {
        let properties = parse(
            "publish user-property a 1 publish user-property a 2 publish content-type text \
             publish message-expiry-interval 60 will will-delay-interval 5 \
             subscribe subscription-identifier 7 connect receive-maximum 3",
        )
        .unwrap();
        let mut buffer = Vec::new();
        let publish = properties.publish(&mut buffer).unwrap();
        assert_eq!(
            publish.user_properties.iter().collect::<Vec<_>>(),
            [("a", "1"), ("a", "2")]
        );
        assert_eq!(publish.content_type, Some("text"));
        assert_eq!(publish.message_expiry_interval, Some(60));
        let mut buffer = Vec::new();
        assert_eq!(
            properties.will(&mut buffer).unwrap().will_delay_interval,
            Some(5)
        );
        let mut buffer = Vec::new();
        assert_eq!(
            properties.subscribe(&mut buffer).unwrap().subscription_id,
            Some(7)
        );
        let mut buffer = Vec::new();
        let connect = properties.connect(&mut buffer).unwrap();
        assert_eq!(connect.receive_maximum.map(NonZeroU16::get), Some(3));
        assert!(connect.user_properties.is_empty());
    }

    #[test]
    fn wrong_words_are_named() {
        for (line, named) in [
            ("publsh content-type x", "\"publsh\""),
            ("publish contents x", "-D publish contents"),
            ("publish content-type a b", "\"b\""),
            ("publish content-type a publish content-type b", "twice"),
            ("publish user-property a", "no value"),
            (
                "publish will-delay-interval 5",
                "-D publish will-delay-interval",
            ),
            ("connect receive-maximum 0", "\"0\""),
            (
                "subscribe subscription-identifier 268435456",
                "\"268435456\"",
            ),
            ("will payload-format-indicator yes", "\"yes\""),
        ] {
            let problem = parse(line).expect_err(line);
            assert!(problem.contains(named), "{line}: {problem}");
        }
    }
}
