//! Against a real server. Each test starts one, so each asks all about its subject.

mod server;

use std::num::NonZero;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use authorization::{Action, Client, Effect};
use config::PostgresConfig;
use futures_util::future::{FutureExt, join_all};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::process::{Pid, Signal, kill_process};

use super::Postgres;
use crate::authenticator::{Authenticator, Opinion};
use crate::hash_threads::HashThreads;
use authentication_api::{Credentials, Denial, Identity, Secret};
use server::{PASSWORD, Server};

/// How long a test waits for what must come true.
const DEADLINE: Duration = Duration::from_secs(30);

const TABLES: &str = "
    CREATE TABLE mqtt_user (username text, password_hash text, is_superuser boolean);
    CREATE TABLE mqtt_acl (number serial, username text, permission text, action text, topic text);
    INSERT INTO mqtt_acl (username, permission, action, topic) VALUES
        ('anna', 'deny', 'publish', 'a/secret'), ('anna', 'allow', 'all', 'a/#'),
        ('rude', 'allow', 'fly', 'a/#');
";

const ACL_QUERY: &str =
    "SELECT permission, action, topic FROM mqtt_acl WHERE username = $1 ORDER BY number";

fn settings(server: &Server) -> PostgresConfig {
    PostgresConfig {
        connection: Some(server.connection()),
        password_file: Some(server.file("pass", &format!("{PASSWORD}\n"))),
        acl_query: Some(ACL_QUERY.to_owned()),
        ..PostgresConfig::default()
    }
}

fn open(config: &PostgresConfig) -> Postgres {
    Postgres::open("postgres (1)".to_owned(), config, HashThreads::new(2)).unwrap()
}

/// Tables, and users whose password is `secret`.
async fn fill(server: &Server) -> tokio_postgres::Client {
    let client = server.client().await;
    client.batch_execute(TABLES).await.unwrap();
    let hash = bcrypt::hash("secret", 4).unwrap();
    for (username, hash, is_superuser) in [
        ("anna", Some(hash.as_str()), Some(false)),
        ("root", Some(&hash), Some(true)),
        ("rude", Some(&hash), None),
        ("twice", Some(&hash), None),
        ("twice", Some(&hash), None),
        ("plain", Some("secret"), None),
        ("null", None, None),
    ] {
        client
            .execute(
                "INSERT INTO mqtt_user VALUES ($1, $2, $3)",
                &[&username, &hash, &is_superuser],
            )
            .await
            .unwrap();
    }
    client
}

fn credentials(username: &str, password: &str) -> Credentials {
    Credentials {
        client_id: "sensor".into(),
        username: Some(username.into()),
        password: Some(Secret::new(password.as_bytes())),
        address: Some("192.0.2.7".parse().unwrap()),
        certificate_name: None,
    }
}

async fn opinion(postgres: &Postgres, username: &str, password: &str) -> Opinion {
    postgres
        .authenticate(&credentials(username, password))
        .await
}

async fn allowed(postgres: &Postgres, username: &str) -> Identity {
    match opinion(postgres, username, "secret").await {
        Opinion::Allow(identity) => *identity,
        other => panic!("{username}: {other:?}"),
    }
}

async fn failure(postgres: &Postgres, username: &str) -> String {
    match opinion(postgres, username, "secret").await {
        Opinion::Failed(reason) => reason,
        other => panic!("{username}: {other:?}"),
    }
}

#[tokio::test]
async fn users_and_their_rules() {
    let Some(server) = Server::start() else {
        return;
    };
    fill(&server).await;
    let postgres = open(&settings(&server));

    let anna = allowed(&postgres, "anna").await;
    assert_eq!(anna.username.as_deref(), Some("anna"));
    assert!(!anna.is_superuser);
    let rules = anna.rules.unwrap();
    let client = Client {
        client_id: "sensor",
        username: Some("anna"),
        address: None,
    };
    let effect = |topic| {
        rules
            .decide(&client, Action::Publish, topic)
            .map(|decision| decision.effect)
    };
    assert_eq!(effect("a/secret"), Some(Effect::Deny));
    assert_eq!(effect("a/b"), Some(Effect::Allow));
    assert_eq!(effect("b"), None);

    let root = allowed(&postgres, "root").await;
    assert!(root.is_superuser);
    assert!(root.rules.is_none());

    assert!(matches!(
        opinion(&postgres, "anna", "guess").await,
        Opinion::Deny(Denial::WrongPassword)
    ));
    assert!(matches!(
        opinion(&postgres, "nobody", "secret").await,
        Opinion::Ignore
    ));
    let without_password = Credentials {
        password: None,
        ..credentials("anna", "")
    };
    assert!(matches!(
        postgres.authenticate(&without_password).await,
        Opinion::Deny(Denial::WrongPassword)
    ));
    let without_name = Credentials {
        username: None,
        ..credentials("", "secret")
    };
    assert!(matches!(
        postgres.authenticate(&without_name).await,
        Opinion::Ignore
    ));

    for (username, said) in [
        ("plain", "plain passwords are not accepted"),
        ("null", "password_hash"),
        ("twice", "more than one row"),
        ("rude", "rule 1: the action \"fly\""),
    ] {
        let reason = failure(&postgres, username).await;
        assert!(reason.contains(said), "{reason}");
        assert!(reason.contains(&format!("user {username:?}")), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }

    let by_client = open(&PostgresConfig {
        query: "SELECT password_hash FROM mqtt_user
            WHERE username = 'anna' AND $2 = 'sensor' AND $3::inet << '192.0.2.0/24'"
            .to_owned(),
        acl_query: None,
        ..settings(&server)
    });
    let identity = allowed(&by_client, "somebody").await;
    assert_eq!(identity.username.as_deref(), Some("somebody"));
    assert!(identity.rules.is_none());
}

#[tokio::test]
async fn an_unknown_user_waits_for_a_hash_as_a_known_one() {
    let Some(server) = Server::start() else {
        return;
    };
    fill(&server).await;
    let hashes = HashThreads::new(1);
    let postgres = Postgres::open(
        "postgres (1)".to_owned(),
        &settings(&server),
        hashes.clone(),
    );
    let postgres = postgres.unwrap();
    allowed(&postgres, "anna").await;

    let (release, released) = mpsc::channel::<()>();
    let mut busy = pin!(hashes.run(move || released.recv()));
    assert!(busy.as_mut().now_or_never().is_none());
    let unknown = tokio::spawn(async move { opinion(&postgres, "nobody", "secret").await });
    let elsewhere = open(&settings(&server));
    for _ in 0..3 {
        allowed(&elsewhere, "anna").await;
    }
    assert!(!unknown.is_finished());
    drop(release);
    let _ = busy.await;
    assert!(matches!(unknown.await.unwrap(), Opinion::Ignore));
}

#[tokio::test]
async fn a_server_that_restarts_or_is_gone() {
    let Some(server) = Server::start() else {
        return;
    };
    fill(&server).await;
    let postgres = open(&settings(&server));
    allowed(&postgres, "anna").await;

    server.down();
    server.up();
    allowed(&postgres, "anna").await;

    server.down();
    let reason = failure(&postgres, "anna").await;
    assert!(reason.contains("connecting"), "{reason}");
    server.up();
    allowed(&postgres, "anna").await;

    // Several connections are open when the server restarts: no login meets a broken one.
    let together = || async {
        tokio::join!(
            allowed(&postgres, "anna"),
            allowed(&postgres, "anna"),
            allowed(&postgres, "anna")
        )
    };
    together().await;
    server.down();
    server.up();
    together().await;
}

#[tokio::test]
async fn a_server_that_refuses_or_is_slow() {
    let Some(server) = Server::start() else {
        return;
    };
    let client = fill(&server).await;

    let refused = open(&PostgresConfig {
        password_file: Some(server.file("wrong", "wrong secret")),
        ..settings(&server)
    });
    let reason = failure(&refused, "anna").await;
    assert!(
        reason.contains("password authentication failed"),
        "{reason}"
    );
    assert!(!reason.contains("secret"), "{reason}");

    let mistaken = open(&PostgresConfig {
        query: "SELECT password FROM mqtt_users".to_owned(),
        ..settings(&server)
    });
    let reason = failure(&mistaken, "anna").await;
    assert!(reason.contains("mqtt_users"), "{reason}");

    let slow = open(&PostgresConfig {
        query: "SELECT password_hash FROM mqtt_user, pg_sleep(3600) WHERE username = $1".to_owned(),
        timeout: Duration::from_millis(300),
        pool_size: NonZero::new(1).unwrap(),
        ..settings(&server)
    });
    let (first, second) = tokio::join!(failure(&slow, "anna"), failure(&slow, "anna"));
    assert_eq!(first, "no answer in 300 ms");
    assert_eq!(second, first, "waiting for the connection counts");
    let start = Instant::now();
    while !processes(&client, "wait_event = 'PgSleep'")
        .await
        .is_empty()
    {
        assert!(
            start.elapsed() < DEADLINE,
            "the server still works for nobody"
        );
    }
}

#[tokio::test]
async fn connections_are_few_and_given_up_when_they_lead_nowhere() {
    const SIZE: u16 = 2;
    let Some(server) = Server::start() else {
        return;
    };
    let client = fill(&server).await;
    let postgres = open(&PostgresConfig {
        pool_size: NonZero::new(SIZE).unwrap(),
        timeout: Duration::from_secs(3),
        ..settings(&server)
    });
    join_all((0..SIZE * 4).map(|_| allowed(&postgres, "anna"))).await;
    let connections = processes(&client, "application_name = 'heraldmq'").await;
    assert_eq!(connections.len(), usize::from(SIZE));

    let hanging = Stopped::new(&connections);
    let reason = failure(&postgres, "anna").await;
    assert_eq!(reason, "no answer in 3000 ms");
    allowed(&postgres, "anna").await;
    drop(hanging);
}

/// Processes of the server that serve connections for which this is true.
async fn processes(client: &tokio_postgres::Client, condition: &str) -> Vec<i32> {
    let query = format!("SELECT pid FROM pg_stat_activity WHERE {condition}");
    let rows = client.query(&query, &[]).await.unwrap();
    rows.iter().map(|row| row.get("pid")).collect()
}

/// Processes that do not go on before this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn new(processes: &[i32]) -> Self {
        let processes = processes.iter().copied().filter_map(Pid::from_raw);
        let stopped = Self(processes.collect());
        stopped.send(Signal::STOP);
        stopped
    }

    fn send(&self, signal: Signal) {
        for process in &self.0 {
            kill_process(*process, signal).unwrap();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.send(Signal::CONT);
    }
}

#[tokio::test]
async fn connections_by_tls() {
    let Some(server) = Server::start() else {
        return;
    };
    fill(&server).await;
    let by_tls = |host: &str| PostgresConfig {
        connection: Some(server.tls_connection(host)),
        ..settings(&server)
    };
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = server.file("data/server.crt", &cert.pem());
    server.private_file("data/server.key", &signing_key.serialize_pem());
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other_ca_file = server.file("other.crt", &other.cert.pem());
    let trusting = |ca_file, host| {
        open(&PostgresConfig {
            ca_file: Some(ca_file),
            ..by_tls(host)
        })
    };

    let plain = trusting(ca_file.clone(), "localhost");
    let reason = failure(&plain, "anna").await;
    assert!(reason.contains("does not support TLS"), "{reason}");

    server.down();
    server.configure("ssl = on");
    server.up();
    allowed(&trusting(ca_file.clone(), "localhost"), "anna").await;
    for postgres in [
        trusting(other_ca_file, "localhost"),
        trusting(ca_file, "127.0.0.1"),
    ] {
        let reason = failure(&postgres, "anna").await;
        assert!(reason.contains("certificate"), "{reason}");
    }
}

#[test]
fn bad_settings_are_named() {
    let missing = PathBuf::from("/nonexistent/file");
    let connection = |text: &str| PostgresConfig {
        connection: Some(text.to_owned()),
        ..PostgresConfig::default()
    };
    let cases = [
        (PostgresConfig::default(), "postgres.connection"),
        (
            connection("host=localhost colour=red"),
            "postgres.connection",
        ),
        (connection("host=localhost sslmode=maybe"), "sslmode"),
        (
            connection("postgresql://anna:secret@localhost/"),
            "postgres.passwordFile",
        ),
        (
            PostgresConfig {
                password_file: Some(missing.clone()),
                ..connection("host=localhost")
            },
            "postgres.passwordFile /nonexistent/file",
        ),
        (
            PostgresConfig {
                ca_file: Some(missing),
                ..connection("host=localhost sslmode=require")
            },
            "postgres.caFile /nonexistent/file",
        ),
    ];
    for (config, named) in cases {
        let reason =
            Postgres::open("postgres (1)".to_owned(), &config, HashThreads::new(1)).unwrap_err();
        assert!(reason.contains(named), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}
