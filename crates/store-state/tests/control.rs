//! The bytes of the control store's operations and rows, as they were when its level was made.
//!
//! `UPDATE_GENERATED=1 cargo test -p herald-store-state --test control` writes the file. A line that changes needs a level of its
//! own (`store_state::LEVELS`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use control::{
    Address, ApiKey, AuditNote, By, Change, ChangeId, Changed, Count, Expect, Field, Group, Hash,
    Incarnation, KeyId, KeySecret, Means, Node, Person, Priority, Put, Revision, Role, RuleList,
    UnixMs, User, Verifier,
};
use mqtt_session::{Qos0Inbox, QueueFull};
use store_state::control::{ControlMachine, ControlOp, ControlOutlet};
use store_state::{
    Changes, ClassLimits, Header, Limits, Machine as _, QueueLimits, Slots, Table, TableError,
};

#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

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
        for (key, value) in self.0.range(from.to_vec()..to.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct Deaf;

impl ControlOutlet for Deaf {
    fn changed(&mut self, _: Changed) {}
}

fn header(now_ms: u64) -> Header {
    Header {
        now_ms,
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

fn texts(texts: &[&str]) -> Box<[Box<str>]> {
    texts.iter().map(|text| Box::from(*text)).collect()
}

fn change(expect: Expect, put: Put) -> Change {
    Change { expect, put }
}

/// Each form of what can be asked at the level of the store's beginning.
fn operations() -> Vec<ControlOp> {
    let group = |includes: &[&str]| Group {
        priority: Priority(-7),
        rules: texts(&["allow publish a/#", "deny all"]),
        includes: texts(includes),
        class: Some("devices".into()),
        note: "of the hall".into(),
    };
    let anna = User {
        enabled: true,
        verifiers: [
            Verifier::Hash("$argon2id$x".into()),
            Verifier::Scram("$scram$y".into()),
        ]
        .into(),
        groups: texts(&["hall", "press"]),
        rules: texts(&["allow subscribe b"]),
        client_ids: Some("anna-*".into()),
        class: None,
        superuser: true,
        ends_ms: Some(UnixMs(1_900_000_000_000)),
        note: "".into(),
        logins_since: Revision(0),
    };
    let device = User {
        enabled: false,
        verifiers: [Verifier::Secret(Hash([9; 32]))].into(),
        groups: texts(&[]),
        rules: texts(&[]),
        client_ids: None,
        class: Some("slow".into()),
        superuser: false,
        ends_ms: None,
        note: "no".into(),
        logins_since: Revision(77),
    };
    let put_group = |name: &str, group| Put::Group(name.into(), Some(Box::new(group)));
    let put_user = |name: &str, user| Put::User(name.into(), Some(Box::new(user)));
    let rules = |lines: &[&str]| Put::Rules(RuleList(texts(lines)));
    let all = [
        (
            Means::Key,
            vec![
                change(Expect::New, put_group("press", group(&[]))),
                change(Expect::Any, put_group("hall", group(&["press"]))),
                change(Expect::New, put_user("anna", anna.clone())),
            ],
        ),
        (
            Means::Person,
            vec![
                change(Expect::Any, put_user("device-1", device)),
                change(Expect::Any, rules(&["user a allow all", "deny all"])),
            ],
        ),
        (
            Means::Token,
            vec![change(
                Expect::Known,
                put_user(
                    "anna",
                    User {
                        enabled: false,
                        ..anna
                    },
                ),
            )],
        ),
        (
            Means::Import,
            vec![change(Expect::Revision(Revision(2)), rules(&["deny all"]))],
        ),
        (
            Means::Import,
            vec![change(Expect::Any, Put::User("device-1".into(), None))],
        ),
    ];
    let changes = (1..).zip(all);
    let changes = changes.map(|(count, (means, changes))| changing(count, means, changes));
    let up = ControlOp::NodeUp {
        node: Node(5),
        incarnation: Incarnation(6),
    };
    changes.chain([up]).collect()
}

fn id(count: u64) -> ChangeId {
    ChangeId {
        node: Node(0x1234_5678_9ABC_DEF0),
        incarnation: Incarnation(3),
        count: Count(count),
    }
}

fn by(count: u64, means: Means) -> By {
    By {
        means,
        name: "ops".into(),
        address: count
            .is_multiple_of(2)
            .then(|| Address("2001:db8::1".into())),
        node: Node(5),
    }
}

fn changing(count: u64, means: Means, changes: Vec<Change>) -> ControlOp {
    ControlOp::Change {
        id: id(count),
        by: by(count, means),
        changes,
    }
}

/// What there is since people and keys can be asked for.
fn operations_with_people() -> Vec<ControlOp> {
    let person = |role, hash: Option<&str>| Person {
        role,
        audits: true,
        enabled: true,
        hash: hash.map(Into::into),
        must_change: false,
        note: "on call".into(),
        logins_since: Revision(0),
    };
    let secret = |byte, ends: Option<u64>| KeySecret {
        sha256: Hash([byte; 32]),
        ends_ms: ends.map(UnixMs),
    };
    let key = |ends: Option<u64>, secrets: &[KeySecret]| ApiKey {
        name: "ci".into(),
        role: Role::Operator,
        audits: false,
        created_ms: UnixMs(1_800_000_000_000),
        ends_ms: ends.map(UnixMs),
        secrets: secrets.into(),
    };
    let put_person = |name: &str, person: Option<Person>| {
        change(Expect::Any, Put::Person(name.into(), person.map(Box::new)))
    };
    let put_key =
        |id, key: Option<ApiKey>| change(Expect::Any, Put::Key(KeyId(id), key.map(Box::new)));
    let admin = Some(person(Role::Administrator, Some("$argon2id$z")));
    let note = AuditNote {
        at: UnixMs(1_800_000_000_001),
        by: by(1, Means::Node),
        action: "nodes.drain".into(),
        target: "mq-1".into(),
        fields: [Field {
            name: "result".into(),
            before: None,
            after: Some("202".into()),
        }]
        .into(),
    };
    vec![
        changing(
            20,
            Means::FirstCode,
            vec![put_person("anna", admin.clone())],
        ),
        changing(21, Means::FirstCode, vec![put_person("eve", admin)]),
        changing(
            22,
            Means::FilePerson,
            vec![
                put_person("ben", Some(person(Role::Viewer, None))),
                put_key(0xDEAD_BEEF, Some(key(None, &[secret(1, None)]))),
                put_key(7, Some(key(Some(1_900_000_000_000), &[secret(2, None)]))),
            ],
        ),
        changing(
            23,
            Means::FileKey,
            vec![
                put_person("ben", None),
                put_key(
                    0xDEAD_BEEF,
                    Some(key(None, &[secret(3, None), secret(1, Some(5))])),
                ),
                put_key(7, None),
            ],
        ),
        changing(24, Means::Person, vec![put_person("anna", None)]),
        ControlOp::Note {
            id: id(1),
            notes: vec![note.clone(), note],
        },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn operations_and_rows_have_the_bytes_that_they_had() {
    compare("level-6", operations());
}

#[test]
fn operations_and_rows_with_people_have_the_bytes_that_they_had() {
    let all = operations().into_iter().chain(operations_with_people());
    compare("level-7", all.collect());
}

fn compare(level: &str, operations: Vec<ControlOp>) {
    let mut rows = Rows::default();
    let mut found = String::new();
    let mut machine = ControlMachine::load(Slots::ALL, &rows).unwrap();
    for (number, op) in (1_000..).zip(operations) {
        let bytes = postcard::to_stdvec(&op).unwrap();
        let read: ControlOp = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{op:?}"));
        let reply = machine.apply(&header(number), &op, &rows, &mut Deaf);
        writeln!(found, "{}\n  {:?}", hex(&bytes), reply.unwrap()).unwrap();
    }
    let mut changes = Changes::default();
    machine.collect(&mut changes);
    machine.saved();
    for (key, value) in changes.entries {
        rows.0
            .insert(key, value.expect("nothing was written before"));
    }
    for (key, value) in &rows.0 {
        writeln!(found, "{} {}", hex(key), hex(value)).unwrap();
    }
    let survey = ControlMachine::survey(Slots::ALL, &rows);
    assert!(survey.findings.is_empty(), "{:?}", survey.findings);
    let again = ControlMachine::load(Slots::ALL, &rows).unwrap();
    assert_eq!(
        format!("{:?}", again.records()),
        format!("{:?}", machine.records())
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = path.join(level).join("control");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == found, "what the code writes is:\n{found}");
}
