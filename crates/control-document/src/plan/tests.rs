use std::sync::Arc;

use control::{ApiKey, Hash, KeySecret, Person, Priority, Revision, Role, UnixMs, User, Verifier};
use proptest::prelude::*;

use super::*;
use crate::convert::{Whose, nobody};

fn read(_: Whose, hash: &str) -> Result<Verifier, String> {
    match hash.strip_prefix('$') {
        Some(_) => Ok(Verifier::Hash(hash.into())),
        None => Err("no hash".to_owned()),
    }
}

/// The store, as far as plans are concerned: it refuses what `store-state` refuses.
fn apply(records: &mut Records, changes: impl IntoIterator<Item = Change>) -> Result<(), String> {
    let mut groups = (*records.groups).clone();
    records.revision.0 += 1;
    let revision = records.revision;
    for change in changes {
        change.check().map_err(|error| error.to_string())?;
        let found = match &change.put {
            Put::User(name, _) => records.users.get(name).map(|stored| stored.revision),
            Put::Group(name, _) => groups.get(name).map(|stored| stored.revision),
            Put::Rules(_) => {
                (records.rules.record != RuleList::default()).then_some(records.rules.revision)
            }
            Put::Person(name, _) => records.people.get(name).map(|stored| stored.revision),
            Put::Key(id, _) => records.keys.get(id).map(|stored| stored.revision),
        };
        let meets = match change.expect {
            Expect::Any => true,
            Expect::New => found.is_none(),
            Expect::Known => found.is_some(),
            Expect::Revision(expected) => found == Some(expected),
        };
        if !meets {
            return Err(format!("{change:?} finds {found:?}"));
        }
        match change.put {
            Put::User(name, Some(user)) => {
                if let Some(group) = user.groups.iter().find(|of| !groups.contains_key(*of)) {
                    return Err(format!("{name} is in {group}, which is missing"));
                }
                let record = *user;
                let stored = Stored { revision, record };
                records.users.insert(name, stored.into());
            }
            Put::User(name, None) => {
                records.users.remove(&name);
            }
            Put::Group(name, Some(group)) => {
                if let Some(other) = group.includes.iter().find(|of| !groups.contains_key(*of)) {
                    return Err(format!("{name} includes {other}, which is missing"));
                }
                let record = *group;
                groups.insert(name, Stored { revision, record }.into());
            }
            Put::Group(name, None) => {
                let of_users = records.users.values().flat_map(|user| &user.record.groups);
                let of_groups = groups.values().flat_map(|group| &group.record.includes);
                if of_users.chain(of_groups).any(|of| *of == name) {
                    return Err(format!("{name} is in use"));
                }
                groups.remove(&name);
            }
            Put::Rules(record) => records.rules = Stored { revision, record }.into(),
            Put::Person(name, person) => {
                let people = Arc::make_mut(&mut records.people);
                match person.map(|record| *record) {
                    Some(record) => people.insert(name, Stored { revision, record }.into()),
                    None => people.remove(&name),
                };
            }
            Put::Key(id, key) => {
                let keys = Arc::make_mut(&mut records.keys);
                match key.map(|record| *record) {
                    Some(record) => keys.insert(id, Stored { revision, record }.into()),
                    None => keys.remove(&id),
                };
            }
        }
    }
    records.groups = groups.into();
    Ok(())
}

fn changes(plan: &Plan) -> Vec<Change> {
    plan.steps.iter().map(|step| step.change.clone()).collect()
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Names of existing groups.
fn some(names: Vec<&'static str>) -> impl Strategy<Value = Box<[Box<str>]>> {
    let most = names.len();
    prop::sample::subsequence(names, 0..=most)
        .prop_map(|names| names.into_iter().map(Into::into).collect())
}

/// Half of the numbers are administrators.
fn role_of(number: u8) -> Role {
    match number {
        0..=2 => Role::Administrator,
        3 => Role::Operator,
        _ => Role::Viewer,
    }
}

fn person_of(number: u8) -> Person {
    Person {
        role: role_of(number),
        audits: number == 4,
        enabled: number != 1,
        hash: Some(format!("${number}").into()),
        must_change: number == 3,
        note: "n".into(),
        logins_since: Revision(0),
    }
}

fn key_of(number: u8) -> ApiKey {
    let ends_ms = (number == 2).then_some(UnixMs(5_000));
    let secret = |ends_ms| KeySecret {
        sha256: Hash([number; 32]),
        ends_ms,
    };
    ApiKey {
        name: format!("key {number}").into(),
        role: role_of(number),
        audits: number == 4,
        created_ms: UnixMs(1_000),
        ends_ms,
        secrets: [secret(None), secret(Some(UnixMs(1_500)))].into(),
    }
}

fn has_administrator(records: &Records) -> bool {
    let people = records.people.values();
    let mut keys = records.keys.values();
    people.map(|stored| &stored.record).any(Person::administers)
        || keys.any(|stored| stored.record.administers())
}

/// Records of a few names, in which groups may include each other.
pub(crate) fn records() -> impl Strategy<Value = Records> {
    prop::sample::subsequence(NAMES.to_vec(), 0..=NAMES.len())
        .prop_flat_map(|groups| {
            let includes = groups
                .iter()
                .map(|_| some(groups.clone()))
                .collect::<Vec<_>>();
            let users = prop::collection::vec((prop::option::of(some(groups.clone())), 0..3_u8), 6);
            let rules = prop::collection::vec(0..2_u8, 0..3);
            let role = || prop::option::of(0..6_u8);
            let people = prop::collection::vec((role(), role()), 4);
            (Just(groups), includes, users, rules, people, 0..2_i32)
        })
        .prop_map(|(names, includes, users, rules, people, priority)| {
            let revision = Revision(1);
            let mut records = Records {
                revision,
                ..Records::default()
            };
            let groups = names.iter().zip(includes).map(|(name, includes)| {
                let record = Group {
                    priority: Priority(priority),
                    rules: Box::default(),
                    includes: includes.into_iter().filter(|of| **of != **name).collect(),
                    class: None,
                    note: "".into(),
                };
                (Box::from(*name), Arc::new(Stored { revision, record }))
            });
            records.groups = Arc::new(groups.collect());
            for (name, (groups, number)) in NAMES.iter().zip(users) {
                let Some(groups) = groups else { continue };
                let record = User {
                    groups,
                    verifiers: [
                        Verifier::Secret(Hash([number; 32])),
                        Verifier::Hash(format!("${number}").into()),
                    ]
                    .into(),
                    ..nobody()
                };
                records
                    .users
                    .insert((*name).into(), Stored { revision, record }.into());
            }
            let lines = rules.iter().map(|line| line.to_string().into());
            let record = RuleList(lines.collect());
            records.rules = Stored { revision, record }.into();
            for (number, (person, key)) in (0_u8..).zip(people) {
                let name = NAMES[usize::from(number)];
                if let Some(record) = person.map(person_of) {
                    let stored = Stored { revision, record };
                    Arc::make_mut(&mut records.people).insert(name.into(), stored.into());
                }
                if let Some(record) = key.map(key_of) {
                    let id = KeyId(u32::from(number));
                    let stored = Stored { revision, record };
                    Arc::make_mut(&mut records.keys).insert(id, stored.into());
                }
            }
            records
        })
}

proptest! {
    #[test]
    fn a_replace_gives_the_document(before in records(), after in records(), with_rules: bool, with_people: bool) {
        let mut document = Document::of(&after, true);
        if !with_rules {
            document.rules = None;
        }
        if !with_people {
            (document.people, document.keys) = (Section::default(), Section::default());
        }
        let plan = plan(&before, &document, Mode::Replace, &read).unwrap();
        let mut made = before.clone();
        apply(&mut made, changes(&plan)).unwrap();
        let expected = Document {
            rules: document.rules.clone().or(Document::of(&before, true).rules),
            people: match with_people {
                true => document.people.clone(),
                false => Document::of(&before, true).people,
            },
            keys: match with_people {
                true => document.keys.clone(),
                false => Document::of(&before, true).keys,
            },
            ..document.clone()
        };
        // The verifiers of a user that has the same ones keep their order.
        prop_assert_eq!(Document::of(&made, true), expected);
        let again = super::plan(&made, &document, Mode::Replace, &read).unwrap();
        prop_assert!(again.steps.is_empty());
    }

    #[test]
    fn a_document_of_all_records_is_the_records(all in records()) {
        let document = Document::of(&all, true);
        // Whatever the order of a user's verifiers is: another one would disconnect its clients.
        let again = plan(&all, &document, Mode::Replace, &read).unwrap();
        prop_assert!(again.steps.is_empty());
        let made = document.records(all.revision, &read).unwrap();
        prop_assert_eq!(made.revision, all.revision);
        prop_assert_eq!(&made.groups, &all.groups);
        prop_assert_eq!(Document::of(&made, true), document);
    }

    #[test]
    fn a_merge_keeps_what_the_document_does_not_name(before in records(), after in records()) {
        let document = Document::of(&after, true);
        let plan = plan(&before, &document, Mode::Merge, &read).unwrap();
        prop_assert_eq!(plan.counts.removed, 0);
        let mut made = before.clone();
        apply(&mut made, changes(&plan)).unwrap();
        for (name, user) in &made.users {
            let expected = after.users.get(name).or_else(|| before.users.get(name)).unwrap();
            // The verifiers may be in another order.
            let entry = |user: &User| UserEntry::of(name, user, true);
            prop_assert_eq!(entry(&user.record), entry(&expected.record));
        }
        prop_assert_eq!(&made.rules.record, &after.rules.record);
        let count = plan.counts;
        let of_people = document.people.len() + document.keys.len();
        let all = document.users.len() + document.groups.len() + of_people + 1;
        prop_assert_eq!(count.created + count.changed + count.kept, all);
    }

    /// What a node does with each part gives the same as all steps at once.
    #[test]
    fn parts_one_after_the_other_give_the_document(before in records(), after in records()) {
        let document = Document::of(&after, true);
        let whole = plan(&before, &document, Mode::Replace, &read).unwrap();
        let mut made = before.clone();
        for part in whole.parts() {
            let plan = plan(&made, &part, Mode::Merge, &read).unwrap();
            apply(&mut made, changes(&plan)).unwrap();
        }
        prop_assert_eq!(Document::of(&made, true), document);
    }

    /// Wherever parts end, the store refuses none of them as that which takes the last administrator away.
    #[test]
    fn there_is_an_administrator_after_each_step(before in records(), after in records()) {
        prop_assume!(has_administrator(&before) && has_administrator(&after));
        let document = Document::of(&after, true);
        let plan = plan(&before, &document, Mode::Replace, &read).unwrap();
        let mut made = before.clone();
        for change in changes(&plan) {
            apply(&mut made, [change]).unwrap();
            prop_assert!(has_administrator(&made));
        }
    }
}

fn entry(name: &str, hash: &str) -> UserEntry {
    UserEntry {
        name: name.to_owned(),
        hashes: vec![hash.to_owned()],
        ..UserEntry::default()
    }
}

fn of_users(users: Vec<UserEntry>) -> Document {
    Document {
        users: users.into(),
        ..Document::default()
    }
}

#[test]
fn a_part_has_a_thousand_changes_and_less_than_two_mebibytes() {
    let users = (0..2_500).map(|number| entry(&format!("u{number:05}"), "$x"));
    let mut document = of_users(users.collect());
    let made = |document: &Document| {
        let plan = plan(&Records::default(), document, Mode::Merge, &read).unwrap();
        plan.parts()
            .map(|part| part.users.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(made(&document), [1_000, 1_000, 500]);
    for user in &mut document.users {
        user.rules = vec!["x".repeat(4_000)];
    }
    let lengths = made(&document);
    assert_eq!(lengths.iter().sum::<usize>(), 2_500);
    assert!(
        lengths.iter().all(|users| users * 4_000 < 3 << 19),
        "{lengths:?}"
    );
}

#[test]
fn a_user_without_hashes_keeps_those_that_are_there() {
    let mut before = Records::default();
    let first = plan(
        &before,
        &of_users(vec![entry("ann", "$x")]),
        Mode::Merge,
        &read,
    )
    .unwrap();
    apply(&mut before, changes(&first)).unwrap();
    let entry = UserEntry {
        hashes: Vec::new(),
        note: "n".to_owned(),
        ..entry("ann", "")
    };
    let made = plan(&before, &of_users(vec![entry.clone()]), Mode::Merge, &read).unwrap();
    assert_eq!(
        made.counts,
        Counts {
            changed: 1,
            ..Counts::default()
        }
    );
    apply(&mut before, changes(&made)).unwrap();
    assert_eq!(before.users["ann"].record.verifiers.len(), 1);
    let new = UserEntry {
        name: "ben".to_owned(),
        ..entry
    };
    let error = plan(&before, &of_users(vec![new]), Mode::Merge, &read).unwrap_err();
    assert_eq!(
        error.to_string(),
        "user \"ben\": `hashes`: a new user needs one of `hashes` and `secrets`"
    );
    assert_eq!(error.at, "/users/0/hashes");
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    let users = |users| of_users(users);
    let group = |name: &str| GroupEntry {
        name: name.to_owned(),
        ..GroupEntry::default()
    };
    let of = |text: &str, field: fn(&mut UserEntry)| {
        let mut user = entry(text, "$x");
        field(&mut user);
        of_users(vec![user])
    };
    let removes = Document {
        remove: crate::Removals {
            users: vec!["a".to_owned()],
            ..crate::Removals::default()
        },
        ..users(vec![entry("a", "$x")])
    };
    for (document, at) in [
        (users(vec![entry("a", "$x"), entry("a", "$x")]), "/users/1"),
        (users(vec![entry("a", "secret")]), "/users/0/hashes"),
        (
            of("a", |user| user.secrets = vec!["zz".to_owned()]),
            "/users/0/secrets",
        ),
        (
            of("a", |user| user.ends_at = Some("soon".to_owned())),
            "/users/0/ends_at",
        ),
        (
            of("a", |user| user.groups = vec!["g".to_owned()]),
            "/users/0/groups",
        ),
        (of("", |_| ()), "/users/0/name"),
        (
            of("a", |user| user.rules = vec!["x\ny".to_owned()]),
            "/users/0/rules",
        ),
        (removes, "/remove/users"),
        (
            Document {
                groups: vec![GroupEntry {
                    includes: vec!["h".to_owned()],
                    ..group("g")
                }]
                .into(),
                ..Document::default()
            },
            "/groups/0/includes",
        ),
        (
            Document {
                rules: Some(vec!["x\ny".to_owned()]),
                ..Document::default()
            },
            "/rules",
        ),
    ] {
        let error = plan(&Records::default(), &document, Mode::Merge, &read).unwrap_err();
        assert_eq!(error.at, at, "{error}");
        assert!(!error.to_string().contains("secret\""), "{error}");
    }
}

#[test]
fn a_group_that_somebody_names_is_not_removed() {
    let mut before = Records::default();
    let group = GroupEntry {
        name: "g".to_owned(),
        ..GroupEntry::default()
    };
    let user = UserEntry {
        groups: vec!["g".to_owned()],
        ..entry("ann", "$x")
    };
    let document = Document {
        groups: vec![group].into(),
        ..of_users(vec![user])
    };
    let made = plan(&before, &document, Mode::Merge, &read).unwrap();
    apply(&mut before, changes(&made)).unwrap();
    let remove = |users: &[&str]| Document {
        remove: crate::Removals {
            users: users.iter().map(|name| (*name).to_owned()).collect(),
            groups: vec!["g".to_owned(), "nobody".to_owned()],
            ..crate::Removals::default()
        },
        ..Document::default()
    };
    let error = plan(&before, &remove(&[]), Mode::Merge, &read).unwrap_err();
    assert_eq!(error.record, Target::Group("g".into()));
    let made = plan(&before, &remove(&["ann"]), Mode::Merge, &read).unwrap();
    assert_eq!(made.counts.removed, 2);
    apply(&mut before, changes(&made)).unwrap();
    assert!(before.groups.is_empty());
}

/// A plan takes time in proportion to the document: one that is quadratic takes hours here.
#[test]
fn a_plan_of_100_000_users_is_made() {
    let users = (0..100_000).map(|number| entry(&format!("u{number}"), "$x"));
    let document = of_users(users.collect());
    let made = plan(&Records::default(), &document, Mode::Replace, &read).unwrap();
    assert_eq!(made.counts.created, 100_000);
    assert_eq!(made.parts().count(), 100);
}

#[test]
fn a_section_that_is_missing_leaves_its_records() {
    let mut before = Records::default();
    let document = Document {
        groups: vec![GroupEntry {
            name: "g".to_owned(),
            ..GroupEntry::default()
        }]
        .into(),
        ..of_users(vec![entry("ann", "$x")])
    };
    let made = plan(&before, &document, Mode::Replace, &read).unwrap();
    apply(&mut before, changes(&made)).unwrap();
    let replace = |text: &str| {
        let text = format!("format: heraldmq/control/v1\n{text}");
        let document = Document::parse(&text).unwrap();
        let made = plan(&before, &document, Mode::Replace, &read).unwrap();
        let targets = made.steps.iter().map(|step| step.change.target());
        targets.collect::<Vec<_>>()
    };
    let (ann, g) = (Target::User("ann".into()), Target::Group("g".into()));
    assert_eq!(replace("rules: []\n"), []);
    assert_eq!(replace("users:\n"), []);
    assert_eq!(replace("users: []\n"), std::slice::from_ref(&ann));
    assert_eq!(replace("users: []\ngroups: []\n"), [ann, g.clone()]);
    assert_eq!(replace("remove:\n  groups: [g]\n"), [g]);
}

#[test]
fn people_and_keys_keep_what_a_document_does_not_say() {
    let mut before = Records::default();
    let text = "format: heraldmq/control/v1\npeople:\n- {name: anna, role: administrator, hash: $x}\nkeys:\n- {id: 12345678, name: ci, role: viewer, created_at: 2026-01-01T00:00:00Z, secrets: [{sha256: SHA}]}\n";
    let text = text.replace("SHA", &"0f".repeat(32));
    let document = Document::parse(&text).unwrap();
    let made = plan(&before, &document, Mode::Merge, &read).unwrap();
    apply(&mut before, changes(&made)).unwrap();
    assert_eq!(before.keys[&KeyId(0x1234_5678)].record.secrets.len(), 1);
    let without = Document::of(&before, false);
    assert!(without.people[0].hash.is_none() && without.keys[0].secrets.is_empty());
    let made = plan(&before, &without, Mode::Replace, &read).unwrap();
    assert!(made.steps.is_empty());
    for (change, at) in [
        (("anna", "ben"), "/people/0/hash"),
        (("12345678", "00000001"), "/keys/0/secrets"),
    ] {
        let text = without.yaml().replace(change.0, change.1);
        let new = Document::parse(&text).unwrap();
        let error = plan(&before, &new, Mode::Merge, &read).unwrap_err();
        assert_eq!(error.at, at, "{error}");
    }
    for (change, line) in [(("12345678", "1234567"), 5), (("viewer", "guest"), 5)] {
        let error = Document::parse(&text.replace(change.0, change.1)).unwrap_err();
        assert_eq!(error.line, line, "{error}");
    }
    let no_hash = |whose, _: &str| match whose {
        Whose::User => Ok(Verifier::Hash("$x".into())),
        Whose::Person => Err("a weak hash".to_owned()),
    };
    let error = plan(&Records::default(), &document, Mode::Merge, &no_hash).unwrap_err();
    assert_eq!(
        (&*error.at, error.record),
        ("/people/0/hash", Target::Person("anna".into()))
    );
    let both = Document::parse(&format!("{text}remove:\n  keys: [12345678]\n")).unwrap();
    let error = plan(&before, &both, Mode::Merge, &read).unwrap_err();
    assert_eq!(error.at, "/remove/keys");
}
