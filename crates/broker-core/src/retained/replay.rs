//! Retained messages for new subscriptions, a page at a time.
//!
//! Invariants: a durable session is owed what its inbox shard says, also after a crash or on another node: each page
//! that is stored for it is recorded in one step with the place of the next. What a session looks at in a turn of
//! the loop is its slice of that turn, whether anything is found or not; the rest follows in later turns, behind
//! everybody else. A message never comes after a newer one of its topic.

use std::sync::Arc;

use authorization::Action;
use mqtt_proto::{QoS, ReasonCode};
use mqtt_session::{ApplicationMessage, Delivered, Delivery, Session, Timestamp, Wanted};
use net_api::Key;
use store_state::InsertionMap;
use store_state::api::Store as _;
use store_state::inbox::{InboxOp, Item};
use store_state::retain::PageBudget;

use crate::clients::{Client, Clients, LoopIo, PRESSURE_RETRY_MS, Timer, effective, record};
use crate::drops::Reason;
use crate::node::Pressure;
use crate::pending::{Answer, Pending};
use crate::retained::asked::Asked;
use crate::retained::backlog::{
    Given, MESSAGE_WORK, Owed, PAGE, PAGE_BYTES, Place, Replay, Slices,
};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::sys;
use crate::turn::Turn;

/// How soon the store is asked again for a page that it could not give: no node leads the shard.
const ASK_AGAIN_MS: u64 = 1_000;

/// The replays of a loop. How far each has come is in its [`Replay`].
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// What sessions may look at in a turn.
    slices: Slices,
    /// Questions for pages so far.
    questions: u64,
}

impl Replays {
    /// The store is asked to change what the session is owed: what it is told of that goes before, or after.
    pub(crate) fn handle_change_asked(&mut self, clients: &mut Clients, key: Key) {
        if let Some(replay) = clients
            .get_mut(key)
            .and_then(|c| c.rare.get_mut(|of| &mut of.replay))
        {
            replay.hold(true);
        }
    }

    /// What the replay of retained messages waited for has happened.
    pub(crate) fn handle_change_done<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        if let Some(client) = turn.clients.get_mut(key)
            && let Some(replay) = client.rare.get_mut(|of| &mut of.replay)
        {
            replay.blocked = replay.blocked.saturating_sub(1);
            if let Some(connection) = client.connection {
                turn.io.touch(connection);
            }
        }
    }

    /// A timer goes on with a replay.
    pub(crate) fn handle_timer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        if let Some(client) = turn.clients.get_mut(key)
            && let Some(replay) = client.rare.get_mut(|of| &mut of.replay)
        {
            replay.pauses = false;
            if let Some(connection) = client.connection {
                turn.io.touch(connection);
            }
        }
    }

    /// Queues the next page of retained messages, if the last one is sent, or looks for some, as far as the
    /// session's slice of the turn goes. True: there is something to transmit, or more to look at now.
    pub(crate) fn handle_page_due<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
    ) -> bool {
        let now = Timestamp(turn.io.now_ms());
        let turn_number = turn.io.turn();
        let Some((session, replay)) = replay_of(turn.clients, key) else {
            return false;
        };
        if replay.is_blocked() || session.queue_len() > 0 {
            return false;
        }
        if turn.base.node.pressure() != Pressure::None {
            // Nobody asked for these bytes at this moment: they come when there is memory for them.
            replay.pauses = true;
            turn.io
                .arm(now.0 + PRESSURE_RETRY_MS, Timer::Replay(key).to_bits());
            return false;
        }
        if replay.slice.0 != turn_number {
            replay.slice = (turn_number, self.slices.next(turn_number));
        }
        let mut budget = PageBudget {
            messages: PAGE,
            bytes: PAGE_BYTES,
            work: replay.slice.1,
        };
        let mut to_store = Vec::new();
        while !budget.is_spent() {
            let Some((messages, wanted)) = self.next_retained(turn, key, &mut budget) else {
                break;
            };
            budget.work = budget.work.saturating_sub(messages.len() * MESSAGE_WORK);
            for message in messages {
                let topic = message.body.topic();
                if rights.decide(turn, key, Action::Receive, topic) {
                    to_store.extend(Self::replay_one(turn, key, message, wanted));
                } else {
                    turn.base.drop_inbound(
                        turn.clients,
                        turn.io,
                        key,
                        &message,
                        Reason::Denied(Action::Receive),
                    );
                }
            }
        }
        let Some((_, replay)) = replay_of(turn.clients, key) else {
            return false;
        };
        replay.slice.1 = budget.work;
        let more = !replay.filters.is_empty();
        let waits = !to_store.is_empty();
        replay.blocked += u32::from(waits);
        if more && budget.work == 0 && !replay.is_blocked() {
            // The next turn goes on, behind everybody else.
            replay.pauses = true;
            turn.io.arm(now.0, Timer::Replay(key).to_bits());
        }
        let goes_on = more && !replay.is_blocked();
        self.record_progress(turn, key, to_store);
        if !more
            && !waits
            && let Some(client) = turn.clients.get_mut(key)
        {
            client.rare.take(|of| &mut of.replay);
        }
        let queue_len = |client: &Client| client.session.queue_len();
        goes_on || turn.clients.get(key).map_or(0, queue_len) > 0
    }

    /// Tells the store of inboxes what a durable session is not owed any more, and what it gets of that.
    fn record_progress<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        items: Vec<Item>,
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return;
        };
        let name = client.inbox_name(turn.base.node.store());
        let Some(replay) = client.rare.get_mut(|of| &mut of.replay) else {
            return;
        };
        let Some((session, epoch)) = name else {
            replay.progress = InsertionMap::default();
            return;
        };
        let waits = !items.is_empty();
        if !waits && replay.progress.iter().all(|(_, p)| p.next.is_some()) {
            return;
        }
        let progress = replay.take_progress();
        let op = InboxOp::Replay {
            session,
            epoch: epoch.0,
            items,
            progress,
        };
        if waits {
            turn.base.ask_inbox(Pending::Retained(Asked::Keep(key)), op);
        } else {
            turn.base.node.store().acknowledge(op);
        }
    }

    /// The store has answered.
    pub(crate) fn handle_answer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        asked: Asked,
        answer: Answer,
    ) {
        match asked {
            Asked::Keep(key) => self.handle_kept(turn, key, &answer),
            Asked::Pages {
                key,
                question,
                filters,
            } => self.handle_pages(turn, rights, key, question, filters, answer),
        }
    }

    /// A page of retained messages is queued, or cannot be: then the client finds it on its next connection.
    fn handle_kept<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        answer: &Answer,
    ) {
        if let Answer::Failed(_) = answer {
            turn.base.end(key, ReasonCode::QuotaExceeded);
        } else {
            self.handle_change_done(turn, key);
        }
    }

    /// Retained messages that a session is owed and has not got as they were published, and for what
    /// subscription. `None`: there are no more, or not now.
    fn next_retained<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        budget: &mut PageBudget,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Wanted)> {
        let (now, expiry_now) = (Timestamp(turn.io.now_ms()), turn.base.expiry_now(turn.io));
        let replay = turn
            .clients
            .get_mut(key)?
            .rare
            .get_mut(|of| &mut of.replay)?;
        if replay.filters.is_empty() {
            return None;
        }
        let has_pages = replay.has_pages();
        if let Some(ms) = replay.passed.wait(&turn.base.node, now, has_pages) {
            turn.base.stats.replay_pauses.add(1);
            replay.pages.clear();
            replay.pauses = true;
            turn.io.arm(now.0 + ms, Timer::Replay(key).to_bits());
            return None;
        }
        if !has_pages {
            let owed = replay.filters.first_mut()?;
            let is_elsewhere =
                turn.base.node.store().has_peers() && !sys::is_own(owed.filter.as_bytes());
            let page = (!is_elsewhere).then(|| owed.page(&turn.base.node, budget, expiry_now));
            let Some(page) = page.flatten() else {
                self.ask_pages(turn, key, now, expiry_now);
                return None;
            };
            self.questions += 1;
            owed.asked = self.questions;
            let page = (owed.filter.clone(), self.questions, page);
            replay.pages.push_back(page);
            replay.read = now;
            replay.given = Some(Given::now(&turn.base.node, turn.io));
        }
        if let Some(given) = replay.given
            && !turn.base.node.retaining.is_over(given.period)
        {
            // What comes meanwhile is not older than what comes after it.
            turn.base.stats.replay_pauses.add(1);
            replay.pauses = true;
            let at_ms = now.0 + given.pause_ms(now.0);
            turn.io.arm(at_ms, Timer::Replay(key).to_bits());
            return None;
        }
        let (filter, wanted, (mut messages, next)) = replay.take_page()?;
        if has_pages {
            let bytes: usize = messages.iter().map(|m| m.body.heap_len()).sum();
            budget.messages = budget.messages.saturating_sub(messages.len());
            budget.bytes = budget.bytes.saturating_sub(bytes);
            budget.work = budget.work.saturating_sub(1);
        }
        if let Some(ms) = replay.leave_out_passed(&filter, &mut messages, now) {
            turn.base.stats.replay_pauses.add(1);
            replay.pages.clear();
            replay.pauses = true;
            turn.io.arm(now.0 + ms, Timer::Replay(key).to_bits());
            return None;
        }
        replay.looked_through(&filter, next);
        Some((messages, wanted))
    }

    /// Asks the store for pages that other nodes may have, or that a shard has not got yet.
    fn ask_pages<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        now: Timestamp,
        expiry_now: Timestamp,
    ) -> Option<()> {
        let replay = turn
            .clients
            .get_mut(key)?
            .rare
            .get_mut(|of| &mut of.replay)?;
        replay.read = now;
        let store = turn.base.node.store();
        self.questions += 1;
        let question = self.questions;
        let shard_of = |filter: &str, from: Option<&_>| store.retained_shard(filter, from);
        let (shard, filters) = replay.next_question(question, shard_of)?;
        replay.asked = Some(question);
        let pending = Pending::Retained(Asked::Pages {
            key,
            question,
            filters: filters.clone().into(),
        });
        let ticket = turn.base.ask(pending);
        let replay = turn.clients.get(key)?.rare.get().replay.as_ref()?;
        let wanted = filters.iter().map(|filter| {
            let owed = replay.filters.get(filter);
            (&**filter, owed.and_then(Owed::stored_place).cloned())
        });
        turn.base
            .node
            .store()
            .ask_retained(ticket, shard, wanted, PAGE, expiry_now);
        Some(())
    }

    /// Pages that were asked for have come, or are to be asked for again after a while. `question`: by which
    /// number; the answer to another one than the last is not wanted any more.
    fn handle_pages<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
        question: u64,
        filters: Box<[Box<str>]>,
        answer: Answer,
    ) {
        let Some((_, replay)) = replay_of(turn.clients, key) else {
            return;
        };
        if replay.asked != Some(question) {
            return;
        }
        replay.asked = None;
        let pages = match answer {
            Answer::Retained(pages) if !pages.is_empty() => pages,
            _ => {
                replay.pauses = true;
                turn.io.arm(
                    turn.io.now_ms() + ASK_AGAIN_MS,
                    Timer::Replay(key).to_bits(),
                );
                return;
            }
        };
        replay
            .pages
            .extend(filters.into_iter().zip(pages).map(|(filter, page)| {
                let messages = page.messages.into_iter().map(|retained| retained.0);
                let page = (messages.collect(), page.next.map(Place::Stored));
                (filter, question, page)
            }));
        replay.given = Some(Given::now(&turn.base.node, turn.io));
        self.handle_page_due(turn, rights, key);
        if let Some(connection) = turn.clients.get(key).and_then(|client| client.connection) {
            turn.io.touch(connection);
        }
    }

    /// Queues a retained message. One that a durable session has to store first is given back.
    fn replay_one<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        message: Arc<ApplicationMessage>,
        wanted: Wanted,
    ) -> Option<Item> {
        let now = turn.base.expiry_now(turn.io);
        let client = turn.clients.get_mut(key)?;
        let qos = effective(message.qos, wanted.qos);
        // [MQTT-3.3.1-8] [MQTT3-3.3.1-8] set, because the message was kept
        let retain = true;
        let subscription_ids = wanted.ids();
        if client.session.is_durable() && qos > QoS::AtMostOnce {
            return Some(Item {
                message,
                qos,
                retain,
                subscription_ids,
                group: None,
            });
        }
        let delivery = Delivery {
            message,
            qos,
            retain,
            subscription_ids,
            group: None,
        };
        let policy = &turn.base.settings.beyond_limit;
        if let Delivered::Dropped(dropped) = client.session.deliver(delivery, policy, now) {
            record(
                &turn.base.drops,
                turn.io.now_ms(),
                client.session.client_id(),
                &dropped,
            );
        }
        None
    }
}

/// A session that is owed retained messages. `None`: it is gone, or owed nothing any more.
fn replay_of(clients: &mut Clients, key: Key) -> Option<(&Session, &mut Replay)> {
    let client = clients.get_mut(key)?;
    Some((&client.session, client.rare.get_mut(|of| &mut of.replay)?))
}
