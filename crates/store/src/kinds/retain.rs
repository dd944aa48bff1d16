//! The retain store, as far as its shards differ.

use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_session::Timestamp;
use store_state::api::{Event, StoreId};
use store_state::retain::{
    PageBudget, RetainMachine, RetainOp, RetainOutlet, RetainReply, RetainedAt, RetainedEnd,
    RetainedView,
};
use store_state::{Batch, CorrelationId};
use topic_router::Cursor;

use crate::kinds::command::Command;
use crate::kinds::effects::Effects;
use crate::kinds::kind::{Kind, Names};
use crate::peers::message::{Forwarded, Message};
use crate::shard::retained::Page;

impl Kind for RetainMachine {
    const STORE: StoreId = StoreId::Retain;

    const HAS_RETAINED: bool = true;

    fn command(batch: Arc<Batch<RetainOp>>) -> Command {
        Command::Retain(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<RetainOp>> {
        match command {
            Command::Retain(batch) => Some(batch),
            _ => None,
        }
    }

    fn event(token: u64, reply: RetainReply) -> Event {
        Event::Retain { token, reply }
    }

    fn must_wait(op: &RetainOp, _: CorrelationId) -> bool {
        // No client would publish a will again.
        matches!(op, RetainOp::SetWill { .. })
    }

    fn bytes(op: &RetainOp) -> u64 {
        match op {
            RetainOp::Set { message }
            | RetainOp::SetWill { message, .. }
            | RetainOp::SetFrom { message, .. } => {
                let body = &message.body;
                (body.topic().len() + body.payload().len()) as u64
            }
            RetainOp::Expire | RetainOp::Remove { .. } => 0,
        }
    }

    fn retained(
        &self,
        filter: &str,
        cursor: Option<&Cursor>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> Option<Page> {
        Some(self.page(filter, cursor, budget, now))
    }

    fn look_at_retained(
        &self,
        after: Option<&Cursor>,
        work: &mut usize,
        tell: &mut dyn FnMut(RetainedView<'_>) -> ControlFlow<()>,
    ) -> Option<Cursor> {
        self.look(after, work, tell)
    }

    fn remove_retained(messages: Vec<RetainedAt>, end: RetainedEnd) -> Option<RetainOp> {
        Some(RetainOp::Remove { messages, end })
    }

    fn names(&self) -> Names<'_> {
        Box::new(store_state::retain::topics(self))
    }

    fn message(forwarded: Forwarded<RetainOp>) -> Message {
        Message::Retain(forwarded)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn due() -> Option<RetainOp> {
        Some(RetainOp::Expire)
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        apply(effects)
    }
}

impl RetainOutlet for Effects {
    fn removed(&mut self, end: RetainedEnd) {
        if self.live {
            self.listener.retained_ended(end);
        }
    }
}
