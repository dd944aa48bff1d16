//! Users, groups and rules.

use control::{Expect, Means, Revision, Verifier};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::ChangeError;
use crate::api::ClientState;
use crate::page::MissingReason;

fn stage() -> Stage {
    Stage::new(Fake::default())
}

/// The answer and its ETag.
async fn sent(
    stage: &Stage,
    method: &str,
    path: &str,
    body: Value,
    condition: &[(&'static str, &str)],
) -> Answer {
    let key = stage.key(Role::Administrator);
    let mut request = request(method, &format!("/api/v1{path}"), &body, key);
    for (name, value) in condition {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    stage.ask(request).await
}

fn tag(answer: &Answer) -> &str {
    answer.headers[header::ETAG].to_str().unwrap()
}

#[tokio::test]
async fn a_user_is_added_changed_and_removed() {
    let stage = stage();
    let list = sent(&stage, "GET", "/users", Value::Null, &[]).await;
    assert_eq!(list.json()["items"], json!([]));
    let body = json!({"name": "ann", "password": "very secret", "rules": ["allow publish a/#"], "ends_at": "2030-01-02T03:04:05Z"});
    let added = sent(&stage, "POST", "/users", body.clone(), &[]).await;
    assert_eq!(added.status, StatusCode::CREATED, "{}", added.text);
    let expected = json!({
        "name": "ann", "revision": 1, "enabled": true, "proofs": ["password"], "groups": [],
        "rules": ["allow publish a/#"], "client_ids": null, "class": null, "superuser": false,
        "ends_at": "2030-01-02T03:04:05.000Z", "note": "",
    });
    assert_eq!((added.json(), tag(&added)), (expected.clone(), "\"r1\""));
    let by = stage.store.last_by.lock().clone().unwrap();
    assert_eq!((by.means, &*by.name), (Means::FileKey, "administrator"));
    assert_eq!(by.address.unwrap().0, "127.0.0.1".into());
    let read = sent(&stage, "GET", "/users/ann", Value::Null, &[]).await;
    assert_eq!((read.json(), tag(&read)), (expected, "\"r1\""));
    assert_eq!(
        sent(&stage, "POST", "/users", body, &[]).await.problem(),
        "conflict"
    );
    // The password stays, all else is replaced.
    let put = sent(
        &stage,
        "PUT",
        "/users/ann",
        json!({"note": "n"}),
        &[("if-match", "\"r1\"")],
    )
    .await;
    assert_eq!(
        (put.status, tag(&put)),
        (StatusCode::OK, "\"r2\""),
        "{}",
        put.text
    );
    assert_eq!(
        (&put.json()["rules"], &put.json()["proofs"]),
        (&json!([]), &json!(["password"]))
    );
    assert_eq!(
        *stage.store.hashed.lock(),
        2,
        "one, and one of the user who was there"
    );
    for condition in [("if-match", "\"r1\""), ("if-none-match", "*")] {
        for (method, body) in [
            ("PUT", json!({"password": "x"})),
            ("PUT", json!({})),
            ("DELETE", Value::Null),
        ] {
            let refused = sent(&stage, method, "/users/ann", body, &[condition]).await;
            assert_eq!(
                refused.problem(),
                "precondition-failed",
                "{method} {condition:?}"
            );
        }
    }
    let new = sent(&stage, "PUT", "/users/bob", json!({}), &[]).await;
    assert_eq!(
        new.problem(),
        "invalid-body",
        "a new user without a password"
    );
    let known = sent(
        &stage,
        "PUT",
        "/users/bob",
        json!({"password": "x"}),
        &[("if-match", "*")],
    )
    .await;
    assert_eq!(known.problem(), "precondition-failed");
    let new = sent(
        &stage,
        "PUT",
        "/users/bob",
        json!({"name": "bob", "password": "x"}),
        &[],
    )
    .await;
    assert_eq!(new.status, StatusCode::CREATED);
    let other = sent(&stage, "PUT", "/users/bob", json!({"name": "eve"}), &[]).await;
    assert_eq!(other.problem(), "invalid-body");
    let removed = sent(&stage, "DELETE", "/users/ann", Value::Null, &[]).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
    for (method, path) in [
        ("DELETE", "/users/ann"),
        ("GET", "/users/ann"),
        ("DELETE", "/groups/g"),
        ("GET", "/groups/g"),
    ] {
        assert_eq!(
            sent(&stage, method, path, Value::Null, &[]).await.problem(),
            "not-found"
        );
    }
    for wrong in ["r1", "\"1\"", "\"r1\", \"r2\"", "\"r+1\"", "W/\"r1\""] {
        let refused = sent(
            &stage,
            "DELETE",
            "/users/bob",
            Value::Null,
            &[("if-match", wrong)],
        )
        .await;
        assert_eq!(refused.problem(), "invalid-parameter", "{wrong}");
    }
    let status = sent(&stage, "GET", "/control", Value::Null, &[])
        .await
        .json();
    assert_eq!(
        status,
        json!({"standing": "confirmed", "files_only": false, "stale_s": 0, "revision": 4, "users": 1, "groups": 0, "lines": 0})
    );
}

#[tokio::test]
async fn a_generated_secret_is_in_one_answer_and_its_hash_in_the_store() {
    let stage = stage();
    let added = sent(
        &stage,
        "POST",
        "/users",
        json!({"name": "dev", "generate": true}),
        &[],
    )
    .await;
    let first = added.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(first.len(), 43);
    let again = sent(
        &stage,
        "POST",
        "/users/dev/password",
        json!({"generate": true}),
        &[],
    )
    .await;
    let second = again.json()["secret"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    let kept = stage
        .store
        .view()
        .user("dev")
        .unwrap()
        .record
        .verifiers
        .clone();
    let hash = Sha256::digest(second.as_bytes()).into();
    assert_eq!(*kept, [Verifier::Secret(control::Hash(hash))]);
    for path in ["/users", "/users/dev", "/control"] {
        let read = sent(&stage, "GET", path, Value::Null, &[]).await;
        assert!(
            !read.text.contains(&second) && !read.text.contains("\"secret\":"),
            "{}",
            read.text
        );
    }
    let none = sent(&stage, "POST", "/users/dev/password", json!({}), &[]).await;
    assert_eq!(none.problem(), "invalid-body");
    let unknown = sent(
        &stage,
        "POST",
        "/users/nobody/password",
        json!({"generate": true}),
        &[],
    )
    .await;
    assert_eq!(unknown.problem(), "not-found");
    // The device has one already, or a file has a hash.
    for (body, proofs) in [
        (
            json!({"secret": "0123456789abcdef".repeat(4)}),
            json!(["secret"]),
        ),
        (json!({"hash": "$argon2id$x"}), json!(["password"])),
        (
            json!({"hash": "$scram-sha-256$x\n$scram-sha-512$x\n"}),
            json!(["scram", "scram"]),
        ),
    ] {
        let put = sent(&stage, "PUT", "/users/dev", body, &[]).await;
        assert_eq!(put.json()["proofs"], proofs, "{}", put.text);
        assert!(put.json().get("secret").is_none());
    }
}

#[tokio::test]
async fn no_problem_shows_a_secret() {
    let stage = stage();
    for body in [
        json!({"name": "a", "password": 86_420}),
        json!({"name": "a", "password": ["86420"]}),
        json!({"name": "a", "secret": "86420"}),
        json!({"name": "a", "secret": 86_420}),
        json!({"name": "a", "hash": "86420"}),
        json!({"name": "a", "hash": 86_420}),
        json!({"name": "a", "hash": "$argon2id$86420", "password": "86420"}),
        json!({"name": "a", "generate": true, "password": "86420"}),
        json!({"name": "a", "password": "86420".repeat(14_000)}),
        json!({"name": "a", "password": "86420", "groups": ["none"]}),
    ] {
        let refused = sent(&stage, "POST", "/users", body, &[]).await;
        assert!(refused.status.is_client_error());
        assert!(!refused.text.contains("86420"), "{}", refused.text);
    }
    assert_eq!(stage.store.view().user_count(), 0);
}

#[tokio::test]
async fn groups_exist_while_they_are_named() {
    let stage = stage();
    let user = json!({"name": "ann", "generate": true, "groups": ["b", "a", "b"]});
    let refused = sent(&stage, "POST", "/users", user.clone(), &[]).await;
    assert_eq!(refused.problem(), "conflict");
    assert_eq!(
        (&refused.json()["reason"], &refused.json()["group"]),
        (&json!("unknown_group"), &json!("a"))
    );
    for name in ["a", "b"] {
        let body = json!({"name": name, "rules": ["allow publish x/%u"], "priority": -2});
        let added = sent(&stage, "POST", "/groups", body, &[]).await;
        assert_eq!(
            (added.status, added.json()["priority"].clone()),
            (StatusCode::CREATED, json!(-2))
        );
    }
    let added = sent(&stage, "POST", "/users", user, &[]).await;
    assert_eq!(added.json()["groups"], json!(["a", "b"]));
    let refused = sent(&stage, "DELETE", "/groups/a", Value::Null, &[]).await;
    assert_eq!(
        (refused.problem(), &refused.json()["uses"]),
        ("conflict".to_owned(), &json!(1))
    );
    let dry = sent(&stage, "DELETE", "/groups/a?dry_run=true", Value::Null, &[]).await;
    assert_eq!(dry.json()["uses"], 1);
    let itself = sent(&stage, "PUT", "/groups/a", json!({"includes": ["a"]}), &[]).await;
    assert_eq!(
        (itself.problem(), &itself.json()["pointer"]),
        ("invalid-body".to_owned(), &json!("/includes"))
    );
    let put = sent(
        &stage,
        "PUT",
        "/groups/a",
        json!({"includes": ["b"]}),
        &[("if-match", "\"r1\"")],
    )
    .await;
    assert_eq!(put.json()["rules"], json!([]), "{}", put.text);
    assert_eq!(
        sent(&stage, "DELETE", "/users/ann", Value::Null, &[])
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        sent(&stage, "DELETE", "/groups/b", Value::Null, &[])
            .await
            .json()["uses"],
        1
    );
    assert_eq!(
        sent(&stage, "DELETE", "/groups/a", Value::Null, &[])
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    let list = sent(&stage, "GET", "/groups?prefix=b&limit=1", Value::Null, &[])
        .await
        .json();
    assert_eq!(
        (&list["items"][0]["name"], &list["next"]),
        (&json!("b"), &Value::Null)
    );
}

#[tokio::test]
async fn rules_are_replaced_as_a_whole() {
    let stage = stage();
    let list = json!({"lines": ["# all", "", "allow all publish x/#"]});
    assert_eq!(
        sent(&stage, "PUT", "/rules", list.clone(), &[])
            .await
            .problem(),
        "invalid-parameter"
    );
    let wrong = json!({"lines": ["allow all publish x", "permit all", "deny who"]});
    let refused = sent(&stage, "PUT", "/rules", wrong, &[("if-match", "*")]).await;
    assert_eq!(refused.problem(), "invalid-body");
    let lines: Vec<_> = refused.json()["mistakes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["line"].clone())
        .collect();
    assert_eq!(lines, [2, 3]);
    let two = json!({"lines": ["allow all publish x\ndeny all all"]});
    assert_eq!(
        sent(&stage, "PUT", "/rules", two, &[("if-match", "*")])
            .await
            .problem(),
        "invalid-body"
    );
    for (path, line) in [
        ("/users/a", "allow all publish x"),
        ("/groups/a", "allow user \"a\" publish"),
    ] {
        let body = json!({"rules": ["", line]});
        let refused = sent(&stage, "PUT", path, body, &[]).await;
        assert_eq!(
            (refused.problem(), &refused.json()["mistakes"][0]["line"]),
            ("invalid-body".to_owned(), &json!(2))
        );
    }
    // From the empty list to the empty list, always by the tag that was read.
    for lines in [
        list["lines"].clone(),
        json!(["deny all all"]),
        json!([]),
        list["lines"].clone(),
    ] {
        let read = sent(&stage, "GET", "/rules", Value::Null, &[]).await;
        let before = tag(&read).to_owned();
        let put = sent(
            &stage,
            "PUT",
            "/rules",
            json!({"lines": lines}),
            &[("if-match", &before)],
        )
        .await;
        assert_eq!(
            (put.status, &put.json()["lines"]),
            (StatusCode::OK, &lines),
            "{}",
            put.text
        );
        let again = sent(
            &stage,
            "PUT",
            "/rules",
            json!({"lines": ["deny all publish"]}),
            &[("if-match", &before)],
        )
        .await;
        assert_eq!(again.problem(), "precondition-failed");
    }
    let long = "x".repeat(1_000);
    let lines: Vec<_> = (0..900).map(|_| format!("# {long}")).collect();
    let put = sent(
        &stage,
        "PUT",
        "/rules",
        json!({"lines": lines}),
        &[("if-match", "*")],
    )
    .await;
    assert_eq!(put.status, StatusCode::OK, "900 KB");
    let lines: Vec<_> = (0..1_100).map(|_| format!("# {long}")).collect();
    let put = sent(
        &stage,
        "PUT",
        "/rules",
        json!({"lines": lines}),
        &[("if-match", "*")],
    )
    .await;
    assert_eq!(put.problem(), "invalid-body", "1.1 MB");
}

#[tokio::test]
async fn a_dry_run_says_what_a_change_would_do_and_changes_nothing() {
    let clients = ["a", "b", "c"].map(str::to_owned);
    let stage = Stage::new(Fake::with_clients(clients.into()));
    sent(
        &stage,
        "POST",
        "/users",
        json!({"name": "ann", "password": "x"}),
        &[],
    )
    .await;
    let (revision, hashed) = (stage.store.view().revision(), *stage.store.hashed.lock());
    for (method, path, body, would, ended) in [
        (
            "POST",
            "/users",
            json!({"name": "bob", "password": "x"}),
            "create",
            0,
        ),
        ("PUT", "/users/ann", json!({"generate": true}), "replace", 3),
        ("PUT", "/users/ann", json!({}), "keep", 0),
        ("PUT", "/users/ann", json!({"note": "x"}), "replace", 0),
        (
            "PUT",
            "/users/ann",
            json!({"client_ids": "x"}),
            "replace",
            3,
        ),
        ("PUT", "/users/ann", json!({"enabled": false}), "replace", 3),
        (
            "PUT",
            "/users/ann",
            json!({"ends_at": "2020-01-02T03:04:05Z"}),
            "replace",
            3,
        ),
        (
            "PUT",
            "/users/ann",
            json!({"ends_at": "2999-01-02T03:04:05Z"}),
            "replace",
            0,
        ),
        ("DELETE", "/users/ann", Value::Null, "remove", 3),
        (
            "POST",
            "/users/ann/password",
            json!({"password": "y"}),
            "replace",
            3,
        ),
        ("POST", "/groups", json!({"name": "g"}), "create", 0),
        (
            "PUT",
            "/rules",
            json!({"lines": ["deny all all"]}),
            "create",
            0,
        ),
        ("PUT", "/rules", json!({"lines": []}), "keep", 0),
    ] {
        let condition: &[_] = if path == "/rules" {
            &[("if-match", "*")]
        } else {
            &[]
        };
        let answer = sent(
            &stage,
            method,
            &format!("{path}?dry_run=true"),
            body,
            condition,
        )
        .await;
        let expected = json!({"would": would, "clients_ended": ended});
        assert_eq!(
            (answer.status, answer.json()),
            (StatusCode::OK, expected),
            "{method} {path}"
        );
    }
    let condition = [("if-match", "\"r7\"")];
    let refused = sent(
        &stage,
        "DELETE",
        "/users/ann?dry_run=true",
        Value::Null,
        &condition,
    )
    .await;
    assert_eq!(refused.problem(), "precondition-failed");
    let unknown = json!({"generate": true, "groups": ["g"]});
    let refused = sent(&stage, "PUT", "/users/ann?dry_run=true", unknown, &[]).await;
    assert_eq!(refused.json()["group"], "g");
    assert_eq!(
        (stage.store.view().revision(), *stage.store.hashed.lock()),
        (revision, hashed)
    );
}

#[tokio::test]
async fn users_are_listed_by_prefix_group_and_state() {
    let stage = stage();
    sent(&stage, "POST", "/groups", json!({"name": "g"}), &[]).await;
    for (name, group, enabled) in [
        ("a", true, true),
        ("a1", false, true),
        ("a2", true, false),
        ("b", true, true),
    ] {
        let groups = if group { json!(["g"]) } else { json!([]) };
        let body = json!({"name": name, "generate": true, "groups": groups, "enabled": enabled});
        assert_eq!(
            sent(&stage, "POST", "/users", body, &[]).await.status,
            StatusCode::CREATED
        );
    }
    for (query, expected) in [
        ("", "a a1 a2 b"),
        ("prefix=a", "a a1 a2"),
        ("prefix=a1", "a1"),
        ("prefix=c", ""),
        ("group=g", "a a2 b"),
        ("group=g&prefix=a&enabled=true", "a"),
        ("enabled=false", "a2"),
    ] {
        for limit in 1..=5 {
            let mut names: Vec<String> = Vec::new();
            let mut after = String::new();
            loop {
                let path = format!("/users?{query}&limit={limit}{after}");
                let page = sent(&stage, "GET", &path.replace("?&", "?"), Value::Null, &[])
                    .await
                    .json();
                let items = page["items"].as_array().unwrap();
                assert!(items.len() <= limit);
                names.extend(
                    items
                        .iter()
                        .map(|item| item["name"].as_str().unwrap().to_owned()),
                );
                match page["next"].as_str() {
                    Some(next) => after = format!("&after={next}"),
                    None => break,
                }
            }
            assert_eq!(names.join(" "), expected, "{query} by {limit}");
        }
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_told_from_one_that_may_have_done_it() {
    let stage = stage();
    for (error, problem, word) in [
        (
            ChangeError::Unavailable("nobody leads it".to_owned()),
            "not-ready",
            "nothing was changed",
        ),
        (
            ChangeError::Behind("node b".to_owned()),
            "conflict",
            "node b",
        ),
        (ChangeError::Unknown, "node-silent", "may have been made"),
    ] {
        *stage.store.error.lock() = Some(error);
        let refused = sent(&stage, "POST", "/groups", json!({"name": "g"}), &[]).await;
        assert_eq!(refused.problem(), problem);
        assert!(refused.text.contains(word), "{}", refused.text);
    }
}

#[tokio::test]
async fn an_import_of_people_waits_for_the_upgrade() {
    let stage = stage();
    *stage.store.error.lock() = Some(ChangeError::Behind("node b".to_owned()));
    let person = json!({"name": "anna", "role": "viewer", "hash": "$argon2id$x"});
    let body = json!({"format": "heraldmq/control/v1", "people": [person]});
    let refused = sent(&stage, "POST", "/control/import", body.clone(), &[]).await;
    assert_eq!(refused.problem(), "conflict");
    assert_eq!(refused.json()["reason"], "upgrade_unfinished");
    *stage.store.error.lock() = None;
    let made = sent(&stage, "POST", "/control/import", body, &[]).await;
    assert_eq!(made.json()["created"], 1, "{}", made.text);
    let by = stage.store.last_by.lock().clone().unwrap();
    assert_eq!(by.means, Means::Import);
}

#[tokio::test]
async fn a_password_that_stays_is_the_one_that_was_read() {
    let stage = stage();
    let body = json!({"name": "ann", "password": "x"});
    sent(&stage, "POST", "/users", body, &[]).await;
    let revision = |number| Expect::Revision(Revision(number));
    for (method, path, body, expected) in [
        ("PUT", "/users/ann", json!({"note": "a"}), revision(1)),
        ("PUT", "/users/ann", json!({"password": "y"}), Expect::Any),
        (
            "POST",
            "/users/ann/password",
            json!({"password": "z"}),
            revision(3),
        ),
        ("DELETE", "/users/ann", Value::Null, Expect::Known),
    ] {
        let answer = sent(&stage, method, path, body, &[]).await;
        assert!(answer.status.is_success(), "{}", answer.text);
        assert_eq!(
            *stage.store.last_expected.lock(),
            Some(expected),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn a_dry_run_counts_connected_clients_of_the_user_in_the_whole_cluster() {
    let clients = |count: usize| (0..count).map(|number| format!("c{number:05}")).collect();
    for (count, lacks, expected) in [
        (10_000, None, json!({"clients_ended": 10_000})),
        (
            10_001,
            None,
            json!({"clients_ended": 10_000, "at_least": true}),
        ),
        (
            2,
            Some(MissingReason::NoLeader),
            json!({"clients_ended": 2}),
        ),
        (2, Some(MissingReason::Down), json!({"clients_ended": null})),
        (2, Some(MissingReason::Busy), json!({"clients_ended": null})),
    ] {
        let stage = Stage::new(Fake::with_clients(clients(count)));
        let body = json!({"name": "ann", "password": "x"});
        sent(&stage, "POST", "/users", body, &[]).await;
        *stage.fake.lacks.lock() = lacks;
        let path = "/users/ann?dry_run=true";
        let answer = sent(&stage, "DELETE", path, Value::Null, &[]).await;
        let mut expected = expected;
        expected["would"] = "remove".into();
        assert_eq!(answer.json(), expected, "{count} {lacks:?}");
        let filter = stage.fake.last_filter.lock().clone().unwrap();
        let asked = (filter.user.as_deref(), filter.state);
        assert_eq!(asked, (Some("ann"), Some(ClientState::Connected)));
    }
}

#[tokio::test]
async fn a_read_waits_until_the_node_has_the_revision_that_it_names() {
    let stage = stage();
    let with = |path: &'static str, revision: &'static str| {
        let stage = &stage;
        let header = [("control-revision", revision)];
        async move { sent(stage, "GET", path, Value::Null, &header).await }
    };
    let body = json!({"name": "ann", "password": "x"});
    let add = sent(&stage, "POST", "/users", body, &[]);
    // The read is asked first.
    let (read, added) = tokio::join!(with("/users/ann", "1"), add);
    assert_eq!(added.status, StatusCode::CREATED);
    assert_eq!(read.json()["name"], "ann");
    for path in ["/users", "/users/ann", "/groups", "/rules"] {
        let now = with(path, "1").await;
        assert_eq!(now.status, StatusCode::OK, "{path}");
        for wrong in ["x", "-1", "+1", "", "99999999999999999999"] {
            let refused = with(path, wrong).await;
            assert_eq!(refused.problem(), "invalid-parameter", "{path} {wrong}");
        }
    }
    let paths = ["/users", "/users/ann", "/groups", "/groups/g", "/rules"];
    let late = paths.map(|path| with(path, "2"));
    for refused in futures_util::future::join_all(late).await {
        assert_eq!(refused.problem(), "not-ready");
        assert_eq!(refused.json()["revision"], 1);
    }
}
