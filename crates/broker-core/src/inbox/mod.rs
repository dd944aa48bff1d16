//! The inboxes of connected clients: what the store gives sessions, what comes to them directly beside that, and what they tell the
//! store of it.
//!
//! Purpose: [`Inboxes`] is a part of a loop. Its state is in each client's [`Stored`]; nothing is kept for the loop as a whole.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Inboxes::handle_attached`] | once for a connection, when the store has attached its inbox | a letter to the shard |
//! | [`Inboxes::handle_page`] | for each page that the store gives | a judgement and a place in the session for each message |
//! | [`Inboxes::handle_delivery`] | for each message that comes directly | the same; no letter, unless the inbox is not read to its end |
//! | [`Inboxes::handle_acknowledged`] | after packets came, and after packets went | a letter if something was acknowledged, or if there is room for more |
//! | [`Inboxes::handle_receipt`], [`Inboxes::handle_release`] | for PUBREC and PUBREL | a question to the shards that know of it; the answer has the session answer |
//! | [`Inboxes::handle_leader`] | another node leads the shard | two letters |
//! | [`Inboxes::handle_end_of_connection`] | once, while the session is there | two letters |
//! | [`Inboxes::handle_ended`] | the store has ended a session | a question, and a letter to each shard |
//!
//! Invariants: an acknowledgement to a client follows the record of what it acknowledges; what a loop tells a shard about one session
//! arrives in the order in which it was told; what is given to a session in the order of its inbox is not given twice on
//! a connection.
//!
//! Deliberately absent: attaching (`connect`), and what a session without a connection is sent (`linger`).
//!
//! Where to read next: `stored.rs`, `catching_up.rs`.

pub(crate) mod asked;
mod catching_up;
mod delivery;
mod end;
mod numbers;
mod page;
mod records;
mod stored;
#[cfg(test)]
mod tests;

use net_api::Key;
use store_state::api::{Read, Slot, Store as _};
use store_state::inbox::{Done, InboxOp};

use self::asked::Asked;
pub(crate) use self::catching_up::Came;
pub(crate) use self::numbers::{Epoch, InboxNumber, Sequence};
pub(crate) use self::page::Page;
use self::stored::CREDIT;
pub(crate) use self::stored::{Attachment, Inbox, Stored, subscription};
use crate::clients::Clients;
use crate::pending::Pending;
use crate::rim::Rim;
use crate::turn::Base;

/// The inboxes of a loop's clients.
#[derive(Debug)]
pub(crate) struct Inboxes;

impl Inboxes {
    /// The inbox of a client is attached: it is read from its first message that is not acknowledged.
    pub(crate) fn handle_attached<R: Rim>(
        base: &Base<R>,
        clients: &mut Clients,
        key: Key,
        attachment: Attachment,
    ) {
        let client = clients
            .get_mut(key)
            .expect("the inbox of a client is attached while the client is there");
        let epoch = attachment.epoch;
        let inbox = Inbox::new(base.node.store(), client.session.client_id(), attachment);
        let stored = Stored::with_inbox(epoch, inbox);
        Self::open(base, key, &stored);
        client.stored = Some(Box::new(stored));
    }

    /// Another node leads the shard of an inbox, which is opened there. A cursor that is opened again begins where the session is.
    pub(crate) fn handle_leader<R: Rim>(base: &mut Base<R>, clients: &mut Clients, key: Key) {
        let client = clients.get_mut(key);
        let stored = client.and_then(|client| client.stored.as_mut());
        let stored = stored.expect("a client is visited for its inbox while it has one");
        Self::open(base, key, stored);
        let epoch = stored.epoch;
        if let Some(inbox) = &mut stored.inbox
            && let Some(round) = inbox.catching_up.handle_reopened()
        {
            let read = Asked::Read { key, epoch, round };
            Self::ask_whether_read(base, inbox.slot, read);
        }
    }

    /// Has the shard of an inbox give what is queued, from where the session is.
    fn open<R: Rim>(base: &Base<R>, key: Key, stored: &Stored) {
        if let Some(inbox) = &stored.inbox {
            let open = Read::Open {
                loop_index: base.index as u16,
                home: key.to_bits(),
                inbox: inbox.number.0,
                epoch: stored.epoch.0,
                from: inbox.next.0,
                credit: inbox.credit,
            };
            base.node.store().read(inbox.slot, open);
        }
    }

    /// Tells the store what a session is done with, and how much more it can take.
    pub(crate) fn handle_acknowledged<R: Rim>(base: &mut Base<R>, clients: &mut Clients, key: Key) {
        let Some(client) = clients.get_mut(key) else {
            return;
        };
        let Some(stored) = &mut client.stored else {
            return;
        };
        let epoch = stored.epoch;
        let Some(inbox) = &mut stored.inbox else {
            return;
        };
        let mut done = Vec::new();
        client.session.take_acknowledged(&mut done);
        let waiting = u32::try_from(client.session.queue_len()).unwrap_or(u32::MAX);
        let held = inbox.credit.saturating_add(waiting);
        let mut asks = None;
        if held <= CREDIT / 2 {
            let more = CREDIT - held;
            let was_exhausted = inbox.credit == 0;
            inbox.credit += more;
            let read = Read::Credit {
                inbox: inbox.number.0,
                epoch: epoch.0,
                more,
            };
            base.node.store().read(inbox.slot, read);
            let round = inbox.catching_up.handle_credit(was_exhausted);
            asks = round.map(|round| (inbox.slot, round));
        }
        if !done.is_empty() {
            let client_id = client.session.client_id();
            let op = InboxOp::Acknowledge {
                session: base.node.store().session_name(client_id, inbox.number.0),
                epoch: epoch.0,
                sent: client.session.sent_sequence(),
                done: Done(done),
            };
            base.node.store().acknowledge(op);
        }
        if let Some((slot, round)) = asks {
            Self::ask_whether_read(base, slot, Asked::Read { key, epoch, round });
        }
    }

    /// The shard of an inbox answers when it has given what it was asked to read, as far as it has it.
    fn ask_whether_read<R: Rim>(base: &mut Base<R>, slot: Slot, asked: Asked) {
        let ticket = base.ask(Pending::Inbox(asked));
        let shards = base.node.store().inbox_shards();
        let own = shards
            .of_slot(slot)
            .expect("the shards of a store have all slots");
        base.node.store().inbox_barrier(&[own], ticket);
    }
}
