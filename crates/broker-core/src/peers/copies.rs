//! Messages of QoS 1 and 2 that went to members of shared groups on other nodes, kept until they arrived.
//!
//! The node of the publisher keeps a copy ([`Copies`]); the node of the member remembers the message without
//! keeping it ([`Arrivals`]), and says so when nobody there holds it any more: its client has acknowledged it,
//! or it was dropped with a record, or given on. When a node is gone, its copies are given to other members;
//! when only a connection broke, they are sent again, and known by their number.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use mqtt_session::ApplicationMessage;
use peer_protocol::{Forwarded, SETTLED_AT_ONCE, Whom};
use route_exchange::NodeId;

/// Bytes of messages that are kept. What is beyond is sent without a copy.
///
/// Limit: copies of messages for shared groups, until members on other nodes have them | {:bytes} | sent without a
/// copy
///
/// Limit: nodes that a message for a shared group goes to, one after the other | 2 | dropped: `no_group_member`
const LIMIT: usize = 32 << 20;

/// Messages that are on their way to members on other nodes.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    last: u64,
    bytes: usize,
    of_nodes: BTreeMap<(NodeId, u64), Forwarded>,
}

impl Copies {
    /// Keeps a message for a group, and numbers it; beyond the limit it gets no number.
    pub(crate) fn keep(&mut self, node: NodeId, forwarded: &mut Forwarded) {
        let bytes = size_of(forwarded);
        if self.bytes + bytes > LIMIT {
            return;
        }
        if let Whom::Group(group) = &mut forwarded.whom {
            self.last += 1;
            group.copy = self.last;
            self.bytes += bytes;
            self.of_nodes.insert((node, self.last), forwarded.clone());
        }
    }

    /// A node says what it is done with.
    pub(crate) fn settle(&mut self, node: NodeId, copies: &[u64]) {
        for copy in copies {
            if let Some(settled) = self.of_nodes.remove(&(node, *copy)) {
                self.bytes -= size_of(&settled);
            }
        }
    }

    /// What a node has still to say something about, in the order of its sending.
    pub(crate) fn of(&self, node: NodeId) -> Vec<Forwarded> {
        let of_node = self.of_nodes.range((node, 0)..=(node, u64::MAX));
        of_node.map(|(_, copy)| copy.clone()).collect()
    }

    /// The same, which are nobody's copies from now on.
    pub(crate) fn take(&mut self, node: NodeId) -> Vec<Forwarded> {
        let taken = self.of(node);
        self.of_nodes.retain(|(of, _), _| *of != node);
        self.bytes -= taken.iter().map(size_of).sum::<usize>();
        taken
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn size_of(forwarded: &Forwarded) -> usize {
    std::mem::size_of::<(u64, Forwarded)>() + forwarded.message.body.heap_len()
}

/// Messages of which other nodes keep copies.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(BTreeMap<NodeId, BTreeMap<u64, Weak<ApplicationMessage>>>);

impl Arrivals {
    /// A message has come. False: it has come before.
    pub(crate) fn note(
        &mut self,
        from: NodeId,
        copy: u64,
        message: &Arc<ApplicationMessage>,
    ) -> bool {
        let of_node = self.0.entry(from).or_default();
        let new = !of_node.contains_key(&copy);
        if new {
            of_node.insert(copy, Arc::downgrade(message));
        }
        new
    }

    /// Takes out what nobody holds any more, to tell the nodes that keep copies; `tell` says whether it
    /// could.
    pub(crate) fn settle(&mut self, mut tell: impl FnMut(NodeId, Vec<u64>) -> bool) {
        for (node, of_node) in &mut self.0 {
            let gone = |message: &Weak<_>| message.strong_count() == 0;
            let settled = of_node.iter().filter(|(_, message)| gone(message));
            let settled: Vec<u64> = settled.map(|(copy, _)| *copy).collect();
            for part in settled.chunks(SETTLED_AT_ONCE) {
                if tell(*node, part.to_vec()) {
                    for copy in part {
                        of_node.remove(copy);
                    }
                }
            }
        }
    }

    /// A node is gone, and its numbers mean nothing any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{MessageBody, QoS};

    use peer_protocol::ForGroup;

    use super::*;

    fn forwarded(payload: usize) -> Forwarded {
        Forwarded {
            message: Arc::new(ApplicationMessage {
                body: MessageBody::new("t", &vec![0; payload]),
                qos: QoS::AtLeastOnce,
                retain: false,
                publisher: 0,
                publisher_hash: 0,
                expires_at: None,
                taken_up: None,
            }),
            publisher: 1,
            whom: Whom::Group(ForGroup {
                filter: "$share/g/t".into(),
                hops: 1,
                copy: 0,
            }),
            origin: None,
        }
    }

    fn kept(copies: &mut Copies, node: NodeId, payload: usize) -> u64 {
        let mut message = forwarded(payload);
        copies.keep(node, &mut message);
        message.copy().unwrap_or(0)
    }

    #[test]
    fn a_copy_is_kept_until_it_is_settled_or_taken() {
        let mut copies = Copies::default();
        let numbers = [1, 2, 1].map(|node| kept(&mut copies, node, 10));
        assert_eq!(numbers, [1, 2, 3]);
        copies.settle(2, &[1, 3, 9]);
        assert_eq!(copies.of(1).len(), 2);
        copies.settle(1, &[1]);
        assert_eq!((copies.take(1).len(), copies.take(2).len()), (1, 1));
        assert_eq!(copies.bytes(), 0);
    }

    #[test]
    fn copies_are_bounded() {
        let mut copies = Copies::default();
        let sent = (0..40).filter(|_| kept(&mut copies, 1, 1 << 20) != 0);
        assert_eq!(sent.count(), 31);
        assert!(copies.bytes() <= LIMIT);
    }

    #[test]
    fn a_message_is_settled_when_nobody_holds_it() {
        let mut arrivals = Arrivals::default();
        let message = forwarded(1).message;
        assert!(arrivals.note(1, 7, &message));
        assert!(!arrivals.note(1, 7, &message), "it was sent again");
        arrivals.settle(|_, _| panic!("it is still held"));
        drop(message);
        arrivals.settle(|_, _| false);
        let mut told = Vec::new();
        arrivals.settle(|node, copies| {
            told.push((node, copies));
            true
        });
        assert_eq!(told, [(1, vec![7])]);
        arrivals.settle(|_, _| panic!("it was told"));
    }
}
