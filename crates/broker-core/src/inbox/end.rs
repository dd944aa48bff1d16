//! The end of a connection, and of a session, as inboxes are told of it.

use mqtt_proto::SubscriptionFilter;
use mqtt_session::Delivery;
use net_api::Key;
use store_state::CorrelationId;
use store_state::api::{Read, Store as _};
use store_state::inbox::InboxOp;
use store_state::session::SessionOp;

use super::Inboxes;
use super::asked::Asked;
use super::numbers::{Epoch, InboxNumber};
use crate::clients::LoopIo;
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::turn::{Base, Turn};

/// What the store knew a client by whose connection is over.
#[derive(Debug)]
pub(crate) struct Left {
    /// Of the connection.
    pub(crate) epoch: Epoch,
    /// Messages of QoS 0 that waited for the inbox to be read.
    pub(crate) held: Vec<Delivery>,
}

impl Inboxes {
    /// The connection of a client is over. `lingers`: the inbox stays attached for a while, and routes stay. `None`: the store does not know
    /// the client.
    pub(crate) fn handle_end_of_connection<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        lingers: bool,
    ) -> Option<Left> {
        Self::handle_acknowledged(turn.base, turn.clients, key);
        let client = turn.clients.get_mut(key)?;
        let stored = client.stored.take()?;
        let epoch = stored.epoch;
        let Some(mut inbox) = stored.inbox else {
            return Some(Left {
                epoch,
                held: Vec::new(),
            });
        };
        let client_id = client.session.client_id();
        let received = client.session.received();
        let (node, now_ms) = (&turn.base.node, turn.io.now_ms());
        node.unreleased.keep(client_id, epoch.0, received, now_ms);
        let InboxNumber(number) = inbox.number;
        let close = Read::Close {
            inbox: number,
            epoch: epoch.0,
        };
        let store = node.store();
        store.read(inbox.slot, close);
        let session = store.session_name(client_id, number);
        let sent = client.session.sent_sequence();
        let op = if lingers {
            InboxOp::Linger {
                session,
                epoch: epoch.0,
                sent,
            }
        } else {
            InboxOp::Detach {
                session,
                epoch: epoch.0,
                sent,
            }
        };
        store.inbox(CorrelationId::NONE, op);
        let shard = store.inbox_shard(inbox.slot);
        // At once, so that messages of QoS 0 that come from now on are stored, behind that.
        let gone = client.session.subscriptions().iter();
        for subscription in gone.filter(|_| !lingers) {
            if let Ok(filter) = SubscriptionFilter::parse(&subscription.filter)
                && filter.shared.is_none()
            {
                node.routes.set_shard(shard, filter.filter, true, true);
            }
        }
        if let Some(gauge) = client.rare.take(|of| &mut of.gauge) {
            gauge.set_home(None);
        }
        Some(Left {
            epoch,
            held: inbox.catching_up.take(),
        })
    }

    /// A session has ended: its inbox is removed.
    pub(crate) fn handle_ended<R: Rim>(base: &mut Base<R>, client: Box<str>, epoch: Epoch) {
        base.node.unreleased.forget(&client, epoch.0);
        let op = InboxOp::Remove {
            session: base.node.store().client_name(&client).into(),
            epoch: epoch.0,
        };
        base.ask_inbox(Pending::Inbox(Asked::Removal { client, epoch }), op);
    }

    /// The inbox of a session that has ended is removed.
    pub(super) fn handle_removed<R: Rim>(
        base: &Base<R>,
        client: Box<str>,
        epoch: Epoch,
        answer: &Answer,
    ) {
        if let Answer::Failed(_) = answer {
            // The node ends: whoever leads next is told.
            return;
        }
        base.node.quotas.handle_ended(&client);
        base.forget_everywhere(&client, epoch.0);
        let op = SessionOp::Gone {
            client: client.clone(),
            epoch: epoch.0,
        };
        base.node.store().session(&client, CorrelationId::NONE, op);
    }
}
