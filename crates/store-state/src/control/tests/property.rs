//! Any operations in any order, with checkpoints and crashes, against the model.

use proptest::prelude::*;
use proptest::sample::select;

use super::model::Model;
use super::*;

const USERS: [&str; 5] = ["ann", "bob", "cyd", "dan", "eve"];
const GROUPS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// `again`: with the number of an operation before.
    Op(Means, Vec<Change>, Option<u64>),
    /// Notes, this many, as the last ones of a node or as the same again.
    Notes(Node, u8, bool),
    Collect,
    Saved,
    Crash(bool),
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        6 => Just(Expect::Any),
        1 => Just(Expect::New),
        1 => Just(Expect::Known),
        2 => (0..12u64).prop_map(|revision| Expect::Revision(Revision(revision))),
    ]
}

fn names(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(of, 0..=2)
}

fn lines() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(select(&["allow all x", "deny all y"][..]), 0..4)
}

fn change() -> impl Strategy<Value = Change> {
    let of_user = (
        select(&USERS[..]),
        names(&GROUPS),
        lines(),
        any::<bool>(),
        any::<bool>(),
    );
    let of_user = of_user.prop_map(|(name, groups, rules, is_first, enabled)| {
        let hash = if is_first { "one" } else { "two" };
        let user = User {
            enabled,
            ..user(&groups, &rules, hash)
        };
        Put::User(name.into(), Some(Box::new(user)))
    });
    let of_group = (select(&GROUPS[..]), lines(), names(&GROUPS));
    let of_group =
        of_group.prop_filter_map("a group includes itself", |(name, rules, includes)| {
            let group = (!includes.contains(&name)).then(|| Box::new(group(&rules, &includes)))?;
            Some(Put::Group(name.into(), Some(group)))
        });
    let roles = || select(&[Role::Viewer, Role::Administrator][..]);
    let of_person = (select(&USERS[..]), roles(), any::<bool>(), any::<bool>());
    let of_person = of_person.prop_map(|(name, role, enabled, has_hash)| {
        let person = Person {
            enabled,
            ..person(role, has_hash.then_some("h"))
        };
        Put::Person(name.into(), Some(Box::new(person)))
    });
    let ids = || (0..5u32).prop_map(KeyId);
    let of_key = (ids(), roles(), any::<bool>());
    let of_key = of_key
        .prop_map(|(id, role, ends)| Put::Key(id, Some(Box::new(key(role, ends.then_some(9))))));
    let put = prop_oneof![
        4 => of_person,
        4 => of_key,
        2 => select(&USERS[..]).prop_map(|name| Put::Person(name.into(), None)),
        2 => ids().prop_map(|id| Put::Key(id, None)),
        6 => of_user,
        4 => of_group,
        2 => select(&USERS[..]).prop_map(|name| Put::User(name.into(), None)),
        2 => select(&GROUPS[..]).prop_map(|name| Put::Group(name.into(), None)),
        2 => lines().prop_map(|lines| Put::Rules(RuleList(boxed(&lines)))),
    ];
    (expect(), put).prop_map(|(expect, put)| Change { expect, put })
}

fn means() -> impl Strategy<Value = Means> {
    let all = [Means::Key, Means::Key, Means::Token, Means::FirstCode];
    select(all.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || proptest::collection::vec(change(), 1..6);
    prop_oneof![
        20 => (means(), changes()).prop_map(|(means, changes)| Step::Op(means, changes, None)),
        2 => (changes(), 1..9u64)
            .prop_map(|(changes, ago)| Step::Op(Means::Key, changes, Some(ago))),
        4 => ((1..3u64).prop_map(Node), 1..4u8, any::<bool>())
            .prop_map(|(node, count, again)| Step::Notes(node, count, again)),
        4 => Just(Step::Collect),
        4 => Just(Step::Saved),
        2 => any::<bool>().prop_map(Step::Crash),
    ]
}

fn compare(machine: &ControlMachine, model: &Model) {
    let users: Vec<_> = machine.users(None).collect();
    assert_eq!(users.len(), model.users.len());
    for (name, user) in users {
        let (revision, expected) = &model.users[name];
        assert_eq!(
            (user.revision.0, &user.record),
            (*revision, expected),
            "{name}"
        );
    }
    let groups: Vec<_> = machine.groups().collect();
    assert_eq!(groups.len(), model.groups.len());
    for (name, group) in groups {
        let (revision, expected) = &model.groups[name];
        assert_eq!(
            (group.revision.0, &group.record),
            (*revision, expected),
            "{name}"
        );
    }
    let records = machine.records();
    let people = records.people.iter();
    let people = people.map(|(name, of)| (name.to_string(), (of.revision.0, of.record.clone())));
    assert_eq!(
        people.collect::<std::collections::BTreeMap<_, _>>(),
        model.people
    );
    let keys = records.keys.iter();
    let keys = keys.map(|(id, of)| (*id, (of.revision.0, of.record.clone())));
    assert_eq!(
        keys.collect::<std::collections::BTreeMap<_, _>>(),
        model.keys
    );
    let (revision, expected) = &model.rules;
    assert_eq!(machine.rules().record, *expected);
    assert_eq!(machine.rules().revision.0, *revision);
    assert_eq!(machine.revision().0, model.revision);
    let first = model.audited.saturating_sub(12);
    assert_eq!(machine.audited(), entries(first, model.audited));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_machine_does_as_the_model_does(steps in proptest::collection::vec(step(), 1..80)) {
        let mut replica = Replica::new(apply);
        let mut model = Model::default();
        let mut count = 0;
        let mut noted = std::collections::BTreeMap::<Node, u64>::new();
        for step in steps {
            match step {
                Step::Notes(node, entries, again) => {
                    let last = noted.entry(node).or_default();
                    let is_again = again && *last > 0;
                    *last += u64::from(!is_again);
                    let expected = if is_again { 0 } else { u64::from(entries) };
                    let op = notes(node, *last, entries);
                    replica.apply(&header(1), &op);
                    model.audited += expected;
                }
                Step::Op(means, changes, ago) => {
                    let number = match ago {
                        Some(ago) => count.max(ago) - ago,
                        None => {
                            count += 1;
                            count
                        }
                    };
                    let op = op_by(means, number, changes.clone());
                    let ControlOp::Change { id, .. } = &op else {
                        unreachable!("the steps are changes");
                    };
                    let expected = model.apply(*id, means, &changes);
                    let outcome = replica.apply(&header(number), &op);
                    match expected {
                        Some(revision) => {
                            let told = format!("{:?} ", changed(revision));
                            prop_assert!(outcome.starts_with(&told), "{} is not {}", outcome, told);
                        }
                        None => prop_assert!(outcome.starts_with("Refused"), "{}", outcome),
                    }
                }
                Step::Collect => replica.collect(),
                Step::Saved => replica.saved(),
                Step::Crash(written) => replica.crash(written),
            }
            compare(&replica.machine, &model);
        }
        // All that is kept can be read, wherever it is.
        let audited = replica.machine.audited();
        for number in (audited.start.0..audited.end.0).map(EntryNumber) {
            prop_assert!(replica.machine.audit(number, &replica.table).unwrap().is_some());
        }
    }
}
