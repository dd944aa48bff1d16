//! Those who watch events are told which subscriptions were added and removed.
//!
//! Deliberately absent: a limit. The rim bounds what is told, as it alone knows whether anybody watches.

use crate::clients::Client;
use crate::events::{SubscriptionEvent, SubscriptionHappened};
use crate::rim::Rim;

/// Tells that a subscription of a client was added or removed.
pub(crate) fn tell(rim: &impl Rim, client: &Client, what: SubscriptionHappened, filter: &str) {
    rim.tell_subscription(&SubscriptionEvent {
        what,
        client_id: client.session.client_id(),
        user: client.user(),
        filter,
    });
}
