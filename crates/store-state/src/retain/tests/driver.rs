//! A shard to talk to, and messages in few words.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull, Timestamp};

use crate::inbox::Origin;
use crate::retain::{
    ConnectionNumber, PageBudget, PublisherHash, RetainMachine, RetainOp, RetainOutlet,
    RetainReply, RetainedAt, RetainedEnd, RetainedSince,
};
use crate::test_table::TestTable;
use crate::{Changes, Header, Limits, Machine, NameHash, Slots, Table};

/// 3 messages, 10,000 bytes.
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
            retained_messages: 3,
            retained_bytes: 10_000,
            classes: crate::ClassLimits::NONE,
        },
    }
}

/// `expires_at`: in ms; 0: never.
pub(super) fn set(topic: &str, payload: &[u8], expires_at: u64) -> RetainOp {
    RetainOp::Set {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, payload),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 1,
            publisher_hash: 0,
            expires_at: Some(Timestamp(expires_at)).filter(|at| at.0 != 0),
            taken_up: None,
        }),
    }
}

/// A will of a connection with this epoch.
pub(super) fn will(topic: &str, payload: &[u8], epoch: u64) -> RetainOp {
    let RetainOp::Set { message } = set(topic, payload, 0) else {
        unreachable!("it sets");
    };
    let origin = Origin {
        client: "\0client".into(),
        incarnation: epoch,
        packet_id: 0,
    };
    RetainOp::SetWill { message, origin }
}

/// A message that a client has sent by its connection of this number.
pub(super) fn set_from(topic: &str, payload: &[u8], publisher: &str, connection: u64) -> RetainOp {
    let RetainOp::Set { message } = set(topic, payload, 0) else {
        unreachable!("it sets");
    };
    RetainOp::SetFrom {
        message,
        publisher: PublisherHash(NameHash::default().of(publisher)),
        connection: ConnectionNumber(connection),
    }
}

/// The removal of messages, by topics and times.
pub(super) fn remove(messages: &[(&str, u64)], end: RetainedEnd) -> RetainOp {
    let of = |(topic, since): &(&str, u64)| RetainedAt {
        topic: (*topic).into(),
        since: RetainedSince(*since),
    };
    RetainOp::Remove {
        messages: messages.iter().map(of).collect(),
        end,
    }
}

/// Ends that were told.
#[derive(Default)]
struct Told(Vec<RetainedEnd>);

impl RetainOutlet for Told {
    fn removed(&mut self, end: RetainedEnd) {
        self.0.push(end);
    }
}

/// A machine and its table.
pub(super) struct Shard {
    pub(super) machine: RetainMachine,
    pub(super) table: TestTable,
    pub(super) header: Header,
}

impl Shard {
    pub(super) fn new() -> Self {
        let table = TestTable::default();
        Self {
            machine: RetainMachine::load(Slots::ALL, &table).unwrap(),
            table,
            header: header(0),
        }
    }

    pub(super) fn ask(&mut self, op: &RetainOp) -> RetainReply {
        self.machine
            .apply(&self.header, op, &self.table, &mut ())
            .unwrap()
    }

    /// Asks, and says which ends were told.
    pub(super) fn ends(&mut self, op: &RetainOp) -> Vec<RetainedEnd> {
        let mut told = Told::default();
        let reply = self.machine.apply(&self.header, op, &self.table, &mut told);
        assert_eq!(reply, Ok(RetainReply::Done));
        told.0
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.header.now_ms)
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
        self.machine = RetainMachine::load(Slots::ALL, &self.table).unwrap();
    }

    /// Topics and payloads that a filter selects.
    pub(super) fn found(&self, filter: &str) -> Vec<(String, Vec<u8>)> {
        found(&self.machine, filter, self.header.now_ms)
    }
}

/// Topics and payloads that a filter selects, read in pages of two.
pub(super) fn found(machine: &RetainMachine, filter: &str, now: u64) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let mut budget = PageBudget {
            messages: 2,
            ..PageBudget::UNLIMITED
        };
        let (page, next) = machine.page(filter, after.as_ref(), &mut budget, Timestamp(now));
        assert!(page.len() <= 2);
        all.extend(page.iter().map(|message| {
            let body = &message.body;
            (body.topic().to_owned(), body.payload().to_vec())
        }));
        if next.is_none() {
            return all;
        }
        after = next;
    }
}

/// For [`crate::test_replica::Replica`].
pub(super) fn apply(
    machine: &mut RetainMachine,
    header: &Header,
    op: &RetainOp,
    table: &dyn Table,
) -> String {
    format!("{:?}", machine.apply(header, op, table, &mut ()).unwrap())
}
