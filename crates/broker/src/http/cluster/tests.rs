//! Requests to a cluster that is made up, without a socket.

use axum::body::{self, Body};
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::cluster_control::{ClusterStatus, NodeState, NodeStatus, Reach, ShardStatus, Version};

/// Notes what it is asked for, and answers with what it was told to.
#[derive(Debug)]
struct Fake {
    asked: Mutex<Vec<Change>>,
    answer: Result<(), Refusal>,
}

impl Fake {
    fn new(answer: Result<(), Refusal>) -> Arc<Self> {
        let asked = Mutex::default();
        Arc::new(Self { asked, answer })
    }
}

impl ClusterControl for Fake {
    fn status(&self) -> ClusterStatus {
        let [one, two] = [NodeId(1), NodeId(u64::MAX)];
        let node = |node, reach, connections| NodeStatus {
            node,
            name: "a".to_owned(),
            address: "10.0.0.1:8899".to_owned(),
            state: NodeState::Up,
            reach,
            version: "0.1.0".to_owned(),
            incarnation: 3,
            connections,
            clock_offset_ms: connections.map(|_| -3),
        };
        ClusterStatus {
            cluster: Some(NodeId(0xabc)),
            env: "Test".to_owned(),
            node: one,
            nodes: vec![node(one, Reach::Up, Some(7)), node(two, Reach::Down, None)],
            shards: vec![ShardStatus {
                store: StoreName::Inbox,
                shard: 0,
                first: Some(Slot(0)),
                last: Some(Slot(299)),
                version: Some(Version(2)),
                leader: Some(one),
                voters: vec![one, two],
                learners: vec![],
                term: 4,
                load: None,
                split: None,
            }],
        }
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        self.asked.lock().push(change);
        self.answer.clone()
    }
}

async fn ask(control: Control, method: &str, path: &str, body: &Value) -> (StatusCode, String) {
    let router = reads().merge(changes()).with_state(control);
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/v1/cluster{path}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let answer = TowerToHyperService::new(router)
        .call(request)
        .await
        .unwrap();
    let status = answer.status();
    let text = body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
    (status, String::from_utf8(text.into()).unwrap())
}

#[tokio::test]
async fn the_state_is_told_as_json() {
    let fake: Control = Fake::new(Ok(()));
    let (status, text) = ask(fake, "GET", "", &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
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
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    let read: ClusterStatus = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Fake::new(Ok(())).status());
}

#[tokio::test]
async fn each_change_reaches_the_cluster() {
    let node = NodeId(0x2a);
    let seed = Endpoint::new("10.0.0.1:8899").unwrap();
    let store = StoreName::Retain;
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
            json!({"store": "retain", "shard": 3, "to": "000000000000002a"}),
            Change::TransferLeader {
                store,
                shard: 3,
                to: node,
            },
        ),
        (
            "/split",
            json!({"store": "retain", "shard": 3}),
            Change::Split {
                store,
                shard: 3,
                at: None,
            },
        ),
        (
            "/split",
            json!({"store": "retain", "shard": 3, "at": 65_534}),
            Change::Split {
                store,
                shard: 3,
                at: Some(Slot(65_534)),
            },
        ),
    ];
    for (path, body, expected) in asked {
        let fake = Fake::new(Ok(()));
        let (status, text) = ask(fake.clone(), "POST", path, &body).await;
        assert_eq!(
            (status, text),
            (StatusCode::NO_CONTENT, String::new()),
            "{path}"
        );
        assert_eq!(*fake.asked.lock(), [expected]);
        assert_eq!(
            ask(fake, "GET", path, &body).await.0,
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
}

#[tokio::test]
async fn a_refusal_is_told_in_the_clusters_words() {
    let why = || "three voters are down".to_owned();
    for (refusal, expected) in [
        (Refusal::Unknown(why()), StatusCode::NOT_FOUND),
        (Refusal::Conflict(why()), StatusCode::CONFLICT),
        (Refusal::Unavailable(why()), StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (status, text) = ask(Fake::new(Err(refusal)), "POST", "/drain", &Value::Null).await;
        assert_eq!(
            (status, text),
            (expected, "three voters are down\n".to_owned())
        );
    }
}

#[tokio::test]
async fn what_is_not_understood_changes_nothing() {
    let fake = Fake::new(Ok(()));
    for (path, body) in [
        ("/join", json!({})),
        ("/join", json!({"seed": "10.0.0.1"})),
        ("/evict", json!({"node": 42})),
        ("/evict", json!({"node": "nobody"})),
        ("/evict", json!({"node": "2a", "force": "yes"})),
        ("/evict", json!({"node": "2a", "now": true})),
        (
            "/transfer-leader",
            json!({"store": "other", "shard": 0, "to": "1"}),
        ),
        ("/split", json!({"store": "inbox"})),
        (
            "/split",
            json!({"store": "inbox", "shard": 0, "at": 65_536}),
        ),
        (
            "/split",
            json!({"store": "inbox", "shard": 0, "at": "half"}),
        ),
    ] {
        let (status, text) = ask(fake.clone(), "POST", path, &body).await;
        assert!(
            status.is_client_error() && !text.is_empty(),
            "{path} {body}: {status} {text}"
        );
    }
    assert!(fake.asked.lock().is_empty());
}
