//! A shard to talk to, and requests in few words.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};

use crate::session::{
    ClaimByUser, ClaimRequest, Claimed, OfAnotherUser, SessionEnd, SessionMachine, SessionOp,
    SessionOutlet, SessionReply, StoredWill, WillAtClose,
};
use crate::test_table::TestTable;
use crate::{Changes, Header, Limits, Machine, Slots, Table};

/// Puts down what it is told, a line each.
#[derive(Default)]
pub(super) struct Told(pub(super) Vec<String>);

impl SessionOutlet for Told {
    fn fire(&mut self, client: &str, epoch: u64, will: &StoredWill) {
        self.0
            .push(format!("fire {client} {epoch} {}", describe(will)));
    }

    fn ended(&mut self, client: &str, epoch: u64, _: Option<SessionEnd>) {
        self.0.push(format!("ended {client} {epoch}"));
    }

    fn known(&mut self, client: &str, known: bool) {
        let not = if known { "" } else { "not " };
        self.0.push(format!("{not}known {client}"));
    }
}

/// The topic of a will.
pub(super) fn describe(will: &StoredWill) -> String {
    will.message.body.topic().to_owned()
}

pub(super) fn header(now_ms: u64) -> Header {
    Header {
        now_ms,
        limits: Limits {
            queue: crate::QueueLimits {
                messages: 0,
                bytes: 0,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Never,
            retained_messages: 0,
            retained_bytes: 0,
            classes: crate::ClassLimits::NONE,
        },
    }
}

/// A machine and its table.
pub(super) struct Shard {
    pub(super) machine: SessionMachine,
    pub(super) table: TestTable,
}

impl Shard {
    pub(super) fn new() -> Self {
        let table = TestTable::default();
        Self {
            machine: SessionMachine::load(Slots::ALL, &table).unwrap(),
            table,
        }
    }

    /// The reply and what is told, at a time in seconds.
    pub(super) fn owner(&self, client: &str) -> Option<(u64, u64)> {
        self.machine.find(client)?.0
    }

    pub(super) fn incarnation(&self, client: &str) -> Option<u64> {
        Some(self.machine.find(client)?.1)
    }

    pub(super) fn ask(&mut self, at: u64, op: SessionOp) -> (SessionReply, Vec<String>) {
        let mut told = Told::default();
        let header = header(at * 1_000);
        let reply = self.machine.apply(&header, &op, &self.table, &mut told);
        (reply.unwrap(), told.0)
    }

    /// What is told, at a time in seconds.
    pub(super) fn told(&mut self, at: u64, op: SessionOp) -> Vec<String> {
        self.ask(at, op).1
    }

    /// What a claim finds.
    pub(super) fn claimed(&mut self, at: u64, op: SessionOp) -> Claimed {
        match self.ask(at, op).0 {
            SessionReply::Claimed(claimed) => claimed,
            other => panic!("a claim was answered with {other:?}"),
        }
    }

    /// A whole checkpoint; gives back how many rows it wrote or removed.
    pub(super) fn checkpoint(&mut self) -> usize {
        let mut changes = Changes::default();
        self.machine.collect(&mut changes);
        self.table.write(&changes);
        self.machine.saved();
        changes.entries.len()
    }

    /// Loses all that the table does not have.
    pub(super) fn restart(&mut self) {
        self.machine = SessionMachine::load(Slots::ALL, &self.table).unwrap();
    }

    pub(super) fn outstanding(&self) -> Vec<String> {
        let mut told = Told::default();
        self.machine.outstanding(&mut told);
        told.0
    }
}

/// CONNECT at node 1 with an expiry in seconds; without clean start, without a will.
pub(super) struct Connect<'a>(pub(super) &'a str, pub(super) u32);

impl Connect<'_> {
    pub(super) fn op(self) -> SessionOp {
        self.from((1, 1), false, None)
    }

    /// With a will of a topic that is published after a delay in seconds.
    pub(super) fn will(self, topic: &str, delay: u32) -> SessionOp {
        self.from((1, 1), false, Some(will(topic, delay)))
    }

    pub(super) fn clean(self) -> SessionOp {
        self.from((1, 1), true, None)
    }

    /// With all that can be said; the process is a node and its incarnation.
    pub(super) fn from(
        self,
        (node, node_incarnation): (u64, u64),
        clean_start: bool,
        will: Option<StoredWill>,
    ) -> SessionOp {
        let Self(client, expiry) = self;
        SessionOp::Claim(ClaimRequest {
            client: client.into(),
            node,
            node_incarnation,
            clean_start,
            expiry,
            will,
            asked_ms: 0,
        })
    }
}

/// The same claim, by a user.
pub(super) fn by(
    user: Option<&str>,
    of_another_user: OfAnotherUser,
    claim: SessionOp,
) -> SessionOp {
    match claim {
        SessionOp::Claim(request) => SessionOp::ClaimBy(ClaimByUser {
            request,
            user: user.map(Box::from),
            of_another_user,
        }),
        other => panic!("{other:?}"),
    }
}

/// The same claim, which holds the will of a connection to another process, and has not waited.
pub(super) fn holding(claim: SessionOp) -> SessionOp {
    let claim = match claim {
        SessionOp::Claim(request) => SessionOp::claim(request, None, OfAnotherUser::Refuse),
        SessionOp::ClaimBy(by) => SessionOp::ClaimHolding(by),
        other => panic!("{other:?}"),
    };
    asked(u64::MAX, claim)
}

/// The same claim, of a CONNECT that came at this time in ms.
pub(super) fn asked(at_ms: u64, mut claim: SessionOp) -> SessionOp {
    if let SessionOp::ClaimHolding(by) = &mut claim {
        by.request.asked_ms = at_ms;
    }
    claim
}

/// The same claim, of a CONNECT that came at a time in seconds, by a sender that does not know what became
/// of the first one.
pub(super) fn again(asked: u64, claim: SessionOp) -> SessionOp {
    match claim {
        SessionOp::Claim(request) => SessionOp::ClaimAgain(ClaimRequest {
            asked_ms: asked * 1_000,
            ..request
        }),
        SessionOp::ClaimBy(mut by) => {
            by.request.asked_ms = asked * 1_000;
            SessionOp::ClaimByAgain(by)
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn will(topic: &str, delay: u32) -> StoredWill {
    StoredWill {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, b"gone"),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
        message_expiry: Some(30),
        delay,
    }
}

/// The connection was lost.
pub(super) fn lost(client: &str, epoch: u64, expiry: u32) -> SessionOp {
    disconnect(client, epoch, expiry, WillAtClose::Keep)
}

/// The client disconnected as it should.
pub(super) fn left(client: &str, epoch: u64, expiry: u32) -> SessionOp {
    disconnect(client, epoch, expiry, WillAtClose::Discard)
}

pub(super) fn disconnect(client: &str, epoch: u64, expiry: u32, will: WillAtClose) -> SessionOp {
    SessionOp::Disconnect {
        client: client.into(),
        epoch,
        expiry,
        will,
    }
}

pub(super) fn fired(client: &str, epoch: u64) -> SessionOp {
    SessionOp::Fired {
        client: client.into(),
        epoch,
    }
}

pub(super) fn gone(client: &str, epoch: u64) -> SessionOp {
    SessionOp::Gone {
        client: client.into(),
        epoch,
    }
}

pub(super) fn will_due(client: &str, epoch: u64) -> SessionOp {
    SessionOp::WillDue {
        client: client.into(),
        epoch,
    }
}

/// For [`crate::test_replica::Replica`].
pub(super) fn apply(
    machine: &mut SessionMachine,
    header: &Header,
    op: &SessionOp,
    table: &dyn Table,
) -> String {
    let mut told = Told::default();
    let reply = machine.apply(header, op, table, &mut told).unwrap();
    format!("{reply:?} {:?}", told.0)
}
