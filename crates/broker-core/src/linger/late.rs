//! Messages that come by routes whose connection is over.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Delivery, DropReason, Dropped, Qos0Inbox};
use net_api::Key;
use store_state::api::{ShardRef, ShardRefs, Store as _};
use store_state::inbox::{InboxOp, InboxReply, Item};

use super::asked::{Asked, Late};
use super::{Linger, Lingering};
use crate::backpressure::hold::Backpressure;
use crate::clients::{LoopIo, record};
use crate::inbox::{Came, Inboxes};
use crate::key::Publisher;
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::turn::Turn;

/// The least bytes that one of them counts.
pub(super) const LEAST: usize = 256;

/// Bytes of such messages of all sessions of a loop that are on their way to inboxes. Beyond that they are dropped.
///
/// Limit: messages of QoS 0 for sessions that linger, on their way to inboxes | {:bytes} a loop | dropped:
/// `offline_qos0`
const UNDER_WAY: usize = 8 << 20;

/// Whom a message is for that routes of a session lead to.
#[derive(Debug)]
pub(crate) enum Led {
    /// The client that has the routes now.
    To(Key, Delivery),
    /// The shared group that has chosen the session while it was connected: another member is to get it.
    Group(Delivery),
    /// Nobody is connected, and the inbox gets it.
    Kept,
}

impl Linger {
    /// Whom a message for the routes of an entry is for. `shards`: those that were asked to keep the message, if it
    /// was published here and matched; `None`: as if all were.
    pub(crate) fn led_to<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        delivery: Delivery,
        shards: Option<(&[ShardRef], &ShardRefs)>,
    ) -> Led {
        let Some(lingering) = Self::lingering(turn.clients, key) else {
            return Led::To(key, delivery);
        };
        if delivery.group.is_some() {
            return Led::Group(delivery);
        }
        let successor = lingering.successor;
        if let Some(successor) = successor.filter(|_| lingering.subscriptions.is_none()) {
            return Led::To(successor, delivery);
        }
        self.store(turn, key, delivery, shards);
        Led::Kept
    }

    fn store<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        holder: Key,
        delivery: Delivery,
        shards: Option<(&[ShardRef], &ShardRefs)>,
    ) {
        let client = turn.clients.get(holder);
        let client = client.expect("an entry that holds routes is there");
        let client_id = Box::<str>::from(client.session.client_id());
        let bytes = (client_id.len() + delivery.message.body.heap_len()).max(LEAST);
        let is_full = self.late_bytes + bytes > UNDER_WAY;
        if is_full || turn.base.settings.limits.policy.qos0_inbox == Qos0Inbox::Never {
            return Self::drop_late(turn, &client_id, delivery.message);
        }
        let lingering = Self::lingering_mut(turn.clients, holder);
        let lingering = lingering.expect("it was there, and nothing has happened since");
        let epoch = lingering.epoch;
        lingering.late_bytes = lingering.late_bytes.saturating_sub(bytes);
        if lingering.late_bytes == 0 {
            lingering.until_ms = 0;
        }
        self.late_bytes += bytes;
        // Which shards another node has asked is not known here.
        let publisher = Publisher::from_bits(delivery.message.publisher);
        let shards = shards.filter(|_| matches!(publisher, Some(Publisher::Here(_))));
        let store = turn.base.node.store();
        let slot = store.inbox_slot(&client_id);
        let op = InboxOp::DeliverLate {
            session: store.client_name(&client_id).into(),
            epoch: epoch.0,
            detached: shards.is_some_and(|(shards, known)| {
                let own = known.of_slot(slot);
                own.is_none_or(|own| !shards.contains(&own))
            }),
            item: Item {
                message: Arc::clone(&delivery.message),
                qos: delivery.qos,
                retain: delivery.retain,
                subscription_ids: delivery.subscription_ids.clone(),
                group: None,
            },
        };
        let late = Late {
            client: client_id,
            holder,
            delivery,
            bytes,
        };
        let asked = Asked::Late(Box::new(late));
        turn.base.ask_inbox(Pending::Linger(asked), op);
        self.end_if_over(turn, holder);
    }

    /// The inbox shard has answered.
    pub(crate) fn handle_answer<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        (rights, backpressure): (&mut Rights, &mut Backpressure),
        asked: Asked,
        answer: &Answer,
    ) {
        let late = match asked {
            Asked::End(holder) => return self.handle_detached(turn, holder),
            Asked::Late(late) => *late,
        };
        self.late_bytes -= late.bytes;
        match answer {
            Answer::Inbox(InboxReply::Published { .. }) => {}
            Answer::Inbox(InboxReply::Stale) => {
                match Self::lingering_mut(turn.clients, late.holder) {
                    // The client is connected since, here. Its routes brought the message to nobody else.
                    Some(Lingering {
                        subscriptions: None,
                        successor: Some(successor),
                        ..
                    }) => {
                        let (key, of) = (*successor, late.delivery);
                        let came = Came::Earlier;
                        Inboxes::handle_delivery(turn, rights, backpressure, key, of, came);
                    }
                    // It is elsewhere, or its session has ended.
                    Some(lingering) => {
                        lingering.until_ms = 0;
                        self.end_if_over(turn, late.holder);
                    }
                    None => turn.base.stats.stale_answers.add(1),
                }
            }
            _ => Self::drop_late(turn, &late.client, late.delivery.message),
        }
    }

    fn drop_late<R: Rim, Io: LoopIo>(
        turn: &Turn<'_, R, Io>,
        client: &str,
        message: Arc<ApplicationMessage>,
    ) {
        let reason = DropReason::OfflineQos0;
        let dropped = Dropped { message, reason };
        record(&turn.base.drops, turn.io.now_ms(), client, &dropped);
    }
}
