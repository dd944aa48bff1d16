//! The audit: read, exported, and what else is noted in it.

use control_document::{AuditLine, Broken, Verified, Verifier};

use super::*;

async fn stage_with(users: usize) -> Stage {
    let stage = Stage::new(Fake::default());
    for number in 0..users {
        let body = json!({"name": format!("u{number}"), "password": "very secret"});
        let added = stage.send("POST", "/api/v1/users", &body).await;
        assert_eq!(added.status, StatusCode::CREATED, "{}", added.text);
    }
    stage
}

fn verified(text: &str) -> Result<Verified, Broken> {
    let mut verifier = Verifier::new(None).unwrap();
    for line in text.lines() {
        verifier.line(&serde_json::from_str::<AuditLine>(line).unwrap())?;
    }
    verifier.finish()
}

#[tokio::test]
async fn the_latest_change_comes_first_and_pages_follow_each_other() {
    let stage = stage_with(5).await;
    let mut path = "/api/v1/audit?limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = stage.send("GET", &path, &Value::Null).await.json();
        for row in page["items"].as_array().unwrap() {
            assert_eq!(
                (&row["actor"], &row["means"]),
                (&json!("administrator"), &json!("file_key"))
            );
            assert_eq!(row["action"], "user.add");
            seen.push(row["target"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/audit?limit=2&after={next}");
    }
    assert_eq!(seen, ["u4", "u3", "u2", "u1", "u0"]);
    stage.send("DELETE", "/api/v1/users/u3", &Value::Null).await;
    let of = async |query: &str| {
        let page = stage
            .send("GET", &format!("/api/v1/audit?{query}"), &Value::Null)
            .await;
        let page = page.json();
        let items = page["items"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"))
            .clone();
        let rows = items.iter().map(|row| {
            format!(
                "{} {}",
                row["action"].as_str().unwrap(),
                row["target"].as_str().unwrap()
            )
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(of("target=u3").await, ["user.remove u3", "user.add u3"]);
    assert_eq!(of("action=user.remove").await, ["user.remove u3"]);
    assert_eq!(of("actor=somebody").await, [""; 0]);
    assert_eq!(of("until=1").await, [""; 0]);
    assert_eq!(
        of("since=1&until=1970-01-01T00:00:01Z&limit=1").await,
        ["user.remove u3"]
    );
    for (query, problem) in [
        ("since=yesterday", "invalid-parameter"),
        ("after=x", "invalid-cursor"),
    ] {
        let answer = stage
            .send("GET", &format!("/api/v1/audit?{query}"), &Value::Null)
            .await;
        assert_eq!(answer.problem(), problem, "{query}");
    }
}

#[tokio::test]
async fn an_export_is_whole_and_has_no_secret() {
    let stage = stage_with(3).await;
    let export = stage
        .send("GET", "/api/v1/audit/export", &Value::Null)
        .await;
    assert_eq!(export.headers[header::CONTENT_TYPE], "application/x-ndjson");
    let whole = verified(&export.text).unwrap();
    let head = stage
        .send("GET", "/api/v1/audit/head", &Value::Null)
        .await
        .json();
    assert_eq!(
        control_document::hash_text(whole.head),
        head["head"].as_str().unwrap()
    );
    assert_eq!((&head["first"], &head["next"]), (&json!(0), &json!(3)));
    assert!(!export.text.contains("very secret") && !export.text.contains("hash of"));
    let part = stage
        .send("GET", "/api/v1/audit/export?from=2", &Value::Null)
        .await;
    assert_eq!(part.text.lines().count(), 3);
    assert_eq!(verified(&part.text).unwrap().head, whole.head);
    let none = stage
        .send("GET", "/api/v1/audit/export?from=9", &Value::Null)
        .await;
    assert_eq!(verified(&none.text).unwrap().head, whole.head);
    let changed = export.text.replacen("u1", "u7", 1);
    assert_eq!(
        verified(&changed),
        Err(Broken::Words(control::EntryNumber(1)))
    );
}

#[tokio::test]
async fn what_changes_no_record_is_noted_and_what_is_done_often_is_counted() {
    let stage = Stage::new(Fake::default());
    stage
        .send("POST", "/api/v1/bans", &json!({"client": "a"}))
        .await;
    stage.send("DELETE", "/api/v1/bans/1", &Value::Null).await;
    stage
        .send("POST", "/api/v1/nodes/1/drain", &json!({}))
        .await;
    stage
        .send("POST", "/api/v1/publish", &json!({"topic": "a"}))
        .await;
    stage
        .send(
            "POST",
            "/api/v1/users",
            &json!({"name": "a", "generate": true}),
        )
        .await;
    stage
        .send("POST", "/api/v1/groups?dry_run=true", &json!({"name": "a"}))
        .await;
    // What fails has done nothing.
    let failed = stage
        .send("POST", "/api/v1/bans", &json!({"nobody": "a"}))
        .await;
    assert!(!failed.status.is_success());
    let noted = stage.store.trail.notes.lock().clone();
    let actions: Vec<_> = noted
        .iter()
        .map(|note| (&*note.action, &*note.target))
        .collect();
    assert_eq!(
        actions,
        [
            ("bans.add", "a"),
            ("bans.remove", "bans/1"),
            ("nodes.drain", "nodes/1/drain")
        ]
    );
    assert!(
        noted
            .iter()
            .all(|note| note.check().is_ok() && &*note.by.name == "administrator")
    );
    let key = stage.key(Role::Viewer).map(str::to_owned);
    let refused = request(
        "POST",
        "/api/v1/bans",
        &json!({"client": "a"}),
        key.as_deref(),
    );
    assert_eq!(stage.ask(refused).await.problem(), "no-right");
    let counted = stage.store.trail.counted.lock().clone();
    let counted: Vec<_> = counted.iter().map(|of| (&*of.action, &*of.name)).collect();
    assert_eq!(
        counted,
        [("publish", "administrator"), ("refused", "viewer")]
    );
}

#[tokio::test]
async fn an_export_with_hashes_is_noted() {
    let stage = stage_with(1).await;
    for (query, notes) in [("", 0), ("?with_secrets=true", 1)] {
        let path = format!("/api/v1/control/export{query}");
        let export = stage.send("GET", &path, &Value::Null).await;
        assert_eq!(export.status, StatusCode::OK, "{}", export.text);
        assert_eq!(stage.store.trail.notes.lock().len(), notes, "{query}");
    }
    let note = stage.store.trail.notes.lock()[0].clone();
    assert_eq!(
        (&*note.action, &*note.by.name),
        ("control.export", "administrator")
    );
    let key = stage.key(Role::Operator).map(str::to_owned);
    let path = "/api/v1/control/export?with_secrets=true";
    let refused = stage
        .ask(request("GET", path, &Value::Null, key.as_deref()))
        .await;
    assert_eq!(refused.problem(), "no-right");
    assert_eq!(stage.store.trail.notes.lock().len(), 1);
}

#[tokio::test]
async fn whoever_may_audit_reads_the_audit_and_changes_nothing_more() {
    let stage = stage_with(1).await;
    let made = stage
        .send(
            "POST",
            "/api/v1/keys",
            &json!({"name": "soc", "audits": true}),
        )
        .await;
    let key = made.json()["secret"].as_str().unwrap().to_owned();
    let ask = async |method: &str, path: &str| {
        let body = json!({"name": "x"});
        stage.ask(request(method, path, &body, Some(&key))).await
    };
    for path in [
        "/api/v1/audit",
        "/api/v1/audit/head",
        "/api/v1/audit/export",
    ] {
        assert_eq!(ask("GET", path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(ask("GET", "/api/v1/me").await.json()["audits"], true);
    assert_eq!(ask("GET", "/api/v1/people").await.problem(), "no-right");
    assert_eq!(ask("POST", "/api/v1/groups").await.problem(), "no-right");
    let operator = stage.key(Role::Operator).map(str::to_owned);
    let answer = stage
        .ask(request(
            "GET",
            "/api/v1/audit",
            &Value::Null,
            operator.as_deref(),
        ))
        .await;
    assert_eq!(answer.problem(), "no-right");
}
