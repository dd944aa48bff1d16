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
//! | call | when | costs |
//! |---|---|---|
//! | [`Rejudge::handle_rules_changed`] | the rules, or the settings, have been read again | the keys of the loop's clients |
//! | [`Rejudge::handle_joining`] | an entry is made for a client | nothing |
//! | [`Rejudge::handle_login`] | a client has logged in: whom its rights come from is looked up again in time | a place in a list |
//! | [`Rejudge::handle_joined`] | a client is let in | nothing, unless its session was resumed |
//! | [`Rejudge::handle_transmit`] | before anything is written to a client | a comparison; a decision for each queued message after a change |
//! | [`Rejudge::handle_timer`] | while there is anything to be judged | decisions for a part of the filters |
//! | [`Rejudge::handle_recheck_timer`], [`Rejudge::handle_looked_up`] | while users of databases are connected | a question to a database |
//! | [`Rejudge::handle_answer`] | once for each client and change of its subscriptions that was asked for | as an UNSUBSCRIBE |
//! | [`Rejudge::handle_gone`] | an entry leaves the table | nothing |
//!
//! Invariant: nothing that was queued before a change is written to a client before it is judged anew. A client is
//! looked through once after the last change, however many there are.
//!
//! `unjudged.rs`: who is left. `recheck.rs`: users of databases; `rechecks.rs`: when each is looked up.
//!
//! Deliberately absent: what rules say (`rights/access.rs`), and clients that must log in anew because their passwords have
//! changed: an operator bans them.

pub(crate) mod asked;
mod recheck;
mod rechecks;
#[cfg(test)]
mod tests;
mod unjudged;

use std::sync::Arc;

use authentication_api::{DatabaseUser, Identity, UserNow};
use authorization::Action;
use mqtt_proto::{QoS, ReasonCode, SubscriptionFilter};
use net_api::Key;
use store_state::CorrelationId;
use store_state::api::Store as _;
use store_state::inbox::{InboxOp, InboxReply};
use store_state::session::SessionOp;

use self::asked::Revoke;
use self::unjudged::Unjudged;
use crate::clients::{Client, LoopIo, Timer};
use crate::drops::Reason;
use crate::excerpt::excerpt;
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::subscribe::grant::{Below, Subscriptions};
use crate::turn::{Base, Effect, Turn};

/// Subscriptions that are judged in one turn; a client counts as one, and so does a queued message.
///
/// Limit: subscriptions that a loop judges anew in a turn after a reload, or when sessions are resumed | {}; every
/// {unjudged::PAUSE_MS} when only sessions were resumed | the rest in a later turn; what is queued is judged before
/// it is sent
const PER_TURN: usize = 256;

/// What is to be judged anew of a loop's clients.
#[derive(Debug, Default)]
pub(crate) struct Rejudge {
    /// How often the rules have been read.
    rules: u32,
    unjudged: Unjudged,
}

impl Rejudge {
    /// The rules have been read again, or the settings: whatever is asked from here on is judged by the new ones.
    pub(crate) fn handle_rules_changed<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
    ) {
        rights.handle_rules_changed();
        self.rules = self.rules.wrapping_add(1);
        self.unjudged.add_all(turn.clients.keys());
        self.arm(turn.io);
        self.begin_rechecks(turn.base, turn.io);
    }

    /// An entry is made for a client: nothing is queued for it yet.
    pub(crate) fn handle_joining(&self, client: &mut Client) {
        client.judged = self.rules;
    }

    /// A client has logged in. `user`: of a database, which knows it.
    pub(crate) fn handle_login<R: Rim>(
        &mut self,
        base: &Base<R>,
        io: &mut impl LoopIo,
        key: Key,
        user: Option<Arc<DatabaseUser>>,
    ) {
        self.unjudged.rechecks.replace(key, user);
        self.begin_rechecks(base, io);
    }

    /// A client has joined: what was decided about it before, in this process or another, is decided anew.
    pub(crate) fn handle_joined<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &Rights,
        key: Key,
    ) {
        let is_restricted = rights.is_restricted(turn, key, Action::Subscribe);
        let client = turn.clients.get(key);
        let client = client.expect("a client that has joined has an entry until the turn is over");
        let is_new = client.session.subscriptions().is_empty();
        let may_have_changed = !is_new && is_restricted;
        let user = user_now(&turn.base.node.rim, client);
        if client.judged != self.rules || may_have_changed || !matches!(user, UserNow::Same) {
            self.unjudged.add(key);
            self.arm(turn.io);
        }
    }

    /// Something is about to be written to a client: what was queued for it before the rules changed is judged. Returns
    /// how many messages that were.
    #[inline]
    pub(crate) fn handle_transmit<R: Rim, Io: LoopIo>(
        &self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
    ) -> usize {
        match turn.clients.get(key) {
            // This is so nearly always.
            Some(client) if client.judged == self.rules => 0,
            Some(_) => self.judge_queued(turn, rights, key),
            None => 0,
        }
    }

    /// Looks through a part of what is to be judged anew.
    pub(crate) fn handle_timer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
    ) {
        self.unjudged.is_armed = false;
        let mut left = PER_TURN;
        while left > 0 {
            if let Some((key, filters)) = self.unjudged.next_filters(left) {
                left = left.saturating_sub(filters.len());
                judge_subscriptions(turn, below, key, filters);
            } else if let Some(key) = self.unjudged.next_client() {
                left = left.saturating_sub(1 + self.judge_client(turn, below, key));
            } else {
                self.unjudged.handle_all_judged();
                break;
            }
        }
        self.arm(turn.io);
    }

    /// The store has unsubscribed a client. If it cannot, the subscription stays, and brings nothing that the
    /// client may not receive, until the session is resumed and judged again.
    pub(crate) fn handle_answer<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        Revoke { key, filters }: Revoke,
        answer: &Answer,
    ) {
        if turn.clients.get(key).is_none() {
            return turn.base.stats.stale_answers.add(1);
        }
        below.replays.handle_change_done(turn, key);
        if let Answer::Inbox(InboxReply::Unsubscribed(existed)) = answer {
            Subscriptions::handle_changed(turn, key);
            Subscriptions::remove_subscriptions(turn, key, &filters, Some(existed));
            turn.clients.show_room(key);
        }
    }

    /// An entry leaves the table.
    pub(crate) fn handle_gone(&mut self, key: Key) {
        self.unjudged.forget(key);
    }

    fn arm(&mut self, io: &mut impl LoopIo) {
        if let Some(pause_ms) = self.unjudged.begin() {
            io.arm(io.now_ms() + pause_ms, Timer::Rules.to_bits());
        }
    }

    fn begin_rechecks<R: Rim>(&mut self, base: &Base<R>, io: &mut impl LoopIo) {
        let (now_ms, every) = (io.now_ms(), base.settings.recheck);
        if self.unjudged.rechecks.begin(now_ms, every) {
            io.arm(now_ms, Timer::Recheck.to_bits());
        }
    }

    /// Judges what is queued for a client, and its will; its subscriptions are next. Returns how much there was
    /// to judge.
    fn judge_client<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        below: &mut Below<'_>,
        key: Key,
    ) -> usize {
        let client = turn.clients.get(key);
        let client = client.expect("who leaves the table is not to be judged any more");
        if client.rare.get().joining.is_some() || client.connection.is_none() {
            // It is looked at when it has joined.
            return 0;
        }
        if client.waits {
            self.unjudged.put_off(key);
            return 0;
        }
        match user_now(&turn.base.node.rim, client) {
            UserNow::Gone => {
                end_without_user(turn, key);
                return 0;
            }
            UserNow::Identity(identity) => {
                self.change_rights(turn, below.rights, key, &identity);
            }
            UserNow::Same => {}
        }
        let queued = self.handle_transmit(turn, below.rights, key);
        judge_will(turn, below.rights, key);
        if below.rights.is_restricted(turn, key, Action::Subscribe)
            && let Some(client) = turn.clients.get(key)
        {
            let filters = client.session.subscriptions().iter();
            let filters: Vec<_> = filters.map(|of| of.filter.clone()).collect();
            self.unjudged.look_through(key, filters);
        }
        queued
    }

    /// Drops what is queued for a client and may not reach it any more. Returns how much was looked at.
    fn judge_queued<R: Rim, Io: LoopIo>(
        &self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
    ) -> usize {
        let client = turn.clients.get_mut(key);
        let Some(client) = client.filter(|client| client.rare.get().joining.is_none()) else {
            return 0;
        };
        client.judged = self.rules;
        let queued = client.session.queue_len();
        let is_stored = client.stored.as_ref().is_some_and(|s| s.has_inbox());
        if !rights.is_restricted(turn, key, Action::Receive) {
            return 0;
        }
        for delivery in rights.take_denied(turn, key) {
            turn.base.add(Effect::DenyDelivery {
                key,
                delivery: Box::new(delivery),
                is_stored,
            });
        }
        queued
    }

    /// This comes with the login of a client now. True: it has other rights than before, and what it has is to be judged anew.
    fn change_rights<R: Rim, Io: LoopIo>(
        &self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
        identity: &Identity,
    ) -> bool {
        let Some(client) = turn.clients.get_mut(key) else {
            return false;
        };
        if let Some(login) = client.login.as_mut() {
            let before = login.renew(identity);
            let now = identity.expires_at;
            if before != now {
                turn.base.add(Effect::LoginRenewed { key, before, now });
            }
        }
        let is_same = match client.access.as_ref() {
            Some(access) => access.has_rights_of(identity),
            None => identity.rules.is_none() && !identity.is_superuser,
        };
        if client.connection.is_none() || is_same {
            return false;
        }
        let login = client.login.as_ref();
        let username = login.and_then(|login| login.username()).map(Box::from);
        client.access = None;
        client.judged = self.rules.wrapping_sub(1);
        let identity = Identity {
            username,
            ..identity.clone()
        };
        rights.grant(turn, key, identity);
        true
    }
}

/// Takes a will back that the client could not leave any more.
fn judge_will<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, rights: &mut Rights, key: Key) {
    let will = |client: &Client| {
        let (topic, retain) = client.session.will()?;
        Some((Box::<str>::from(topic), retain))
    };
    let Some((topic, retain)) = turn.clients.get(key).and_then(will) else {
        return;
    };
    let mut is_denied = |action| !rights.decide(turn, key, action, &topic);
    let denied = if is_denied(Action::Publish) {
        Action::Publish
    } else if retain && is_denied(Action::Retain) {
        Action::Retain
    } else {
        return;
    };
    let client = turn.clients.get_mut(key);
    let client = client.expect("a client with a will has an entry");
    client.session.discard_will();
    let client_id = Box::<str>::from(client.session.client_id());
    let epoch = client.stored.as_ref().map(|stored| stored.epoch().0);
    let (reason, qos) = (Reason::Denied(denied), QoS::AtMostOnce);
    let drops = &turn.base.drops;
    drops.record(turn.io.now_ms(), &client_id, &topic, reason, qos, 0);
    if let Some(epoch) = epoch {
        let client = client_id.clone();
        let op = SessionOp::DiscardWill { client, epoch };
        let store = turn.base.node.store();
        store.session(&client_id, CorrelationId::NONE, op);
    }
}

/// Unsubscribes a client from what it may not subscribe to any more.
fn judge_subscriptions<R: Rim, Io: LoopIo>(
    turn: &mut Turn<'_, R, Io>,
    below: &mut Below<'_>,
    key: Key,
    mut filters: Vec<Box<str>>,
) {
    filters.retain(|text| {
        let client = turn.clients.get(key);
        let Some(subscription) = client.and_then(|of| of.session.subscription(text)) else {
            // It has unsubscribed meanwhile.
            return false;
        };
        let qos = subscription.options.qos;
        SubscriptionFilter::parse(text)
            .is_ok_and(|parsed| !below.rights.may_subscribe(turn, key, parsed.filter, qos))
    });
    if filters.is_empty() {
        return;
    }
    let client = turn.clients.get_mut(key);
    let client = client.expect("a client with subscriptions has an entry");
    turn.base.stats.revoked.add(filters.len() as u64);
    if let Some(left_out) = turn.base.node.lines.refusals.take(turn.io.now_ms()) {
        tracing::info!(
            client_id = &*excerpt(client.session.client_id()),
            filters = filters.len(),
            left_out,
            "a client is unsubscribed from what it may not subscribe to any more"
        );
    }
    let Some((session, epoch)) = client.inbox_name(turn.base.node.store()) else {
        Subscriptions::remove_subscriptions(turn, key, &filters, None);
        return turn.clients.show_room(key);
    };
    client.unanswered += 1;
    let op = InboxOp::Unsubscribe {
        session,
        epoch: epoch.0,
        filters: filters.clone(),
    };
    below.replays.handle_change_asked(turn.clients, key);
    let asked = Revoke { key, filters };
    turn.base.ask_inbox(Pending::Revoke(asked), op);
}

/// A client's user is gone, or its login does not count any more.
fn end_without_user<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, key: Key) {
    if let Some(client) = turn.clients.get(key)
        && let Some(left_out) = turn.base.node.lines.refusals.take(turn.io.now_ms())
    {
        tracing::info!(
            client_id = &*excerpt(client.session.client_id()),
            left_out,
            "a user was removed or changed and its client is disconnected"
        );
    }
    turn.base.end(key, ReasonCode::NotAuthorized);
}

/// What is known now of the user that a client has logged in as.
fn user_now(rim: &impl Rim, client: &Client) -> UserNow {
    client.login.as_ref().map_or(UserNow::Same, |login| {
        let username = login.username().unwrap_or_default();
        rim.user_now(login.source(), username)
    })
}
