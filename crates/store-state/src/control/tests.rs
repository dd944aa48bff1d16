mod model;
mod property;

use ::control::{
    Address, ApiKey, AuditNote, Audited, By, Change, ChangeId, Changed, Count, EntryNumber, Expect,
    Group, Hash, Incarnation, KeyId, KeySecret, Means, Node, Person, Priority, Put, Reason,
    Refused, Revision, Role, RuleList, UnixMs, User, Verifier,
};
use mqtt_session::{Qos0Inbox, QueueFull};

use super::{ControlMachine, ControlOp, ControlOutlet, ControlReply};
use crate::test_replica::Replica;
use crate::{ClassLimits, Header, Limits, Machine, QueueLimits, Table};

impl ControlOutlet for Vec<Changed> {
    fn changed(&mut self, changed: Changed) {
        self.push(changed);
    }
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

fn apply(
    machine: &mut ControlMachine,
    header: &Header,
    op: &ControlOp,
    table: &dyn Table,
) -> String {
    let mut told: Vec<Changed> = Vec::new();
    let reply = machine.apply(header, op, table, &mut told).unwrap();
    format!("{reply:?} {told:?} {:?}", machine.audit_head().0.0)
}

fn user(groups: &[&str], rules: &[&str], password: &str) -> User {
    User {
        enabled: true,
        verifiers: [Verifier::Hash(password.into())].into(),
        groups: boxed(groups),
        rules: boxed(rules),
        client_ids: None,
        class: None,
        superuser: false,
        ends_ms: None,
        note: "".into(),
        logins_since: Revision(0),
    }
}

fn group(rules: &[&str], includes: &[&str]) -> Group {
    Group {
        priority: Priority(0),
        rules: boxed(rules),
        includes: boxed(includes),
        class: None,
        note: "".into(),
    }
}

fn person(role: Role, hash: Option<&str>) -> Person {
    Person {
        role,
        audits: false,
        enabled: true,
        hash: hash.map(Into::into),
        must_change: false,
        note: "".into(),
        logins_since: Revision(0),
    }
}

fn key(role: Role, ends: Option<u64>) -> ApiKey {
    ApiKey {
        name: "ci".into(),
        role,
        audits: false,
        created_ms: UnixMs(1),
        ends_ms: ends.map(UnixMs),
        secrets: [KeySecret {
            sha256: Hash([5; 32]),
            ends_ms: None,
        }]
        .into(),
    }
}

/// The notes of a node with this number.
fn notes(node: Node, number: u64, entries: u8) -> ControlOp {
    let note = AuditNote {
        at: UnixMs(9),
        by: by(),
        action: "nodes.drain".into(),
        target: "n-1".into(),
        fields: [].into(),
    };
    ControlOp::Note {
        id: ChangeId {
            node,
            incarnation: Incarnation(1),
            count: Count(number),
        },
        notes: vec![note; entries.into()],
    }
}

fn boxed(texts: &[&str]) -> Box<[Box<str>]> {
    texts.iter().map(|text| Box::from(*text)).collect()
}

fn by() -> By {
    By {
        means: Means::Key,
        name: "ci".into(),
        address: Some(Address("10.0.0.1".into())),
        node: Node(1),
    }
}

fn op(count: u64, changes: Vec<Change>) -> ControlOp {
    op_by(Means::Key, count, changes)
}

fn op_by(means: Means, count: u64, changes: Vec<Change>) -> ControlOp {
    let id = ChangeId {
        node: Node(1),
        incarnation: Incarnation(1),
        count: Count(count),
    };
    let by = By { means, ..by() };
    ControlOp::Change { id, by, changes }
}

fn put_user(name: &str, user: Option<User>, expect: Expect) -> Change {
    let put = Put::User(name.into(), user.map(Box::new));
    Change { expect, put }
}

fn put_group(name: &str, group: Option<Group>, expect: Expect) -> Change {
    let put = Put::Group(name.into(), group.map(Box::new));
    Change { expect, put }
}

/// A machine and its table, which operations are given to one by one.
struct Stage {
    replica: Replica<ControlMachine>,
    count: u64,
}

impl Stage {
    fn new() -> Self {
        let replica = Replica::new(apply);
        Self { replica, count: 0 }
    }

    fn ask(&mut self, changes: Vec<Change>) -> ControlReply {
        self.count += 1;
        self.again(self.count, changes)
    }

    fn again(&mut self, count: u64, changes: Vec<Change>) -> ControlReply {
        let mut told: Vec<Changed> = Vec::new();
        let Replica { machine, table, .. } = &mut self.replica;
        let op = op(count, changes);
        machine
            .apply(&header(count), &op, table, &mut told)
            .unwrap()
    }

    fn machine(&self) -> &ControlMachine {
        &self.replica.machine
    }
}

fn entries(first: u64, next: u64) -> std::ops::Range<EntryNumber> {
    EntryNumber(first)..EntryNumber(next)
}

fn changed(revision: u64) -> ControlReply {
    let revision = Revision(revision);
    ControlReply::Changed { revision }
}

fn refused(which: usize, why: Reason) -> ControlReply {
    ControlReply::Refused(Refused { which, why })
}

#[test]
fn an_operation_is_done_whole_or_not_at_all() {
    let mut stage = Stage::new();
    let ann = || put_user("ann", Some(user(&["ops"], &[], "h")), Expect::New);
    let missing = Reason::NoSuchGroup("ops".into());
    let ops = || put_group("ops", Some(group(&["allow all x"], &[])), Expect::New);
    assert_eq!(stage.ask(vec![ann(), ops()]), refused(0, missing));
    assert_eq!(
        stage.ask(vec![ops(), ann(), ann()]),
        refused(2, Reason::Exists)
    );
    assert!(stage.machine().user("ann").is_none() && stage.machine().group("ops").is_none());
    assert_eq!(stage.machine().audited(), entries(0, 0));
    assert_eq!(stage.ask(vec![ops(), ann()]), changed(1));
    assert_eq!(stage.machine().audited(), entries(0, 2));
    assert_eq!(stage.machine().user("ann").unwrap().revision, Revision(1));
}

#[test]
fn what_comes_again_is_done_once() {
    let mut stage = Stage::new();
    let ann = |hash| vec![put_user("ann", Some(user(&[], &[], hash)), Expect::Any)];
    assert_eq!(stage.ask(ann("a")), changed(1));
    assert_eq!(stage.ask(ann("b")), changed(2));
    assert_eq!(stage.again(1, ann("a")), changed(1));
    let Verifier::Hash(hash) = &stage.machine().user("ann").unwrap().record.verifiers[0] else {
        panic!("a hash was put");
    };
    assert_eq!(&**hash, "b");
    assert_eq!(stage.machine().audited(), entries(0, 2));
    // What changes nothing has no revision and no entry.
    assert_eq!(stage.ask(ann("b")), changed(2));
    assert_eq!(stage.machine().audited(), entries(0, 2));
}

#[test]
fn a_change_of_what_was_changed_meanwhile_is_refused() {
    let mut stage = Stage::new();
    let expecting = |expect| vec![put_user("ann", Some(user(&[], &["x"], "a")), expect)];
    let at = |revision| Expect::Revision(Revision(revision));
    assert_eq!(stage.ask(expecting(at(1))), refused(0, Reason::Missing));
    assert_eq!(
        stage.ask(expecting(Expect::Known)),
        refused(0, Reason::Missing)
    );
    assert_eq!(stage.ask(expecting(Expect::New)), changed(1));
    assert_eq!(
        stage.ask(expecting(at(7))),
        refused(0, Reason::Revision(Revision(1)))
    );
    let disabled = |expect| {
        let user = User {
            enabled: false,
            ..user(&[], &["x"], "a")
        };
        vec![put_user("ann", Some(user), expect)]
    };
    assert_eq!(stage.ask(disabled(at(1))), changed(2));
    let rules = |expect| Change {
        expect,
        put: Put::Rules(RuleList(boxed(&["allow all x"]))),
    };
    assert_eq!(stage.ask(vec![rules(at(0))]), refused(0, Reason::Missing));
    assert_eq!(stage.ask(vec![rules(Expect::New)]), changed(3));
    assert_eq!(
        stage.ask(vec![rules(Expect::New)]),
        refused(0, Reason::Exists)
    );
}

#[test]
fn logins_of_before_do_not_count_after_another_password_or_a_disabling() {
    let mut stage = Stage::new();
    let since = |stage: &Stage| stage.machine().user("ann").unwrap().record.logins_since;
    let put =
        |stage: &mut Stage, user: User| stage.ask(vec![put_user("ann", Some(user), Expect::Any)]);
    put(&mut stage, user(&[], &[], "a"));
    assert_eq!(since(&stage), Revision(1));
    put(&mut stage, user(&[], &["deny all #"], "a"));
    assert_eq!(since(&stage), Revision(1));
    put(&mut stage, user(&[], &[], "b"));
    assert_eq!(since(&stage), Revision(3));
    let disabled = User {
        enabled: false,
        ..user(&[], &[], "b")
    };
    put(&mut stage, disabled);
    assert_eq!(since(&stage), Revision(4));
    put(&mut stage, user(&[], &[], "b"));
    assert_eq!(since(&stage), Revision(4));
    // One that is made again is another one.
    stage.ask(vec![put_user("ann", None, Expect::Known)]);
    put(&mut stage, user(&[], &[], "b"));
    assert_eq!(since(&stage), Revision(7));
}

#[test]
fn a_group_that_is_named_stays() {
    let mut stage = Stage::new();
    let groups = vec![
        put_group("a", Some(group(&[], &[])), Expect::New),
        put_group("b", Some(group(&[], &["a"])), Expect::New),
        put_user("ann", Some(user(&["a"], &[], "h")), Expect::New),
    ];
    assert_eq!(stage.ask(groups), changed(1));
    let remove = |name: &str| put_group(name, None, Expect::Any);
    assert_eq!(stage.ask(vec![remove("a")]), refused(0, Reason::InUse(2)));
    assert_eq!(stage.ask(vec![remove("b")]), changed(2));
    assert_eq!(stage.ask(vec![remove("a")]), refused(0, Reason::InUse(1)));
    let leave = put_user("ann", Some(user(&[], &[], "h")), Expect::Any);
    assert_eq!(stage.ask(vec![leave, remove("a")]), changed(3));
}

#[test]
fn there_is_an_end_to_what_is_kept() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c", "d"] {
        stage.ask(vec![put_user(name, Some(user(&[], &[], "h")), Expect::New)]);
    }
    let fifth = put_user("e", Some(user(&[], &[], "h")), Expect::Any);
    assert_eq!(
        stage.ask(vec![fifth.clone()]),
        refused(0, Reason::Full("users".into()))
    );
    assert_eq!(
        stage.ask(vec![fifth; 5]),
        refused(4, Reason::Full("changes in one operation".into()))
    );
    let lines = ["x"; 9];
    let many = put_user("a", Some(user(&[], &lines, "h")), Expect::Any);
    assert_eq!(
        stage.ask(vec![many]),
        refused(0, Reason::Full("lines of rules".into()))
    );
    let long = "x".repeat(4_000);
    let long = put_user("a", Some(user(&[], &[&long, &long], "h")), Expect::Any);
    assert_eq!(
        stage.ask(vec![long]),
        refused(0, Reason::Full("bytes".into()))
    );
    let long = put_user(
        "a",
        Some(user(&[], &[&*"x".repeat(4_000); 3], "h")),
        Expect::Any,
    );
    let twice = vec![long.clone(), long];
    assert_eq!(
        stage.ask(twice),
        refused(1, Reason::Full("bytes in one operation".into()))
    );
    let wrong = put_user("a", Some(user(&["b", "a"], &[], "h")), Expect::Any);
    let reply = stage.ask(vec![wrong]);
    assert!(matches!(
        reply,
        ControlReply::Refused(Refused {
            why: Reason::Invalid(_),
            ..
        })
    ));
    for note in 0..20 {
        let changed = User {
            note: note.to_string().into(),
            ..user(&[], &[], "h")
        };
        stage.ask(vec![put_user("a", Some(changed), Expect::Any)]);
    }
    assert_eq!(stage.machine().audited(), entries(12, 24));
    // What is cut is gone, and what is left follows on each other.
    let table = &stage.replica.table;
    assert_eq!(stage.machine().audit(EntryNumber(11), table).unwrap(), None);
    let entries = (12..24).map(|number| stage.machine().audit(EntryNumber(number), table));
    let entries: Vec<_> = entries.map(|entry| entry.unwrap().unwrap()).collect();
    for pair in entries.windows(2) {
        assert_eq!(pair[0].hash.then(&pair[1].bytes), pair[1].hash);
    }
    let last: Audited = postcard::from_bytes(&entries[11].bytes).unwrap();
    assert_eq!(last.by, by());
    assert_eq!(last.revision, stage.machine().revision());
}

#[test]
fn users_are_read_in_order_from_a_name_on() {
    let mut stage = Stage::new();
    for name in ["b", "d", "a"] {
        stage.ask(vec![put_user(name, Some(user(&[], &[], "h")), Expect::New)]);
    }
    let names = |after| -> Vec<String> {
        let users = stage.machine().users(after);
        users.map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(None), ["a", "b", "d"]);
    assert_eq!(names(Some("b")), ["d"]);
    assert_eq!(names(Some("c")), ["d"]);
}

#[test]
fn a_secret_is_written_as_its_hash_and_shown_nowhere() {
    let secret = User {
        verifiers: [Verifier::Secret(Hash([0xAB; 32]))].into(),
        ..user(&[], &[], "h")
    };
    assert!(!format!("{secret:?}").contains("171"));
}

fn put_person(name: &str, person: Option<Person>) -> Change {
    let put = Put::Person(name.into(), person.map(Box::new));
    let expect = Expect::Any;
    Change { expect, put }
}

#[test]
fn somebody_in_the_store_can_always_change_everything_but_who_is_in_a_file_may_take_that_away() {
    let mut stage = Stage::new();
    let ask = |stage: &mut Stage, means, changes| {
        stage.count += 1;
        let mut told: Vec<Changed> = Vec::new();
        let op = op_by(means, stage.count, changes);
        let Replica { machine, table, .. } = &mut stage.replica;
        machine.apply(&header(1), &op, table, &mut told).unwrap()
    };
    let anna = |role| put_person("anna", Some(person(role, Some("h"))));
    let first = vec![anna(Role::Administrator)];
    assert_eq!(ask(&mut stage, Means::FirstCode, first), changed(1));
    // A second code, of another node, makes nobody.
    let second = vec![put_person(
        "eve",
        Some(person(Role::Administrator, Some("h"))),
    )];
    assert_eq!(
        ask(&mut stage, Means::FirstCode, second),
        refused(0, Reason::NotFirst)
    );
    for changes in [
        vec![put_person("anna", None)],
        vec![anna(Role::Operator)],
        vec![put_person("anna", Some(person(Role::Administrator, None)))],
        vec![
            anna(Role::Viewer),
            put_group("g", Some(group(&[], &[])), Expect::Any),
        ],
    ] {
        let why = Reason::LastAdministrator;
        assert_eq!(ask(&mut stage, Means::Person, changes), refused(0, why));
    }
    assert!(stage.machine().group("g").is_none());
    // A key that ends keeps nobody in; one that stays does.
    let put_key = |ends| Change {
        expect: Expect::Any,
        put: Put::Key(KeyId(1), Some(Box::new(key(Role::Administrator, ends)))),
    };
    let swap = |ends| vec![put_key(ends), put_person("anna", None)];
    assert_eq!(
        ask(&mut stage, Means::Key, swap(Some(5))),
        refused(1, Reason::LastAdministrator)
    );
    assert_eq!(ask(&mut stage, Means::Key, swap(None)), changed(2));
    let gone = Change {
        expect: Expect::Any,
        put: Put::Key(KeyId(1), None),
    };
    assert_eq!(
        ask(&mut stage, Means::Key, vec![gone.clone()]),
        refused(0, Reason::LastAdministrator)
    );
    assert_eq!(ask(&mut stage, Means::FileKey, vec![gone]), changed(3));
    assert_eq!(
        ask(
            &mut stage,
            Means::FirstCode,
            vec![anna(Role::Administrator)]
        ),
        changed(4)
    );
}

#[test]
fn notes_are_in_the_audit_once() {
    let mut stage = Stage::new();
    let ask = |stage: &mut Stage, op: &ControlOp| {
        let mut told: Vec<Changed> = Vec::new();
        let Replica { machine, table, .. } = &mut stage.replica;
        let reply = machine.apply(&header(1), op, table, &mut told).unwrap();
        assert_eq!(told, []);
        reply
    };
    assert_eq!(ask(&mut stage, &notes(Node(7), 3, 2)), changed(0));
    assert_eq!(ask(&mut stage, &notes(Node(7), 3, 2)), changed(0));
    assert_eq!(ask(&mut stage, &notes(Node(7), 2, 2)), changed(0));
    assert_eq!(stage.machine().audited(), entries(0, 2));
    ask(&mut stage, &notes(Node(7), 4, 1));
    assert_eq!(stage.machine().audited(), entries(0, 3));
    let entry = stage.machine().audit(EntryNumber(2), &stage.replica.table);
    let entry = Audited::read(&entry.unwrap().unwrap().bytes).unwrap();
    assert_eq!((&*entry.action(), &*entry.target()), ("nodes.drain", "n-1"));
    // Of the third node, the first one is forgotten.
    for node in [8, 9] {
        ask(&mut stage, &notes(Node(node), 1, 1));
    }
    ask(&mut stage, &notes(Node(9), 1, 1));
    assert_eq!(stage.machine().audited(), entries(0, 5));
    let long = ControlOp::Note {
        id: ChangeId {
            node: Node(9),
            incarnation: Incarnation(1),
            count: Count(2),
        },
        notes: vec![AuditNote {
            at: UnixMs(1),
            by: by(),
            action: "".into(),
            target: "".into(),
            fields: [].into(),
        }],
    };
    let reply = ask(&mut stage, &long);
    assert!(matches!(
        reply,
        ControlReply::Refused(Refused { which: 0, .. })
    ));
}

#[test]
fn logs_of_levels_without_people_have_none() {
    let lowered = |op: &ControlOp| op.clone().lowered(crate::Level::CONTROL);
    let users = op_by(Means::FileKey, 1, vec![put_user("a", None, Expect::Any)]);
    let Some(ControlOp::Change { by, .. }) = lowered(&users) else {
        panic!("users are of that level");
    };
    assert_eq!(by.means, Means::Key);
    let people = op(1, vec![put_person("anna", None)]);
    assert!(lowered(&people).is_none() && lowered(&notes(Node(1), 1, 1)).is_none());
    assert!(people.lowered(crate::Level::PEOPLE).is_some());
}
