//! Retained messages for new subscriptions, a page at a time.
//!
//! Invariants: a durable session is owed what its inbox shard says, also after a crash or on another node: each page
//! that is stored for it is recorded in one step with the place of the next. What a session looks at in a turn of
//! the loop is its slice of that turn, whether anything is found or not; the rest follows in later turns, behind
//! everybody else. A message never comes after a newer one of its topic.

use std::sync::Arc;

use authorization::Action;
use mqtt_proto::{QoS, ReasonCode};
use mqtt_session::{ApplicationMessage, Delivered, Delivery, Timestamp, Wanted};
use net_api::Key;
use store_state::InsertionMap;
use store_state::api::Store as _;
use store_state::inbox::{InboxOp, Item};
use store_state::retain::PageBudget;

use crate::clients::{Client, LoopIo, PRESSURE_RETRY_MS, Timer, effective, record};
use crate::dispatch::ClientLoop;
use crate::drops::Reason;
use crate::node::Pressure;
use crate::pending::{Answer, Pending};
use crate::retained::backlog::{Given, MESSAGE_WORK, Owed, PAGE, PAGE_BYTES, Place};
use crate::rim::Rim;
use crate::sys;

/// How soon the store is asked again for a page that it could not give: no node leads the shard.
const ASK_AGAIN_MS: u64 = 1_000;

impl<R: Rim> ClientLoop<R> {
    /// The store is asked to change what the session is owed: what it is told of that goes before, or after.
    pub(crate) fn hold_replay(&mut self, key: Key) {
        if let Some(replay) = self.clients.get_mut(key).and_then(|c| c.replay.as_mut()) {
            replay.hold(true);
        }
    }

    /// What the replay of retained messages waited for has happened.
    pub(crate) fn replay_goes_on(&mut self, io: &mut impl LoopIo, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
        {
            replay.blocked = replay.blocked.saturating_sub(1);
            if let Some(connection) = client.connection {
                io.touch(connection);
            }
        }
    }

    /// A timer goes on with a replay.
    pub(crate) fn replay_resumes(&mut self, io: &mut impl LoopIo, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
        {
            replay.pauses = false;
            if let Some(connection) = client.connection {
                io.touch(connection);
            }
        }
    }

    /// Queues the next page of retained messages, if the last one is sent, or looks for some, as far as the
    /// session's slice of the turn goes. True: there is something to transmit, or more to look at now.
    pub(crate) fn replay_page(&mut self, io: &mut impl LoopIo, key: Key) -> bool {
        let now = Timestamp(io.now_ms());
        let turn = io.turn();
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let Some(replay) = &mut client.replay else {
            return false;
        };
        if replay.is_blocked() || client.session.queue_len() > 0 {
            return false;
        }
        if self.base.node.pressure() != Pressure::None {
            // Nobody asked for these bytes at this moment: they come when there is memory for them.
            replay.pauses = true;
            io.arm(now.0 + PRESSURE_RETRY_MS, Timer::Replay(key).to_bits());
            return false;
        }
        if replay.slice.0 != turn {
            replay.slice = (turn, self.slices.next(turn));
        }
        let mut budget = PageBudget {
            messages: PAGE,
            bytes: PAGE_BYTES,
            work: replay.slice.1,
        };
        let mut to_store = Vec::new();
        while !budget.is_spent() {
            let Some((messages, wanted)) = self.next_retained(io, key, &mut budget) else {
                break;
            };
            budget.work = budget.work.saturating_sub(messages.len() * MESSAGE_WORK);
            for message in messages {
                if self.decide(io, key, Action::Receive, message.body.topic()) {
                    to_store.extend(self.replay_one(io, key, message, wanted));
                } else {
                    self.base.drop_inbound(
                        &self.clients,
                        io,
                        key,
                        &message,
                        Reason::Denied(Action::Receive),
                    );
                }
            }
        }
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let Some(replay) = &mut client.replay else {
            return false;
        };
        replay.slice.1 = budget.work;
        let more = !replay.filters.is_empty();
        let waits = !to_store.is_empty();
        replay.blocked += u32::from(waits);
        if more && budget.work == 0 && !replay.is_blocked() {
            // The next turn goes on, behind everybody else.
            replay.pauses = true;
            io.arm(now.0, Timer::Replay(key).to_bits());
        }
        let goes_on = more && !replay.is_blocked();
        self.record_progress(key, to_store);
        if !more
            && !waits
            && let Some(client) = self.clients.get_mut(key)
        {
            client.replay = None;
        }
        let queue_len = |client: &Client| client.session.queue_len();
        goes_on || self.clients.get(key).map_or(0, queue_len) > 0
    }

    /// Tells the store of inboxes what a durable session is not owed any more, and what it gets of that.
    fn record_progress(&mut self, key: Key, items: Vec<Item>) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(replay) = &mut client.replay else {
            return;
        };
        let stored = client.stored.as_ref();
        let stored = stored.and_then(|stored| Some((stored.epoch, stored.inbox.as_ref()?.number)));
        let Some((epoch, inbox)) = stored else {
            replay.progress = InsertionMap::default();
            return;
        };
        let waits = !items.is_empty();
        if !waits && replay.progress.iter().all(|(_, p)| p.next.is_some()) {
            return;
        }
        let client_id = Box::<str>::from(client.session.client_id());
        let progress = replay.take_progress();
        let op = InboxOp::Replay {
            session: self.base.node.store().session_name(&client_id, inbox),
            epoch,
            items,
            progress,
        };
        if waits {
            self.base.ask_inbox(Pending::Replay(key), op);
        } else {
            self.base.node.store().acknowledge(op);
        }
    }

    /// A page of retained messages is queued, or cannot be: then the client finds it on its next connection.
    pub(crate) fn replay_answered(&mut self, io: &mut impl LoopIo, key: Key, answer: &Answer) {
        if let Answer::Failed(_) = answer {
            self.base.end(key, ReasonCode::QuotaExceeded);
        } else {
            self.replay_goes_on(io, key);
        }
    }

    /// Retained messages that a session is owed and has not got as they were published, and for what
    /// subscription. `None`: there are no more, or not now.
    fn next_retained(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        budget: &mut PageBudget,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Wanted)> {
        let (now, expiry_now) = (Timestamp(io.now_ms()), self.base.expiry_now(io));
        let replay = self.clients.get_mut(key)?.replay.as_mut()?;
        if replay.filters.is_empty() {
            return None;
        }
        let has_pages = replay.has_pages();
        if let Some(ms) = replay.passed.wait(&self.base.node, now, has_pages) {
            self.base.stats.replay_pauses.add(1);
            replay.pages.clear();
            replay.pauses = true;
            io.arm(now.0 + ms, Timer::Replay(key).to_bits());
            return None;
        }
        if !has_pages {
            let owed = replay.filters.first_mut()?;
            let is_elsewhere =
                self.base.node.store().has_peers() && !sys::is_own(owed.filter.as_bytes());
            let page = (!is_elsewhere).then(|| owed.page(&self.base.node, budget, expiry_now));
            let Some(page) = page.flatten() else {
                self.ask_pages(key, now, expiry_now);
                return None;
            };
            self.questions += 1;
            owed.asked = self.questions;
            let page = (owed.filter.clone(), self.questions, page);
            replay.pages.push_back(page);
            replay.read = now;
            replay.given = Some(Given::now(&self.base.node, io));
        }
        if let Some(given) = replay.given
            && !self.base.node.retaining.is_over(given.period)
        {
            // What comes meanwhile is not older than what comes after it.
            self.base.stats.replay_pauses.add(1);
            replay.pauses = true;
            let at_ms = now.0 + given.pause_ms(now.0);
            io.arm(at_ms, Timer::Replay(key).to_bits());
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
            self.base.stats.replay_pauses.add(1);
            replay.pages.clear();
            replay.pauses = true;
            io.arm(now.0 + ms, Timer::Replay(key).to_bits());
            return None;
        }
        replay.looked_through(&filter, next);
        Some((messages, wanted))
    }

    /// Asks the store for pages that other nodes may have, or that a shard has not got yet.
    fn ask_pages(&mut self, key: Key, now: Timestamp, expiry_now: Timestamp) -> Option<()> {
        let replay = self.clients.get_mut(key)?.replay.as_mut()?;
        replay.read = now;
        let store = self.base.node.store();
        self.questions += 1;
        let question = self.questions;
        let shard_of = |filter: &str, from: Option<&_>| store.retained_shard(filter, from);
        let (shard, filters) = replay.next_question(question, shard_of)?;
        replay.asked = Some(question);
        let pending = Pending::Pages {
            key,
            question,
            filters: filters.clone().into(),
        };
        let ticket = self.base.ask(pending);
        let replay = self.clients.get(key)?.replay.as_ref()?;
        let wanted = filters.iter().map(|filter| {
            let owed = replay.filters.get(filter);
            (&**filter, owed.and_then(Owed::stored_place).cloned())
        });
        self.base
            .node
            .store()
            .ask_retained(ticket, shard, wanted, PAGE, expiry_now);
        Some(())
    }

    /// Pages that were asked for have come, or are to be asked for again after a while. `question`: by which
    /// number; the answer to another one than the last is not wanted any more.
    pub(crate) fn pages_have_come(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        question: u64,
        filters: Box<[Box<str>]>,
        answer: Answer,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(replay) = &mut client.replay else {
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
                io.arm(io.now_ms() + ASK_AGAIN_MS, Timer::Replay(key).to_bits());
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
        replay.given = Some(Given::now(&self.base.node, io));
        self.replay_page(io, key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
    }

    /// Queues a retained message. One that a durable session has to store first is given back.
    fn replay_one(
        &mut self,
        io: &impl LoopIo,
        key: Key,
        message: Arc<ApplicationMessage>,
        wanted: Wanted,
    ) -> Option<Item> {
        let now = self.base.expiry_now(io);
        let client = self.clients.get_mut(key)?;
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
        let policy = &self.base.settings.beyond_limit;
        if let Delivered::Dropped(dropped) = client.session.deliver(delivery, policy, now) {
            record(
                &self.base.drops,
                io.now_ms(),
                client.session.client_id(),
                &dropped,
            );
        }
        None
    }
}
