//! Messages that come to a client directly.

use authorization::Action;
use mqtt_proto::QoS;
use mqtt_session::{Delivered, Delivery, Timestamp, class_of};
use net_api::Key;

use super::Inboxes;
use super::asked::Asked;
use super::catching_up::{Came, Direct};
use crate::backpressure::hold::Backpressure;
use crate::clients::{LoopIo, record};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::turn::{Effect, Turn};

/// Messages in the queue of a client that reads at which the queue is flushed within the turn.
const FLUSH_AT: usize = 256;

impl Inboxes {
    /// Gives a message to a client of this loop, if it may receive it. A durable session that has not read its inbox to the end is given
    /// one of QoS 0 behind that.
    pub(crate) fn handle_delivery<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        rights: &mut Rights,
        backpressure: &mut Backpressure,
        key: Key,
        delivery: Delivery,
        came: Came,
    ) {
        let action = Action::Receive;
        if rights.is_restricted(turn, key, action)
            && !rights.allows(turn, key, action, delivery.message.body.topic())
        {
            return turn.base.add(Effect::DenyDelivery {
                key,
                delivery: Box::new(delivery),
                is_stored: false,
            });
        }
        let (now, now_ms) = (turn.base.expiry_now(turn.io), turn.io.now_ms());
        let qos = delivery.qos;
        let held = qos != QoS::AtMostOnce && {
            let (publisher, has_others) = (delivery.message.publisher, came == Came::WithOthers);
            backpressure.handle_queueing(turn, key, publisher, has_others)
        };
        let Some(client) = turn.clients.get_mut(key) else {
            // The session ended while the message was on its way to it.
            return turn.base.add(Effect::Redispatch {
                deliveries: vec![delivery],
                except: None,
            });
        };
        // What was on its way when its publisher was held back is kept, beyond the limit.
        let policy = if held {
            &turn.base.settings.beyond_limit
        } else {
            turn.base.settings.policy_of(class_of(&client.session))
        };
        let stored = client.stored.as_mut().filter(|_| qos == QoS::AtMostOnce);
        let inbox = stored.and_then(|stored| Some((stored.epoch, stored.inbox.as_mut()?)));
        let delivery = match inbox {
            None => delivery,
            Some((epoch, inbox)) => {
                let catching_up = &mut inbox.catching_up;
                match catching_up.handle(delivery, came, policy, Timestamp(now_ms)) {
                    Direct::Deliver(delivery) => delivery,
                    Direct::Held | Direct::LeftOut => return,
                    Direct::Ask(round) => {
                        let read = Asked::Read { key, epoch, round };
                        return Self::ask_whether_read(turn.base, inbox.slot, read);
                    }
                    Direct::Full(dropped) => {
                        let client_id = client.session.client_id();
                        return record(&turn.base.drops, now_ms, client_id, &dropped);
                    }
                }
            }
        };
        let replay = client.rare.get().replay.as_ref();
        let passing = replay.and_then(|replay| replay.passing(&delivery.message));
        let delivered = client.session.deliver(delivery, policy, now);
        // One that is dropped may come when the retained messages do.
        if let (Some(replay), Some(passing)) = (client.rare.get_mut(|of| &mut of.replay), passing)
            && !matches!(delivered, Delivered::Dropped(_))
        {
            replay.passed_by(passing, Timestamp(now_ms));
        }
        let client_id = client.session.client_id();
        match delivered {
            Delivered::Queued => {}
            Delivered::QueuedDropping(older) => {
                for dropped in older {
                    record(&turn.base.drops, now_ms, client_id, &dropped);
                }
            }
            Delivered::Dropped(dropped) => record(&turn.base.drops, now_ms, client_id, &dropped),
        }
        if let Some(connection) = client.connection {
            turn.io.touch(connection);
            if client.session.queue_len() >= FLUSH_AT && !turn.io.is_write_blocked(connection) {
                turn.io.flush_soon();
            }
        }
    }
}
