//! Messages come in.

use std::sync::Arc;

use mqtt_proto::QoS;
use mqtt_session::{
    ApplicationMessage, DropReason, NEVER_EXPIRES, Qos0Inbox, QueueFull, Timestamp,
};

use super::inbox::Inbox;
use super::machine::{Context, InboxMachine};
use super::matching::Target;
use super::origins::{MATCHING, part_for};
use super::publishing::{Once, Outcome, Publication, Publishing, Tally};
use super::queue::accounted;
use super::stock::Stock;
use super::{InboxDrop, InboxReply, Item, Origin, Progress, SessionName};
use crate::{QueueLimits, TableError};

/// The answer to a publication that came before, and that so many sessions refused.
const fn again(refused: u32) -> InboxReply {
    InboxReply::Published {
        matched: 1,
        refused,
        pressing: 0,
    }
}

impl InboxMachine {
    /// Publishes, or goes on with the publication that is under way. `None`: some sessions have yet to get the message.
    pub(super) fn publish(
        &mut self,
        publication: &Publication<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<InboxReply>, TableError> {
        let mut publishing = match self.under_way.publishing.take() {
            Some(publishing) => publishing,
            None => match self.answered(&publication.once) {
                Some(answer) => return Ok(Some(answer)),
                None => {
                    let topic = publication.message.body.topic_bytes();
                    let targets = self.matching.find(topic, &self.inboxes);
                    Publishing::new(targets)
                }
            },
        };
        let body = if publishing.is_shared() {
            self.next_body
        } else {
            0
        };
        publishing
            .go_on(|target, tally| self.publish_to(target, publication, body, tally, context))?;
        if !publishing.is_done() {
            self.under_way.publishing = Some(publishing);
            return Ok(None);
        }
        let Publishing { tally, .. } = publishing;
        if body != 0 {
            self.settle_body(publication.message, &tally);
        }
        let reply = tally.reply();
        match publication.once {
            Once::PublicationId(origin) | Once::Fenced(origin, _)
                if happens_once(origin, publication.message.qos)
                    && (tally.matched > 0
                        || self.inboxes.number_of(origin.client.as_str()).is_some()) =>
            {
                self.origins
                    .remember_outcome(origin, MATCHING, tally.refused > 0);
            }
            Once::Call(call) => self.calls.done(call, &reply),
            Once::No | Once::PublicationId(_) | Once::Fenced(..) => {}
        }
        Ok(Some(reply))
    }

    /// The answer to a publication that came before, or that must not happen any more.
    fn answered(&mut self, once: &Once<'_>) -> Option<InboxReply> {
        match once {
            Once::No => None,
            Once::Call(call) => self.calls.begin(call),
            Once::Fenced(origin, epoch) if self.fences.is_over(&origin.client, *epoch) => {
                Some(InboxReply::Fenced)
            }
            Once::PublicationId(origin) | Once::Fenced(origin, _) => self
                .origins
                .knows(origin, MATCHING)
                .then(|| again(self.origins.refused_before(origin))),
        }
    }

    /// Gives a message to a session, if it wants it. How many queued messages made room for it.
    fn publish_to(
        &mut self,
        target: &Target,
        publication: &Publication<'_>,
        body: u64,
        tally: &mut Tally,
        context: &mut Context<'_>,
    ) -> Result<usize, TableError> {
        let Some(inbox) = self.inboxes.get_mut(target.session) else {
            return Ok(0);
        };
        if !target.wants(|| publication.publisher.is(&inbox.client)) {
            return Ok(0);
        }
        tally.matched += 1;
        let item = item_for(target, publication.message);
        if item.qos == QoS::AtMostOnce {
            match (context.limits.qos0, inbox.is_attached()) {
                (Qos0Inbox::Always, _) | (Qos0Inbox::Offline, false) => {}
                // Its node delivers the message directly.
                (Qos0Inbox::Offline | Qos0Inbox::Never, true) => {
                    let number = inbox.number;
                    context.outlet.passed_over(number, &inbox.client, &item);
                    return Ok(0);
                }
                (Qos0Inbox::Never, false) => {
                    drop_message(inbox, &item.message, DropReason::OfflineQos0, context);
                    return Ok(0);
                }
            }
        }
        let before = inbox.queue.len();
        let outcome = enqueue(inbox, item, body, &mut self.stock, context)?;
        tally.count(target.session, outcome);
        let queued = u32::from(matches!(outcome, Outcome::Queued | Outcome::Pressing));
        Ok((before + queued).saturating_sub(inbox.queue.len()) as usize)
    }

    /// Makes the body that queues refer to, if more than one does.
    fn settle_body(&mut self, message: &Arc<ApplicationMessage>, tally: &Tally) {
        if tally.queued > 1 {
            self.stock.add_body(self.next_body, message, tally.queued);
            self.next_body += 1;
        } else if tally.queued == 1
            && let Some(inbox) = self.inboxes.get_mut(tally.last)
        {
            inbox.queue.unshare_last(&mut self.stock);
        }
    }

    pub(super) fn deliver(
        &mut self,
        session: &SessionName,
        items: &[Item],
        origin: Option<&Origin>,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let group = items.first().and_then(|item| item.group.as_deref());
        let part = match group {
            Some(group) => part_for(self.naming.hash, group),
            None => part_for(self.naming.hash, &self.inboxes.name_of(session)),
        };
        if let Some(origin) = origin.filter(|origin| self.origins.knows(origin, part)) {
            return Ok(again(self.origins.refused_before(origin)));
        }
        let Some(inbox) = self.inboxes.named(session) else {
            return Ok(InboxReply::Stale);
        };
        let tally = give(inbox, items, &mut self.stock, context)?;
        let qos = items.iter().map(|item| item.message.qos).max();
        if let Some(origin) = origin.filter(|origin| happens_once(origin, qos.unwrap_or_default()))
        {
            self.origins
                .remember_outcome(origin, part, tally.refused > 0);
        }
        Ok(tally.reply())
    }

    /// A message for a session that is not connected, which came to the node that the inbox is attached to.
    pub(super) fn deliver_late(
        &mut self,
        session: &SessionName,
        epoch: u64,
        detached: bool,
        item: &Item,
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let is_wanted = |inbox: &&mut Inbox| inbox.lingers || (detached && !inbox.is_attached());
        let inbox = self.inboxes.named(session).filter(is_wanted);
        let Some(inbox) = inbox.filter(|inbox| inbox.epoch == epoch) else {
            return Ok(InboxReply::Stale);
        };
        let tally = give(inbox, std::slice::from_ref(item), &mut self.stock, context)?;
        Ok(tally.reply())
    }

    pub(super) fn replay(
        &mut self,
        session: &SessionName,
        epoch: u64,
        items: &[Item],
        progress: &[Progress],
        context: &mut Context<'_>,
    ) -> Result<InboxReply, TableError> {
        let Some(inbox) = self.inboxes.current(session, epoch) else {
            return Ok(InboxReply::Stale);
        };
        let inbox_id = inbox.id();
        if !self.owed.goes_on(inbox_id, progress) {
            return Ok(again(0));
        }
        let tally = give(inbox, items, &mut self.stock, context)?;
        self.owed.advance(inbox_id, progress);
        Ok(tally.reply())
    }
}

/// Queues messages for one session.
fn give(
    inbox: &mut Inbox,
    items: &[Item],
    stock: &mut Stock,
    context: &mut Context<'_>,
) -> Result<Tally, TableError> {
    let mut tally = Tally {
        matched: 1,
        ..Tally::default()
    };
    for item in items {
        let is_online = inbox.is_connected();
        if item.qos == QoS::AtMostOnce && context.limits.qos0 == Qos0Inbox::Never && !is_online {
            drop_message(inbox, &item.message, DropReason::OfflineQos0, context);
            continue;
        }
        let outcome = enqueue(inbox, item.clone(), 0, stock, context)?;
        tally.count(inbox.number, outcome);
    }
    tally.refused = tally.refused.min(1);
    Ok(tally)
}

/// Whether a publication is to be remembered: QoS 2, and what the broker publishes.
fn happens_once(origin: &Origin, qos: QoS) -> bool {
    qos == QoS::ExactlyOnce || origin.is_of_broker()
}

fn item_for(target: &Target, message: &Arc<ApplicationMessage>) -> Item {
    Item {
        message: Arc::clone(message),
        qos: message.qos.min(target.qos),
        // [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        retain: message.retain && target.retain_as_published,
        subscription_ids: target.ids.clone(),
        group: None,
    }
}

fn drop_message(
    inbox: &Inbox,
    message: &Arc<ApplicationMessage>,
    reason: DropReason,
    context: &mut Context<'_>,
) {
    context.outlet.dropped(InboxDrop {
        client: &inbox.client,
        message,
        reason,
    });
}

/// Queues a message for a session. `body`: where others refer to it too, or 0.
fn enqueue(
    inbox: &mut Inbox,
    item: Item,
    body: u64,
    stock: &mut Stock,
    context: &mut Context<'_>,
) -> Result<Outcome, TableError> {
    let bytes = accounted(&item);
    let limits = context.limits.of(inbox.class);
    let refuses = refuses(inbox, limits, stock, context);
    let mut is_full = false;
    while let Some(limit) = inbox
        .queue
        .broken_limit(bytes, &limits, inbox.is_connected())
    {
        if !make_room(inbox, &item, (limit, limits), stock, context)? {
            stock.overflowed(inbox);
            drop_message(inbox, &item.message, limit, context);
            return Ok(if refuses && item.qos != QoS::AtMostOnce {
                Outcome::Refused
            } else if inbox.is_connected() && inbox.queue.is_filling(&limits) {
                context.outlet.filling(&inbox.client, &item.message);
                Outcome::Overflowed
            } else {
                Outcome::Dropped
            });
        }
        is_full = true;
    }
    if is_full {
        stock.overflowed(inbox);
    } else {
        stock.has_room(inbox);
    }
    stock.touch(inbox);
    context.outlet.stored(inbox.queue.slot(), bytes);
    if inbox.is_connected() {
        let sequence = inbox.queue.next();
        context.outlet.queued(inbox.number, sequence, &item);
    }
    let message = Arc::clone(&item.message);
    inbox.queue.push(item, body, context.now, stock);
    stock.note_length(inbox);
    let pressing = inbox.is_connected() && inbox.queue.is_filling(&limits);
    if pressing {
        context.outlet.filling(&inbox.client, &message);
    }
    Ok(if pressing {
        Outcome::Pressing
    } else {
        Outcome::Queued
    })
}

/// Whether a full queue of an inbox refuses what comes, by the limits in force: not if its client has been away for
/// longer than these say. Takes note of when that began.
fn refuses(
    inbox: &mut Inbox,
    limits: QueueLimits,
    stock: &mut Stock,
    context: &Context<'_>,
) -> bool {
    match limits.full {
        QueueFull::DropOldest | QueueFull::DropNewest => false,
        QueueFull::Refuse { away_secs } if away_secs == NEVER_EXPIRES => true,
        QueueFull::Refuse { .. } if inbox.is_connected() => true,
        QueueFull::Refuse { away_secs } => {
            if inbox.away_since == Timestamp(0) {
                stock.touch(inbox);
                inbox.away_since = context.now.max(Timestamp(1));
            }
            inbox.away_since.add_secs(away_secs) > context.now
        }
    }
}

/// Drops the oldest message that cannot have been sent, if it has expired or the policy says so. Not
/// for a message that would not fit into an empty queue either, nor into a closed one, which would be emptied at once.
fn make_room(
    inbox: &mut Inbox,
    item: &Item,
    (limit, limits): (DropReason, QueueLimits),
    stock: &mut Stock,
    context: &mut Context<'_>,
) -> Result<bool, TableError> {
    if limit == DropReason::DiskHighWater {
        return Ok(false);
    }
    let table = context.table;
    let Some((oldest, expires)) = inbox.queue.oldest_unsent(stock, table)? else {
        return Ok(false);
    };
    let drops_oldest = limits.full == QueueFull::DropOldest
        && item.qos != QoS::AtMostOnce
        && limits.messages > 0
        && u64::from(accounted(item)) <= limits.bytes;
    let reason = if expires <= context.now {
        DropReason::Expired
    } else if drops_oldest {
        limit
    } else {
        return Ok(false);
    };
    let dropped = inbox.queue.read(oldest, stock, table)?;
    stock.touch(inbox);
    inbox.queue.take(oldest, stock, table)?;
    drop_message(inbox, &dropped.message, reason, context);
    Ok(true)
}
