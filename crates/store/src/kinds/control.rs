//! The control store, as far as its shard differs.
//!
//! Every node has a replica of it, and hears from that what is changed, whoever leads.

use std::sync::Arc;

use control::{Changed, Incarnation, Node};
use store_state::api::{Event, StoreId};
use store_state::control::{ControlMachine, ControlOp, ControlOutlet, ControlReply};
use store_state::{Batch, CorrelationId};

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::effects::Effects;
use crate::kinds::kind::{Kind, Names};
use crate::peers::message::{Forwarded, Message};

impl Kind for ControlMachine {
    const STORE: StoreId = StoreId::Control;
    const BEGINS_LATER: bool = true;

    fn command(batch: Arc<Batch<ControlOp>>) -> Command {
        Command::Control(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<ControlOp>> {
        match command {
            Command::Control(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: ControlReply) -> Event {
        Event::Control { token, reply }
    }

    fn must_wait(op: &ControlOp, _: CorrelationId) -> bool {
        matches!(op, ControlOp::NodeUp { .. })
    }

    fn names(&self) -> Names<'_> {
        Box::new(self.users(None).map(|(name, _)| name))
    }

    fn message(forwarded: Forwarded<ControlOp>) -> Message {
        Message::Control(forwarded)
    }

    fn node_up(node: u64, incarnation: u64, _: u64) -> Option<ControlOp> {
        Some(ControlOp::NodeUp {
            node: Node(node),
            incarnation: Incarnation(incarnation),
        })
    }

    fn loaded(&self, listener: &dyn Listener) {
        listener.control_loaded(self.records());
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(effects)
    }
}

impl ControlOutlet for Effects {
    fn changed(&mut self, changed: Changed) {
        self.listener.control_changed(&changed);
    }
}
