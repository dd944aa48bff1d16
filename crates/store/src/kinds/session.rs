//! The session store, as far as its shards differ.

use std::sync::Arc;

use store_state::api::{Event, StoreId};
use store_state::session::{
    SessionEnd, SessionMachine, SessionOp, SessionOutlet, SessionReply, StoredWill,
};
use store_state::{Batch, CorrelationId};

use crate::kinds::command::Command;
use crate::kinds::effects::Effects;
use crate::kinds::kind::{Kind, Names};
use crate::peers::message::{Forwarded, Message};

impl Kind for SessionMachine {
    const STORE: StoreId = StoreId::Session;

    fn command(batch: Arc<Batch<SessionOp>>) -> Command {
        Command::Session(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<SessionOp>> {
        match command {
            Command::Session(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: SessionReply) -> Event {
        Event::Session { token, reply }
    }

    fn must_wait(op: &SessionOp, _: CorrelationId) -> bool {
        match op {
            SessionOp::Disconnect { .. }
            | SessionOp::Fired { .. }
            | SessionOp::Gone { .. }
            | SessionOp::WillDue { .. }
            | SessionOp::DiscardWill { .. }
            | SessionOp::FireAgain { .. }
            | SessionOp::End { .. } => true,
            SessionOp::NodeUp { .. }
            | SessionOp::Claim(_)
            | SessionOp::ClaimAgain(_)
            | SessionOp::ClaimBy(_)
            | SessionOp::ClaimByAgain(_)
            | SessionOp::ClaimHolding(_)
            | SessionOp::ClaimHoldingAgain(_)
            | SessionOp::Due => false,
        }
    }

    fn is_fenced(op: &SessionOp) -> bool {
        op.claimed().is_some()
    }

    fn is_unsettled(&self, op: &SessionOp) -> bool {
        match op {
            // A shutdown asks for the present connection, too, and does not wait for its own publications here.
            SessionOp::WillDue { client, .. } => self.awaits_wills(client),
            _ => false,
        }
    }

    fn settles(op: &SessionOp) -> Option<&str> {
        match op {
            SessionOp::WillDue { client, .. }
            | SessionOp::Fired { client, .. }
            | SessionOp::Disconnect { client, .. }
            | SessionOp::DiscardWill { client, .. } => Some(client),
            _ => None,
        }
    }

    fn retried(op: SessionOp) -> SessionOp {
        op.again()
    }

    fn incarnation(&self, node: u64) -> u64 {
        self.incarnation_of(node)
    }

    fn names(&self) -> Names<'_> {
        Box::new(store_state::session::clients(self))
    }

    fn message(forwarded: Forwarded<SessionOp>) -> Message {
        Message::Session(forwarded)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn due() -> Option<SessionOp> {
        Some(SessionOp::Due)
    }

    fn node_up(node: u64, incarnation: u64, last_alive_ms: u64) -> Option<SessionOp> {
        Some(SessionOp::NodeUp {
            node,
            incarnation,
            last_alive_ms,
        })
    }

    fn announce(&mut self, outlet: &mut Self::Outlet) {
        self.outstanding(outlet);
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(effects)
    }
}

impl SessionOutlet for Effects {
    fn fire(&mut self, client: &str, epoch: u64, will: &StoredWill) {
        if !self.live {
            return;
        }
        self.events.push(Event::Fire {
            client: client.into(),
            epoch,
            will: will.clone(),
        });
    }

    fn ended(&mut self, client: &str, epoch: u64, why: Option<SessionEnd>) {
        if !self.live {
            return;
        }
        self.events.push(Event::Ended {
            client: client.into(),
            epoch,
            why,
        });
    }

    fn known(&mut self, _: &str, _: bool) {}
}
