//! Requests to a broker that is made up, without a socket.

mod access;
mod audit;
mod fake;
mod people;
mod store;

use std::sync::Arc;

use axum::body::{self, Body};
use axum::http::{Request, StatusCode, header};
use config::Endpoint;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use store_state::api::Slot;

use super::*;
use crate::api_state::{LISTS, QUERIES, WAITING};
use crate::cluster::{Change, ClusterStatus, NodeId, StoreName};
use crate::rights::{Anonymous, KeyFile, People};
use crate::serve::Peer;
use fake::Fake;
use store::Store;

/// A broker with its router, and a key of each role.
struct Stage {
    fake: Arc<Fake>,
    store: Arc<Store>,
    rights: Arc<Rights>,
    router: Router,
    keys: Vec<(Role, String)>,
}

impl Stage {
    fn new(fake: Fake) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(&folder.path().join("keys"));
        let keys = Role::ALL.map(|role| {
            let added = file.add(role.name(), role, None).unwrap();
            (role, added.text.to_string())
        });
        let store = Arc::new(Store::default());
        let rights = Arc::new(Rights::new(store.view()));
        let people: Arc<dyn People> = Arc::new(fake::Anna);
        let keys_read = file.read().unwrap();
        rights.configure(None, keys_read, Anonymous::Viewer, Vec::new(), Some(people));
        let fake = Arc::new(fake);
        let broker: Arc<dyn Broker> = Arc::clone(&fake) as _;
        let access: Arc<dyn Access> = Arc::clone(&store) as _;
        Self {
            fake,
            store,
            rights: Arc::clone(&rights),
            router: router(broker, access, &rights),
            keys: keys.into(),
        }
    }

    fn key(&self, role: Role) -> Option<&str> {
        let mut keys = self.keys.iter();
        keys.find(|(of, _)| *of == role)
            .map(|(_, key)| key.as_str())
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let service = TowerToHyperService::new(self.router.clone());
        let answer = service.call(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let text = body::to_bytes(body, usize::MAX).await.unwrap();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(text.into()).unwrap(),
        }
    }

    /// As an administrator.
    async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let key = self.key(Role::Administrator);
        self.ask(request(method, path, body, key)).await
    }
}

struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// The problem of the document, which belongs to the status.
    fn problem(&self) -> String {
        let document = self.json();
        let kind = self.headers.get(header::CONTENT_TYPE).unwrap();
        assert_eq!(kind, "application/problem+json");
        assert_eq!(document["status"], self.status.as_u16());
        let id = self.headers.get("x-request-id").unwrap().to_str().unwrap();
        assert_eq!(document["instance"], format!("urn:heraldmq:request:{id}"));
        assert!(!document["detail"].as_str().unwrap().is_empty());
        let kind = document["type"].as_str().unwrap();
        kind.strip_prefix("urn:heraldmq:problem:")
            .unwrap()
            .to_owned()
    }
}

/// From this machine.
fn request(method: &str, path: &str, body: &Value, key: Option<&str>) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut request = request.body(Body::from(body.to_string())).unwrap();
    let peer = "127.0.0.1:40000".parse().unwrap();
    request.extensions_mut().insert(Peer(peer));
    request
}

/// What a path of the document is asked with.
fn body_of(path: &str) -> Value {
    match path {
        "/api/v1/lookup" => json!({"client_id": "a"}),
        "/api/v1/clients/a/subscriptions" => json!({"filter": "a"}),
        "/api/v1/subscribe" => json!({"client_id": "a", "subscription": {"filter": "a"}}),
        "/api/v1/unsubscribe" => json!({"client_id": "a", "filter": "a"}),
        "/api/v1/actions" => json!({"action": "disconnect", "client_ids": ["a"]}),
        "/api/v1/match" => json!({"topic": "a"}),
        "/api/v1/acl/test" => json!({"client_id": "a", "action": "publish", "topic": "a"}),
        "/api/v1/acl/rules" => json!({"client_id": "a"}),
        "/api/v1/cluster/rebalance" => json!({}),
        path if path.starts_with("/api/v1/nodes/") => json!({}),
        "/api/v1/publish" => json!({"topic": "a"}),
        "/api/v1/publish/bulk" => json!({"messages": [{"topic": "a"}]}),
        "/api/v1/retained/message" => json!({"topic": "a", "payload": "a"}),
        "/api/v1/queue" => json!({"client_id": "a"}),
        "/api/v1/bans" => json!({"client": "a"}),
        "/api/v1/users" => json!({"name": "b", "generate": true}),
        "/api/v1/groups" => json!({"name": "b"}),
        "/api/v1/users/a" | "/api/v1/users/a/password" => json!({"generate": true}),
        "/api/v1/groups/a" => json!({}),
        "/api/v1/people" => json!({"name": "b", "generate": true}),
        "/api/v1/people/a" => json!({"generate": true}),
        "/api/v1/keys" => json!({"name": "b"}),
        "/api/v1/keys/00000001/rotate" => json!({}),
        "/api/v1/rules" => json!({"lines": []}),
        "/api/v1/control/import" => json!({"format": "heraldmq/control/v1"}),
        "/api/v1/cluster/join" => json!({"seed": "10.0.0.1:8899"}),
        "/api/v1/cluster/evict" => json!({"node": "2a"}),
        "/api/v1/cluster/transfer-leader" => json!({"store": "retain", "shard": 3, "to": "2a"}),
        "/api/v1/cluster/split" => json!({"store": "retain", "shard": 3}),
        _ => Value::Null,
    }
}

/// All operations of the document with the role that it says, and a path that can be asked for.
fn operations() -> Vec<(String, String, Role)> {
    let document = serde_json::to_value(document()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(role) = operation["security"][0]["key"][0].as_str() else {
                // Whoever logs in has no right yet.
                assert!(path.starts_with("/api/v1/login"), "{path}");
                continue;
            };
            let role = role.parse().unwrap();
            let path = path
                .replace("{client_id}", "a")
                .replace("{node}", "1")
                .replace("{store}", "inbox")
                .replace("{shard}", "0")
                .replace("{name}", "a")
                .replace("{id}", "00000001");
            let parameters = operation["parameters"].as_array();
            let needed = parameters
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
            let needed =
                needed.map(|parameter| format!("{}=a", parameter["name"].as_str().unwrap()));
            let query: Vec<String> = needed.collect();
            let path = match query.is_empty() {
                true => path,
                false => format!("{path}?{}", query.join("&")),
            };
            operations.push((method.to_uppercase(), path, role));
        }
    }
    assert!(operations.len() > 20, "{operations:?}");
    operations
}

#[tokio::test]
async fn each_operation_needs_the_role_that_the_document_says() {
    let stage = Stage::new(Fake::default());
    for list in ["users", "groups"] {
        let path = format!("/api/v1/{list}");
        let body = match list {
            "users" => json!({"name": "a", "generate": true}),
            _ => json!({"name": "a"}),
        };
        stage.send("POST", &path, &body).await;
    }
    let person = json!({"name": "a", "generate": true});
    stage.send("POST", "/api/v1/people", &person).await;
    stage.store.put_key(1);
    // What is removed is there for the next one.
    *stage.store.is_idle.lock() = true;
    for (method, path, needed) in operations() {
        // Keys have no password.
        if path == "/api/v1/own-password" {
            continue;
        }
        let body = body_of(&path);
        let request = |key| {
            let mut request = request(&method, &path, &body, key);
            let any = axum::http::HeaderValue::from_static("*");
            if path == "/api/v1/rules" {
                request.headers_mut().insert(header::IF_MATCH, any);
            }
            request
        };
        for role in Role::ALL {
            let key = stage.key(role);
            let answer = stage.ask(request(key)).await;
            let status = answer.status;
            match role >= needed {
                true => assert!(
                    status.is_success(),
                    "{role} {method} {path}: {}",
                    answer.text
                ),
                false => {
                    assert_eq!(answer.problem(), "no-right", "{role} {method} {path}");
                    assert_eq!(status, StatusCode::FORBIDDEN);
                }
            }
        }
        // Without a key, from here and from elsewhere.
        let answer = stage.ask(request(None)).await;
        match needed {
            Role::Viewer => assert!(answer.status.is_success(), "{method} {path}"),
            _ => assert_eq!(answer.problem(), "not-authenticated", "{method} {path}"),
        }
        let mut from_elsewhere = request(None);
        let peer = "10.0.0.1:40000".parse().unwrap();
        from_elsewhere.extensions_mut().insert(Peer(peer));
        let answer = stage.ask(from_elsewhere).await;
        assert_eq!(answer.problem(), "not-authenticated", "{method} {path}");
        assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
        let wrong = Some("hmq_00000000_wrong");
        let answer = stage.ask(request(wrong)).await;
        assert_eq!(answer.problem(), "not-authenticated", "{method} {path}");
    }
}

#[tokio::test]
async fn monitors_need_no_key_from_wherever_they_ask() {
    let stage = Stage::new(Fake::default());
    for path in ["/healthz", "/readyz", "/metrics"] {
        let mut request = request("GET", path, &Value::Null, None);
        let peer = "10.0.0.1:40000".parse().unwrap();
        request.extensions_mut().insert(Peer(peer));
        assert_eq!(stage.ask(request).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let stage = Stage::new(Fake::default());
    for (method, path, expected) in [
        ("GET", "/api/v1/nothing", "unknown-path"),
        ("GET", "/api/v1", "unknown-path"),
        ("GET", "/api/v1/clients/", "unknown-path"),
        ("GET", "/api/v1/clients/../clients", "unknown-path"),
        ("GET", "/api/v1/%2e%2e/v1/clients", "unknown-path"),
        ("GET", "/nothing", "unknown-path"),
        ("PUT", "/api/v1/clients", "method-not-allowed"),
        ("POST", "/api/v1/nodes", "method-not-allowed"),
        ("GET", "/api/v1/lookup", "method-not-allowed"),
        ("GET", "/api/v1/clients/%ff", "invalid-parameter"),
        ("GET", "/api/v1/shards/other/0", "invalid-parameter"),
        ("GET", "/api/v1/shards/inbox/x", "invalid-parameter"),
        ("GET", "/api/v1/shards/inbox/70", "not-found"),
        ("GET", "/api/v1/shards/inbox/70/history", "not-found"),
        ("GET", "/api/v1/shards/other/0/history", "invalid-parameter"),
        ("GET", "/api/v1/nodes/nobody", "not-found"),
        ("DELETE", "/api/v1/bans/x", "invalid-parameter"),
    ] {
        let answer = stage.send(method, path, &Value::Null).await;
        assert_eq!(answer.problem(), expected, "{method} {path}");
    }
    let answer = stage.send("PUT", "/api/v1/clients", &Value::Null).await;
    assert_eq!(answer.headers[header::ALLOW], "GET,HEAD");
}

#[tokio::test]
async fn parameters_that_cannot_be_used_are_named() {
    let stage = Stage::new(Fake::default());
    for (path, parameter) in [
        ("/api/v1/clients?limit=0", "limit"),
        ("/api/v1/clients?limit=501", "limit"),
        ("/api/v1/clients?limit=x", "limit"),
        ("/api/v1/clients?budget_ms=49", "budget_ms"),
        ("/api/v1/clients?budget_ms=5001", "budget_ms"),
        ("/api/v1/clients?state=there", "state"),
        ("/api/v1/clients?node=mq-1", "node"),
        ("/api/v1/clients?durable=1", "durable"),
        ("/api/v1/settings?node=mq-1", "node"),
        ("/api/v1/shards?store=other", "store"),
        ("/api/v1/shards/inbox/0/history?since=noon", "since"),
        ("/api/v1/drops?since=yesterday", "since"),
        ("/api/v1/nodes?budget_ms=x", "budget_ms"),
    ] {
        let answer = stage.send("GET", path, &Value::Null).await;
        assert_eq!(answer.problem(), "invalid-parameter", "{path}");
        assert_eq!(answer.json()["parameter"], parameter, "{path}");
    }
    for path in [
        "/api/v1/clients?limt=5",
        "/api/v1/drops?client_id=a",
        "/api/v1/nodes?all=1",
        "/api/v1/shared-groups?prefix=a",
        "/api/v1/shared-groups/members",
        "/api/v1/clients/a/subscriptions?prefix=a",
    ] {
        let answer = stage.send("GET", path, &Value::Null).await;
        assert_eq!(answer.problem(), "invalid-parameter", "{path}");
    }
    let answer = stage
        .send("GET", "/api/v1/clients?after=x", &Value::Null)
        .await;
    assert_eq!(answer.problem(), "invalid-cursor");
}

/// Requests that cannot be used: `GET` with a query, or `POST` with a body, and the exact problem.
#[tokio::test]
async fn a_problem_names_what_is_wrong_what_it_was_and_what_is_accepted() {
    let stage = Stage::new(Fake::default());
    let parameter = |name: &str| ("parameter", name.to_owned());
    let field = |pointer: &str| ("pointer", pointer.to_owned());
    let long = "x".repeat(100);
    let table = [
        (
            "clients?limit=501",
            "",
            parameter("limit"),
            "`limit` is `501`; it is to be a whole number from 1 to 500",
        ),
        (
            "clients?budget_ms=49",
            "",
            parameter("budget_ms"),
            "`budget_ms` is `49`; it is to be a whole number from 50 to 5000",
        ),
        (
            "clients?state=there",
            "",
            parameter("state"),
            "`state` is `there`; it is to be connecting, connected, closing or away",
        ),
        (
            "shards?leaderless=1",
            "",
            parameter("leaderless"),
            "`leaderless` is `1`; it is to be true or false",
        ),
        (
            "nodes?all=1",
            "",
            parameter("all"),
            "`all` is no parameter; the parameters are budget_ms",
        ),
        (
            "clients?limt=5",
            "",
            parameter("limt"),
            "`limt` is no parameter; the parameters are prefix, user, address, node, state, durable, order, limit, after and budget_ms",
        ),
        (
            "retained/message",
            "",
            parameter("topic"),
            "`topic` is missing; it is to be a string",
        ),
        (
            "nodes?budget_ms=60&budget_ms=70",
            "",
            parameter("budget_ms"),
            "`budget_ms` is given twice",
        ),
        (
            "clients/%ff",
            "",
            parameter("client_id"),
            "`client_id` is not UTF-8; it is to be UTF-8, with `%` and two hexadecimal digits for a byte",
        ),
        (
            "shards/inbox/x",
            "",
            parameter("shard"),
            "`shard` is `x`; it is to be a whole number from 0 on",
        ),
        (
            "shards/other/0",
            "",
            parameter("store"),
            "`store` is `other`; it is to be session, inbox or retain",
        ),
        (
            "lookup",
            "{}",
            field("/client_id"),
            "`client_id` is missing; it is to be a string",
        ),
        (
            "lookup",
            "\"a\"",
            field(""),
            "the body is `a`; it is to be an object",
        ),
        (
            "lookup",
            "{\"client_id\": 7}",
            field("/client_id"),
            "`client_id` is `7`; it is to be a string",
        ),
        (
            "lookup",
            "{\"client_id\": \"a\", \"of\": 1}",
            field("/of"),
            "`of` is no field; the fields are client_id",
        ),
        (
            "publish/bulk",
            "{\"messages\": [{\"topic\": \"a\"}, {\"topic\": [1]}]}",
            field("/messages/1/topic"),
            "`messages[1].topic` is an array; it is to be a string",
        ),
        (
            "publish/bulk",
            "{\"messages\": [{\"payload\": \"a\"}]}",
            field("/messages/0/topic"),
            "`messages[0].topic` is missing; it is to be a string",
        ),
        (
            "publish",
            "{\"topic\": \"a\", \"qos\": 300}",
            field("/qos"),
            "`qos` is `300`; it is to be 0, 1 or 2",
        ),
        (
            "publish",
            "{\"topic\": \"a\", \"retain\": \"yes\"}",
            field("/retain"),
            "`retain` is `yes`; it is to be true or false",
        ),
        (
            "publish",
            "{\"topic\": \"a\", \"message_expiry_s\": -1}",
            field("/message_expiry_s"),
            "`message_expiry_s` is `-1`; it is to be a whole number from 0 to 4294967295",
        ),
        (
            "publish",
            "{\"topic\": \"a\", \"encoding\": \"hex\"}",
            field("/encoding"),
            "`encoding` is `hex`; it is to be utf8 or base64",
        ),
        (
            "actions",
            "{\"client_ids\": []}",
            field("/action"),
            "`action` is missing; it is to be disconnect, end_session or empty_queue",
        ),
        (
            "match",
            "{\"topic\": \"a\", \"qos\": 3}",
            field("/qos"),
            "`qos` is `3`; it is to be 0, 1 or 2",
        ),
        (
            "queue",
            "{\"client_id\": \"a\", \"limit\": 0}",
            field("/limit"),
            "`limit` is `0`; it is to be a whole number from 1 to 500",
        ),
        (
            "acl/test",
            "{\"client_id\": \"a\", \"topic\": \"a\", \"action\": \"read\"}",
            field("/action"),
            "`action` is `read`; it is to be publish, retain, subscribe or receive",
        ),
        (
            "acl/rules",
            "{\"client_id\": \"a\", \"address\": \"here\"}",
            field("/address"),
            "`address` is `here`; it is to be an IP address",
        ),
        (
            "cluster/evict",
            "{\"node\": \"nobody\"}",
            field("/node"),
            "`node` is `nobody`; it is to be a member: a (0000000000000001), a (ffffffffffffffff), b (000000000000002a)",
        ),
        (
            "cluster/join",
            "{\"seed\": \"10.0.0.1\"}",
            field("/seed"),
            "`seed` is `10.0.0.1`; it is to be host:port",
        ),
        (
            "login",
            "{\"user\": \"anna\", \"password\": 1234}",
            field("/password"),
            "`password` is of another type; it is to be a string",
        ),
    ];
    let ask = async |path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let key = stage.key(Role::Administrator);
        let mut asked = request(method, &format!("/api/v1/{path}"), &Value::Null, key);
        *asked.body_mut() = Body::from(body.to_owned());
        let answer = stage.ask(asked).await;
        answer.problem();
        answer.json()
    };
    for (path, body, (member, name), detail) in table {
        let document = ask(path, body).await;
        assert_eq!(document["detail"], detail, "{path} {body}");
        assert_eq!(document[member], name, "{path} {body}");
        assert!(document["accepted"].is_string(), "{path} {body}");
    }
    for (body, detail) in [
        (" ", "the body is empty; JSON is expected"),
        (
            "{\"client_id\": ",
            "the body ends within JSON, at line 1, column 14",
        ),
        (
            "{\"client_id\": 'a'}",
            "the body is no JSON from line 1, column 15, on",
        ),
        (
            "{\"client_id\": \"a\", \"client_id\": \"b\"}",
            "a field stands twice, at line 1, column 30",
        ),
    ] {
        assert_eq!(ask("lookup", body).await["detail"], detail, "{body}");
    }
    let document = ask(&format!("clients?limit={long}"), "").await;
    assert_eq!(document["value"], "x".repeat(64) + "…");
    let document = ask("login", "{\"user\": \"anna\", \"password\": 1234}").await;
    assert_eq!(document["value"], Value::Null);
    let mut asked = request("POST", "/api/v1/lookup", &json!({"client_id": "a"}), None);
    let kind = "text/plain".parse().unwrap();
    asked.headers_mut().insert(header::CONTENT_TYPE, kind);
    let detail = "the Content-Type header is `text/plain`; application/json is expected";
    assert_eq!(stage.ask(asked).await.json()["detail"], detail);
}

#[tokio::test]
async fn a_walk_goes_on_behind_the_last_item_and_ends() {
    let all: Vec<String> = (0..25).map(|n| format!("c{n:02}/ü?")).collect();
    let stage = Stage::new(Fake::with_clients(all.clone()));
    let mut seen: Vec<String> = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/clients?prefix=c&limit=10{after}");
        let page = stage.send("GET", &path, &Value::Null).await.json();
        let items = page["items"].as_array().unwrap();
        seen.extend(
            items
                .iter()
                .map(|row| row["client_id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);
    // The cursor is of this list and these filters.
    let page = stage
        .send("GET", "/api/v1/clients?limit=10", &Value::Null)
        .await
        .json();
    let next = page["next"].as_str().unwrap();
    for other in ["clients?prefix=c&", "clients?state=away&", "subscriptions?"] {
        let path = format!("/api/v1/{other}after={next}");
        let answer = stage.send("GET", &path, &Value::Null).await;
        assert_eq!(answer.problem(), "invalid-cursor", "{other}");
    }
}

#[tokio::test]
async fn identifiers_of_all_kinds_reach_the_broker_unchanged() {
    let stage = Stage::new(Fake::default());
    for (path, expected) in [
        ("a", "a"),
        ("a%2Fb", "a/b"),
        ("%2e%2e", ".."),
        ("a%20b%25", "a b%"),
        ("%C3%BC", "ü"),
        ("a=b|c;d", "a=b|c;d"),
    ] {
        let path = format!("/api/v1/clients/{path}");
        let answer = stage.send("GET", &path, &Value::Null).await;
        assert_eq!(answer.json()["client_id"], expected, "{path}");
        let body = json!({"client_id": expected});
        let answer = stage.send("POST", "/api/v1/lookup", &body).await;
        assert_eq!(answer.json()["client_id"], expected);
    }
}

#[tokio::test]
async fn an_action_says_of_each_client_what_became_of_it() {
    let stage = Stage::new(Fake::default());
    let body = json!({"action": "end_session", "client_ids": ["a", "nobody"]});
    let results = stage.send("POST", "/api/v1/actions", &body).await.json();
    assert_eq!(results[0]["client_id"], "a");
    assert_eq!(results[0]["done"]["session_ended"], true);
    assert_eq!(results[1]["done"], Value::Null);
    assert_eq!(results[1]["problem"]["status"], 404);
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let body = json!({"action": "disconnect", "client_ids": many});
    let answer = stage.send("POST", "/api/v1/actions", &body).await;
    assert_eq!(answer.problem(), "invalid-body");
}

#[tokio::test]
async fn bodies_that_cannot_be_used_change_nothing() {
    let stage = Stage::new(Fake::default());
    for (path, body) in [
        ("/cluster/join", json!({})),
        ("/cluster/join", json!({"seed": "10.0.0.1"})),
        ("/cluster/evict", json!({"node": 42})),
        ("/cluster/evict", json!({"node": "nobody"})),
        ("/cluster/evict", json!({"node": "2a", "force": "yes"})),
        ("/cluster/evict", json!({"node": "2a", "now": true})),
        (
            "/cluster/transfer-leader",
            json!({"store": "other", "shard": 0, "to": "1"}),
        ),
        ("/cluster/split", json!({"store": "inbox"})),
        (
            "/cluster/split",
            json!({"store": "inbox", "shard": 0, "at": 65_536}),
        ),
        (
            "/cluster/split",
            json!({"store": "inbox", "shard": 0, "at": "half"}),
        ),
        ("/match", json!({"topic": "a", "qos": 3})),
        ("/match", json!({"topic": "a", "limit": 0})),
        ("/match", json!({"topic": 1})),
        ("/actions", json!({"action": "other", "client_ids": ["a"]})),
        ("/bans", json!({"client": "a", "for": 1})),
        ("/lookup", json!("a")),
    ] {
        let answer = stage.send("POST", &format!("/api/v1{path}"), &body).await;
        assert_eq!(answer.problem(), "invalid-body", "{path} {body}");
    }
    let mut request = request("POST", "/api/v1/lookup", &json!({"client_id": "a"}), None);
    request.headers_mut().remove("content-type");
    let answer = stage.ask(request).await;
    assert_eq!(answer.problem(), "unsupported-media-type");
    let long = json!({"client_id": "x".repeat(70_000)});
    let answer = stage.send("POST", "/api/v1/lookup", &long).await;
    assert_eq!(answer.problem(), "too-large");
    assert!(stage.fake.asked.lock().is_empty());
}

#[tokio::test]
async fn the_state_of_the_cluster_is_told_as_json() {
    let stage = Stage::new(Fake::default());
    let answer = stage.send("GET", "/api/v1/cluster", &Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK);
    let node = |node, reach| {
        json!({"node": node, "name": "a", "address": "10.0.0.1:8899", "state": "up", "reach": reach,
               "version": "0.1.0", "incarnation": 3})
    };
    let mut first = node("0000000000000001", "up");
    first["connections"] = 7.into();
    first["clock_offset_ms"] = (-3).into();
    let expected = json!({
        "cluster": "0000000000000abc",
        "env": "Test",
        "node": "0000000000000001",
        "nodes": [first, node("ffffffffffffffff", "down")],
        "shards": [{"store": "inbox", "shard": 0, "first": 0, "last": 299, "version": 2, "leader": "0000000000000001",
                    "voters": ["0000000000000001", "ffffffffffffffff"], "learners": [], "term": 4}],
    });
    assert_eq!(answer.json(), expected);
    let read: ClusterStatus = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(read, fake::status());
}

#[tokio::test]
async fn each_change_reaches_the_cluster() {
    let node = NodeId(0x2a);
    let seed = Endpoint::new("10.0.0.1:8899").unwrap();
    let store = StoreName::Retain;
    let transfer = json!({"store": "retain", "shard": 3, "to": "b"});
    let at = Some(Slot(65_534));
    let shard = 3;
    let to = node;
    let asked = [
        (
            "/join",
            json!({"seed": "10.0.0.1:8899"}),
            Change::Join { seed },
        ),
        ("/leave", Value::Null, Change::Leave),
        ("/drain", Value::Null, Change::Drain),
        (
            "/evict",
            json!({"node": "2a"}),
            Change::Evict { node, force: false },
        ),
        (
            "/evict",
            json!({"node": "2a", "force": true}),
            Change::Evict { node, force: true },
        ),
        (
            "/transfer-leader",
            transfer,
            Change::TransferLeader { store, shard, to },
        ),
        (
            "/split",
            json!({"store": "retain", "shard": 3}),
            Change::Split {
                store,
                shard,
                at: None,
            },
        ),
        (
            "/split",
            json!({"store": "retain", "shard": 3, "at": 65_534}),
            Change::Split { store, shard, at },
        ),
    ];
    for (path, body, expected) in asked {
        let stage = Stage::new(Fake::default());
        let path = format!("/api/v1/cluster{path}");
        let answer = stage.send("POST", &path, &body).await;
        assert_eq!(
            (answer.status, &*answer.text),
            (StatusCode::NO_CONTENT, ""),
            "{path}"
        );
        assert_eq!(*stage.fake.asked.lock(), [expected]);
    }
}

#[tokio::test]
async fn a_refusal_is_told_in_the_clusters_words() {
    use peer_protocol::Refusal;
    let why = || "three voters are down".to_owned();
    for (refusal, expected) in [
        (Refusal::Unknown(why()), "not-found"),
        (Refusal::Conflict(why()), "conflict"),
        (Refusal::Unavailable(why()), "not-ready"),
    ] {
        let stage = Stage::new(Fake::refusing(refusal));
        let answer = stage
            .send("POST", "/api/v1/cluster/drain", &Value::Null)
            .await;
        assert_eq!(answer.problem(), expected);
        assert_eq!(answer.json()["detail"], "three voters are down");
    }
}

#[tokio::test]
async fn who_reads_many_lists_at_once_leaves_places_for_others() {
    let stage = Stage::new(Fake::silent());
    let under_way: Vec<_> = (0..LISTS)
        .map(|_| {
            let router = stage.router.clone();
            tokio::spawn(async move {
                let service = TowerToHyperService::new(router);
                let list = request("GET", "/api/v1/clients", &Value::Null, None);
                service.call(list).await
            })
        })
        .collect();
    while stage.fake.lists_asked() < LISTS {
        tokio::task::yield_now().await;
    }
    let answer = stage.send("GET", "/api/v1/clients", &Value::Null).await;
    assert_eq!(answer.problem(), "too-many-requests");
    assert_eq!(answer.json()["limit"], "lists");
    let answer = stage.send("GET", "/api/v1/clients/a", &Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK);
    for task in under_way {
        task.abort();
    }
}

#[tokio::test]
async fn more_questions_than_are_answered_are_refused_at_once() {
    let stage = Stage::new(Fake::silent());
    let all = (0..QUERIES + WAITING).map(|_| {
        let router = stage.router.clone();
        tokio::spawn(async move {
            let service = TowerToHyperService::new(router);
            service
                .call(request("GET", "/api/v1/nodes", &Value::Null, None))
                .await
        })
    });
    let under_way: Vec<_> = all.collect();
    while stage.fake.nodes_asked() < QUERIES {
        tokio::task::yield_now().await;
    }
    // Each turn of this runtime has each task run that can.
    for _ in 0..QUERIES + WAITING {
        tokio::task::yield_now().await;
    }
    let answer = stage.send("GET", "/api/v1/shards", &Value::Null).await;
    assert_eq!(answer.problem(), "too-many-requests");
    assert_eq!(answer.headers[header::RETRY_AFTER], "1");
    assert_eq!(stage.fake.nodes_asked(), QUERIES);
    // What asks nobody is answered.
    let answer = stage.send("GET", "/api/v1/cluster", &Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK);
    for task in under_way {
        task.abort();
    }
}

#[test]
fn each_operation_has_an_identifier_of_its_own_and_describes_its_parameters_and_answers() {
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["servers"], json!([{"url": "/"}]));
    let is_described = |part: &Value| {
        let text = part["description"].as_str();
        text.is_some_and(|text| !text.is_empty())
    };
    let mut identifiers = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let identifier = operation["operationId"].as_str().unwrap();
            assert!(identifiers.insert(identifier), "{identifier} is doubled");
            assert!(operation["summary"].is_string(), "{method} {path}");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert!(is_described(answer), "{method} {path}: {status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = &parameter["name"];
                assert!(is_described(parameter), "{method} {path}: {name}");
            }
        }
    }
}

/// Generated: `UPDATE_GENERATED=1 cargo test -p herald-admin` writes it.
#[test]
fn the_document_is_checked_in() {
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/openapi.json"
    );
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == text,
        "docs/reference/openapi.json is not what the code says: \
         UPDATE_GENERATED=1 cargo test -p herald-admin writes it"
    );
}

#[tokio::test]
async fn a_stream_of_events_says_where_it_begins_what_happens_and_why_it_ends() {
    let stage = Stage::new(Fake::default());
    let path = "/api/v1/events?type=client.connected,message.dropped&prefix=c";
    let answer = stage.send("GET", path, &Value::Null).await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "text/event-stream");
    let blocks: Vec<&str> = answer.text.trim_end().split("\n\n").collect();
    assert_eq!(blocks.len(), 3, "{}", answer.text);
    assert_eq!(blocks[0], "event: hello\ndata: {\"step_ms\":500}");
    let lines: Vec<&str> = blocks[1].lines().collect();
    assert_eq!(lines[0], "event: client.connected");
    let event: crate::api::Event =
        serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event.client_id.as_deref(), Some("c\n1"));
    assert_eq!(lines[2], "id: 0000000000000001-3-8");
    assert_eq!(blocks[2], "event: end\ndata: {\"reason\":\"not-ready\"}");
    for query in ["type=other", "type=", "type=client", "node=mq-1", "since=1"] {
        let path = format!("/api/v1/events?{query}");
        let answer = stage.send("GET", &path, &Value::Null).await;
        assert_eq!(answer.problem(), "invalid-parameter", "{query}");
    }
}

#[tokio::test]
async fn a_node_has_so_many_streams_and_their_places_come_back() {
    let stage = Stage::new(Fake::default());
    let service = TowerToHyperService::new(stage.router.clone());
    let begin = || request("GET", "/api/v1/events", &Value::Null, None);
    let mut streams = Vec::new();
    for _ in 0..crate::api_state::STREAMS {
        let answer = service.call(begin()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        streams.push(answer);
    }
    let answer = stage.ask(begin()).await;
    assert_eq!(answer.problem(), "too-many-requests");
    assert_eq!(answer.json()["limit"], "streams");
    streams.pop();
    assert_eq!(stage.ask(begin()).await.status, StatusCode::OK);
}

/// A request of a browser: with a cookie, and with a token if it has one.
fn of_browser(method: &str, path: &str, cookie: &str, csrf: Option<&str>) -> Request<Body> {
    let mut made = request(method, path, &body_of(path), None);
    let headers = made.headers_mut();
    headers.insert(header::COOKIE, format!("a=b; {cookie}").parse().unwrap());
    if let Some(csrf) = csrf {
        headers.insert("x-csrf-token", csrf.parse().unwrap());
    }
    let peer = "10.0.0.1:40000".parse().unwrap();
    made.extensions_mut().insert(Peer(peer));
    made
}

#[tokio::test]
async fn a_session_stands_for_its_user_and_changes_need_its_token() {
    let stage = Stage::new(Fake::default());
    let login = |password: &str| {
        let body = json!({"user": "anna", "password": password});
        request("POST", "/api/v1/login", &body, None)
    };
    let answer = stage.ask(login("wrong")).await;
    assert_eq!(answer.problem(), "login-failed");
    let answer = stage.ask(login("right")).await;
    assert_eq!(answer.json()["role"], "operator");
    let csrf = answer.json()["csrf_token"].as_str().unwrap().to_owned();
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    let (cookie, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes, " HttpOnly; SameSite=Strict");

    let me = stage
        .ask(of_browser("GET", "/api/v1/me", cookie, None))
        .await;
    assert_eq!(me.json()["user"], "anna");
    assert_eq!(me.json()["csrf_token"], csrf.as_str());
    for (path, token, expected) in [
        ("/api/v1/lookup", None, "csrf"),
        ("/api/v1/lookup", Some("other"), "csrf"),
        ("/api/v1/bans", None, "csrf"),
        ("/api/v1/logout", None, "csrf"),
        ("/api/v1/cluster/join", Some(csrf.as_str()), "no-right"),
    ] {
        let answer = stage.ask(of_browser("POST", path, cookie, token)).await;
        assert_eq!(answer.problem(), expected, "{path}");
    }
    let may = of_browser("POST", "/api/v1/bans", cookie, Some(&csrf));
    assert!(stage.ask(may).await.status.is_success());
    let events = of_browser("GET", "/api/v1/events", cookie, None);
    assert_eq!(stage.ask(events).await.status, StatusCode::OK);

    // The next login makes another session and ends this one.
    let mut again = login("right");
    again
        .headers_mut()
        .insert(header::COOKIE, cookie.parse().unwrap());
    let answer = stage.ask(again).await;
    let next = answer.headers[header::SET_COOKIE].to_str().unwrap();
    let next = next.split_once(';').unwrap().0;
    assert_ne!(next, cookie);
    let answer = stage
        .ask(of_browser("GET", "/api/v1/me", cookie, None))
        .await;
    assert_eq!(answer.problem(), "not-authenticated");
    let me = stage.ask(of_browser("GET", "/api/v1/me", next, None)).await;
    let csrf = me.json()["csrf_token"].as_str().unwrap().to_owned();
    let logout = of_browser("POST", "/api/v1/logout", next, Some(&csrf));
    let answer = stage.ask(logout).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert!(
        answer.headers[header::SET_COOKIE]
            .to_str()
            .unwrap()
            .contains("Max-Age=0")
    );
    let answer = stage.ask(of_browser("GET", "/api/v1/me", next, None)).await;
    assert_eq!(answer.problem(), "not-authenticated");
}

#[tokio::test]
async fn bans_come_page_by_page_in_the_order_of_their_numbers() {
    let stage = Stage::new(Fake::default());
    let mut path = "/api/v1/bans?limit=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = stage.ask(request("GET", &path, &Value::Null, None)).await;
        let page = page.json();
        let items = page["items"].as_array().expect("a page has items").iter();
        pages.push(items.map(|ban| ban["id"].as_u64()).collect::<Vec<_>>());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/bans?limit=2&after={next}");
    }
    assert_eq!(pages, [vec![Some(1), Some(2)], vec![Some(3)]]);
    // Of this list, and no number.
    let forged = crate::page::List::new("bans", &[]).cursor("x");
    let path = format!("/api/v1/bans?after={forged}");
    let refused = stage.ask(request("GET", &path, &Value::Null, None)).await;
    assert_eq!(
        refused.json()["type"],
        "urn:heraldmq:problem:invalid-cursor"
    );
}

#[tokio::test]
async fn a_session_of_another_node_counts_here_and_a_key_counts_more() {
    let stage = Stage::new(Fake::default());
    let secret = "A".repeat(43);
    let cookie = format!("hmq_session=2-{secret}");
    let me = stage
        .ask(of_browser("GET", "/api/v1/me", &cookie, None))
        .await;
    assert_eq!(me.json()["user"], "ben");
    // What he may do here is not for the node to say that his token names, nor whether he is known.
    assert_eq!(me.json()["role"], "viewer");
    let mut with_key = of_browser("POST", "/api/v1/bans", &cookie, None);
    let key = format!("Bearer {}", stage.key(Role::Viewer).unwrap());
    with_key
        .headers_mut()
        .insert(header::AUTHORIZATION, key.parse().unwrap());
    assert_eq!(stage.ask(with_key).await.problem(), "no-right");
    for cookie in [
        format!("hmq_session=3-{secret}"),
        format!("hmq_session=4-{secret}"),
        "hmq_session=x".to_owned(),
    ] {
        let answer = stage
            .ask(of_browser("GET", "/api/v1/me", &cookie, None))
            .await;
        assert_eq!(answer.problem(), "not-authenticated", "{cookie}");
    }
}

#[tokio::test]
async fn whoever_leaves_before_the_answer_keeps_a_place_of_his_address() {
    let stage = Stage::new(Fake::silent());
    let login = || {
        let body = json!({"user": "anna", "password": "right"});
        stage.ask(request("POST", "/api/v1/login", &body, None))
    };
    for _ in 0..4 {
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), login());
        assert!(waits.await.is_err(), "nobody has checked the password");
    }
    let answer = login().await;
    assert_eq!(answer.problem(), "too-many-requests");
    assert_eq!(answer.json()["limit"], "logins");
    // Others are not kept out by that address.
    let body = json!({"user": "anna", "password": "right"});
    let mut from_elsewhere = request("POST", "/api/v1/login", &body, None);
    let peer = "10.0.0.1:40000".parse().unwrap();
    from_elsewhere.extensions_mut().insert(Peer(peer));
    let asked = stage.ask(from_elsewhere);
    let waits = tokio::time::timeout(std::time::Duration::from_millis(20), asked);
    assert!(waits.await.is_err(), "it has a place and waits");
}
