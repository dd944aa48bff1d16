//! PUBREC and PUBREL, and what goes on when the inbox shards have answered.

use mqtt_proto::{PacketId, ReasonCode};
use mqtt_session::Session;
use net_api::Key;
use store_state::api::Store as _;
use store_state::inbox::InboxOp;

use super::Inboxes;
use super::asked::Asked;
use super::catching_up::Came;
use super::numbers::Sequence;
use crate::backpressure::hold::Backpressure;
use crate::clients::{Clients, LoopIo};
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::rim::Rim;
use crate::turn::{Base, Turn};

/// Why a client has an inbox that asks for a record.
const ONLY_DURABLE: &str = "only sessions that the store keeps ask for records";

impl Inboxes {
    /// The shards have answered, or one has failed.
    pub(crate) fn handle_answer<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        (rights, backpressure): (&mut Rights, &mut Backpressure),
        asked: Asked,
        answer: &Answer,
    ) {
        match asked {
            Asked::Receipt { key, sequence } => {
                Self::recorded(turn, key, answer, |session| {
                    session.complete_receipt(sequence.0)
                });
            }
            Asked::Release { key, packet_id, .. } => {
                Self::recorded(turn, key, answer, |session| {
                    session.complete_release(packet_id)
                });
            }
            Asked::Read { key, epoch, round } => {
                let client = turn.clients.get_mut(key);
                let stored = client.and_then(|client| client.stored.as_mut());
                let Some(inbox) = stored.and_then(|stored| stored.inbox_at(epoch)) else {
                    return turn.base.stats.stale_answers.add(1);
                };
                let has_credit = inbox.credit > 0;
                for delivery in inbox.catching_up.handle_passed(round, has_credit) {
                    Self::handle_delivery(turn, rights, backpressure, key, delivery, Came::LetGo);
                }
            }
            Asked::Removal { client, epoch } => {
                Self::handle_removed(turn.base, client, epoch, answer)
            }
        }
    }

    /// A PUBREC of a client is to be recorded.
    pub(crate) fn handle_receipt<R: Rim>(
        base: &mut Base<R>,
        clients: &Clients,
        key: Key,
        sequence: Sequence,
    ) {
        let name = clients
            .get(key)
            .and_then(|client| client.inbox_name(base.node.store()));
        let Some((session, epoch)) = name else {
            debug_assert!(false, "{ONLY_DURABLE}");
            return;
        };
        let op = InboxOp::Receipt {
            session,
            epoch: epoch.0,
            sequence: sequence.0,
        };
        base.ask_inbox(Pending::Inbox(Asked::Receipt { key, sequence }), op);
    }

    /// A PUBREL of a client: its publication is to be forgotten wherever it is known.
    pub(crate) fn handle_release<R: Rim>(
        base: &mut Base<R>,
        clients: &mut Clients,
        key: Key,
        packet_id: PacketId,
    ) {
        let client = clients.get_mut(key);
        let parts = client.and_then(|client| Some((&client.session, client.stored.as_mut()?)));
        let Some((session, stored)) = parts else {
            debug_assert!(false, "{ONLY_DURABLE}");
            return;
        };
        let epoch = stored.epoch;
        let Some(inbox) = &mut stored.inbox else {
            debug_assert!(false, "{ONLY_DURABLE}");
            return;
        };
        let once = inbox.once(session.client_id(), epoch, packet_id);
        inbox.keep_up(&base.node.store().inbox_shards(), || {
            session.received().clone()
        });
        let shards = inbox.shards_to_release(packet_id);
        inbox.forget(packet_id);
        let ticket = base.ask(Pending::Inbox(Asked::Release {
            key,
            packet_id,
            left: shards.len(),
        }));
        for shard in shards {
            base.node.store().inboxes(shard, ticket, once.release());
        }
    }

    /// A PUBREC or PUBREL of a client is recorded: `complete` has the session answer it.
    fn recorded<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        answer: &Answer,
        complete: impl FnOnce(&mut Session),
    ) {
        let Some(client) = turn.clients.get_mut(key) else {
            return turn.base.stats.stale_answers.add(1);
        };
        if matches!(answer, Answer::Failed(_)) {
            // The client sends the packet again on its next connection.
            turn.base.end(key, ReasonCode::QuotaExceeded);
            return;
        }
        complete(&mut client.session);
        if let Some(connection) = client.connection {
            turn.io.touch(connection);
        }
    }
}
