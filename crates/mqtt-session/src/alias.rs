//! Topic aliases, both ways. Their life is one network connection [MQTT-3.3.2-7].

use std::num::NonZeroU16;

use mqtt_proto::Publish;

use crate::rare::Rare;
use crate::{Policy, Violation};

/// Aliases that the client has set.
#[derive(Debug, Default)]
pub(crate) struct InboundAliases {
    /// Topic names; alias 1 comes first. An empty one stands for a name that the policy does not admit,
    /// which is not kept.
    topics: Vec<Option<Box<str>>>,
}

impl InboundAliases {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.topics.capacity() * size_of::<Option<Box<str>>>()
            + self
                .topics
                .iter()
                .flatten()
                .map(|topic| topic.len())
                .sum::<usize>()
    }
}

/// The topic name of a PUBLISH; sets or looks up its alias. `maximum` is what CONNACK announced. Empty: the
/// alias was set to a name that the policy did not admit.
#[inline]
pub(crate) fn resolve<'s>(
    rare: &'s mut Rare,
    publish: &Publish<'s>,
    maximum: u16,
    policy: &Policy,
) -> Result<&'s str, Violation> {
    let Some(alias) = publish.properties.topic_alias else {
        return Ok(publish.topic);
    };
    // [MQTT-3.2.2-17] [MQTT-3.2.2-18] [MQTT-3.3.2-9]
    if alias.get() > maximum {
        return Err(Violation::TopicAliasTooHigh);
    }
    let topics = &mut rare.make_inbound_aliases().topics;
    let index = usize::from(alias.get()) - 1;
    if topics.len() <= index {
        topics.resize_with(index + 1, || None);
    }
    // [MQTT-3.3.2-12] every alias from 1 to the maximum is good.
    let entry = topics.get_mut(index).ok_or(Violation::TopicAliasTooHigh)?;
    if publish.topic.is_empty() {
        return entry.as_deref().ok_or(Violation::TopicAliasUnknown);
    }
    if !policy.admits_topic(publish.topic) {
        *entry = Some(Box::default());
    } else if entry.as_deref() != Some(publish.topic) {
        *entry = Some(publish.topic.into());
    }
    Ok(publish.topic)
}

/// Aliases used towards the client: the first topics sent get one; after that the least recently
/// used one is given away.
#[derive(Debug)]
pub(crate) struct OutboundAliases {
    entries: Vec<OutboundAlias>,
    maximum: NonZeroU16,
    clock: u32,
}

#[derive(Debug)]
struct OutboundAlias {
    topic: String,
    used: u32,
}

/// An alias costs three bytes of properties: shorter topic names are better sent.
const WORTH_AN_ALIAS: usize = 4;

impl OutboundAliases {
    pub(crate) fn new(maximum: NonZeroU16) -> Self {
        Self {
            entries: Vec::new(),
            maximum,
            clock: 0,
        }
    }

    /// The alias for `topic`, and whether the topic name has to go along because it is new.
    pub(crate) fn assign(&mut self, topic: &str) -> Option<(NonZeroU16, bool)> {
        if topic.len() < WORTH_AN_ALIAS {
            return None;
        }
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        if let Some(index) = self.entries.iter().position(|entry| entry.topic == topic) {
            self.entries[index].used = clock;
            return Some((alias_of(index), false));
        }
        // [MQTT-3.1.2-26] [MQTT-3.3.2-11] never above the client's Topic Alias Maximum.
        if self.entries.len() < usize::from(self.maximum.get()) {
            self.entries.push(OutboundAlias {
                topic: topic.to_owned(),
                used: clock,
            });
            return Some((alias_of(self.entries.len() - 1), true));
        }
        let oldest = |entry: &OutboundAlias| clock.wrapping_sub(entry.used);
        let index = (0..self.entries.len()).max_by_key(|index| oldest(&self.entries[*index]))?;
        let entry = &mut self.entries[index];
        entry.topic.clear();
        entry.topic.push_str(topic);
        entry.used = clock;
        Some((alias_of(index), true))
    }

    /// Takes back an assignment that was not sent.
    pub(crate) fn forget(&mut self, alias: NonZeroU16) {
        let index = usize::from(alias.get()) - 1;
        if index + 1 == self.entries.len() {
            self.entries.pop();
        } else if let Some(entry) = self.entries.get_mut(index) {
            // No topic name is empty, so this entry matches none.
            entry.topic.clear();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<OutboundAlias>()
            + self
                .entries
                .iter()
                .map(|entry| entry.topic.capacity())
                .sum::<usize>()
    }
}

fn alias_of(index: usize) -> NonZeroU16 {
    // [MQTT-3.3.2-8] aliases count from 1; there are at most 65,535 entries.
    u16::try_from(index)
        .ok()
        .and_then(|index| NonZeroU16::MIN.checked_add(index))
        .expect("an alias index is below Topic Alias Maximum")
}
