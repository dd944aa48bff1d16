//! Queues of durable sessions: which are the first, and what waits in one.

use admin::api::Encoding;
use inspection::merge;
use inspection::{
    ANSWER_BYTES, At, Held, QueueOrder, QueuePurge, QueueRow, QueuedMessage, Sequence, WaitingPart,
    WaitingQuestion, size,
};
use mqtt_session::ApplicationMessage;
use store::{ClassQueues, LargeQueue, Look, Purge, class_queues};
use store_state::inbox::Item;
use tokio::time::Instant;

use super::rows::Own;
use super::state::LEFT;
use super::wire::ToWire as _;
use crate::disk_space::class_name;
use crate::node::Node;

/// The largest payload in a list, in bytes.
const PAYLOAD: usize = 16 * 1024;

/// The first queues of the shards that this node leads.
pub(super) fn first(node: &Node, own: &Own, by: QueueOrder, limit: usize) -> Vec<QueueRow> {
    let classes = class_queues(node.store());
    let of = |class: ClassQueues| match by {
        QueueOrder::Bytes => class.largest,
        QueueOrder::Messages => class.longest,
        QueueOrder::Age => class.oldest_first,
    };
    let rows = classes
        .into_iter()
        .flat_map(of)
        .map(|queue| row(own, queue));
    merge::queues(rows.collect(), by, limit)
}

fn row(own: &Own, queue: LargeQueue) -> QueueRow {
    let policy = own.settings.policy_of(queue.class);
    QueueRow {
        client_id: queue.client_id.into(),
        class: class_name(&own.settings, queue.class).to_owned(),
        node: own.node,
        node_name: own.name.clone(),
        messages: queue.messages.0,
        limit_messages: policy.queue_messages.into(),
        bytes: queue.bytes.0,
        limit_bytes: policy.queue_bytes,
        oldest_at: queue.oldest.map(|at| At::unix_ms(at.0)),
        in_per_s: queue.rates.map(|rates| rates.in_per_s),
        out_per_s: queue.rates.map(|rates| rates.out_per_s),
    }
}

/// What waits for a client, as far as one answer has room.
pub(super) fn waiting(
    node: &Node,
    question: &WaitingQuestion,
    deadline: Instant,
) -> Held<WaitingPart> {
    let limit = usize::from(question.limit.0);
    let mut part = WaitingPart::default();
    let mut from = question.from.0;
    let mut bytes = 0;
    loop {
        let read = match node.store().inspect().queue(&question.client_id, from) {
            Look::Elsewhere => return Held::Elsewhere,
            Look::Absent => return Held::Absent,
            Look::Found(read) => read,
        };
        part.next = read.next.map(Sequence);
        let mut messages = read.messages.into_iter().peekable();
        while let Some((sequence, item)) = messages.next() {
            let row = message(sequence, &item, question.payloads);
            bytes += size(&row);
            part.messages.push(row);
            if part.messages.len() >= limit || bytes >= ANSWER_BYTES {
                let next = messages.peek().map(|(next, _)| Sequence(*next));
                part.next = next.or(part.next);
                return Held::Found(part);
            }
        }
        let is_late = deadline.saturating_duration_since(Instant::now()) < LEFT;
        match part.next {
            Some(next) if !is_late => from = next.0,
            _ => return Held::Found(part),
        }
    }
}

/// Drops what waits for a client, as far as that is done when there is just time for the answer.
pub(super) async fn purge(node: &Node, client_id: &str, deadline: Instant) -> Held<QueuePurge> {
    let counting = node.rim.removals.purges.count(client_id);
    let until = deadline.checked_sub(LEFT).unwrap_or(deadline);
    let purge = match node.store().inspect().purge_queue(client_id, until).await {
        Look::Elsewhere => return Held::Elsewhere,
        Look::Absent => return Held::Absent,
        Look::Found(purge) => purge,
    };
    let purged = counting.purged();
    Held::Found(QueuePurge {
        removed: purged.messages.0,
        bytes: purged.payloads.0,
        complete: purge == Purge::Complete,
    })
}

fn message(sequence: u64, item: &Item, payloads: bool) -> QueuedMessage {
    let message: &ApplicationMessage = &item.message;
    let payload = message.body.payload();
    let is_shown = payloads && payload.len() <= PAYLOAD;
    let (encoding, text) = Encoding::write(if is_shown { payload } else { b"" });
    QueuedMessage {
        sequence: sequence.into(),
        topic: message.body.topic().to_owned(),
        qos: item.qos.as_u8(),
        retain: item.retain,
        group: item.group.as_deref().map(str::to_owned),
        payload_bytes: payload.len() as u64,
        expires_at: message.expires_at.map(|at| At::unix_ms(at.0)),
        payload: is_shown.then_some(text),
        encoding: encoding.to_wire(),
    }
}
