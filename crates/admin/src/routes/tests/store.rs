//! A control store of one machine, without a log.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use control::{
    ApiKey, AuditNote, By, Change, ChangeId, Changed, Count, EntryNumber, Expect, Incarnation,
    KeyId, Means, Node, Put, Revision, UnixMs, Verifier,
};
use control_view::View;
use futures_util::FutureExt as _;
use mqtt_session::{Qos0Inbox, QueueFull};
use parking_lot::Mutex;
use store_state::control::{ControlMachine, ControlOp, ControlOutlet, ControlReply};
use store_state::{
    ClassLimits, Header, Limits, Machine as _, QueueLimits, Slots, Table, TableError,
};
use zeroize::Zeroizing;

use crate::{Access, Asked, AuditPart, ChangeError, Changing, Made, Often, Trail, WeakHashes};

/// What is to be in the audit besides changes.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) notes: Mutex<Vec<AuditNote>>,
    pub(super) counted: Mutex<Vec<Often>>,
}

impl Trail for Noted {
    fn node(&self) -> Node {
        Node(1)
    }

    fn note(&self, note: AuditNote) {
        self.notes.lock().push(note);
    }

    fn count(&self, often: Often) {
        self.counted.lock().push(often);
    }
}

#[derive(Debug)]
pub(super) struct Store {
    view: Arc<View>,
    machine: Mutex<(ControlMachine, u64)>,
    /// What is answered in its place.
    pub(super) error: Mutex<Option<ChangeError>>,
    /// Answers that all is done, and does nothing.
    pub(super) is_idle: Mutex<bool>,
    pub(super) age: Mutex<Duration>,
    pub(super) hashed: Mutex<usize>,
    /// Where changes do not count.
    pub(super) missing: Mutex<Vec<Node>>,
    pub(super) last_by: Mutex<Option<By>>,
    pub(super) trail: Arc<Noted>,
    pub(super) last_expected: Mutex<Option<Expect>>,
}

/// A table without rows.
struct Empty;

impl Table for Empty {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(None)
    }

    fn range(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        Ok(())
    }
}

struct Outlet(Arc<View>);

impl ControlOutlet for Outlet {
    fn changed(&mut self, changed: Changed) {
        self.0.changed(&changed);
    }
}

impl Default for Store {
    fn default() -> Self {
        let machine = ControlMachine::load(Slots::ALL, &Empty).unwrap();
        Self {
            view: Arc::default(),
            machine: Mutex::new((machine, 0)),
            error: Mutex::default(),
            is_idle: Mutex::default(),
            age: Mutex::default(),
            hashed: Mutex::default(),
            missing: Mutex::default(),
            last_by: Mutex::default(),
            trail: Arc::default(),
            last_expected: Mutex::default(),
        }
    }
}

impl Store {
    /// There is a key of this identifier from now on.
    pub(super) fn put_key(&self, id: u32) {
        let key = ApiKey {
            name: "k".into(),
            role: control::Role::Viewer,
            audits: false,
            created_ms: UnixMs(1),
            ends_ms: None,
            secrets: [].into(),
        };
        let by = By {
            means: Means::Token,
            name: "t".into(),
            address: None,
            node: Node(1),
        };
        let change = Change {
            expect: Expect::Any,
            put: Put::Key(KeyId(id), Some(Box::new(key))),
        };
        self.apply(by, vec![change]).unwrap();
    }

    /// Another node has made changes, and it is not confirmed that there are no more.
    pub(super) fn unconfirmed(&self, by: By, changes: Vec<Change>) {
        self.apply(by, changes).unwrap();
    }

    pub(super) fn apply(&self, by: By, changes: Vec<Change>) -> Result<Revision, ChangeError> {
        if let Some(error) = self.error.lock().clone() {
            return Err(error);
        }
        if *self.is_idle.lock() {
            return Ok(self.view.revision());
        }
        *self.last_by.lock() = Some(by.clone());
        *self.last_expected.lock() = changes.first().map(|change| change.expect);
        let mut machine = self.machine.lock();
        machine.1 += 1;
        let id = ChangeId {
            node: Node(1),
            incarnation: Incarnation(1),
            count: Count(machine.1),
        };
        let op = ControlOp::Change { id, by, changes };
        let mut outlet = Outlet(Arc::clone(&self.view));
        match machine.0.apply(&header(), &op, &Empty, &mut outlet) {
            Ok(ControlReply::Changed { revision }) => Ok(revision),
            Ok(ControlReply::Refused(refused)) => Err(ChangeError::Refused(refused)),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Access for Store {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    fn node(&self) -> Node {
        Node(1)
    }

    fn age(&self) -> Duration {
        *self.age.lock()
    }

    fn change(&self, by: By, changes: Vec<Change>) -> Changing {
        let changed = self.apply(by, changes);
        self.view.confirmed(Revision(0));
        let missing = self.missing.lock().clone();
        let made = changed.map(|revision| Made { revision, missing });
        async move { made }.boxed()
    }

    fn audit(&self, from: EntryNumber, limit: usize) -> Option<AuditPart> {
        let machine = &self.machine.lock().0;
        let kept = machine.audited();
        let numbers = (from.max(kept.start).0..kept.end.0).take(limit);
        let entries = numbers.map(|number| {
            let number = EntryNumber(number);
            let entry = machine.audit(number, &Empty).unwrap();
            (number, entry.expect("all are in memory"))
        });
        Some(AuditPart {
            kept,
            head: machine.audit_head(),
            entries: entries.collect(),
        })
    }

    fn trail(&self) -> Arc<dyn Trail> {
        Arc::clone(&self.trail) as _
    }

    fn hash(&self, password: Zeroizing<String>) -> Asked<Verifier> {
        *self.hashed.lock() += 1;
        let hash = Verifier::Hash(format!("hash of {} bytes", password.len()).into());
        async move { Ok(hash) }.boxed()
    }

    fn verifier(&self, hash: &str, _: WeakHashes) -> Result<Verifier, String> {
        match hash.starts_with("$argon2id$") {
            true => Ok(Verifier::Hash(hash.into())),
            false if hash.starts_with("$scram-") => Ok(Verifier::Scram(hash.into())),
            false => Err("no hash".to_owned()),
        }
    }
}

fn header() -> Header {
    Header {
        now_ms: 1,
        limits: Limits {
            queue: QueueLimits {
                messages: 0,
                bytes: 0,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Never,
            retained_messages: 0,
            retained_bytes: 0,
            classes: ClassLimits::NONE,
        },
    }
}
