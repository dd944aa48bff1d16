//! Rules that have changed: what clients may not do any more ends.
//!
//! Decisions are forgotten at once, so whatever a client does from then on is judged by the new rules, and so is
//! what is queued for it, before the next byte is sent to it. Its will and its subscriptions are looked through
//! afterwards, a part in each turn. A session that was resumed is looked through as well: the rules may have
//! changed while its client was away.
//!
//! A client whose user was removed from its file meanwhile is disconnected, and so is one whose user of the control store is
//! gone, disabled, or has another password than at the login.
//!
//! Rules that came with a login stay those of the login, but for those of the control store: they are those of now.
//!
//! Deliberately absent: what rules say (`access.rs`), and clients that must log in anew because their passwords have
//! changed: an operator bans them.

use authentication_api::{Identity, UserNow};
use authorization::Action;
use mqtt_proto::{ReasonCode, SubscriptionFilter};
use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::{InboxOp, InboxReply};
use store_state::session::SessionOp;

use crate::clients::{Client, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::excerpt::excerpt;
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::subscribe::grant::Subscriptions;
use crate::turn::Effect;

/// Subscriptions that are judged in one turn; a client counts as one, and so does a queued message.
const PER_TURN: usize = 256;

/// Between two turns if only sessions that were resumed are looked through, in ms: what one client can have judged
/// by connecting again and again is a small part of the loop's time.
const PAUSE_MS: u64 = 20;

impl<R: Rim> ClientLoop<R> {
    /// The rules have been read again.
    pub(crate) fn rules_changed(&mut self, io: &mut impl LoopIo) {
        self.parts.rights.forget();
        self.rules = self.rules.wrapping_add(1);
        self.unjudged.clients.extend(self.clients.keys());
        self.unjudged.current = None;
        self.unjudged.hurries = true;
        self.go_on_soon(io);
        let (now_ms, every) = (io.now_ms(), self.base.settings.recheck);
        if self.unjudged.rechecks.begin(now_ms, every) {
            io.arm(now_ms, Timer::Recheck.to_bits());
        }
    }

    /// A client has joined: what was decided about it before, in this process or another, is decided anew.
    pub(crate) fn judge_joined(&mut self, io: &mut impl LoopIo, key: Key) {
        let (parts, turn) = self.turn(io);
        let is_restricted = parts.rights.is_restricted(&turn, key, Action::Subscribe);
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let is_new = client.session.subscriptions().is_empty();
        let may_have_changed = !is_new && is_restricted;
        let user = user_now(&self.base.node.rim, client);
        if client.judged != self.rules || may_have_changed || !matches!(user, UserNow::Same) {
            self.unjudged.clients.insert(key);
            self.go_on_soon(io);
        }
    }

    pub(super) fn go_on_soon(&mut self, io: &mut impl LoopIo) {
        if !self.unjudged.is_empty() && !std::mem::replace(&mut self.unjudged.is_armed, true) {
            let pause = if self.unjudged.hurries { 0 } else { PAUSE_MS };
            io.arm(io.now_ms() + pause, Timer::Rules.to_bits());
        }
    }

    /// Looks through a part of what is to be judged anew.
    pub(crate) fn go_on_judging(&mut self, io: &mut impl LoopIo) {
        self.unjudged.is_armed = false;
        let mut left = PER_TURN;
        while left > 0 {
            if let Some((key, mut filters)) = self.unjudged.current.take() {
                let rest = filters.len().saturating_sub(left);
                let part = filters.split_off(rest);
                left = left.saturating_sub(part.len());
                if rest > 0 {
                    self.unjudged.current = Some((key, filters));
                }
                self.judge_subscriptions(io, key, part);
            } else if let Some(key) = self.unjudged.clients.pop_first() {
                left = left.saturating_sub(1 + self.judge_client(io, key));
            } else {
                self.unjudged.hurries = false;
                self.unjudged.clients = std::mem::take(&mut self.unjudged.later);
                break;
            }
        }
        self.go_on_soon(io);
    }

    /// Judges what is queued for a client, and its will; its subscriptions are next. Returns how much there was
    /// to judge.
    fn judge_client(&mut self, io: &mut impl LoopIo, key: Key) -> usize {
        let Some(client) = self.clients.get(key) else {
            return 0;
        };
        if client.rare.get().joining.is_some() || client.connection.is_none() {
            // It is looked at when it has joined.
            return 0;
        }
        if client.waits {
            self.unjudged.later.insert(key);
            return 0;
        }
        match user_now(&self.base.node.rim, client) {
            UserNow::Gone => {
                end_connection(self, io, key);
                return 0;
            }
            UserNow::Identity(identity) => {
                change_rights(self, io, key, &identity);
            }
            UserNow::Same => {}
        }
        let queued = self.judge_queued(io, key);
        self.judge_will(io, key);
        let (parts, turn) = self.turn(io);
        if parts.rights.is_restricted(&turn, key, Action::Subscribe)
            && let Some(client) = self.clients.get(key)
        {
            let filters = client.session.subscriptions().iter();
            let filters: Vec<_> = filters.map(|of| of.filter.clone()).collect();
            if !filters.is_empty() {
                self.unjudged.current = Some((key, filters));
            }
        }
        queued
    }

    /// Drops what is queued for a client and may not reach it any more. Returns how much was looked at.
    pub(crate) fn judge_queued(&mut self, io: &mut impl LoopIo, key: Key) -> usize {
        let rules = self.rules;
        match self.clients.get_mut(key) {
            // This is so nearly always.
            Some(client) if client.judged == rules || client.rare.get().joining.is_some() => {
                return 0;
            }
            Some(client) => client.judged = rules,
            None => return 0,
        }
        let (parts, mut turn) = self.turn(io);
        if !parts.rights.is_restricted(&turn, key, Action::Receive) {
            return 0;
        }
        let Some(client) = turn.clients.get(key) else {
            return 0;
        };
        let queued = client.session.queue_len();
        let is_stored = client.stored.as_ref().is_some_and(|s| s.has_inbox());
        let dropped = parts.rights.take_denied(&mut turn, key);
        for delivery in dropped {
            self.base.add(Effect::DenyDelivery {
                key,
                delivery: Box::new(delivery),
                is_stored,
            });
        }
        queued
    }

    /// Takes a will back that the client could not leave any more.
    fn judge_will(&mut self, io: &mut impl LoopIo, key: Key) {
        let will = |client: &Client| {
            let (topic, retain) = client.session.will()?;
            Some((Box::<str>::from(topic), retain))
        };
        let Some((topic, retain)) = self.clients.get(key).and_then(will) else {
            return;
        };
        let (parts, mut turn) = self.turn(io);
        let mut is_denied = |action| !parts.rights.decide(&mut turn, key, action, &topic);
        let denied = if is_denied(Action::Publish) {
            Action::Publish
        } else if retain && is_denied(Action::Retain) {
            Action::Retain
        } else {
            return;
        };
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        client.session.discard_will();
        let client_id = Box::<str>::from(client.session.client_id());
        let epoch = client.stored.as_ref().map(|stored| stored.epoch().0);
        let reason = Reason::Denied(denied);
        let qos = mqtt_proto::QoS::AtMostOnce;
        self.base
            .drops
            .record(io.now_ms(), &client_id, &topic, reason, qos, 0);
        if let Some(epoch) = epoch {
            let op = SessionOp::DiscardWill {
                client: client_id.clone(),
                epoch,
            };
            let store = self.base.node.store();
            store.session(&client_id, store_state::CorrelationId::NONE, op);
        }
    }

    /// Unsubscribes a client from what it may not subscribe to any more.
    fn judge_subscriptions(&mut self, io: &mut impl LoopIo, key: Key, mut filters: Vec<Box<str>>) {
        filters.retain(|text| {
            let Some(client) = self.clients.get(key) else {
                return false;
            };
            let Some(subscription) = client.session.subscription(text) else {
                return false;
            };
            let qos = subscription.options.qos;
            SubscriptionFilter::parse(text).is_ok_and(|parsed| {
                let (parts, mut turn) = self.turn(io);
                !parts
                    .rights
                    .may_subscribe(&mut turn, key, parsed.filter, qos)
            })
        });
        if filters.is_empty() {
            return;
        }
        let Some(client) = self.clients.get(key) else {
            return;
        };
        self.base.stats.revoked.add(filters.len() as u64);
        let client_id = Box::<str>::from(client.session.client_id());
        if let Some(left_out) = self.base.node.lines.refusals.take(io.now_ms()) {
            tracing::info!(
                client_id = &*excerpt(&client_id),
                filters = filters.len(),
                left_out,
                "a client is unsubscribed from what it may not subscribe to any more"
            );
        }
        let Some((session, epoch)) = client.inbox_name(self.base.node.store()) else {
            let (_, mut turn) = self.turn(io);
            Subscriptions::remove_subscriptions(&mut turn, key, &filters, None);
            return self.clients.show_room(key);
        };
        let op = InboxOp::Unsubscribe {
            session,
            epoch: epoch.0,
            filters: filters.clone(),
        };
        if let Some(client) = self.clients.get_mut(key) {
            client.unanswered += 1;
        }
        self.parts
            .replays
            .handle_change_asked(&mut self.clients, key);
        self.base.ask_inbox(Pending::Revoke { key, filters }, op);
    }

    /// The store has unsubscribed a client. If it cannot, the subscription stays, and brings nothing that the
    /// client may not receive, until the session is resumed and judged again.
    pub(crate) fn revoke_answered(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        filters: &[Box<str>],
        answer: Answer,
    ) {
        let (parts, mut turn) = self.turn(io);
        parts.replays.handle_change_done(&mut turn, key);
        if let Answer::Inbox(InboxReply::Unsubscribed(existed)) = answer {
            Subscriptions::handle_changed(&mut turn, key);
            Subscriptions::remove_subscriptions(&mut turn, key, filters, Some(&existed));
            self.clients.show_room(key);
        }
    }
}

/// This comes with the login of a client now. True: it has other rights than before, and what it has is to be judged anew.
pub(super) fn change_rights<R: Rim>(
    this: &mut ClientLoop<R>,
    io: &mut impl LoopIo,
    key: Key,
    identity: &Identity,
) -> bool {
    let client = this.clients.get_mut(key);
    if let Some(login) = client.and_then(|client| client.login.as_mut()) {
        let before = login.renew(identity);
        if this.expiries.replace(key, before, identity.expires_at) {
            io.arm(io.now_ms(), Timer::LoginExpiry.to_bits());
        }
    }
    if let Some(client) = this.clients.get_mut(key)
        && client.connection.is_some()
    {
        let access = client.access.as_ref();
        let is_same = match access {
            Some(access) => access.has_rights_of(identity),
            None => identity.rules.is_none() && !identity.is_superuser,
        };
        if !is_same {
            let login = client.login.as_ref();
            let username = login.and_then(|login| login.username()).map(Box::from);
            client.access = None;
            client.judged = this.rules.wrapping_sub(1);
            let identity = Identity {
                username,
                ..identity.clone()
            };
            let (parts, mut turn) = this.turn(io);
            parts.rights.grant(&mut turn, key, identity);
            return true;
        }
    }
    false
}

/// A client's user is gone, or its login does not count any more.
pub(super) fn end_connection<R: Rim>(this: &mut ClientLoop<R>, io: &mut impl LoopIo, key: Key) {
    if let Some(client) = this.clients.get(key)
        && let Some(left_out) = this.base.node.lines.refusals.take(io.now_ms())
    {
        tracing::info!(
            client_id = &*excerpt(client.session.client_id()),
            left_out,
            "a user was removed or changed and its client is disconnected"
        );
    }
    this.base.end(key, ReasonCode::NotAuthorized);
}

/// What is known now of the user that a client has logged in as.
fn user_now(rim: &impl Rim, client: &Client) -> UserNow {
    client.login.as_ref().map_or(UserNow::Same, |login| {
        let username = login.username().unwrap_or_default();
        rim.user_now(login.source(), username)
    })
}
