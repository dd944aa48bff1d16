//! Subscriptions come and go.

use super::inbox::is_shared;
use super::machine::InboxMachine;
use super::{InboxOutlet, InboxReply, StoredSubscription};

impl InboxMachine {
    pub(super) fn subscribe(
        &mut self,
        client: &str,
        epoch: u64,
        subscriptions: &[StoredSubscription],
        outlet: &mut dyn InboxOutlet,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(client, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        let new = subscriptions
            .iter()
            .map(|subscription| self.subscribe_one(client, subscription, outlet))
            .collect();
        if let Some(inbox) = self.inboxes.of_client(client) {
            shrink(&mut inbox.subscriptions);
        }
        InboxReply::Subscribed(new)
    }

    /// Whether the session did not have it before.
    fn subscribe_one(
        &mut self,
        client: &str,
        subscription: &StoredSubscription,
        outlet: &mut dyn InboxOutlet,
    ) -> bool {
        let Some(inbox) = self.inboxes.of_client(client) else {
            return false;
        };
        let filter = &*subscription.filter;
        let place = inbox.find(filter);
        if subscription.wants_retained(place.is_err()) {
            self.owed.owe(client, filter);
        }
        match place {
            Ok(place) if inbox.subscriptions[place] == *subscription => return false,
            Ok(place) => inbox.subscriptions[place] = subscription.clone(),
            Err(place) => {
                self.stock.filter_bytes += filter.len();
                inbox.subscriptions.insert(place, subscription.clone());
            }
        }
        if is_shared(filter) {
            outlet.member(client, filter, Some(subscription));
        } else {
            self.matching.subscribe(inbox.number, subscription);
            if place.is_err() {
                self.filters.add(filter, !inbox.is_attached(), outlet);
            }
        }
        place.is_err()
    }

    pub(super) fn unsubscribe(
        &mut self,
        client: &str,
        epoch: u64,
        filters: &[Box<str>],
        outlet: &mut dyn InboxOutlet,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(client, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        let had = filters
            .iter()
            .map(|filter| self.unsubscribe_one(client, filter, outlet))
            .collect();
        if let Some(inbox) = self.inboxes.of_client(client) {
            shrink(&mut inbox.subscriptions);
        }
        InboxReply::Unsubscribed(had)
    }

    /// Whether the session had it.
    fn unsubscribe_one(
        &mut self,
        client: &str,
        filter: &str,
        outlet: &mut dyn InboxOutlet,
    ) -> bool {
        let Some(inbox) = self.inboxes.of_client(client) else {
            return false;
        };
        let Ok(place) = inbox.find(filter) else {
            return false;
        };
        inbox.subscriptions.remove(place);
        self.stock.filter_bytes -= filter.len();
        self.owed.cancel(client, filter);
        if is_shared(filter) {
            outlet.member(client, filter, None);
        } else {
            self.matching.unsubscribe(inbox.number, filter);
            self.filters.remove(filter, !inbox.is_attached(), outlet);
        }
        true
    }
}

/// Gives back room for more than a quarter of what there is. An eighth stays, so that one subscription after the
/// other does not move all of them each time.
fn shrink(subscriptions: &mut Vec<StoredSubscription>) {
    let len = subscriptions.len();
    if subscriptions.capacity() > len + len / 4 + 2 {
        subscriptions.shrink_to(len + len / 8);
    }
}
