//! A store that writes down what it is asked, and answers at once or when the script says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use mqtt_session::{ApplicationMessage, PacketIdSet, Timestamp};
use store_state::CorrelationId;
use store_state::api::{
    Event, Failure, Read, RetainMark, RetainedPage, RetainedPlace, ShardNumber, ShardRef,
    ShardRefs, Slot, Store,
};
use store_state::inbox::{Attached, ClientName, InboxOp, InboxReply, Item, Origin, SessionName};
use store_state::retain::{PageBudget, RetainReply, Writer};
use store_state::session::{Claimed, SessionOp, SessionReply, TakenFrom};

use super::packets::MANY;

/// Cloned, it is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedStore(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Requests that are not answered.
    asked: VecDeque<(CorrelationId, Event)>,
    /// Answers on their way to loops.
    pub(crate) answers: Vec<(usize, Event)>,
    /// What was asked since it was last looked at, and what other nodes were sent.
    pub(crate) log: Vec<String>,
    /// Of each store, the same ones.
    pub(crate) shards: ShardRefs,
    /// It answers when the script says so.
    pub(crate) waits: bool,
    pub(crate) is_over_limit: bool,
    /// The nodes that lead the session and the inbox shard; `None`: nobody known.
    pub(crate) session_leader: Option<u64>,
    pub(crate) inbox_leader: Option<u64>,
    /// Whether there are other nodes.
    pub(crate) has_peers: bool,
    /// What the next claim takes the client from.
    pub(crate) taken_from: Option<TakenFrom>,
    /// The next claim finds a session.
    pub(crate) resumes: bool,
    /// The next attachment finds unreleased publications.
    pub(crate) received: PacketIdSet,
    /// The next publication matches full sessions, which refuse it.
    pub(crate) refuses: bool,
    /// The session of the next member that a message is for has ended.
    pub(crate) has_ended: bool,
    /// The next retained message comes from a connection before the publisher's last one.
    pub(crate) knows_later: bool,
    last_epoch: u64,
    /// Filters of durable sessions, by client.
    filters: BTreeMap<String, BTreeSet<String>>,
    /// Changes of routes that the node is to be told before answers arrive.
    pub(crate) routes: Vec<Route>,
    /// Where the last opened inbox is read: loop, session, epoch.
    pub(crate) reader: Option<(usize, u64, u64)>,
    /// Inboxes that were opened since this was last looked at.
    pub(crate) opened: Vec<u64>,
}

/// What an inbox shard says of a filter.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) client: String,
    pub(crate) filter: String,
    pub(crate) is_subscribed: bool,
    pub(crate) is_detached: bool,
}

impl AskedStore {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn ask(
        &self,
        ticket: CorrelationId,
        what: String,
        answer: impl FnOnce(&mut State, u64) -> Event,
    ) {
        let mut state = self.state();
        state.log.push(what);
        let answer = answer(&mut state, ticket.token);
        if ticket.loop_number == 0 {
            return;
        }
        if state.waits {
            state.asked.push_back((ticket, answer));
        } else {
            state.answer(ticket, answer);
        }
    }
}

impl State {
    fn answer(&mut self, ticket: CorrelationId, event: Event) {
        self.answers
            .push((usize::from(ticket.loop_number) - 1, event));
    }

    /// What was asked is answered; `failure`: it is not carried out.
    pub(crate) fn answer_all(&mut self, failure: Option<Failure>) {
        for (ticket, event) in std::mem::take(&mut self.asked) {
            let event = match failure {
                Some(failure) => Event::Failed {
                    token: ticket.token,
                    failure,
                },
                None => event,
            };
            self.answer(ticket, event);
        }
    }

    fn claimed(&mut self) -> Claimed {
        self.last_epoch += 1;
        let resumed = std::mem::take(&mut self.resumes);
        Claimed {
            epoch: self.last_epoch,
            resumed,
            had_inbox: resumed,
            taken_from: self.taken_from.take().unwrap_or(TakenFrom::Nobody),
        }
    }

    /// What an operation does to routes.
    fn route(&mut self, op: &InboxOp) {
        let client = match op {
            InboxOp::Attach { client, .. } => client.to_string(),
            _ => op.session().map(ToString::to_string).unwrap_or_default(),
        };
        let (is_subscribed, is_detached) = match op {
            InboxOp::Subscribe { subscriptions, .. } => {
                let filters = subscriptions.iter().map(|s| s.filter.to_string());
                self.filters
                    .entry(client.to_string())
                    .or_default()
                    .extend(filters);
                (true, false)
            }
            InboxOp::Attach { .. } => (true, false),
            InboxOp::Detach { .. } => (true, true),
            InboxOp::Unsubscribe { .. } | InboxOp::Remove { .. } => (false, false),
            _ => return,
        };
        let known = self.filters.entry(client.to_string()).or_default();
        let concerned: Vec<String> = match op {
            InboxOp::Unsubscribe { filters, .. } => filters.iter().map(|f| f.to_string()).collect(),
            _ => known.iter().cloned().collect(),
        };
        if !is_subscribed {
            known.retain(|filter| !concerned.contains(filter));
        }
        self.routes
            .extend(concerned.into_iter().map(|filter| Route {
                client: client.to_string(),
                filter,
                is_subscribed,
                is_detached,
            }));
    }

    fn attached(&mut self, epoch: u64, present: bool) -> Attached {
        Attached {
            present,
            inbox: epoch,
            incarnation: epoch,
            subscriptions: Vec::new(),
            received: std::mem::take(&mut self.received),
            first: 1,
            sent: 1,
            owed: Vec::new(),
        }
    }
}

fn items(items: &[Item]) -> String {
    let topics = items.iter().map(|item| item.message.body.topic());
    topics.collect::<Vec<_>>().join(" ")
}

fn origin_of(origin: Option<&Origin>) -> String {
    origin.map_or_else(String::new, |origin| format!(" #{}", origin.packet_id))
}

impl Store for AskedStore {
    fn node(&self) -> u64 {
        1
    }

    fn incarnation(&self) -> u64 {
        1
    }

    fn is_over_limit(&self) -> bool {
        self.state().is_over_limit
    }

    fn sessions(&self) -> u64 {
        0
    }

    fn has_peers(&self) -> bool {
        self.state().has_peers
    }

    fn session_shards(&self) -> ShardRefs {
        let whole = ShardRef {
            number: 0,
            last: u16::MAX,
        };
        let mut state = self.state();
        if state.shards.is_empty() {
            state.shards = [whole].into_iter().collect();
        }
        state.shards.clone()
    }

    fn session_leader(&self, _: ShardNumber) -> Option<(u64, u64)> {
        let leader = self.state().session_leader?;
        Some((leader, if leader == self.node() { 1 } else { 2 }))
    }

    fn session_shard(&self, _: &str) -> ShardNumber {
        0
    }

    fn session(&self, client: &str, ticket: CorrelationId, op: SessionOp) {
        let claimed = op.claimed();
        let what = match &op {
            _ if claimed.is_some_and(|claim| claim.will.is_some()) => {
                "claim with a will".to_owned()
            }
            _ if claimed.is_some() => "claim".to_owned(),
            SessionOp::Disconnect { will, expiry, .. } => {
                format!("disconnect, expiry {expiry}, will: {will:?}").to_lowercase()
            }
            SessionOp::Fired { .. } => "will fired".to_owned(),
            SessionOp::WillDue { epoch, .. } => format!("will due {epoch}"),
            SessionOp::Gone { .. } => "inbox gone".to_owned(),
            other => format!("{other:?}"),
        };
        self.ask(
            ticket,
            format!("session of {client}: {what}"),
            |state, token| {
                let reply = if claimed.is_some() {
                    SessionReply::Claimed(state.claimed())
                } else {
                    SessionReply::Done
                };
                Event::Session { token, reply }
            },
        );
    }

    fn knows(&self, _: &str) -> bool {
        false
    }

    fn is_of_another_user(&self, _: &str, _: Option<&str>) -> bool {
        false
    }

    fn inbox_leader(&self, _: ShardNumber) -> Option<u64> {
        self.state().inbox_leader
    }

    fn inbox_shards(&self) -> ShardRefs {
        self.session_shards()
    }

    fn learn_inbox_shard(&self, first: Slot) {
        self.ask(
            CorrelationId::NONE,
            format!("there is an inbox shard {}", first.0),
            |_, token| Event::Passed { token },
        );
    }

    fn narrow_inbox_shard(&self, _: ShardNumber) {}

    fn inbox_slot(&self, _: &str) -> Slot {
        Slot(7)
    }

    fn inbox_shard(&self, _: Slot) -> ShardNumber {
        0
    }

    fn client_name(&self, client: &str) -> ClientName {
        client.into()
    }

    /// By the identifier, so that scripts can be read.
    fn session_name(&self, client: &str, _: u64) -> SessionName {
        client.into()
    }

    fn inboxes(&self, _: ShardRef, ticket: CorrelationId, op: InboxOp) {
        self.inbox(ticket, op);
    }

    fn inbox(&self, ticket: CorrelationId, op: InboxOp) {
        let what = match &op {
            InboxOp::Attach { client, resume, .. } => {
                let how = if *resume { "resume" } else { "begin" };
                format!("inbox of {client}: {how}")
            }
            InboxOp::Detach { session, .. } => format!("inbox of {session}: detach"),
            InboxOp::Remove { session, .. } => format!("inbox of {session}: remove"),
            InboxOp::Subscribe {
                session,
                subscriptions,
                ..
            } => {
                let filters: Vec<&str> = subscriptions.iter().map(|s| &*s.filter).collect();
                match filters.len() {
                    many if many >= MANY => {
                        format!("inbox of {session}: subscribe to {many} filters")
                    }
                    _ => format!("inbox of {session}: subscribe {}", filters.join(" ")),
                }
            }
            InboxOp::Unsubscribe {
                session, filters, ..
            } => format!("inbox of {session}: unsubscribe {}", filters.join(" ")),
            InboxOp::Publish {
                message, origin, ..
            } => {
                let origin = origin_of(origin.as_ref());
                format!("inboxes: publish {}{origin}", message.body.topic())
            }
            InboxOp::PublishOnce { message, .. } => {
                format!("inboxes: publish {}", message.body.topic())
            }
            InboxOp::PublishFenced {
                message, origin, ..
            } => {
                let origin = origin_of(Some(origin));
                format!("inboxes: publish {}{origin}", message.body.topic())
            }
            InboxOp::Deliver {
                session,
                items: list,
                origin,
            } => {
                let origin = origin_of(origin.as_ref());
                format!("inbox of {session}: deliver {}{origin}", items(list))
            }
            InboxOp::DeliverOnce {
                session,
                items: list,
                ..
            } => format!("inbox of {session}: deliver {}", items(list)),
            InboxOp::DeliverFenced {
                session,
                items: list,
                origin,
                ..
            } => {
                let origin = origin_of(Some(origin));
                format!("inbox of {session}: deliver {}{origin}", items(list))
            }
            InboxOp::Release { origin } | InboxOp::ReleaseFenced { origin, .. } => {
                format!("inboxes: release #{}", origin.packet_id)
            }
            InboxOp::Receipt {
                session, sequence, ..
            } => format!("inbox of {session}: received {sequence}"),
            InboxOp::Replay {
                session,
                items: list,
                ..
            } => format!("inbox of {session}: retained {}", items(list)),
            other => format!("{other:?}"),
        };
        self.ask(ticket, what, |state, token| {
            state.route(&op);
            let reply = match op {
                InboxOp::Attach { epoch, resume, .. } => {
                    InboxReply::Attached(Box::new(state.attached(epoch, resume)))
                }
                InboxOp::Subscribe { subscriptions, .. } => {
                    InboxReply::Subscribed(vec![true; subscriptions.len()])
                }
                InboxOp::Unsubscribe { filters, .. } => {
                    InboxReply::Unsubscribed(vec![true; filters.len()])
                }
                InboxOp::Deliver { .. }
                | InboxOp::DeliverOnce { .. }
                | InboxOp::DeliverFenced { .. }
                    if std::mem::take(&mut state.has_ended) =>
                {
                    InboxReply::Stale
                }
                InboxOp::Publish { .. }
                | InboxOp::PublishOnce { .. }
                | InboxOp::PublishFenced { .. }
                | InboxOp::Deliver { .. }
                | InboxOp::DeliverOnce { .. }
                | InboxOp::DeliverFenced { .. } => InboxReply::Published {
                    matched: 1,
                    refused: u32::from(std::mem::take(&mut state.refuses)),
                    pressing: 0,
                },
                _ => InboxReply::Done,
            };
            Event::Inbox { token, reply }
        });
    }

    fn acknowledge(&self, op: InboxOp) {
        if let InboxOp::Acknowledge { session, done, .. } = op {
            let numbers = done.0.iter().map(u64::to_string);
            let numbers = numbers.collect::<Vec<_>>().join(" ");
            let what = format!("inbox of {session}: done with {numbers}");
            self.state().log.push(what);
        }
    }

    fn read(&self, _: Slot, read: Read) {
        if let Read::Open {
            loop_index,
            home,
            epoch,
            inbox,
            ..
        } = read
        {
            let mut state = self.state();
            state.reader = Some((usize::from(loop_index), home, epoch));
            state.opened.push(inbox);
        }
    }

    fn session_barrier(&self, client: &str, ticket: CorrelationId) {
        self.ask(ticket, format!("session {client}: barrier"), |_, token| {
            Event::Passed { token }
        });
    }

    fn inbox_barrier(&self, _: &[ShardRef], ticket: CorrelationId) {
        self.ask(ticket, "inboxes: barrier".to_owned(), |_, token| {
            Event::Passed { token }
        });
    }

    fn retain_shards(&self) -> ShardRefs {
        self.session_shards()
    }

    fn retain(&self, ticket: CorrelationId, message: Arc<ApplicationMessage>, writer: Writer<'_>) {
        let what = match message.body.payload() {
            [] => format!("retained: remove {}", message.body.topic()),
            _ => format!("retained: keep {}", message.body.topic()),
        };
        let what = match writer {
            Writer::Client { publisher, .. } => format!("{what}, after what {publisher} sent"),
            Writer::Anybody | Writer::Will(_) => what,
        };
        self.ask(ticket, what, |state, token| Event::Retain {
            token,
            reply: match std::mem::take(&mut state.knows_later) {
                true => RetainReply::Fenced,
                false => RetainReply::Done,
            },
        });
    }

    fn retain_barrier(&self, shards: &[ShardRef], ticket: CorrelationId) {
        for _ in shards {
            self.ask(ticket, "retained: barrier".to_owned(), |_, token| {
                Event::Passed { token }
            });
        }
    }

    fn is_retain_idle(&self) -> bool {
        self.state().asked.is_empty()
    }

    fn retain_mark(&self) -> RetainMark {
        RetainMark(Vec::new())
    }

    fn has_reached(&self, _: &RetainMark) -> bool {
        true
    }

    fn retained(
        &self,
        _: &str,
        _: Option<RetainedPlace>,
        _: &mut PageBudget,
        _: Timestamp,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>)> {
        Some((Vec::new(), None))
    }

    fn retained_shard(&self, _: &str, _: Option<&RetainedPlace>) -> ShardNumber {
        0
    }

    fn ask_retained<'a>(
        &self,
        ticket: CorrelationId,
        _: ShardNumber,
        wanted: impl IntoIterator<Item = (&'a str, Option<RetainedPlace>)>,
        _: usize,
        _: Timestamp,
    ) {
        // Nothing is retained.
        let pages = wanted.into_iter().map(|_| RetainedPage {
            messages: Vec::new(),
            next: None,
        });
        let pages = pages.collect();
        let token = ticket.token;
        self.state()
            .answer(ticket, Event::Retained { token, pages });
    }
}
