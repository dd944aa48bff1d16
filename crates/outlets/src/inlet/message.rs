//! A message on its way from the other broker to the node.

use std::sync::Arc;

use mqtt_proto::{Publish, PublishProperties, QoS, UserProperties, validate_topic_name};
use outlet::{InletDrop, Item, Template};

use super::InletDefinition;
use crate::epoch::POSITION;
use crate::lines::now;
use crate::path::{PATH, extended, mark};

/// The first levels of the node's own topics.
const OWN_TOPICS: [&str; 2] = ["$SYS", "$hmq"];

/// What is published at the node.
#[derive(Debug)]
pub(super) struct Message {
    topic: String,
    item: Item,
    qos: QoS,
    retain: bool,
    path: String,
}

/// What becomes of messages, by the definition of the inlet.
#[derive(Debug)]
pub(super) struct Rules {
    topic: Template,
    retain: bool,
    cluster: String,
    mark: String,
}

impl Rules {
    /// `address`: what tells the source from others.
    ///
    /// # Errors
    /// The topic is no template, or no message can be published under it.
    pub(super) fn new(definition: &InletDefinition, address: &str) -> Result<Self, String> {
        let InletDefinition {
            topic,
            retain,
            cluster,
            ..
        } = definition;
        let topic = Template::parse(topic).map_err(|error| error.to_string())?;
        for (is_first, text) in topic.texts() {
            if text.contains(['+', '#']) {
                return Err(format!("topic: {text} has a wildcard"));
            }
            if is_first {
                let own = OWN_TOPICS
                    .iter()
                    .find(|own| is_below(own, text) && text != **own);
                if let Some(own) = own {
                    return Err(format!("topic: below {own} are topics of the broker only"));
                }
            }
        }
        Ok(Self {
            topic,
            retain: *retain,
            cluster: cluster.clone(),
            mark: mark(cluster, address),
        })
    }

    /// The message that is published for one of the source; and its size in memory, in bytes.
    ///
    /// # Errors
    /// It is dropped.
    pub(super) fn message(&self, mut item: Item) -> Result<(Message, usize), InletDrop> {
        let refused = |why: String| InletDrop::Refused(Arc::from(why));
        let pairs = item.properties.iter();
        let pairs = pairs.map(|(name, value)| (&**name, &**value));
        let Some(path) = extended(pairs, &self.cluster, &self.mark, &self.mark) else {
            return Err(InletDrop::Looped);
        };
        // The position in a queue of another cluster says nothing here.
        let kept = |name: &str| ![PATH, POSITION].contains(&name);
        item.properties.retain(|(name, _)| kept(name));
        let topic = self.topic.render(&item);
        let topic = topic.map_err(|error| refused(format!("{}: {error}", item.topic)))?;
        if let Err(error) = validate_topic_name(&topic) {
            return Err(refused(format!("{topic} is no topic: {error}")));
        }
        if OWN_TOPICS.iter().any(|own| is_below(own, &topic)) {
            return Err(refused(format!(
                "{topic} is a topic of the broker only: `topic` of the inlet puts other levels before it"
            )));
        }
        let message = Message {
            qos: match item.qos {
                0 => QoS::AtMostOnce,
                _ => QoS::AtLeastOnce,
            },
            retain: item.retain && self.retain,
            path,
            topic,
            item,
        };
        let bytes = message.bytes();
        Ok((message, bytes))
    }
}

impl Message {
    pub(super) fn qos(&self) -> QoS {
        self.qos
    }

    fn bytes(&self) -> usize {
        self.item.bytes() + self.topic.len() + self.path.len() + size_of::<Self>()
    }

    /// Gives the packet to `publish`. `maximum_qos` and `retain_available`: what the node takes.
    ///
    /// # Errors
    /// The User Properties cannot be written, or `publish` fails.
    pub(super) fn publish<R>(
        &self,
        (maximum_qos, retain_available): (QoS, bool),
        publish: impl FnOnce(Publish<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        let pairs = self.item.properties.iter();
        let pairs = pairs.map(|(name, value)| (&**name, &**value));
        let pairs: Vec<(&str, &str)> = pairs.chain([(PATH, self.path.as_str())]).collect();
        let mut buffer = Vec::new();
        let user_properties = UserProperties::encode_from(&pairs, &mut buffer);
        let standard = &self.item.standard;
        publish(Publish {
            dup: false,
            qos: self.qos.min(maximum_qos),
            retain: self.retain && retain_available,
            topic: &self.topic,
            packet_id: None,
            properties: PublishProperties {
                payload_format_indicator: standard.is_utf8,
                // [MQTT-3.3.2-6] less the time that it has waited; the node ends it in its next second.
                message_expiry_interval: standard.expiry_interval_s(now()),
                response_topic: standard.response_topic.as_deref(),
                correlation_data: standard.correlation_data.as_deref(),
                content_type: standard.content_type.as_deref(),
                user_properties: user_properties.map_err(|error| error.to_string())?,
                ..PublishProperties::default()
            },
            payload: &self.item.payload,
        })
    }
}

/// Whether a topic, or its beginning, is a level or below it.
fn is_below(level: &str, topic: &str) -> bool {
    let rest = topic.strip_prefix(level);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use config::InletConfig;
    use outlet::StandardProperties;

    use super::*;

    fn rules(topic: &str) -> Result<Rules, String> {
        let mut config = InletConfig {
            name: Some("site".to_owned()),
            topic: topic.to_owned(),
            ..InletConfig::default()
        };
        config.from.mqtt.url = Some("mqtt://there".to_owned());
        Rules::new(&InletDefinition::of(&config).unwrap(), "there:1883")
    }

    fn item(topic: &str) -> Item {
        Item {
            position: None,
            topic: topic.into(),
            payload: bytes::Bytes::from_static(b"x"),
            qos: 1,
            retain: false,
            received: now(),
            properties: Vec::new(),
            standard: StandardProperties::default(),
        }
    }

    /// The topic here, or why there is none.
    fn topic_of(rules: &Rules, topic: &str) -> Result<String, String> {
        match rules.message(item(topic)) {
            Ok((message, _)) => Ok(message.topic),
            Err(InletDrop::Refused(why)) => Err(why.to_string()),
            Err(InletDrop::Looped) => Err("looped".to_owned()),
        }
    }

    #[test]
    fn a_template_says_the_topic_here() {
        let rules = rules("site/${topic[1..]}").unwrap();
        assert_eq!(topic_of(&rules, "a/b/c").unwrap(), "site/b/c");
        assert!(topic_of(&rules, "a").unwrap_err().contains("topic[1..]"));
    }

    #[test]
    fn topics_that_nobody_may_publish_to_are_refused() {
        let through = rules("${topic}").unwrap();
        for own in ["$SYS/a", "$hmq/event/x", "$hmq"] {
            let why = topic_of(&through, own).unwrap_err();
            assert!(why.contains("topic of the broker only"), "{why}");
        }
        assert_eq!(topic_of(&through, "a/$SYS").unwrap(), "a/$SYS");
        let from_payload = rules("${payload}/+x${topic}").unwrap_err();
        assert!(from_payload.contains("wildcard"), "{from_payload}");
        let below = rules("$$hmq/${topic}").unwrap_err();
        assert!(below.contains("below $hmq"), "{below}");
        rules("$$hmqx/${topic}").unwrap();
    }
}
