//! What the store reads of other nodes and of disks, as fuzz targets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use serde::{Serialize, de::DeserializeOwned};
use store_state::control::{ControlMachine, ControlOp, ControlOutlet};
use store_state::inbox::{
    InboxDrop, InboxMachine, InboxOp, InboxOutlet, Item, Origin, RetentionLimit, StoredSubscription,
};
use store_state::retain::{ConnectionNumber, PublisherHash, RetainMachine, RetainOp};
use store_state::session::{
    ClaimRequest, SessionEnd, SessionMachine, SessionOp, SessionOutlet, StoredWill,
};
use store_state::{
    Batch, Changes, CorrelationId, Header, Limits, Machine, ProposedHere, Request, Requeued,
    RoutedUntil, Slots, Table, TableError,
};

use crate::kinds::command::Command;
use crate::peers::message::Message;

/// A message of another node's store, and a request of its consensus.
///
/// # Panics
/// Something is wrong with what reads them.
pub fn messages(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let again = Message::decode(&message.encode()).expect("what was read can be written");
        assert_eq!(format!("{message:?}"), format!("{again:?}"));
    }
    consensus::fuzzing::message::<Command>(bytes);
}

/// Inputs for [`messages`].
#[must_use]
pub fn message_seeds() -> Vec<Vec<u8>> {
    let mut seeds = consensus::fuzzing::message_seeds(&commands());
    seeds.push(Message::Leads(vec![]).encode().to_vec());
    seeds
}

/// An entry of the log, from the disk or from a leader; then what its operations do to a machine: it does not
/// panic, and what it writes at a checkpoint has no findings and is read again.
///
/// # Panics
/// Something is wrong with what reads or applies it.
pub fn log(bytes: &[u8]) {
    let Some(command) = consensus::fuzzing::record::<Command>(bytes) else {
        return;
    };
    match command {
        Command::Session(batch) => on_empty::<SessionMachine>(&batch),
        Command::Inbox(batch) => on_empty::<InboxMachine>(&batch),
        Command::Retain(batch) => on_empty::<RetainMachine>(&batch),
        Command::Control(batch) => on_empty::<ControlMachine>(&batch),
        // Its slot, or its level, is checked against the shard's.
        Command::Split(..) | Command::Raise(..) | Command::Compare(_) | Command::Begin(_) => {}
    }
}

/// Inputs for [`log`].
#[must_use]
pub fn log_seeds() -> Vec<Vec<u8>> {
    let mut commands = commands();
    commands.push(compressed());
    consensus::fuzzing::record_seeds(&commands)
}

/// Rows of a shard's tables, as they might stand on a disk, and operations on them: a machine is loaded of them
/// or refuses them, and does not panic.
///
/// The input: the store's number, rows (key and value, each behind its length of two bytes), an empty key, a
/// batch.
///
/// # Panics
/// Something is wrong with what reads them.
pub fn tables(bytes: &[u8]) {
    let Some((store, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut rows = Rows::default();
    while let Some((key, value)) = row(&mut rest) {
        rows.0.insert(key.to_vec(), value.to_vec());
    }
    match store % 4 {
        0 => on_rows::<SessionMachine>(&rows, rest),
        1 => on_rows::<InboxMachine>(&rows, rest),
        2 => on_rows::<RetainMachine>(&rows, rest),
        _ => on_rows::<ControlMachine>(&rows, rest),
    }
}

/// Inputs for [`tables`].
#[must_use]
pub fn table_seeds() -> Vec<Vec<u8>> {
    let write = |number: u8, command: &Command| {
        let mut rows = Rows::default();
        let batch = match command {
            Command::Split(..) | Command::Raise(..) | Command::Compare(_) | Command::Begin(_) => {
                Ok(Vec::new())
            }
            Command::Session(batch) => {
                fill::<SessionMachine>(&mut rows, batch);
                postcard::to_stdvec(&**batch)
            }
            Command::Inbox(batch) => {
                fill::<InboxMachine>(&mut rows, batch);
                postcard::to_stdvec(&**batch)
            }
            Command::Retain(batch) => {
                fill::<RetainMachine>(&mut rows, batch);
                postcard::to_stdvec(&**batch)
            }
            Command::Control(batch) => {
                fill::<ControlMachine>(&mut rows, batch);
                postcard::to_stdvec(&**batch)
            }
        };
        let mut input = vec![number];
        for (key, value) in &rows.0 {
            for part in [key, value] {
                input.extend((part.len() as u16).to_be_bytes());
                input.extend(part);
            }
        }
        input.extend([0, 0]);
        input.extend(batch.expect("memory takes what is written to it"));
        input
    };
    (0..)
        .zip(&commands())
        .map(|(number, command)| write(number, command))
        .collect()
}

fn row<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut part = || {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (part, behind) = behind.split_at(length);
        *rest = behind;
        Some(part)
    };
    let key = part().filter(|key| !key.is_empty())?;
    Some((key, part()?))
}

/// One batch for each store, of operations that reach far.
fn commands() -> Vec<Command> {
    let message = |topic: &str| {
        Arc::new(ApplicationMessage {
            body: mqtt_proto::MessageBody::new(topic, b"payload"),
            qos: mqtt_proto::QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        })
    };
    let claim = |client: &str, will: bool| {
        SessionOp::Claim(ClaimRequest {
            client: client.into(),
            node: 1,
            node_incarnation: 2,
            clean_start: false,
            expiry: 100,
            will: will.then(|| StoredWill {
                message: message("w"),
                message_expiry: Some(9),
                delay: 1,
            }),
            asked_ms: 5,
        })
    };
    let up = |incarnation| SessionOp::NodeUp {
        node: 1,
        incarnation,
        last_alive_ms: 7,
    };
    let session = vec![
        up(2),
        claim("c", true),
        claim("d", false),
        up(3),
        SessionOp::Due,
    ];
    let attach = |client: &str| InboxOp::Attach {
        client: client.into(),
        epoch: 1,
        node: 1,
        node_incarnation: 2,
        resume: true,
    };
    let subscribe = |client: &str, filters: &[&str]| InboxOp::Subscribe {
        session: client.into(),
        epoch: 1,
        subscriptions: filters
            .iter()
            .map(|filter| StoredSubscription {
                filter: (*filter).into(),
                options: mqtt_proto::SubscriptionOptions::from_byte(
                    1,
                    mqtt_proto::ProtocolVersion::V5,
                )
                .expect("an options byte"),
                id: 3,
            })
            .collect(),
    };
    let inbox = vec![
        InboxOp::NodeUp {
            node: 1,
            incarnation: 2,
        },
        attach("c"),
        attach("d"),
        subscribe("c", &["a/+", "$share/g/a/b"]),
        subscribe("d", &["a/#"]),
        InboxOp::Publish {
            message: message("a/b"),
            publisher: 1,
            origin: None,
        },
        InboxOp::Detach {
            session: "c".into(),
            epoch: 1,
            sent: 1,
        },
        InboxOp::Trim {
            session: "d".into(),
            from: 1,
            below: 9,
            limit: RetentionLimit::Age,
        },
        InboxOp::Trim {
            session: "c".into(),
            from: 1,
            below: 9,
            limit: RetentionLimit::Away {
                epoch: 1,
                group: "$share/g/a/b".into(),
            },
        },
    ];
    let retain = vec![
        RetainOp::Set {
            message: message("a/b"),
        },
        RetainOp::Set {
            message: message("a/c"),
        },
        RetainOp::Expire,
        RetainOp::SetWill {
            message: message("a/c"),
            origin: Origin {
                client: "c".into(),
                incarnation: 1,
                packet_id: 0,
            },
        },
        RetainOp::SetFrom {
            message: message("a/d"),
            publisher: PublisherHash(1),
            connection: ConnectionNumber(1),
        },
    ];
    vec![
        Command::Session(Arc::new(batch(session))),
        Command::Inbox(Arc::new(batch(inbox))),
        Command::Retain(Arc::new(batch(retain))),
        Command::Control(Arc::new(batch(control_ops()))),
        Command::Begin(store_state::api::StoreId::Control),
        Command::Raise(store_state::api::StoreId::Inbox, store_state::Level::RAISED),
        Command::Compare(store_state::api::StoreId::Retain),
    ]
}

/// A user in a group, rules, and what comes again.
fn control_ops() -> Vec<ControlOp> {
    let by = control::By {
        means: control::Means::Token,
        name: "t".into(),
        address: Some(control::Address("::1".into())),
        node: control::Node(1),
    };
    let op = |count, put| ControlOp::Change {
        id: control::ChangeId {
            node: control::Node(1),
            incarnation: control::Incarnation(2),
            count: control::Count(count),
        },
        by: by.clone(),
        changes: vec![control::Change {
            expect: control::Expect::Any,
            put,
        }],
    };
    let group = control::Group {
        priority: control::Priority(-1),
        rules: ["allow publish a/#".into()].into(),
        includes: [].into(),
        class: None,
        note: "".into(),
    };
    let user = control::User {
        enabled: true,
        verifiers: [control::Verifier::Secret(control::Hash([7; 32]))].into(),
        groups: ["g".into()].into(),
        rules: [].into(),
        client_ids: Some("c*".into()),
        class: None,
        superuser: false,
        ends_ms: Some(control::UnixMs(9)),
        note: "n".into(),
        logins_since: control::Revision(0),
    };
    let rules = control::RuleList(["deny all".into()].into());
    vec![
        ControlOp::NodeUp {
            node: control::Node(1),
            incarnation: control::Incarnation(2),
        },
        op(1, control::Put::Group("g".into(), Some(Box::new(group)))),
        op(2, control::Put::User("u".into(), Some(Box::new(user)))),
        op(2, control::Put::Rules(control::RuleList::default())),
        op(3, control::Put::Rules(rules)),
        op(4, control::Put::Group("g".into(), None)),
        op(5, control::Put::User("u".into(), None)),
    ]
}

/// An entry in which so much repeats that it is compressed.
fn compressed() -> Command {
    let message = Arc::new(ApplicationMessage {
        body: mqtt_proto::MessageBody::new("a/topic/that/repeats", b"payload"),
        qos: mqtt_proto::QoS::AtLeastOnce,
        retain: true,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    });
    let op = || RetainOp::Set {
        message: Arc::clone(&message),
    };
    let batch = batch(std::iter::repeat_with(op).take(100).collect());
    Command::Retain(Arc::new(Batch {
        written: store_state::Written::compressible(Arc::default()),
        ..batch
    }))
}

fn batch<O>(ops: Vec<O>) -> Batch<O> {
    let request = |op| Request {
        until: RoutedUntil::FIRST,
        correlation_id: CorrelationId::NONE,
        op,
    };
    Batch {
        header: Header {
            now_ms: 1_000,
            limits: Limits {
                queue: store_state::QueueLimits {
                    messages: 10,
                    bytes: 10_000,
                    full: QueueFull::DropOldest,
                    is_closed: false,
                },
                qos0: Qos0Inbox::Offline,
                retained_messages: 10,
                retained_bytes: 10_000,
                classes: store_state::ClassLimits::NONE,
            },
        },
        requests: ops.into_iter().map(request).collect(),
        bytes: 0,
        requeued: Requeued::default(),
        proposed_here: ProposedHere::default(),
        level: store_state::Level::NEWEST,
        written: store_state::Written::default(),
    }
}

/// Sorted keys and values.
#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl Rows {
    fn write(&mut self, changes: Changes) {
        for (key, value) in changes.entries {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
    }
}

impl Table for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.0.get(key).cloned())
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        if from >= to {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for (key, value) in self.0.range::<[u8], _>(bounds) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Hears all and does nothing.
struct Deaf;

impl SessionOutlet for Deaf {
    fn fire(&mut self, _: &str, _: u64, _: &StoredWill) {}
    fn ended(&mut self, _: &str, _: u64, _: Option<SessionEnd>) {}
    fn known(&mut self, _: &str, _: bool) {}
}

impl InboxOutlet for Deaf {
    fn queued(&mut self, _: u64, _: u64, _: &Item) {}
    fn dropped(&mut self, _: InboxDrop<'_>) {}
    fn filter(&mut self, _: &str, _: bool, _: bool) {}
    fn member(&mut self, _: &str, _: &str, _: Option<&StoredSubscription>) {}
    fn left_behind(&mut self, _: &str, _: u64) {}
}

impl ControlOutlet for Deaf {
    fn changed(&mut self, _: control::Changed) {}
}

/// A machine, and how it is read beside its operations.
trait Fuzzed: Machine {
    /// Whether a broker would propose it.
    fn is_sane(_op: &Self::Op) -> bool {
        true
    }

    fn apply_to(&mut self, header: &Header, op: &Self::Op, rows: &Rows) -> Result<(), TableError>;
    fn look(&mut self, rows: &Rows);
}

impl Fuzzed for SessionMachine {
    fn apply_to(&mut self, header: &Header, op: &Self::Op, rows: &Rows) -> Result<(), TableError> {
        self.apply(header, op, rows, &mut Deaf).map(|_| ())
    }

    fn look(&mut self, _rows: &Rows) {
        let _ = (self.next_deadline(), self.counts());
        self.outstanding(&mut Deaf);
        self.for_each_known(|_| ());
    }
}

impl Fuzzed for InboxMachine {
    fn is_sane(op: &InboxOp) -> bool {
        match op {
            InboxOp::Subscribe { subscriptions, .. } => subscriptions
                .iter()
                .all(|to| mqtt_proto::SubscriptionFilter::parse(&to.filter).is_ok()),
            _ => true,
        }
    }

    fn apply_to(&mut self, header: &Header, op: &Self::Op, rows: &Rows) -> Result<(), TableError> {
        self.apply(header, op, rows, &mut Deaf).map(|_| ())
    }

    fn look(&mut self, rows: &Rows) {
        self.tell_routes(&mut Deaf);
        for inbox in 0..4 {
            let _ = (self.first(inbox, rows), self.queue_len(inbox));
        }
    }
}

impl Fuzzed for RetainMachine {
    fn apply_to(&mut self, header: &Header, op: &Self::Op, rows: &Rows) -> Result<(), TableError> {
        self.apply(header, op, rows, &mut ()).map(|_| ())
    }

    fn look(&mut self, _rows: &Rows) {
        let _ = (self.next_deadline(), self.size());
    }
}

impl Fuzzed for ControlMachine {
    fn apply_to(&mut self, header: &Header, op: &Self::Op, rows: &Rows) -> Result<(), TableError> {
        self.apply(header, op, rows, &mut Deaf).map(|_| ())
    }

    fn look(&mut self, rows: &Rows) {
        let _ = (self.records(), self.bytes(), self.audit_head());
        let _ = self.audit(self.audited().start, rows);
    }
}

/// Fills tables by a checkpoint behind a batch.
fn fill<M: Fuzzed>(rows: &mut Rows, batch: &Batch<M::Op>) {
    let mut machine = M::load(Slots::ALL, rows).expect("empty tables are loaded");
    for request in &batch.requests {
        let applied = machine.apply_to(&batch.header, &request.op, rows);
        assert_eq!(applied, Ok(()), "tables in memory can be read");
    }
    machine.look(rows);
    let mut changes = Changes::default();
    machine.collect(&mut changes);
    rows.write(changes);
    machine.saved();
}

fn on_empty<M: Fuzzed>(batch: &Batch<M::Op>) {
    let mut rows = Rows::default();
    fill::<M>(&mut rows, batch);
    let survey = M::survey(Slots::ALL, &rows);
    if batch.requests.iter().all(|request| M::is_sane(&request.op)) {
        assert_eq!(survey.findings, [], "what a machine writes has no findings");
        fill::<M>(&mut rows, batch);
    } else {
        drop(M::load(Slots::ALL, &rows));
    }
}

fn on_rows<M>(rows: &Rows, batch: &[u8])
where
    M: Fuzzed,
    M::Op: Serialize + DeserializeOwned + Debug,
{
    let survey = M::survey(Slots::ALL, rows);
    let Ok(mut machine) = M::load(Slots::ALL, rows) else {
        assert!(survey.found > 0, "what a machine refuses, a survey finds");
        return;
    };
    machine.look(rows);
    let Ok(batch) = postcard::from_bytes::<Batch<M::Op>>(batch) else {
        return;
    };
    for request in &batch.requests {
        if machine.apply_to(&batch.header, &request.op, rows).is_err() {
            return;
        }
    }
    machine.look(rows);
    machine.collect(&mut Changes::default());
}
