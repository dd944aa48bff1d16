use control::{Hash, Records, Stored, UnixMs, Verifier};
use proptest::prelude::*;

use super::*;
use crate::convert::nobody;
use crate::plan::tests::records;
use crate::{Export, GroupEntry, UserEntry};

#[test]
fn a_document_says_what_it_is() {
    let text = "format: heraldmq/control/v1\nusers:\n- name: 007\n  hashes: [$7$x]\n  ends_at: 2026-11-24T10:12:03Z\n  superuser: true\n";
    let document = Document::parse(text).unwrap();
    let user = UserEntry {
        name: "007".to_owned(),
        hashes: vec!["$7$x".to_owned()],
        ends_at: Some("2026-11-24T10:12:03Z".to_owned()),
        superuser: true,
        ..UserEntry::default()
    };
    assert_eq!(*document.users, [user]);
    assert_eq!(document.rules, None);
    let json = r#"{"format": "heraldmq/control/v1", "rules": []}"#;
    assert_eq!(Document::parse(json).unwrap().rules, Some(Vec::new()));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_without_hashes() {
    let secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    for (text, line, what) in [
        ("", 1, ""),
        ("format: heraldmq/control/v2\n", 1, "heraldmq/control/v1"),
        ("users: []\n", 1, "format"),
        ("format: heraldmq/control/v1\nuser: []\n", 2, "user"),
        (
            "format: heraldmq/control/v1\nusers:\n- name: a\n  enabled: maybe\n",
            4,
            "",
        ),
        (
            "format: heraldmq/control/v1\nusers:\n- name: a\n  hashes: $7$101$abc\n",
            4,
            "",
        ),
        (
            "format: heraldmq/control/v1\nusers:\n- name: a\n  $7$101$abc: 1\n",
            4,
            "",
        ),
        (
            &format!("format: heraldmq/control/v1\nusers:\n- name: a\n  secrets: {secret}\n"),
            4,
            "",
        ),
        (
            &format!("format: heraldmq/control/v1\nusers:\n- name: a\n  superuser: {secret}\n"),
            4,
            "",
        ),
        ("format: heraldmq/control/v1\nrules: [a\nusers: []\n", 3, ""),
    ] {
        let error = Document::parse(text).unwrap_err();
        let said = error.to_string();
        assert!(error.what.contains(what), "{text:?}: {said}");
        assert_eq!(error.line, line, "{text:?}: {said}");
        assert!(!said.contains("$7$") && !said.contains(secret), "{said}");
    }
}

#[test]
fn anchors_and_aliases_are_refused() {
    let head = "format: heraldmq/control/v1\n";
    let mut bomb = format!("{head}rules: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("u{level}: &a{level} [{aliases}]\n"));
    }
    for text in [
        bomb,
        format!("{head}rules: &a [x]\n"),
        format!("{head}users:\n- &a {{name: a}}\n- <<: *a\n"),
    ] {
        let error = Document::parse(&text).unwrap_err();
        assert!(error.line >= 2, "{error}");
    }
    let deep = format!(
        "{head}rules: {}{}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    Document::parse(&deep).unwrap_err();
    Document::parse(&format!("{head}rules: []\n---\n{head}")).unwrap_err();
}

#[test]
fn an_export_in_parts_is_the_whole_document() {
    let mut all = Records::default();
    let user = |hash: String| control::User {
        verifiers: [Verifier::Hash(hash.into()), Verifier::Secret(Hash([7; 32]))].into(),
        ends_ms: Some(UnixMs(u64::MAX)),
        ..nobody()
    };
    for number in 0..3_000 {
        let record = user(format!("$7${number}$x"));
        let revision = control::Revision(1);
        let stored = Stored { revision, record };
        all.users.insert(format!("u{number}").into(), stored.into());
    }
    let parts: Vec<String> = Export::new(all.clone(), true).collect();
    assert!(parts.len() > 5 && parts.iter().all(|part| part.len() < 80 << 10));
    let read = Document::parse(&parts.concat()).unwrap();
    assert_eq!(read, Document::of(&all, true));
    assert_eq!(
        read.users[0].ends_at.as_deref(),
        Some("9999-12-31T23:59:59.999Z")
    );
    let without = Export::new(all, false).collect::<String>();
    assert!(
        !without.contains("$7$") && !without.contains("0707"),
        "{without}"
    );
    let nothing = Export::new(Records::default(), true).collect::<String>();
    assert_eq!(
        Document::parse(&nothing).unwrap(),
        Document::of(&Records::default(), true)
    );
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("yes".to_owned()),
        Just("~".to_owned()),
        Just("0x1F".to_owned()),
        Just(" a\n\n b \n".to_owned()),
        Just("- a: &b *c # d".to_owned()),
        Just("|\n  \t".to_owned()),
        Just("2026-11-24".to_owned()),
        "[ -~]{0,100}",
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_again(texts in prop::collection::vec(text(), 5), priority: i32) {
        let document = Document {
            groups: vec![GroupEntry {
                name: texts[0].clone(),
                priority,
                rules: texts.clone(),
                class: Some(texts[1].clone()),
                ..GroupEntry::default()
            }]
            .into(),
            users: vec![UserEntry {
                name: texts[2].clone(),
                note: texts[3].clone(),
                client_ids: Some(texts[4].clone()),
                hashes: texts.clone(),
                enabled: priority > 0,
                ..UserEntry::default()
            }]
            .into(),
            rules: Some(texts),
            ..Document::default()
        };
        prop_assert_eq!(Document::parse(&document.yaml()), Ok(document));
    }

    #[test]
    fn whatever_is_exported_is_read_again(all in records()) {
        let text = Export::new(all.clone(), true).collect::<String>();
        prop_assert_eq!(Document::parse(&text), Ok(Document::of(&all, true)));
    }
}
