//! The inbox store as plain lists: what the machine is compared with.

use std::collections::BTreeMap;

use super::property::CLIENTS;
use super::*;
use crate::inbox::Call;
use crate::inbox::fences::FENCE_MS;
use crate::inbox::origins::LINGER_MS;
use crate::{NameHash, QueueLimits};

/// Stands with the parts of a publication that was refused.
const REFUSED: &str = "\0refused";

#[derive(Default)]
pub(super) struct Model {
    pub(super) inboxes: Vec<ModelInbox>,
    pub(super) legacies: Vec<ModelLegacy>,
    nodes: BTreeMap<u64, u64>,
    last_number: u64,
    /// Client, incarnation, packet identifier, and the group or nothing.
    pub(super) origins: Vec<(Box<str>, u64, u16, Box<str>)>,
    /// Publishers, the epochs of their fences, and when they were raised.
    pub(super) fences: Vec<(Box<str>, u64, u64)>,
    /// Of the broker: publisher, incarnation, and when.
    pub(super) released: Vec<(Box<str>, u64, u64)>,
    /// Numbers of calls, and how many sessions refused them.
    pub(super) calls: BTreeMap<u64, u32>,
    events: Vec<Event>,
    /// Messages of the last operation that went to attached inboxes that are three quarters full.
    pressing: u32,
}

#[derive(Clone)]
pub(super) struct ModelInbox {
    pub(super) client: Box<str>,
    pub(super) number: u64,
    pub(super) incarnation: u64,
    pub(super) epoch: u64,
    pub(super) attached: Option<(u64, u64)>,
    lingers: bool,
    class: ClassId,
    pub(super) subscriptions: Vec<StoredSubscription>,
    pub(super) queue: Vec<(u64, Item)>,
    pub(super) released: Vec<u64>,
    pub(super) next: u64,
    pub(super) sent: u64,
    pub(super) owed: Vec<Owed>,
}

/// What a session has left to shared groups.
#[derive(Clone)]
pub(super) struct ModelLegacy {
    pub(super) client: Box<str>,
    pub(super) number: u64,
    pub(super) queue: Vec<(u64, Item)>,
}

pub(super) fn weight(item: &Item) -> u64 {
    96 + item.message.body.as_bytes().len() as u64
}

impl ModelInbox {
    pub(super) fn bytes(&self) -> u64 {
        self.queue.iter().map(|(_, item)| weight(item)).sum()
    }

    pub(super) fn lowest(&self) -> u64 {
        let queued = self.queue.iter().map(|(sequence, _)| *sequence);
        let all = queued.chain(self.released.iter().copied());
        all.min().unwrap_or(self.next)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.is_some()
    }

    fn is_connected(&self) -> bool {
        self.is_attached() && !self.lingers
    }

    fn detach(&mut self) {
        self.attached = None;
        self.lingers = false;
    }

    /// Whether the queue is three quarters full.
    fn is_filling(&self, limits: &QueueLimits) -> bool {
        let messages = match limits.is_closed {
            true => limits.messages.min(1_000),
            false => limits.messages,
        };
        self.queue.len() as u64 * 4 >= u64::from(messages) * 3
            || self.bytes() * 4 >= limits.bytes * 3
    }

    /// All that is queued or released from a sequence on.
    pub(super) fn page(&self, from: u64, items: usize, bytes: usize) -> Vec<(u64, Option<Seen>)> {
        let mut all: Vec<(u64, Option<&Item>)> =
            self.released.iter().map(|&of| (of, None)).collect();
        all.extend(self.queue.iter().map(|(of, item)| (*of, Some(item))));
        all.sort_by_key(|(of, _)| *of);
        let mut room = bytes as u64;
        let mut page = Vec::new();
        for (of, item) in all.into_iter().filter(|(of, _)| *of >= from) {
            if page.len() == items || room == 0 {
                break;
            }
            room = room.saturating_sub(item.map_or(0, weight));
            page.push((of, item.map(Seen::from)));
        }
        page
    }

    fn mark_sent(&mut self, sent: u64) {
        self.sent = self.sent.max(sent.min(self.next - 1));
    }
}

fn shared(filter: &str) -> bool {
    filter.starts_with("$share/")
}

fn matches(filter: &str, topic: &str) -> bool {
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

impl Model {
    pub(super) fn find(&self, client: &str) -> Option<&ModelInbox> {
        self.inboxes.iter().find(|inbox| *inbox.client == *client)
    }

    fn current(&mut self, client: &str, epoch: u64) -> Option<&mut ModelInbox> {
        self.inboxes
            .iter_mut()
            .find(|inbox| *inbox.client == *client && epoch >= inbox.epoch)
    }

    /// Takes out what the slots from `at` on have; both have what prevents that something is done twice.
    pub(super) fn split_off(&mut self, at: u16) -> Self {
        let moves = |client: &str| NameHash::default().slot_of(client) >= at;
        let inboxes = self.inboxes.extract_if(.., |of| moves(&of.client));
        let legacies = self.legacies.extract_if(.., |of| moves(&of.client));
        Self {
            inboxes: inboxes.collect(),
            legacies: legacies.collect(),
            nodes: self.nodes.clone(),
            last_number: self.last_number,
            origins: self.origins.clone(),
            fences: self.fences.clone(),
            released: self.released.clone(),
            calls: self.calls.clone(),
            events: Vec::new(),
            pressing: 0,
        }
    }

    /// What the outlet was told of each filter.
    pub(super) fn filters(&self) -> BTreeMap<String, bool> {
        let mut filters = BTreeMap::new();
        for inbox in &self.inboxes {
            for subscription in &inbox.subscriptions {
                if !shared(&subscription.filter) {
                    let detached = filters.entry(subscription.filter.to_string());
                    *detached.or_default() |= inbox.attached.is_none();
                }
            }
        }
        filters
    }

    pub(super) fn apply(&mut self, header: &Header, op: &InboxOp) -> (InboxReply, Vec<Event>) {
        let before = self.filters();
        self.pass_time(header.now_ms);
        let reply = self.carry_out(header, op);
        let after = self.filters();
        for (filter, detached) in &after {
            if before.get(filter) != Some(detached) {
                self.events
                    .push(Event::Filter(filter.clone(), true, *detached));
            }
        }
        for filter in before.keys().filter(|filter| !after.contains_key(*filter)) {
            self.events
                .push(Event::Filter(filter.clone(), false, false));
        }
        (reply, std::mem::take(&mut self.events))
    }

    fn pass_time(&mut self, now_ms: u64) {
        let is_over = |at: u64| at + LINGER_MS <= now_ms;
        for (client, incarnation, _) in self.released.extract_if(.., |(_, _, at)| is_over(*at)) {
            self.origins
                .retain(|(of, began, id, _)| (of, *began, *id) != (&client, incarnation, 0));
        }
        self.fences
            .retain(|(_, _, raised_ms)| raised_ms + FENCE_MS > now_ms);
    }

    /// The identifier of a client.
    fn identifier(&self, name: &ClientName) -> Box<str> {
        let is_it = |client: &&str| *name == ClientName::of(client, NameHash::default());
        let client = CLIENTS.into_iter().find(is_it);
        client.unwrap_or(name.as_str()).into()
    }

    /// The identifier of a session's client; empty: there is no such session.
    fn client_of(&self, session: &SessionName) -> Box<str> {
        match session {
            SessionName::Client(name) => self.identifier(name),
            SessionName::Inbox(id) => {
                let is_it = |of: &&ModelInbox| {
                    InboxId::new(NameHash::default().slot_of(&of.client), of.number) == *id
                };
                let inbox = self.inboxes.iter().find(is_it);
                inbox.map_or_else(Box::default, |inbox| inbox.client.clone())
            }
        }
    }

    fn carry_out(&mut self, header: &Header, op: &InboxOp) -> InboxReply {
        let client = op.session().map(|session| self.client_of(session));
        let client = &*client.unwrap_or_default();
        match op {
            InboxOp::NodeUp { node, incarnation } => {
                let latest = self.nodes.entry(*node).or_default();
                *latest = (*latest).max(*incarnation);
                let latest = *latest;
                for inbox in &mut self.inboxes {
                    if inbox
                        .attached
                        .is_some_and(|(of, started)| of == *node && started < latest)
                    {
                        if !inbox.queue.is_empty() && !inbox.lingers {
                            inbox.mark_sent(inbox.sent + u64::from(u16::MAX));
                        }
                        inbox.detach();
                    }
                }
                InboxReply::Done
            }
            InboxOp::Attach {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
            } => {
                let (_, attached) =
                    self.attach(client, *epoch, (*node, *node_incarnation), *resume, None);
                attached.map_or(InboxReply::Stale, InboxReply::Attached)
            }
            InboxOp::Detach { epoch, sent, .. } => match self.current(client, *epoch) {
                Some(inbox) => {
                    inbox.mark_sent(*sent);
                    inbox.detach();
                    InboxReply::Done
                }
                None => InboxReply::Stale,
            },
            InboxOp::Remove { epoch, .. } => {
                if self.current(client, *epoch).is_none() {
                    return InboxReply::Stale;
                }
                self.discard(client);
                InboxReply::Done
            }
            InboxOp::Subscribe {
                epoch,
                subscriptions,
                ..
            } => self.subscribe(client, *epoch, subscriptions),
            InboxOp::Unsubscribe { epoch, filters, .. } => {
                let Some(inbox) = self.current(client, *epoch) else {
                    return InboxReply::Stale;
                };
                let mut had = Vec::new();
                let mut left = Vec::new();
                for filter in filters {
                    let place = inbox
                        .subscriptions
                        .iter()
                        .position(|of| of.filter == *filter);
                    had.push(place.is_some());
                    if let Some(place) = place {
                        inbox.subscriptions.remove(place);
                        inbox.owed.retain(|owed| owed.filter != *filter);
                        if shared(filter) {
                            left.push(Event::Member(client.to_string(), filter.to_string(), None));
                        }
                    }
                }
                self.events.extend(left);
                InboxReply::Unsubscribed(had)
            }
            InboxOp::Publish {
                message,
                publisher,
                origin,
            } => self.publish(header, message, *publisher, origin.as_ref()),
            InboxOp::Deliver { items, origin, .. } => {
                self.deliver(header, client, items, origin.as_ref())
            }
            InboxOp::PublishOnce {
                call,
                message,
                publisher,
            } => self.once(*call, |model| {
                model.publish(header, message, *publisher, None)
            }),
            InboxOp::DeliverOnce { call, items, .. } => {
                self.once(*call, |model| model.deliver(header, client, items, None))
            }
            InboxOp::Replay {
                epoch,
                items,
                progress,
                ..
            } => {
                let Some(inbox) = self.current(client, *epoch) else {
                    return InboxReply::Stale;
                };
                let mut owed = inbox.owed.clone();
                for Progress { filter, from, next } in progress {
                    let owes = Owed {
                        filter: filter.clone(),
                        place: from.clone(),
                    };
                    let Some(at) = owed.iter().position(|owed| *owed == owes) else {
                        return published(1, 0);
                    };
                    match next {
                        Some(next) => owed[at].place = next.clone(),
                        None => drop(owed.remove(at)),
                    }
                }
                inbox.owed = owed;
                self.deliver(header, client, items, None)
            }
            InboxOp::Acknowledge {
                epoch, sent, done, ..
            } => match self.current(client, *epoch) {
                Some(inbox) => {
                    inbox.mark_sent(*sent);
                    inbox.queue.retain(|(of, _)| !done.0.contains(of));
                    inbox.released.retain(|of| !done.0.contains(of));
                    InboxReply::Done
                }
                None => InboxReply::Stale,
            },
            InboxOp::Receipt {
                epoch, sequence, ..
            } => {
                let Some(inbox) = self.current(client, *epoch) else {
                    return InboxReply::Stale;
                };
                if inbox.released.contains(sequence) {
                    return InboxReply::Done;
                }
                if !inbox.queue.iter().any(|(of, _)| of == sequence) {
                    return InboxReply::Stale;
                }
                inbox.queue.retain(|(of, _)| of != sequence);
                inbox.released.push(*sequence);
                inbox.released.sort_unstable();
                inbox.mark_sent(*sequence);
                InboxReply::Done
            }
            InboxOp::Release { origin } if origin.packet_id == 0 => {
                let client = self.identifier(&origin.client);
                self.linger(&client, origin.incarnation, header.now_ms);
                InboxReply::Done
            }
            InboxOp::Release { origin } => {
                let publisher = self.identifier(&origin.client);
                self.origins.retain(|(client, incarnation, id, _)| {
                    (client, *incarnation, *id)
                        != (&publisher, origin.incarnation, origin.packet_id)
                });
                InboxReply::Done
            }
            InboxOp::PublishFenced {
                message,
                publisher,
                origin,
                epoch,
            } => match self.is_over(origin, *epoch) {
                true => InboxReply::Fenced,
                false => self.publish(header, message, *publisher, Some(origin)),
            },
            InboxOp::DeliverFenced {
                items,
                origin,
                epoch,
                ..
            } => match self.is_over(origin, *epoch) {
                true => InboxReply::Fenced,
                false => self.deliver(header, client, items, Some(origin)),
            },
            InboxOp::ReleaseFenced { origin, epoch } => {
                if self.is_over(origin, *epoch) {
                    return InboxReply::Fenced;
                }
                let publisher = self.identifier(&origin.client);
                let is_up = |of: &(Box<str>, u64, u64)| (&of.0, of.1) == (&publisher, *epoch);
                if !self.fences.iter().any(is_up) {
                    self.fences.retain(|(of, ..)| *of != publisher);
                    let fence = (publisher, *epoch, header.now_ms);
                    self.fences.push(fence);
                }
                let origin = origin.clone();
                self.carry_out(header, &InboxOp::Release { origin })
            }
            InboxOp::Forget {
                client,
                incarnation,
            } => {
                let client = &self.identifier(client);
                self.origins
                    .retain(|(of, began, id, _)| of != client || began > incarnation || *id == 0);
                let known: Vec<_> = self
                    .origins
                    .iter()
                    .filter(|(of, began, ..)| of == client && began <= incarnation)
                    .map(|(_, began, ..)| *began)
                    .collect();
                for incarnation in known {
                    self.linger(client, incarnation, header.now_ms);
                }
                InboxReply::Done
            }
            InboxOp::HandOver {
                client,
                inbox,
                done,
            } => {
                let client = self.identifier(client);
                let is_it = |of: &&mut ModelLegacy| of.number == *inbox && of.client == client;
                let Some(legacy) = self.legacies.iter_mut().find(is_it) else {
                    return InboxReply::LeftBehind(Vec::new());
                };
                legacy.queue.retain(|(of, _)| !done.0.contains(of));
                let left = legacy.queue.clone();
                self.legacies.retain(|of| !of.queue.is_empty());
                InboxReply::LeftBehind(left)
            }
            InboxOp::Linger { epoch, sent, .. } => match self.current(client, *epoch) {
                Some(inbox) => {
                    if inbox.is_attached() {
                        inbox.mark_sent(*sent);
                        inbox.lingers = true;
                    }
                    InboxReply::Done
                }
                None => InboxReply::Stale,
            },
            InboxOp::AttachAgain {
                client,
                epoch,
                node,
                node_incarnation,
                last,
                knows_owed,
            } => {
                let place = (*node, *node_incarnation);
                self.attach_again(client, *epoch, place, true, (*last, *knows_owed))
            }
            InboxOp::AttachAs {
                client,
                epoch,
                node,
                node_incarnation,
                resume,
                last,
                class,
            } => {
                let place = (*node, *node_incarnation);
                let reply = match last {
                    Some(last) => self.attach_again(client, *epoch, place, *resume, *last),
                    None => {
                        let (_, attached) = self.attach(client, *epoch, place, *resume, None);
                        attached.map_or(InboxReply::Stale, InboxReply::Attached)
                    }
                };
                if reply != InboxReply::Stale {
                    self.current(client, *epoch).unwrap().class = *class;
                }
                reply
            }
            InboxOp::Trim {
                from,
                below,
                limit: RetentionLimit::Away { epoch, group },
                ..
            } => self.leave_to_group(client, *epoch, group, *from..*below),
            InboxOp::Trim {
                from, below, limit, ..
            } => {
                let Some(inbox) = self.inboxes.iter_mut().find(|of| *of.client == *client) else {
                    return InboxReply::Stale;
                };
                let (sent, is_connected) = (inbox.sent, inbox.is_connected());
                let goes = |of: &mut (u64, Item)| {
                    let is_held = is_connected && of.1.qos == QoS::ExactlyOnce;
                    of.0 > sent && (*from..*below).contains(&of.0) && !is_held
                };
                let gone: Vec<_> = inbox.queue.extract_if(.., goes).collect();
                for (_, item) in gone {
                    self.drop(client, &item.message, limit.reason().unwrap());
                }
                InboxReply::Done
            }
            InboxOp::DeliverLate {
                epoch,
                detached,
                item,
                ..
            } => match self.find(client) {
                Some(inbox)
                    if !inbox.is_connected()
                        && (inbox.lingers || *detached)
                        && inbox.epoch == *epoch =>
                {
                    self.deliver(header, client, std::slice::from_ref(item), None)
                }
                _ => InboxReply::Stale,
            },
        }
    }

    fn leave_to_group(
        &mut self,
        client: &str,
        epoch: u64,
        group: &str,
        sequences: std::ops::Range<u64>,
    ) -> InboxReply {
        let is_away = |of: &&mut ModelInbox| {
            *of.client == *client && of.epoch == epoch && of.attached.is_none()
        };
        let Some(inbox) = self.inboxes.iter_mut().find(is_away) else {
            return InboxReply::Stale;
        };
        let goes = |(of, item): &mut (u64, Item)| {
            let stays = item.qos == QoS::ExactlyOnce || item.group.as_deref() != Some(group);
            sequences.contains(of) && !stays
        };
        let left: Vec<_> = inbox.queue.extract_if(.., goes).collect();
        if let Some((first, _)) = left.first().cloned() {
            self.last_number += 1;
            let number = self.last_number;
            self.events
                .push(Event::LeftBehind(client.to_owned(), number));
            let items = left.into_iter().map(|(_, item)| item);
            self.legacies.push(ModelLegacy {
                client: client.into(),
                number,
                queue: (first..).zip(items).collect(),
            });
        }
        InboxReply::Done
    }

    /// What the broker published is released.
    fn linger(&mut self, client: &str, incarnation: u64, now_ms: u64) {
        let is_known = self
            .origins
            .iter()
            .any(|(of, began, id, _)| (&**of, *began, *id) == (client, incarnation, 0));
        let is_released = self
            .released
            .iter()
            .any(|(of, began, _)| (&**of, *began) == (client, incarnation));
        if is_known && !is_released {
            self.released.push((client.into(), incarnation, now_ms));
        }
    }

    /// Also whether the inbox lingered at this place since the connection with the epoch `last`.
    fn attach_again(
        &mut self,
        client: &str,
        epoch: u64,
        place: (u64, u64),
        resume: bool,
        (last, knows_owed): (u64, bool),
    ) -> InboxReply {
        match self.attach(client, epoch, place, resume, Some(last)) {
            (true, Some(mut attached)) if attached.owed.is_empty() || knows_owed => {
                attached.subscriptions.clear();
                attached.owed.clear();
                InboxReply::AttachedAgain(attached)
            }
            (_, attached) => attached.map_or(InboxReply::Stale, InboxReply::Attached),
        }
    }

    fn attach(
        &mut self,
        client: &str,
        epoch: u64,
        place: (u64, u64),
        resume: bool,
        last: Option<u64>,
    ) -> (bool, Option<Box<Attached>>) {
        let existed = self.find(client).is_some();
        if existed && self.current(client, epoch).is_none() {
            return (false, None);
        }
        let begun = self.find(client).is_some_and(|of| of.incarnation == epoch);
        if existed && !resume && !begun {
            self.discard(client);
        }
        let present = existed && resume && !begun;
        if !present && !begun {
            self.last_number += 1;
            self.inboxes.push(ModelInbox {
                client: client.into(),
                number: self.last_number,
                incarnation: epoch,
                epoch,
                attached: None,
                lingers: false,
                class: ClassId::DEFAULT,
                subscriptions: Vec::new(),
                queue: Vec::new(),
                released: Vec::new(),
                next: 1,
                sent: 0,
                owed: Vec::new(),
            });
            self.void(client, epoch);
        }
        let runs = self.nodes.get(&place.0).is_none_or(|of| place.1 >= *of);
        let inbox = self.current(client, epoch).unwrap();
        let lingered = inbox.lingers && last == Some(inbox.epoch) && inbox.attached == Some(place);
        inbox.epoch = epoch;
        inbox.class = ClassId::DEFAULT;
        if inbox.is_connected() {
            inbox.mark_sent(inbox.sent + u64::from(u16::MAX));
        }
        inbox.detach();
        inbox.attached = Some(place).filter(|_| runs);
        let inbox = inbox.clone();
        let mut subscriptions = inbox.subscriptions.clone();
        subscriptions.sort_by(|a, b| a.filter.cmp(&b.filter));
        let received = self
            .origins
            .iter()
            .filter(|(of, began, ..)| **of == *client && *began == inbox.incarnation)
            .filter_map(|(_, _, id, _)| mqtt_proto::PacketId::new(*id))
            .collect();
        let attached = Attached {
            present,
            inbox: inbox.number,
            incarnation: inbox.incarnation,
            subscriptions,
            received,
            first: inbox.lowest(),
            sent: inbox.sent + 1,
            owed: inbox.owed,
        };
        (lingered && runs, Some(Box::new(attached)))
    }

    /// Publications, not wills, of sessions before this one are forgotten.
    fn void(&mut self, client: &str, incarnation: u64) {
        self.origins
            .retain(|(of, began, id, _)| **of != *client || *began >= incarnation || *id == 0);
    }

    fn discard(&mut self, client: &str) {
        let place = self.inboxes.iter().position(|of| *of.client == *client);
        let mut inbox = self.inboxes.remove(place.unwrap());
        if inbox.is_connected() {
            inbox.mark_sent(inbox.sent + u64::from(u16::MAX));
        }
        for subscription in inbox.subscriptions.iter().filter(|of| shared(&of.filter)) {
            let filter = subscription.filter.to_string();
            self.events
                .push(Event::Member(client.to_owned(), filter, None));
        }
        let (left, dropped): (Vec<_>, Vec<_>) = inbox.queue.into_iter().partition(|(of, item)| {
            item.group.is_some() && !(item.qos == QoS::ExactlyOnce && *of <= inbox.sent)
        });
        for (_, item) in dropped {
            self.drop(client, &item.message, DropReason::SessionEnded);
        }
        if !left.is_empty() {
            self.events
                .push(Event::LeftBehind(client.to_owned(), inbox.number));
            self.legacies.push(ModelLegacy {
                client: client.into(),
                number: inbox.number,
                queue: left,
            });
        }
    }

    fn drop(&mut self, client: &str, message: &ApplicationMessage, reason: DropReason) {
        let payload = message.body.payload().to_vec();
        self.events
            .push(Event::Dropped(client.to_owned(), payload, reason));
    }

    fn subscribe(
        &mut self,
        client: &str,
        epoch: u64,
        subscriptions: &[StoredSubscription],
    ) -> InboxReply {
        let Some(inbox) = self.current(client, epoch) else {
            return InboxReply::Stale;
        };
        let mut new = Vec::new();
        let mut joined = Vec::new();
        for subscription in subscriptions {
            let before = inbox.subscriptions.clone();
            inbox
                .subscriptions
                .retain(|of| of.filter != subscription.filter);
            let is_new = before.len() == inbox.subscriptions.len();
            new.push(is_new);
            if subscription.wants_retained(is_new) {
                inbox.owed.retain(|of| of.filter != subscription.filter);
                inbox.owed.push(Owed {
                    filter: subscription.filter.clone(),
                    place: Box::default(),
                });
            }
            inbox.subscriptions.push(subscription.clone());
            if shared(&subscription.filter) && !before.contains(subscription) {
                let options = (subscription.id, subscription.options.to_byte());
                let filter = subscription.filter.to_string();
                joined.push(Event::Member(client.to_owned(), filter, Some(options)));
            }
        }
        self.events.extend(joined);
        InboxReply::Subscribed(new)
    }

    fn knows(&self, origin: Option<&Origin>, part: &str) -> bool {
        origin.is_some_and(|origin| {
            let publisher = self.identifier(&origin.client);
            self.origins.iter().any(|(client, began, id, of)| {
                (client, *began, *id, &**of)
                    == (&publisher, origin.incarnation, origin.packet_id, part)
            })
        })
    }

    fn is_over(&self, origin: &Origin, epoch: u64) -> bool {
        let publisher = self.identifier(&origin.client);
        let is_later = |of: &(Box<str>, u64, u64)| of.0 == publisher && epoch < of.1;
        self.fences.iter().any(is_later)
    }

    fn remember(&mut self, origin: &Origin, part: &str) {
        let publisher = self.identifier(&origin.client);
        self.void(&publisher, origin.incarnation);
        self.origins
            .push((publisher, origin.incarnation, origin.packet_id, part.into()));
    }

    fn remember_refused(&mut self, origin: &Origin, was_refused: bool) {
        if was_refused && origin.packet_id != 0 {
            self.remember(origin, REFUSED);
        }
    }

    fn publish(
        &mut self,
        header: &Header,
        message: &Arc<ApplicationMessage>,
        publisher: u64,
        origin: Option<&Origin>,
    ) -> InboxReply {
        if self.knows(origin, "") {
            return published(1, u32::from(self.knows(origin, REFUSED)));
        }
        let (mut matched, mut refused) = (0, 0);
        for at in 0..self.inboxes.len() {
            let inbox = &self.inboxes[at];
            let client = inbox.client.clone();
            let mut wanting: Vec<_> = inbox
                .subscriptions
                .iter()
                .filter(|of| !shared(&of.filter) && matches(&of.filter, message.body.topic()))
                .filter(|of| !of.options.no_local || publisher_hash(&client) != publisher)
                .collect();
            wanting.sort_by_key(|of| of.id);
            let Some(qos) = wanting.iter().map(|of| of.options.qos).max() else {
                continue;
            };
            matched += 1;
            let item = Item {
                message: Arc::clone(message),
                qos: message.qos.min(qos),
                retain: message.retain && wanting.iter().any(|of| of.options.retain_as_published),
                subscription_ids: wanting
                    .iter()
                    .map(|of| of.id)
                    .filter(|&id| id != 0)
                    .collect(),
                group: None,
            };
            if item.qos == QoS::AtMostOnce {
                match (header.limits.qos0, inbox.is_attached()) {
                    (Qos0Inbox::Always, _) | (Qos0Inbox::Offline, false) => {}
                    (_, true) => continue,
                    (Qos0Inbox::Never, false) => {
                        self.drop(&client, message, DropReason::OfflineQos0);
                        continue;
                    }
                }
            }
            refused += u32::from(self.enqueue(header, at, item));
        }
        if let Some(origin) = origin
            && (message.qos == QoS::ExactlyOnce || origin.packet_id == 0)
            && (matched > 0 || self.find(&self.identifier(&origin.client)).is_some())
        {
            self.remember(origin, "");
            self.remember_refused(origin, refused > 0);
        }
        self.published(matched, refused)
    }

    fn once(&mut self, call: Call, carry_out: impl FnOnce(&mut Self) -> InboxReply) -> InboxReply {
        if let Some(refused) = self.calls.get(&call.number) {
            return InboxReply::Published {
                matched: 1,
                refused: *refused,
                pressing: 0,
            };
        }
        let reply = carry_out(self);
        if let InboxReply::Published {
            matched: 1..,
            refused,
            ..
        } = reply
        {
            self.calls.insert(call.number, refused);
        }
        reply
    }

    fn published(&mut self, matched: u32, refused: u32) -> InboxReply {
        InboxReply::Published {
            matched,
            refused,
            pressing: std::mem::take(&mut self.pressing),
        }
    }

    fn deliver(
        &mut self,
        header: &Header,
        client: &str,
        items: &[Item],
        origin: Option<&Origin>,
    ) -> InboxReply {
        let client_or_nobody = if client.is_empty() {
            "\0nobody"
        } else {
            client
        };
        let part = items[0].group.as_deref().unwrap_or(client_or_nobody);
        let part = part.to_owned();
        if self.knows(origin, &part) {
            return published(1, u32::from(self.knows(origin, REFUSED)));
        }
        let Some(at) = self.inboxes.iter().position(|of| *of.client == *client) else {
            return InboxReply::Stale;
        };
        let mut refused = false;
        for item in items {
            if item.qos == QoS::AtMostOnce
                && header.limits.qos0 == Qos0Inbox::Never
                && !self.inboxes[at].is_connected()
            {
                self.drop(client, &item.message, DropReason::OfflineQos0);
            } else {
                refused |= self.enqueue(header, at, item.clone());
            }
        }
        if let Some(origin) = origin
            && (items.iter().any(|of| of.message.qos == QoS::ExactlyOnce) || origin.packet_id == 0)
        {
            self.remember(origin, &part);
            self.remember_refused(origin, refused);
        }
        self.published(1, refused.into())
    }

    pub(super) fn filter_bytes(&self) -> usize {
        let all = self.inboxes.iter().flat_map(|inbox| &inbox.subscriptions);
        all.map(|subscription| subscription.filter.len()).sum()
    }

    /// Whether the session refuses it.
    fn enqueue(&mut self, header: &Header, at: usize, item: Item) -> bool {
        let limits = header.limits.of(self.inboxes[at].class);
        let QueueLimits {
            messages: queue_messages,
            bytes: queue_bytes,
            full: queue_full,
            is_closed,
        } = limits;
        let client = self.inboxes[at].client.clone();
        let qos0 = item.qos == QoS::AtMostOnce;
        loop {
            let inbox = &mut self.inboxes[at];
            let passing: u32 = if inbox.is_connected() { 1_000 } else { 0 };
            let is_closed = is_closed && passing < queue_messages;
            let limit = if is_closed && inbox.queue.len() >= passing as usize {
                DropReason::DiskHighWater
            } else if inbox.queue.len() >= queue_messages as usize {
                DropReason::QueueFullMessages
            } else if inbox.bytes() + weight(&item) > queue_bytes {
                DropReason::QueueFullBytes
            } else {
                break;
            };
            let sent = inbox.sent;
            let oldest = inbox.queue.iter().position(|(of, _)| *of > sent);
            let oldest = oldest.filter(|_| limit != DropReason::DiskHighWater);
            let expired = oldest.is_some_and(|oldest| {
                let message = &inbox.queue[oldest].1.message;
                message.is_expired(Timestamp(header.now_ms))
            });
            let fits = weight(&item) <= queue_bytes && queue_messages > 0;
            let reason = if expired {
                DropReason::Expired
            } else if queue_full == QueueFull::DropOldest && !qos0 && fits && oldest.is_some() {
                limit
            } else {
                let refused = queue_full == QueueFull::REFUSE && !qos0;
                let presses = !refused && inbox.is_connected() && inbox.is_filling(&limits);
                self.pressing += u32::from(presses);
                self.drop(&client, &item.message, limit);
                return refused;
            };
            let (_, dropped) = inbox.queue.remove(oldest.unwrap());
            self.drop(&client, &dropped.message, reason);
        }
        let inbox = &mut self.inboxes[at];
        if inbox.is_connected() {
            self.events
                .push(Event::Queued(inbox.number, inbox.next, (&item).into()));
        }
        inbox.queue.push((inbox.next, item));
        inbox.next += 1;
        self.pressing += u32::from(inbox.is_connected() && inbox.is_filling(&limits));
        false
    }
}
