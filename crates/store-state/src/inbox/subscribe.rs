//! Subscriptions come and go.

use super::inbox::is_shared;
use super::machine::InboxMachine;
use super::subscriptions::{self, Before};
use super::{InboxOutlet, InboxReply, SessionName, StoredSubscription};

impl InboxMachine {
    pub(super) fn subscribe(
        &mut self,
        session: &SessionName,
        epoch: u64,
        subscriptions: &[StoredSubscription],
        outlet: &mut dyn InboxOutlet,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        self.matching.take_over(inbox, &mut self.filters);
        let before = subscriptions::put(&mut inbox.subscriptions, subscriptions);
        let (id, detached) = (inbox.id(), !inbox.is_attached());
        for (subscription, before) in subscriptions.iter().zip(&before) {
            let filter = &*subscription.filter;
            let is_new = *before == Before::Nothing;
            if subscription.wants_retained(is_new) {
                self.owed.owe(id, &inbox.client, filter);
            }
            if is_new {
                self.stock.filter_bytes += filter.len();
            }
            if *before == Before::Same {
                continue;
            }
            if is_shared(filter) {
                if is_new {
                    self.members.add(id.number.0);
                }
                outlet.member(&inbox.client, filter, Some(subscription));
                continue;
            }
            self.matching.subscribe(id.number.0, subscription);
            if is_new {
                self.filters.add(filter, detached, outlet);
            }
        }
        let new = before.iter().map(|before| *before == Before::Nothing);
        InboxReply::Subscribed(new.collect())
    }

    pub(super) fn unsubscribe(
        &mut self,
        session: &SessionName,
        epoch: u64,
        filters: &[Box<str>],
        outlet: &mut dyn InboxOutlet,
    ) -> InboxReply {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return InboxReply::Stale;
        };
        self.stock.touch(inbox);
        self.matching.take_over(inbox, &mut self.filters);
        let had = subscriptions::remove(&mut inbox.subscriptions, filters);
        let (id, detached) = (inbox.id(), !inbox.is_attached());
        for (filter, _) in filters.iter().zip(&had).filter(|(_, had)| **had) {
            self.stock.filter_bytes -= filter.len();
            self.owed.cancel(id, filter);
            if is_shared(filter) {
                self.members.remove(id.number.0);
                outlet.member(&inbox.client, filter, None);
            } else {
                self.matching.unsubscribe(id.number.0, filter);
                self.filters.remove(filter, detached, outlet);
            }
        }
        InboxReply::Unsubscribed(had)
    }
}
