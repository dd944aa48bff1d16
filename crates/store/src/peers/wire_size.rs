//! How long things are when they are written: requests, batches, messages to other nodes.
//!
//! Invariant: what is weighed is what is written, by the same serializer. So no batch is longer than the log and
//! the links between nodes take, whatever clients put into it.

use serde::Serialize;
use store_state::api::REQUEST_LIMIT;

// With what a batch and the log add, a log entry has room for the longest request.
const _: () = assert!(REQUEST_LIMIT + 64 * 1024 <= consensus::COMMAND_LIMIT);

/// Bytes of a message to another node, above which the rest goes in a further one.
///
/// Limit: a message between stores | {}, or one part | the rest follows
pub(crate) const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of the longest part of a message to another node: links take 64 MiB.
pub(crate) const PART_LIMIT: usize = 48 << 20;

/// How many bytes a value is when it is written. One pass over it; its byte strings are not looked at.
pub(crate) fn written_len<T: Serialize>(value: &T) -> usize {
    let size = postcard::ser_flavors::Size::default();
    // Only a type that does not know its length fails, and there is none in what is written here.
    postcard::serialize_with_flavor(value, size).unwrap_or(usize::MAX)
}

/// Cuts a list into parts of at most `most` bytes each, or of one item; `len` says how long an item is.
pub(crate) fn parts<T>(items: Vec<T>, most: usize, len: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0;
    for item in items {
        let len = len(&item);
        if !part.is_empty() && bytes + len > most {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += len;
        part.push(item);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// The longest part, and what stands around it, are a message that the protocol carries.
const _: () = assert!(PART_LIMIT + 64 * 1024 <= peer_protocol::Kind::Store.format().limit);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqtt_proto::{MessageBody, QoS};
    use mqtt_session::{ApplicationMessage, SubscriptionIdSet};
    use store_state::inbox::{InboxOp, Item};

    use super::*;

    fn message(bytes: usize) -> Arc<ApplicationMessage> {
        Arc::new(ApplicationMessage {
            body: MessageBody::new("t", &vec![7; bytes]),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        })
    }

    #[test]
    fn what_is_weighed_is_what_is_written() {
        let items = vec![Item {
            message: message(100_000),
            qos: QoS::AtLeastOnce,
            retain: true,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        }];
        let ops = [
            InboxOp::Publish {
                message: message(1_000_000),
                publisher: 5,
                origin: None,
            },
            InboxOp::Deliver {
                session: "c".into(),
                items,
                origin: None,
            },
            InboxOp::Unsubscribe {
                session: "c".into(),
                epoch: 1,
                filters: vec!["f".repeat(60_000).into(); 9],
            },
        ];
        for op in ops {
            let written = postcard::to_stdvec(&op).unwrap();
            assert_eq!(written_len(&op), written.len());
        }
    }

    #[test]
    fn parts_hold_all_in_order_and_none_is_longer_than_it_must_be() {
        let cut = |lens: &[usize]| parts(lens.to_vec(), 10, |len| *len);
        assert_eq!(cut(&[]), [[0; 0]; 0]);
        assert_eq!(cut(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(cut(&[40, 1, 1, 9]), [vec![40], vec![1, 1], vec![9]]);
    }
}
