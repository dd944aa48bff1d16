//! People, keys and the first administrator.

use control::{Means, Person, Put};

use super::*;

const PASSWORD: &str = "a long password";

/// Nobody can change anything yet.
fn fresh() -> Stage {
    let mut stage = Stage::new(Fake::default());
    let rights = Arc::new(Rights::new(stage.store.view()));
    stage.rights = Arc::clone(&rights);
    let broker: Arc<dyn Broker> = Arc::clone(&stage.fake) as _;
    let access: Arc<dyn Access> = Arc::clone(&stage.store) as _;
    stage.router = router(broker, access, &rights);
    stage
}

fn post(path: &str, body: &Value) -> Request<Body> {
    request("POST", path, body, None)
}

/// The cookie and the token of a session that an answer has begun.
fn session(answer: &Answer) -> (String, String) {
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split_once(';').unwrap().0.to_owned();
    let csrf = answer.json()["csrf_token"].as_str().unwrap().to_owned();
    (cookie, csrf)
}

async fn with_session(
    stage: &Stage,
    method: &str,
    path: &str,
    body: &Value,
    (cookie, csrf): &(String, String),
) -> Answer {
    let mut request = request(method, path, body, None);
    let peer = "10.0.0.1:40000".parse().unwrap();
    request.extensions_mut().insert(Peer(peer));
    let headers = request.headers_mut();
    headers.insert(header::COOKIE, cookie.parse().unwrap());
    headers.insert("x-csrf-token", csrf.parse().unwrap());
    stage.ask(request).await
}

async fn methods(stage: &Stage) -> (bool, bool) {
    let answer = stage
        .ask(request("GET", "/api/v1/login/methods", &Value::Null, None))
        .await;
    let answer = answer.json();
    (
        answer["password"].as_bool().unwrap(),
        answer["first"].as_bool().unwrap(),
    )
}

#[tokio::test]
async fn the_first_administrator_is_made_by_the_code_once() {
    let stage = fresh();
    assert_eq!(methods(&stage).await, (false, true));
    let code = stage.rights.first_code().unwrap().to_owned();
    let asked = |code: &str, password: &str| {
        let body = json!({"code": code, "user": "anna2", "password": password});
        post("/api/v1/login-first", &body)
    };
    let wrong = stage.ask(asked("AAAAA-AAAAA-AAAAA-AAAAA", PASSWORD)).await;
    assert_eq!(wrong.problem(), "login-failed");
    let short = stage.ask(asked(&code, "short")).await;
    assert_eq!(short.problem(), "invalid-body");
    assert!(!short.text.contains("short\""));
    let made = stage.ask(asked(&code, PASSWORD)).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    assert_eq!(
        (&made.json()["user"], &made.json()["role"]),
        (&json!("anna2"), &json!("administrator"))
    );
    let by = stage.store.last_by.lock().clone().unwrap();
    assert_eq!((by.means, &*by.name), (Means::FirstCode, "anna2"));
    // The session is one, and the code is good for nothing.
    let session = session(&made);
    let people = with_session(&stage, "GET", "/api/v1/people", &Value::Null, &session).await;
    assert_eq!(people.json()["items"][0]["name"], "anna2");
    assert_eq!(methods(&stage).await, (true, false));
    assert_eq!(stage.rights.first_code(), None);
    let again = stage.ask(asked(&code, PASSWORD)).await;
    assert_eq!(again.problem(), "login-failed");
    // The last administrator stays, and a dry run says so.
    let path = "/api/v1/people/anna2?dry_run=true";
    let gone = with_session(&stage, "DELETE", path, &Value::Null, &session).await;
    assert_eq!(gone.json()["reason"], "last_administrator", "{}", gone.text);
    let gone = with_session(
        &stage,
        "DELETE",
        "/api/v1/people/anna2",
        &Value::Null,
        &session,
    )
    .await;
    assert_eq!(
        (gone.problem(), gone.json()["reason"].clone()),
        ("conflict".to_owned(), json!("last_administrator"))
    );
}

/// A browser keeps a cookie for the folder of the path that sets it.
#[test]
fn a_session_is_for_all_paths_of_the_api() {
    let document = serde_json::to_value(document()).unwrap();
    let mut begin = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let said = item["post"]["responses"]["200"]["description"].as_str();
        if said.is_some_and(|said| said.contains("cookie")) {
            let name = path.strip_prefix("/api/v1/").unwrap();
            assert!(!name.contains('/'), "{path}");
            begin.push(name);
        }
    }
    assert_eq!(begin, ["login", "login-first", "own-password"]);
}

#[tokio::test]
async fn nobody_is_first_where_a_file_knows_an_administrator() {
    let stage = Stage::new(Fake::default());
    assert_eq!(methods(&stage).await, (true, false));
    assert_eq!(stage.rights.first_code(), None);
}

#[tokio::test]
async fn a_person_chooses_another_password_before_anything_else_and_all_other_sessions_end() {
    let stage = Stage::new(Fake::default());
    let body = json!({"name": "carl", "role": "operator", "password": PASSWORD});
    let made = stage.send("POST", "/api/v1/people", &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    assert_eq!(made.json()["must_change"], true);
    assert!(!made.text.contains(PASSWORD) && !made.text.contains("hash of"));
    stage.fake.is_right("carl", PASSWORD);
    let login = |password: &str| {
        post(
            "/api/v1/login",
            &json!({"user": "carl", "password": password}),
        )
    };
    let first = session(&stage.ask(login(PASSWORD)).await);
    let second = session(&stage.ask(login(PASSWORD)).await);
    let get =
        async |session, path: &str| with_session(&stage, "GET", path, &Value::Null, session).await;
    let refused = get(&second, "/api/v1/bans").await;
    assert_eq!(refused.problem(), "no-right");
    assert_eq!(refused.json()["reason"], "password_change");
    assert_eq!(get(&second, "/api/v1/me").await.json()["must_change"], true);
    let change = async |session, old: &str, new: &str| {
        let body = json!({"old": old, "new": new});
        with_session(&stage, "POST", "/api/v1/own-password", &body, session).await
    };
    let other = "another long password";
    assert_eq!(
        change(&second, "wrong", other).await.problem(),
        "login-failed"
    );
    assert_eq!(
        change(&second, PASSWORD, "too short").await.problem(),
        "invalid-body"
    );
    assert_eq!(
        change(&second, PASSWORD, PASSWORD).await.problem(),
        "invalid-body"
    );
    let changed = change(&second, PASSWORD, other).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
    let third = session(&changed);
    assert_eq!(get(&third, "/api/v1/bans").await.status, StatusCode::OK);
    for ended in [&first, &second] {
        assert_eq!(
            get(ended, "/api/v1/me").await.problem(),
            "not-authenticated"
        );
    }
    // A role counts at once, without another login; whoever is disabled is out.
    let set = async |body: &Value| stage.send("PUT", "/api/v1/people/carl", body).await;
    assert_eq!(set(&json!({"role": "viewer"})).await.status, StatusCode::OK);
    assert_eq!(get(&third, "/api/v1/me").await.json()["role"], "viewer");
    set(&json!({"role": "viewer", "enabled": false})).await;
    assert_eq!(
        get(&third, "/api/v1/me").await.problem(),
        "not-authenticated"
    );
    // Anna is in the file.
    for (method, path) in [
        ("PUT", "/api/v1/people/anna"),
        ("DELETE", "/api/v1/people/anna"),
    ] {
        let answer = stage
            .send(method, path, &json!({"password": PASSWORD}))
            .await;
        assert_eq!(answer.json()["reason"], "of_file", "{}", answer.text);
    }
    let all = stage
        .send("GET", "/api/v1/people", &Value::Null)
        .await
        .json();
    let names: Vec<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (of["name"].as_str().unwrap(), of["source"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [("anna", "file"), ("ben", "file"), ("carl", "store")]
    );
}

#[tokio::test]
async fn a_key_of_the_store_is_good_until_it_is_removed() {
    let stage = Stage::new(Fake::default());
    let body = json!({"name": "ci", "role": "operator"});
    let made = stage.send("POST", "/api/v1/keys", &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let (id, text) = (made.json()["id"].clone(), made.json()["secret"].clone());
    let (id, text) = (id.as_str().unwrap(), text.as_str().unwrap());
    assert!(text.starts_with(&format!("hmq_{id}_")));
    let ask = async |key: &str, method: &str, path: &str, body: &Value| {
        stage.ask(request(method, path, body, Some(key))).await
    };
    let me = async |key: &str| ask(key, "GET", "/api/v1/me", &Value::Null).await;
    assert_eq!(
        (
            &me(text).await.json()["key"],
            &me(text).await.json()["role"]
        ),
        (&json!("ci"), &json!("operator"))
    );
    assert_eq!(
        ask(text, "GET", "/api/v1/keys", &Value::Null)
            .await
            .problem(),
        "no-right"
    );
    let wrong = format!("{}x", &text[..text.len() - 1]);
    assert_eq!(me(&wrong).await.problem(), "not-authenticated");
    // After a rotation both secrets are good, then the new one only.
    let rotate = async |overlap: u32| {
        let path = format!("/api/v1/keys/{id}/rotate");
        let answer = stage
            .send("POST", &path, &json!({"overlap_s": overlap}))
            .await;
        answer.json()["secret"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", answer.text))
            .to_owned()
    };
    let second = rotate(60).await;
    assert!(me(text).await.status.is_success() && me(&second).await.status.is_success());
    let third = rotate(0).await;
    assert_eq!(me(&second).await.problem(), "not-authenticated");
    assert_eq!(me(text).await.problem(), "not-authenticated");
    assert!(me(&third).await.status.is_success());
    let list = stage.send("GET", "/api/v1/keys", &Value::Null).await;
    assert!(!list.text.contains("sha256") && !list.text.contains(&third[13..]));
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 4);
    // A change by it says who it was.
    let path = format!("/api/v1/keys/{id}");
    let gone = stage.send("DELETE", &path, &Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{}", gone.text);
    assert_eq!(
        stage.store.last_by.lock().clone().unwrap().means,
        Means::FileKey
    );
    assert_eq!(me(&third).await.problem(), "not-authenticated");
    let ended = json!({"name": "old", "ends_at": "2020-01-01T00:00:00Z"});
    let ended = stage.send("POST", "/api/v1/keys", &ended).await.json();
    assert_eq!(
        me(ended["secret"].as_str().unwrap()).await.problem(),
        "not-authenticated"
    );
}

#[tokio::test]
async fn nobody_is_let_in_by_a_copy_that_is_not_confirmed() {
    let stage = fresh();
    let person = Person {
        role: control::Role::Administrator,
        audits: false,
        enabled: true,
        hash: Some("h".into()),
        must_change: false,
        note: "".into(),
        logins_since: control::Revision(0),
    };
    let by = control::By {
        means: Means::Token,
        name: "t".into(),
        address: None,
        node: control::Node(1),
    };
    let change = control::Change {
        expect: control::Expect::Any,
        put: Put::Person("anna2".into(), Some(Box::new(person))),
    };
    stage.store.unconfirmed(by, vec![change]);
    assert_eq!(stage.rights.person("anna2"), None);
    assert_eq!(
        (methods(&stage).await.1, stage.rights.first_code()),
        (false, None)
    );
    let key = "hmq_00000000_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let answer = stage
        .ask(request("GET", "/api/v1/me", &Value::Null, Some(key)))
        .await;
    assert_eq!(answer.problem(), "not-ready");
    stage.store.view().confirmed(control::Revision(1));
    assert!(stage.rights.person("anna2").is_some());
    let answer = stage
        .ask(request("GET", "/api/v1/me", &Value::Null, Some(key)))
        .await;
    assert_eq!(answer.problem(), "not-authenticated");
}
