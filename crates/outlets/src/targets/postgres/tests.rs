//! Against a real server. Each test starts one, so each asks all about its subject.

use std::time::Duration;

use bytes::Bytes;
use outlet::{
    Delivery, Incarnation, Item, Milliseconds, OpenError, Position, Refusal, Sequence,
    StandardProperties,
};
use std::sync::Arc;
use tokio_postgres::Client;

use super::*;

#[path = "../../../../authentication/src/postgres/tests/server.rs"]
#[expect(dead_code, reason = "the tests of logins use more of it")]
mod server;

use server::{PASSWORD, Server};

const STATE: &str =
    "CREATE TABLE state (device text, value int CHECK (value < 1000), body text UNIQUE)";

fn item(sequence: u64, payload: &str) -> Arc<Item> {
    Arc::new(Item {
        position: (sequence > 0).then_some(Position {
            incarnation: Incarnation(u64::MAX),
            sequence: Sequence(sequence),
        }),
        topic: "plant/7".into(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: 1,
        retain: false,
        received: Milliseconds(1),
        properties: Vec::new(),
        standard: StandardProperties::default(),
    })
}

fn values(range: std::ops::Range<u64>) -> Vec<Arc<Item>> {
    range
        .map(|number| item(number, &format!(r#"{{"v":{number}}}"#)))
        .collect()
}

fn table() -> RowsDefinition {
    let column = |name: &str, value: &str| ColumnDefinition {
        name: name.to_owned(),
        value: value.to_owned(),
        is_optional: false,
    };
    RowsDefinition::Table {
        table: "state".to_owned(),
        columns: vec![
            column("device", "${topic[1]}"),
            column("value", "${payload./v}"),
            column("body", "${payload}"),
        ],
    }
}

fn statement() -> RowsDefinition {
    let text = "INSERT INTO state VALUES (${topic[1]}, ${payload./v}, ${payload})";
    RowsDefinition::Statement(text.to_owned())
}

fn target(server: &Server, rows: RowsDefinition) -> PostgresTarget {
    let definition = PostgresDefinition {
        url: server.connection(),
        password_file: Some(server.file("own", PASSWORD)),
        ca_file: None,
        rows,
        timeout: Duration::from_secs(30),
    };
    PostgresTarget::new("history", "c", &definition).unwrap()
}

async fn found(client: &Client) -> Vec<i32> {
    let rows = client
        .query("SELECT value FROM state ORDER BY value", &[])
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn emptied(client: &Client) {
    client
        .batch_execute("TRUNCATE state, heraldmq_positions")
        .await
        .unwrap();
}

fn refused(delivery: Delivery) -> (Refusal, Arc<str>) {
    match delivery {
        Delivery::Refused { which, why } => (which, why),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_batch_and_its_position_are_there_together_or_not_at_all() {
    let Some(server) = Server::start() else {
        return;
    };
    let client = server.client().await;
    client.batch_execute(STATE).await.unwrap();
    for rows in [table(), statement()] {
        let mut one = target(&server, rows.clone());
        assert_eq!(one.open(Epoch(1)).await, Ok(None));
        assert_eq!(one.deliver(&values(1..4)).await, Delivery::All);
        // A message of QoS 0 has no position.
        assert_eq!(one.deliver(&[item(0, r#"{"v":900}"#)]).await, Delivery::All);
        assert_eq!(found(&client).await, [1, 2, 3, 900]);
        assert_eq!(one.open(Epoch(1)).await, Ok(item(3, "").position));
        // What the database does not take is refused with its place; those before it are there, and their position.
        let mut batch = values(4..9);
        batch[2] = item(6, r#"{"v":"x"}"#);
        let (which, why) = refused(one.deliver(&batch).await);
        assert_eq!(which, Refusal::At(2));
        assert!(why.contains("22P02"), "{why}");
        assert_eq!(found(&client).await, [1, 2, 3, 4, 5, 900]);
        batch[4] = item(8, r#"{"v":2000}"#);
        let (which, why) = refused(one.deliver(&batch[3..]).await);
        assert_eq!(which, Refusal::At(1));
        assert!(why.contains("23514") && !why.contains("2000"), "{why}");
        assert_eq!(found(&client).await, [1, 2, 3, 4, 5, 7, 900]);
        // A message without a piece, behind others.
        let (which, _) = refused(one.deliver(&[item(9, r#"{"v":9}"#), item(10, "{}")]).await);
        assert_eq!(which, Refusal::At(1));
        assert_eq!(one.open(Epoch(1)).await, Ok(item(9, "").position));
        emptied(&client).await;
    }
}

#[tokio::test]
async fn a_process_with_an_older_epoch_writes_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let client = server.client().await;
    client.batch_execute(STATE).await.unwrap();
    let (mut older, mut later) = (target(&server, table()), target(&server, statement()));
    assert_eq!(older.open(Epoch(1)).await, Ok(None));
    assert_eq!(older.deliver(&values(1..3)).await, Delivery::All);
    assert_eq!(later.open(Epoch(2)).await, Ok(item(2, "").position));
    assert_eq!(older.deliver(&values(3..5)).await, Delivery::Fenced);
    assert_eq!(older.open(Epoch(1)).await, Err(OpenError::Fenced));
    assert_eq!(later.deliver(&values(3..4)).await, Delivery::All);
    assert_eq!(found(&client).await, [1, 2, 3]);

    // One that is within a transaction holds the next one up, which then sees what it wrote.
    client.batch_execute("BEGIN; UPDATE heraldmq_positions SET sequence = 4; INSERT INTO state VALUES ('7', 4, 'four')").await.unwrap();
    let mut next = target(&server, table());
    let watcher = server.client().await;
    let opening = next.open(Epoch(3));
    let committing = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let looking = async {
            while watcher
                .query_one(waits, &[])
                .await
                .unwrap()
                .get::<_, i64>(0)
                == 0
            {}
        };
        timeout(Duration::from_secs(60), looking).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    };
    let (opened, ()) = futures_util::future::join(opening, committing).await;
    assert_eq!(opened, Ok(item(4, "").position));

    // Another cluster, and another outlet, have rows of their own.
    let definition = next.definition.clone();
    let mut other = PostgresTarget::new("history", "d", &definition).unwrap();
    assert_eq!(other.open(Epoch(1)).await, Ok(None));
}

#[tokio::test]
async fn what_somebody_can_mend_is_tried_again() {
    let Some(server) = Server::start() else {
        return;
    };
    let client = server.client().await;
    let why = |opened: Result<_, OpenError>| match opened {
        Err(OpenError::Retry(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut target = target(&server, table());
    // The test's own name is not told in errors, nor the password.
    assert!(why(target.open(Epoch(1)).await).contains("42P01"));
    assert!(target.probe().await.unwrap_err().contains("\"state\""));
    client
        .batch_execute("CREATE TABLE state (device text)")
        .await
        .unwrap();
    assert!(why(target.open(Epoch(1)).await).contains("42703"));
    client
        .batch_execute(&format!("DROP TABLE state; {STATE}"))
        .await
        .unwrap();
    let said = target.probe().await.unwrap();
    assert!(
        said.contains("heraldmq_positions will be made") && said.starts_with("PostgreSQL "),
        "{said}"
    );
    assert_eq!(target.open(Epoch(1)).await, Ok(None));
    // The table goes away, and a transaction waits for a lock.
    client
        .batch_execute("ALTER TABLE state RENAME TO away")
        .await
        .unwrap();
    assert!(matches!(
        target.deliver(&values(1..2)).await,
        Delivery::Retry { .. }
    ));
    client
        .batch_execute("ALTER TABLE away RENAME TO state")
        .await
        .unwrap();
    assert_eq!(target.open(Epoch(1)).await, Ok(None));
    client.batch_execute("BEGIN; LOCK state").await.unwrap();
    target.definition.timeout = Duration::from_secs(1);
    assert!(matches!(
        target.deliver(&values(1..2)).await,
        Delivery::Retry { .. }
    ));
    target.definition.timeout = Duration::from_secs(30);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(target.open(Epoch(1)).await, Ok(None));
    assert_eq!(target.deliver(&values(1..2)).await, Delivery::All);

    // A constraint that is judged at COMMIT does not say which message it is.
    client
        .batch_execute(
            "ALTER TABLE state ADD CONSTRAINT once UNIQUE (value) DEFERRABLE INITIALLY DEFERRED",
        )
        .await
        .unwrap();
    let twice = [item(2, r#"{"v":2}"#), item(3, r#"{"v":1, "again":1}"#)];
    assert_eq!(refused(target.deliver(&twice).await).0, Refusal::One);
    assert_eq!(target.deliver(&twice[..1]).await, Delivery::All);
    assert_eq!(refused(target.deliver(&twice[1..]).await).0, Refusal::At(0));
    assert_eq!(target.open(Epoch(1)).await, Ok(item(2, "").position));

    // A wrong password.
    server.file("own", "wrong");
    assert!(why(target.open(Epoch(1)).await).contains("28P01"));
}
