use std::sync::Arc;

use control::{Priority, Revision, User, Verifier};
use proptest::prelude::*;

use super::*;
use crate::convert::nobody;

fn read(hash: &str) -> Result<Verifier, String> {
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
            Put::Person(..) | Put::Key(..) => None,
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
            Put::Person(..) | Put::Key(..) => {}
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
            (Just(groups), includes, users, rules, 0..2_i32)
        })
        .prop_map(|(names, includes, users, rules, priority)| {
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
                        Verifier::Secret(control::Hash([number; 32])),
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
            records
        })
}

proptest! {
    #[test]
    fn a_replace_gives_the_document(before in records(), after in records(), with_rules: bool) {
        let mut document = Document::of(&after, true);
        if !with_rules {
            document.rules = None;
        }
        let plan = plan(&before, &document, Mode::Replace, &read).unwrap();
        let mut made = before.clone();
        apply(&mut made, changes(&plan)).unwrap();
        let expected = Document {
            rules: document.rules.clone().or(Document::of(&before, true).rules),
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
        let all = document.users.len() + document.groups.len() + 1;
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
        users,
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
            groups: Vec::new(),
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
                }],
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
        groups: vec![group],
        ..of_users(vec![user])
    };
    let made = plan(&before, &document, Mode::Merge, &read).unwrap();
    apply(&mut before, changes(&made)).unwrap();
    let remove = |users: &[&str]| Document {
        remove: crate::Removals {
            users: users.iter().map(|name| (*name).to_owned()).collect(),
            groups: vec!["g".to_owned(), "nobody".to_owned()],
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
