//! Client identifiers that are taken over from other nodes (P5).
//!
//! A connection that has claimed its identifier has the node close the older one that had it, and waits for the
//! answer: by then everything is settled that came on the older one. A node that is down is not waited for. It
//! is told when it is back, if it is still the same process.
//!
//! Invariant: a question is open until it is answered, or nothing is left of the process that was asked.
//!
//! Deliberately absent: which connection is the later one, which the epochs of the session store say; the
//! closing (`client_loop/takeover.rs`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use mqtt_proto::PacketId;
use mqtt_session::PacketIdSet;
use route_exchange::{Malformed, NodeId};
use serde::{Deserialize, Serialize};
use store_state::session::TakenFrom;

use super::Peers;
use super::directory::DirectoryMessage;
use crate::client_loop::Mail;
use crate::node::Node;

/// The first byte of messages about takeovers. A change is a new one.
pub(super) const FORMAT: u8 = 34;

/// Questions that nodes which are down have not answered. Beyond that the oldest is forgotten: should its
/// node come back without having been taken for dead, the older connection stays open, and the store refuses
/// what it does.
const OWED: usize = 100_000;

/// What nodes say to each other about takeovers.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Close {
        question: u64,
        what: Older,
    },
    /// There is no such connection any more. If the session goes on: publications of QoS 2 that came on it, and are not
    /// released. All who are connected have them.
    Closed {
        question: u64,
        unreleased: Vec<u16>,
    },
    Directory(DirectoryMessage),
}

/// The connections that are to be closed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Older {
    pub(crate) client: Box<str>,
    /// Those of lower epochs; 0: the store does not know the later one.
    pub(crate) epoch: u64,
    /// Those of lower numbers, if one of the two has no epoch.
    pub(crate) number: u64,
    /// The session goes on: what came on the connection has to be settled. If not, nothing that is remembered of it
    /// is needed any more.
    pub(crate) resumes: bool,
}

/// Who is to hear that connections are closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) node: NodeId,
    question: u64,
}

/// A question of an event loop of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) index: usize,
    pub(super) token: u64,
}

#[derive(Debug)]
struct Question {
    node: NodeId,
    what: Older,
}

/// What other nodes have been asked to close.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    asked: BTreeMap<u64, (Question, Waiter)>,
    /// To nodes that are down; nobody waits.
    owed: BTreeMap<u64, Question>,
    last_question: u64,
    down: BTreeSet<NodeId>,
}

impl Message {
    pub(super) fn encode(&self) -> Bytes {
        // Writing to memory fails for no value of this type.
        postcard::to_extend(self, vec![FORMAT])
            .unwrap_or_default()
            .into()
    }
}

impl Takeovers {
    /// `incarnation`: of this node; so no process hears what an earlier one was answered.
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            last_question: incarnation << 32,
            ..Self::default()
        }
    }

    /// Takes note of a question, and numbers it; and whether the answer is waited for.
    fn ask(&mut self, question: Question, waiter: Waiter) -> (u64, bool) {
        let number = self.next();
        let is_up = !self.down.contains(&question.node);
        if is_up {
            self.asked.insert(number, (question, waiter));
        } else {
            self.owe(number, question);
        }
        (number, is_up)
    }

    fn next(&mut self) -> u64 {
        self.last_question += 1;
        self.last_question
    }

    fn owe(&mut self, number: u64, question: Question) {
        self.owed.insert(number, question);
        if self.owed.len() > OWED {
            self.owed.pop_first();
        }
    }

    /// A node has answered; an answer of somebody else does not count. Who waits for it goes on.
    fn answered(&mut self, from: NodeId, number: u64) -> Option<Waiter> {
        self.owed
            .extract_if(number..=number, |_, question| question.node == from)
            .for_each(drop);
        let mut answered = self
            .asked
            .extract_if(number..=number, |_, (question, _)| question.node == from);
        answered.next().map(|(_, (_, waiter))| waiter)
    }

    /// What a node has not answered yet.
    fn open(&self, node: NodeId) -> Vec<Message> {
        let asked = self.asked.iter().map(|(n, (question, _))| (n, question));
        asked
            .chain(&self.owed)
            .filter(|(_, question)| question.node == node)
            .map(|(number, question)| Message::Close {
                question: *number,
                what: question.what.clone(),
            })
            .collect()
    }

    /// Nobody waits for the answers to these questions any more. They stay open, as those to nodes that are down.
    fn stop_awaiting(&mut self, questions: &[u64]) {
        for number in questions {
            if let Some((question, _)) = self.asked.remove(number) {
                self.owe(*number, question);
            }
        }
    }

    /// Nothing is left of a process of a node: who waits for it goes on.
    fn gone(&mut self, node: NodeId) -> Vec<Waiter> {
        self.owed.retain(|_, question| question.node != node);
        self.asked
            .extract_if(.., |_, (question, _)| question.node == node)
            .map(|(_, (_, waiter))| waiter)
            .collect()
    }

    /// Which nodes are down: who waits for them goes on.
    fn down(&mut self, down: BTreeSet<NodeId>) -> Vec<Waiter> {
        self.down = down;
        let unanswered: Vec<_> = self
            .asked
            .extract_if(.., |_, (question, _)| self.down.contains(&question.node))
            .collect();
        let mut waiters = Vec::with_capacity(unanswered.len());
        for (number, (question, waiter)) in unanswered {
            self.owe(number, question);
            waiters.push(waiter);
        }
        waiters
    }
}

impl Peers {
    /// Has other nodes close older connections of a client. A question of a loop gets a
    /// [`Mail::ClosedElsewhere`] for each node that is waited for; returns the numbers of these questions.
    pub(crate) fn close_elsewhere(
        &self,
        node: &Node,
        from: TakenFrom,
        older: &Older,
        (index, token): (usize, u64),
    ) -> Vec<u64> {
        let nodes: Vec<NodeId> = node
            .routes
            .exports()
            .map_or_else(Vec::new, |exports| exports.lock().peers().collect());
        let may_have = |peer: &NodeId| match from {
            TakenFrom::Nobody => false,
            TakenFrom::Node { node, .. } => node == *peer,
            TakenFrom::Unknown => true,
        };
        let mut takeovers = self.takeovers.lock();
        let mut awaited = Vec::new();
        for peer in nodes.into_iter().filter(may_have) {
            let question = Question {
                node: peer,
                what: older.clone(),
            };
            let (question, is_waited_for) = takeovers.ask(question, Waiter { index, token });
            if is_waited_for {
                awaited.push(question);
            }
            let what = older.clone();
            // Not sent: it is sent when there is a connection.
            self.links
                .send(peer, Message::Close { question, what }.encode());
        }
        awaited
    }

    /// A loop waits for the answers to these questions no longer.
    pub(crate) fn stop_awaiting(&self, questions: &[u64]) {
        self.takeovers.lock().stop_awaiting(questions);
    }

    /// Has a node close older connections of a client; nobody waits for it.
    pub(crate) fn have_closed(&self, node: &Node, peer: NodeId, what: Older) {
        if peer == node.store().node() {
            let asker = Asker {
                node: peer,
                question: 0,
            };
            return self.close_here(node, asker, what);
        }
        let mut takeovers = self.takeovers.lock();
        let number = takeovers.next();
        let question = Question {
            node: peer,
            what: what.clone(),
        };
        takeovers.owe(number, question);
        let close = Message::Close {
            question: number,
            what,
        };
        self.links.send(peer, close.encode());
    }

    fn close_here(&self, node: &Node, asker: Asker, what: Older) {
        if let Some(loops) = node.started_loops() {
            let home = node.registry.find(&what.client);
            let to = home.map_or(0, |home| home.loop_index());
            loops.send(to, Mail::CloseOlder(asker, what));
        } else {
            // There are no connections yet.
            self.tell_closed(asker, &PacketIdSet::new());
        }
    }

    /// Older connections that a node has asked for are closed.
    pub(crate) fn tell_closed(&self, to: Asker, unreleased: &PacketIdSet) {
        let closed = Message::Closed {
            question: to.question,
            unreleased: unreleased.iter().map(PacketId::get).collect(),
        };
        // Not sent: it is asked again when there is a connection.
        self.links.send(to.node, closed.encode());
    }

    /// A message about takeovers, without its first byte.
    pub(super) fn takeover_message(
        &self,
        node: &Node,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        let message = match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => message,
            _ => return Err(Malformed::Bytes),
        };
        match message {
            Message::Close { question, what } => {
                let asker = Asker {
                    node: from,
                    question,
                };
                self.close_here(node, asker, what);
            }
            Message::Closed {
                question,
                unreleased,
            } => {
                let waiter = self.takeovers.lock().answered(from, question);
                let unreleased = unreleased.into_iter().filter_map(PacketId::new).collect();
                go_on(node, waiter, Some((from, unreleased)));
            }
            Message::Directory(message) => self.directory_message(node, from, message),
        }
        Ok(())
    }

    /// What was sent to a node, or what it has answered, may be lost.
    pub(super) fn ask_to_close_again(&self, peer: NodeId) {
        let open = self.takeovers.lock().open(peer);
        for message in open {
            self.links.send(peer, message.encode());
        }
    }

    /// A node has no connections of which it was asked before.
    pub(super) fn nothing_to_close(&self, node: &Node, peer: NodeId) {
        let waiters = self.takeovers.lock().gone(peer);
        go_on(node, waiters, None);
    }

    /// Nodes that are down are not waited for.
    pub(super) fn do_not_await(&self, node: &Node, down: BTreeSet<NodeId>) {
        let waiters = self.takeovers.lock().down(down);
        go_on(node, waiters, None);
    }
}

fn go_on(
    node: &Node,
    waiters: impl IntoIterator<Item = Waiter>,
    told: Option<(NodeId, PacketIdSet)>,
) {
    for Waiter { index, token } in waiters {
        if let Some(loops) = node.started_loops() {
            loops.send(index, Mail::ClosedElsewhere(token, told.clone()));
        }
    }
}

/// For the fuzz target of messages of other nodes.
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::{FORMAT, Message, Older};

    /// Reads a message about takeovers, if it is one.
    pub(crate) fn read_takeover(bytes: &[u8]) {
        let Some((&FORMAT, rest)) = bytes.split_first() else {
            return;
        };
        if let Ok((message, [])) = postcard::take_from_bytes::<Message>(rest) {
            let again = postcard::from_bytes::<Message>(&message.encode()[1..]);
            assert_eq!(again, Ok(message));
        }
    }

    pub(crate) fn takeover_seeds() -> Vec<Vec<u8>> {
        let what = Older {
            client: "c".into(),
            epoch: 1,
            number: 2,
            resumes: true,
        };
        let unreleased = vec![1, 2];
        [
            Message::Close { question: 1, what },
            Message::Closed {
                question: 1,
                unreleased,
            },
        ]
        .map(|message| message.encode().to_vec())
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITER: Waiter = Waiter { index: 1, token: 2 };

    fn question(node: NodeId) -> Question {
        Question {
            node,
            what: Older {
                client: "c".into(),
                epoch: 5,
                number: 6,
                resumes: true,
            },
        }
    }

    #[test]
    fn only_the_node_that_was_asked_answers_and_only_once() {
        let mut takeovers = Takeovers::new(3);
        let (number, is_waited_for) = takeovers.ask(question(7), WAITER);
        assert!(is_waited_for);
        assert_eq!(number >> 32, 3, "of this process");
        assert_eq!(takeovers.answered(8, number), None);
        assert_eq!(takeovers.answered(7, number + 1), None);
        assert_eq!(takeovers.answered(7, number), Some(WAITER));
        assert_eq!(takeovers.answered(7, number), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn a_node_that_is_down_is_not_waited_for_but_asked_when_it_is_back() {
        let mut takeovers = Takeovers::new(1);
        let (first, _) = takeovers.ask(question(7), WAITER);
        takeovers.ask(question(8), WAITER);
        assert_eq!(takeovers.down([7].into()), [WAITER]);
        let (second, is_waited_for) = takeovers.ask(question(7), WAITER);
        assert!(!is_waited_for);
        assert_eq!(takeovers.down([].into()), []);
        assert_eq!(takeovers.open(7).len(), 2);
        assert_eq!(takeovers.open(8).len(), 1);
        assert_eq!(takeovers.answered(7, first), None);
        assert_eq!(takeovers.answered(7, second), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn a_node_that_is_too_busy_is_waited_for_no_longer_but_asked_still() {
        let mut takeovers = Takeovers::new(1);
        let (number, _) = takeovers.ask(question(7), WAITER);
        takeovers.stop_awaiting(&[number, number + 1]);
        assert_eq!(takeovers.open(7).len(), 1);
        assert_eq!(takeovers.answered(7, number), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn nothing_is_asked_of_a_process_that_is_gone() {
        let mut takeovers = Takeovers::new(1);
        takeovers.ask(question(7), WAITER);
        takeovers.ask(question(8), WAITER);
        takeovers.down([8].into());
        assert_eq!(takeovers.gone(7), [WAITER]);
        assert_eq!(takeovers.gone(8), []);
        assert!(takeovers.open(7).is_empty() && takeovers.open(8).is_empty());
    }

    #[test]
    fn what_is_owed_is_bounded() {
        let mut takeovers = Takeovers::new(1);
        takeovers.down([7].into());
        for _ in 0..=OWED {
            takeovers.ask(question(7), WAITER);
        }
        assert_eq!(takeovers.open(7).len(), OWED);
    }

    #[test]
    fn messages_come_back_as_they_were_sent() {
        let closed = Message::Closed {
            question: 9,
            unreleased: vec![1, 7],
        };
        let bytes = closed.encode();
        assert_eq!(bytes[0], FORMAT);
        let (read, rest): (Message, _) = postcard::take_from_bytes(&bytes[1..]).unwrap();
        assert_eq!((read, rest.len()), (closed, 0));
    }
}
