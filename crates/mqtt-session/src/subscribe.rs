//! SUBSCRIBE and UNSUBSCRIBE, their answers, and the session's table of subscriptions.
//!
//! Deliberately absent: matching, shared groups, retained messages: the server does those between
//! the action and its completion.

use mqtt_proto::{
    AckProperties, PacketId, ProtocolVersion, ReasonCode, SubAck, Subscribe, SubscriptionFilter,
    SubscriptionOptions, UnsubAck, Unsubscribe,
};

use crate::patterns::{Pattern, pattern_of};
use crate::subscriptions::{Subscription, Subscriptions};
use crate::{Action, Policy, Session, Violation};

/// All subscriptions of a session, between two of its connections.
#[derive(Debug)]
pub struct TakenSubscriptions(Subscriptions);

impl TakenSubscriptions {
    /// The subscriptions, sorted by filter.
    #[must_use]
    pub fn subscriptions(&self) -> &[Subscription] {
        self.0.as_slice()
    }

    /// Bytes of the filters of all subscriptions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl Session {
    /// The reason code for one filter of a SUBSCRIBE under the policy: the filter taken apart and the
    /// options to grant. A bridge gets those of 5.0 that it needs: retain as published, and no local unless the
    /// subscription is shared.
    ///
    /// # Errors
    /// The reason code for this filter in SUBACK.
    pub fn check_filter<'f>(
        &self,
        filter: &'f str,
        options: SubscriptionOptions,
        policy: &Policy,
    ) -> Result<(SubscriptionFilter<'f>, SubscriptionOptions), ReasonCode> {
        let (parsed, granted) = policy.admit_filter(filter, options)?;
        let full = self.subscriptions().len() >= policy.subscriptions as usize;
        if full && self.subscription(filter).is_none() {
            return Err(ReasonCode::QuotaExceeded);
        }
        Ok((parsed, self.declared.granted(&parsed, granted)))
    }

    /// Whether the wildcards of a new filter are within the limit of patterns. `fresh`: the patterns of filters
    /// that are admitted and not yet added; that of this one comes to it.
    pub fn admits_pattern(&self, filter: &str, fresh: &mut Vec<Pattern>, policy: &Policy) -> bool {
        let Some(pattern) = pattern_of(filter) else {
            return true;
        };
        let known = self.subscriptions.patterns();
        if known.contains(&pattern) || fresh.contains(&pattern) {
            return true;
        }
        let has_room = known.len() + fresh.len() < policy.wildcard_patterns as usize;
        if has_room {
            fresh.push(pattern);
        }
        has_room
    }

    /// Queues SUBACK: one reason code per filter, in their order.
    pub fn complete_subscribe(&mut self, packet_id: PacketId, reasons: &[ReasonCode]) {
        let properties = AckProperties::default();
        // [MQTT31-5] 3.1 has no code for a refusal: what is refused looks granted, and brings nothing.
        let granted_at_most: Vec<ReasonCode>;
        let mut reasons = reasons;
        if self.version == ProtocolVersion::V3_1 {
            let known = |reason: &ReasonCode| {
                if reason.is_error() {
                    ReasonCode::Success
                } else {
                    *reason
                }
            };
            granted_at_most = reasons.iter().map(known).collect();
            reasons = &granted_at_most;
        }
        // [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-6] [MQTT3-3.8.4-1] [MQTT3-3.8.4-2]
        self.push_control(|version, out| {
            SubAck {
                packet_id,
                properties,
                reasons: reasons.into(),
            }
            .encode(version, out)
        });
    }

    /// Queues UNSUBACK: one reason code per filter, in their order.
    pub fn complete_unsubscribe(&mut self, packet_id: PacketId, reasons: &[ReasonCode]) {
        let properties = AckProperties::default();
        // [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT3-3.10.4-4] [MQTT3-3.10.4-5]
        self.push_control(|version, out| {
            UnsubAck {
                packet_id,
                properties,
                reasons: reasons.into(),
            }
            .encode(version, out)
        });
    }

    /// Takes all subscriptions out of the session of a connection that has ended; for
    /// [`Self::restore_subscriptions`].
    #[must_use]
    pub fn take_subscriptions(&mut self) -> TakenSubscriptions {
        TakenSubscriptions(std::mem::take(&mut self.subscriptions))
    }

    /// Gives the session of a later connection the subscriptions that were taken out of an earlier one's, instead
    /// of its own. The work does not depend on their number.
    pub fn restore_subscriptions(&mut self, taken: TakenSubscriptions) {
        self.subscriptions = taken.0;
    }

    /// The session's subscriptions, sorted by filter.
    #[must_use]
    pub fn subscriptions(&self) -> &[Subscription] {
        self.subscriptions.as_slice()
    }

    /// The subscription with exactly this filter.
    #[must_use]
    pub fn subscription(&self, filter: &str) -> Option<&Subscription> {
        self.subscriptions.get(filter)
    }

    /// Bytes of the filters of all subscriptions, and the patterns of wildcards in them, each once.
    pub fn filters(&self) -> (u64, impl Iterator<Item = &Pattern>) {
        (
            self.subscriptions.bytes(),
            self.subscriptions.patterns().iter(),
        )
    }

    /// Adds a subscription, or replaces the one with the same filter [MQTT-3.8.4-3]
    /// [MQTT3-3.8.4-3].
    pub fn add_subscription(&mut self, subscription: Subscription) {
        self.add_subscriptions(vec![subscription]);
    }

    /// The same with several. Of those with the same filter the last one counts. The work is linear in
    /// the subscriptions of the session, once for each call: a call for each filter would move all
    /// subscriptions for each.
    pub fn add_subscriptions(&mut self, subscriptions: Vec<Subscription>) {
        self.subscriptions.add(subscriptions);
    }

    /// Removes the subscription with exactly this filter [MQTT-3.10.4-1] [MQTT3-3.10.4-1].
    pub fn remove_subscription(&mut self, filter: &str) -> Option<Subscription> {
        self.remove_subscriptions(&[filter]).pop()
    }

    /// The same with several, in work that is linear in the subscriptions of the session, once for each
    /// call. Returns those that were there.
    pub fn remove_subscriptions(&mut self, filters: &[&str]) -> Vec<Subscription> {
        self.subscriptions.remove(filters)
    }

    pub(crate) fn handle_subscribe<'a>(
        &mut self,
        subscribe: &Subscribe<'a>,
        policy: &Policy,
    ) -> Result<Action<'a>, Violation> {
        for (filter, options) in subscribe.filters.iter() {
            // [MQTT-3.8.3-4]
            let shared =
                || SubscriptionFilter::parse(filter).is_ok_and(|filter| filter.shared.is_some());
            if options.no_local && shared() {
                return Err(Violation::NoLocalOnSharedSubscription);
            }
        }
        let refusal = if subscribe.properties.subscription_id.is_some()
            && !policy.subscription_identifier_available
        {
            Some(ReasonCode::SubscriptionIdentifiersNotSupported)
        } else {
            self.refuse_id_in_use(subscribe.packet_id)
        };
        if let Some(reason) = refusal {
            self.complete_subscribe(subscribe.packet_id, &vec![reason; subscribe.filters.len()]);
            return Ok(Action::None);
        }
        Ok(Action::Subscribe(*subscribe))
    }

    pub(crate) fn handle_unsubscribe<'a>(&mut self, unsubscribe: &Unsubscribe<'a>) -> Action<'a> {
        if let Some(reason) = self.refuse_id_in_use(unsubscribe.packet_id) {
            let reasons = vec![reason; unsubscribe.filters.len()];
            self.complete_unsubscribe(unsubscribe.packet_id, &reasons);
            return Action::None;
        }
        Action::Unsubscribe(*unsubscribe)
    }

    /// [MQTT-2.2.1-3] the client's packets share one space of identifiers. Before 5.0 there is no
    /// code to say so, and the packet is taken.
    fn refuse_id_in_use(&self, packet_id: PacketId) -> Option<ReasonCode> {
        (self.version.is_v5() && self.is_inbound_id_in_use(packet_id))
            .then_some(ReasonCode::PacketIdentifierInUse)
    }
}
