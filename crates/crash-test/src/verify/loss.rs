//! Whether all that must arrive has: messages to each subscription, and to some member of each group.

use std::collections::BTreeMap;

use super::{Kind, Violation};
use crate::model::{ClientIndex, MessageIndex, Model, Origin, Subscription};

pub(super) fn check(model: &Model) -> Vec<Violation> {
    missing(model, 0)
        .into_iter()
        .map(|(client, message)| {
            let record = &model.messages[message];
            let kind = match record.origin {
                Origin::Load => Kind::Lost,
                Origin::Probe => Kind::SubscriptionLost,
                Origin::Will => Kind::WillLost,
            };
            let at = record.acknowledged().unwrap_or_default();
            let detail = format!("to {}", record.topic);
            Violation::new(kind, client, message, at).with(detail)
        })
        .collect()
}

/// Messages, from `first` on, that must have arrived and have not, and at whom; of a group its first
/// member that should have got it.
#[must_use]
pub fn missing(model: &Model, first: MessageIndex) -> Vec<(ClientIndex, MessageIndex)> {
    let (own, groups) = subscriptions(model);
    let mut missing = Vec::new();
    for (index, message) in model.messages.iter().enumerate().skip(first) {
        // Without payload it cannot be told from others.
        if message.acknowledged().is_none() || message.clears {
            continue;
        }
        for subscription in &own {
            if subscription.must_receive(message) && !model.has(subscription.client, index) {
                missing.push((subscription.client, index));
            }
        }
        for members in groups.values() {
            let owed = members.iter().find(|member| member.must_receive(message));
            if let Some(member) = owed
                && !members.iter().any(|member| model.has(member.client, index))
            {
                missing.push((member.client, index));
            }
        }
    }
    missing
}

/// Subscriptions of one client each, and those of each group by filter.
fn subscriptions(model: &Model) -> (Vec<&Subscription>, BTreeMap<&str, Vec<&Subscription>>) {
    let (shared, own): (Vec<_>, Vec<_>) = model
        .subscriptions
        .iter()
        .partition(|subscription| subscription.is_shared());
    let mut groups: BTreeMap<&str, Vec<&Subscription>> = BTreeMap::new();
    for subscription in shared {
        let members = groups.entry(&subscription.filter).or_default();
        members.push(subscription);
    }
    (own, groups)
}
