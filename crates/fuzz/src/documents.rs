//! Documents of the control store: reading one does not panic, and what is read is written and read again.

use control_document::Document;

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // An error is an answer, too.
    if let Ok(document) = Document::parse(&text) {
        let written = document.yaml();
        let again = Document::parse(&written);
        assert_eq!(again.as_ref(), Ok(&document), "{written}");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let sha256 = "0f".repeat(32);
    vec![
        format!(
            "format: heraldmq/control/v1\ngroups:\n- name: g\n  priority: -7\n  rules: [\"allow publish a/#\"]\n- {{name: h, includes: [g]}}\nusers:\n- name: \"007\"\n  hashes: [\"$7$101$a$b\"]\n  groups: [g]\n  client_ids: \"*\"\n  ends_at: 2026-11-24T10:12:03Z\n- name: b\n  secrets: [{sha256}]\n  enabled: false\nrules: [\"deny all subscribe #\"]\nremove:\n  users: [c]\n"
        )
        .into_bytes(),
        format!(
            "format: heraldmq/control/v1\nusers: []\npeople:\n- name: anna\n  role: administrator\n  hash: $argon2id$x\n  must_change: true\nkeys:\n- id: 1234abcd\n  name: ci\n  role: viewer\n  created_at: 2026-11-24T10:12:03.004Z\n  secrets:\n  - sha256: {sha256}\n  - {{sha256: {sha256}, ends_at: 2027-01-01T00:00:00Z}}\nremove: {{people: [ben], keys: [\"00000001\"]}}\n"
        )
        .into_bytes(),
        br#"{"format": "heraldmq/control/v1", "rules": []}"#.to_vec(),
    ]
}
