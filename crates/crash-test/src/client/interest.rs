//! What a client wants to be subscribed to, and whether the server has agreed.

use mqtt_proto::{
    PacketId, RetainHandling, SubscribeProperties, SubscriptionOptions, UnsubscribeProperties,
};

use super::Client;
use crate::model::{Model, SubscriptionIndex};

/// A filter and what the client wants of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interest {
    subscription: SubscriptionIndex,
    is_wanted: bool,
    /// SUBACK or UNSUBACK came for the present wish.
    is_granted: bool,
    /// SUBSCRIBE or UNSUBSCRIBE under way.
    request: Option<PacketId>,
}

impl Interest {
    pub(super) fn new(subscription: SubscriptionIndex) -> Self {
        Self {
            subscription,
            is_wanted: false,
            is_granted: true,
            request: None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_granted
    }
}

impl Client {
    /// Wants a subscription, or no longer; asked for when the client is connected. Does nothing while an
    /// earlier wish is open.
    pub fn want(&mut self, subscription: SubscriptionIndex, is_wanted: bool, model: &mut Model) {
        let interests = &mut self.interests;
        if let Some(interest) = interests
            .iter_mut()
            .find(|interest| interest.subscription == subscription)
            && interest.is_granted
            && interest.is_wanted != is_wanted
        {
            interest.is_wanted = is_wanted;
            interest.is_granted = false;
            if self.is_up() {
                self.request_open(model);
            }
        }
    }

    /// Whether it wants a subscription.
    #[must_use]
    pub fn wants(&self, subscription: SubscriptionIndex) -> bool {
        self.interests
            .iter()
            .any(|interest| interest.subscription == subscription && interest.is_wanted)
    }

    /// Asks for all that is not granted; what was asked on an earlier connection was not heard.
    pub(super) fn request_all(&mut self, model: &mut Model) {
        for interest in &mut self.interests {
            interest.request = None;
        }
        self.request_open(model);
    }

    fn request_open(&mut self, model: &mut Model) {
        for place in 0..self.interests.len() {
            let interest = self.interests[place];
            if interest.is_granted || interest.request.is_some() {
                continue;
            }
            let packet_id = if interest.is_wanted {
                model.subscribing(interest.subscription);
                self.subscribe(interest.subscription, model)
            } else {
                model.unsubscribing(interest.subscription);
                self.unsubscribe(interest.subscription, model)
            };
            self.interests[place].request = Some(packet_id);
        }
    }

    fn subscribe(&mut self, index: SubscriptionIndex, model: &Model) -> PacketId {
        let subscription = &model.subscriptions[index];
        let options = SubscriptionOptions {
            qos: subscription.qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        let filters = [(subscription.filter.as_str(), options)];
        self.mqtt
            .subscribe(&filters, SubscribeProperties::default())
            .expect("the cast's filters can be written")
    }

    fn unsubscribe(&mut self, index: SubscriptionIndex, model: &Model) -> PacketId {
        let filters = [model.subscriptions[index].filter.as_str()];
        self.mqtt
            .unsubscribe(&filters, UnsubscribeProperties::default())
            .expect("the cast's filters can be written")
    }

    pub(super) fn request_answered(
        &mut self,
        packet_id: PacketId,
        is_granted: bool,
        model: &mut Model,
    ) {
        let asked = self
            .interests
            .iter_mut()
            .find(|interest| interest.request == Some(packet_id));
        let Some(interest) = asked else { return };
        interest.request = None;
        // What is refused is asked for again after the next CONNACK.
        interest.is_granted = is_granted;
        match (is_granted, interest.is_wanted) {
            (true, true) => model.subscribed(interest.subscription),
            (true, false) => model.unsubscribed(interest.subscription),
            (false, _) => {}
        }
    }

    /// The session is gone and all subscriptions with it.
    pub(super) fn forget_subscriptions(&mut self) {
        for interest in &mut self.interests {
            interest.is_granted = !interest.is_wanted;
        }
    }
}
