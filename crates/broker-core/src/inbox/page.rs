//! What the store gives a session of its inbox.

use std::num::NonZeroU32;

use authorization::Action;
use mqtt_proto::QoS;
use mqtt_session::{Delivery, StoredState, Timestamp};
use net_api::Key;
use store_state::api::NO_SEQUENCE;
use store_state::inbox::{Item, Queued};

use super::Inboxes;
use super::catching_up::Came;
use super::numbers::{Epoch, Sequence};
use crate::backpressure::hold::Backpressure;
use crate::clients::{LoopIo, record};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::shared::offer;
use crate::turn::{Effect, Turn};

/// A part of an inbox, as the store gives it.
#[derive(Debug)]
pub(crate) struct Page {
    /// The client.
    pub(crate) key: Key,
    /// The epoch of the connection that it is for.
    pub(crate) epoch: Epoch,
    /// The first sequence that may be in it.
    pub(crate) from: Sequence,
    /// What is queued, with its sequence.
    pub(crate) items: Vec<(u64, Queued)>,
}

impl Inboxes {
    /// Queued messages of a session. A page for another connection, or one behind a gap, is not taken: another one is on its way.
    pub(crate) fn handle_page<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        (rights, backpressure): (&mut Rights, &mut Backpressure),
        page: Page,
    ) {
        let Page {
            key,
            epoch,
            from,
            mut items,
        } = page;
        let client = turn.clients.get_mut(key);
        let stored = client.and_then(|client| client.stored.as_mut());
        let inbox = stored.and_then(|stored| stored.inbox_at(epoch));
        let Some(inbox) = inbox.filter(|inbox| from <= inbox.next) else {
            return turn.base.stats.stale_answers.add(1);
        };
        // Most of the time there are none, and nothing is moved.
        let passed_over = items.partition_point(|(sequence, _)| *sequence == NO_SEQUENCE);
        let passed_over: Vec<_> = items.drain(..passed_over).collect();
        inbox.credit = inbox.credit.saturating_sub(items.len() as u32);
        let sent = inbox.sent;
        // A shard that is served elsewhere since may give again what was on its way.
        let next = inbox.next;
        let after = items.last().map(|(last, _)| Sequence(last + 1));
        inbox.next = after.map_or(next, |after| next.max(after));
        let new = items
            .into_iter()
            .filter(|(sequence, _)| *sequence >= next.0);
        for (sequence, queued) in new {
            match queued {
                Queued::Message(item) => {
                    let state = if sequence < sent.0 {
                        StoredState::Sent
                    } else {
                        StoredState::New
                    };
                    Self::hand_over(turn, rights, key, item, (sequence, state));
                }
                Queued::Released => {
                    if let Some(client) = turn.clients.get_mut(key) {
                        client.session.owe_pubrel(sequence);
                    }
                }
            }
        }
        let mut missed = Vec::new();
        for (_, queued) in passed_over {
            match queued {
                Queued::Message(item) => {
                    let delivery = delivery_of(item, None);
                    Self::handle_delivery(
                        turn,
                        rights,
                        backpressure,
                        key,
                        delivery,
                        Came::PassedOver,
                    );
                }
                // The inbox is settled.
                Queued::Released => {
                    let client = turn.clients.get_mut(key);
                    let stored = client.and_then(|client| client.stored.as_mut());
                    let inbox = stored.and_then(|stored| stored.inbox_at(epoch));
                    missed =
                        inbox.map_or_else(Vec::new, |inbox| inbox.catching_up.handle_settled());
                }
            }
        }
        if let Some(client) = turn.clients.get(key) {
            for dropped in missed {
                let client_id = client.session.client_id();
                record(&turn.base.drops, turn.io.now_ms(), client_id, &dropped);
            }
            if let Some(connection) = client.connection {
                turn.io.touch(connection);
            }
        }
        turn.clients.show_room(key);
    }

    /// Gives a session a message of its inbox, if the client may receive it.
    fn hand_over<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        key: Key,
        item: Item,
        (sequence, state): (u64, StoredState),
    ) {
        let action = Action::Receive;
        let allowed = !rights.is_restricted(turn, key, action)
            || rights.allows(turn, key, action, item.message.body.topic());
        let group = offer::group_of(&turn.base.node.routes, &item, state);
        let qos = item.qos;
        let delivery = delivery_of(item, group);
        if !allowed {
            turn.base.add(Effect::DenyDelivery {
                key,
                delivery: Box::new(delivery),
                is_stored: true,
            });
            if let Some(client) = turn.clients.get_mut(key) {
                client.session.skip_stored(qos, sequence, state);
            }
            return;
        }
        let client = turn.clients.get_mut(key);
        let client = client.expect("no message of a page ends the client that the page is for");
        if qos == QoS::AtMostOnce
            && let Some(inbox) = client.stored.as_mut().and_then(|of| of.inbox.as_mut())
            && inbox
                .catching_up
                .handle_kept(&delivery, Timestamp(turn.io.now_ms()))
        {
            return client.session.skip_stored(qos, sequence, state);
        }
        if let Some(replay) = client.rare.get_mut(|of| &mut of.replay)
            && let Some(passing) = replay.passing(&delivery.message)
        {
            replay.passed_by(passing, Timestamp(turn.io.now_ms()));
        }
        client.session.deliver_stored(delivery, sequence, state);
    }
}

/// A message of an inbox, for its session. `group`: the shared group that it is for.
fn delivery_of(item: Item, group: Option<NonZeroU32>) -> Delivery {
    Delivery {
        group,
        message: item.message,
        qos: item.qos,
        retain: item.retain,
        subscription_ids: item.subscription_ids,
    }
}
