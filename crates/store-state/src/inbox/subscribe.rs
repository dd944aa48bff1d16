//! Subscriptions come and go.

use super::inbox::is_shared;
use super::machine::InboxMachine;
use super::subscriptions::{self, Before};
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
        let before = subscriptions::put(&mut inbox.subscriptions, subscriptions);
        let (number, detached) = (inbox.number, !inbox.is_attached());
        for (subscription, before) in subscriptions.iter().zip(&before) {
            let filter = &*subscription.filter;
            let is_new = *before == Before::Nothing;
            if subscription.wants_retained(is_new) {
                self.owed.owe(client, filter);
            }
            if is_new {
                self.stock.filter_bytes += filter.len();
            }
            if *before == Before::Same {
                continue;
            }
            if is_shared(filter) {
                outlet.member(client, filter, Some(subscription));
                continue;
            }
            self.matching.subscribe(number, subscription);
            if is_new {
                self.filters.add(filter, detached, outlet);
            }
        }
        let new = before.iter().map(|before| *before == Before::Nothing);
        InboxReply::Subscribed(new.collect())
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
        let had = subscriptions::remove(&mut inbox.subscriptions, filters);
        let (number, detached) = (inbox.number, !inbox.is_attached());
        for (filter, _) in filters.iter().zip(&had).filter(|(_, had)| **had) {
            self.stock.filter_bytes -= filter.len();
            self.owed.cancel(client, filter);
            if is_shared(filter) {
                outlet.member(client, filter, None);
            } else {
                self.matching.unsubscribe(number, filter);
                self.filters.remove(filter, detached, outlet);
            }
        }
        InboxReply::Unsubscribed(had)
    }
}
