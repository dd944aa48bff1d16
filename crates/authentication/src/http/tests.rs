//! Against servers on real sockets, good and bad ones.

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::serve::ListenerExt;
use config::HttpAuthenticatorConfig;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use super::Http;
use crate::authenticator::{Authenticator, Opinion};
use authentication_api::{Credentials, Denial, Secret};

/// A server that notes what it is asked.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start<F, R>(answer: F) -> Self
    where
        F: Fn() -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response> + Send,
    {
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let connections = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&asked);
        let router = Router::new().fallback(move |request: Request<axum::body::Body>| async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            noted.lock().push((head.headers, body));
            answer().await
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/auth?by=mqtt", listener.local_addr().unwrap());
        let counted = Arc::clone(&connections);
        let listener = listener.tap_io(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        tokio::spawn(async { axum::serve(listener, router).await });
        Self {
            url,
            asked,
            connections,
        }
    }

    async fn that_says(status: u16, body: &'static str) -> Self {
        Self::start(
            move || async move { (StatusCode::from_u16(status).unwrap(), body).into_response() },
        )
        .await
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().len()
    }
}

/// A server that sends these bytes to everybody who says something, and nothing more.
async fn raw_server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _question = socket.read(&mut [0; 4096]).await.unwrap();
            socket.write_all(answer).await.unwrap();
            open.push(socket);
        }
    });
    url
}

fn settings(url: &str) -> HttpAuthenticatorConfig {
    HttpAuthenticatorConfig {
        url: Some(url.to_owned()),
        ..HttpAuthenticatorConfig::default()
    }
}

fn open(config: &HttpAuthenticatorConfig) -> Http {
    Http::open("http (1)".to_owned(), config).unwrap()
}

fn credentials(password: &str) -> Credentials {
    Credentials {
        client_id: "sensor".into(),
        username: Some("anna".into()),
        password: Some(Secret::new(password.as_bytes())),
        address: Some("192.0.2.7".parse().unwrap()),
        certificate_name: None,
    }
}

async fn failure(http: &Http) -> String {
    match http.authenticate(&credentials("secret")).await {
        Opinion::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn asks_as_servers_for_emqx_expect() {
    let server = Server::that_says(200, r#"{"result": "allow", "is_superuser": true}"#).await;
    let http = open(&settings(&server.url));
    let Opinion::Allow(identity) = http.authenticate(&credentials("secret")).await else {
        panic!("not allowed");
    };
    assert_eq!(identity.username.as_deref(), Some("anna"));
    assert!(identity.is_superuser);
    let (headers, body) = server.asked.lock().remove(0);
    assert_eq!(headers["content-type"], "application/json");
    assert!(!headers.contains_key("authorization"));
    let expected = json!({"clientid": "sensor", "username": "anna", "password": "secret",
        "peerhost": "192.0.2.7"});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn what_a_client_does_not_show_is_null() {
    let server = Server::that_says(204, "").await;
    let http = open(&settings(&server.url));
    let nobody = Credentials {
        username: None,
        password: None,
        address: None,
        ..credentials("")
    };
    let Opinion::Allow(identity) = http.authenticate(&nobody).await else {
        panic!("not allowed");
    };
    assert_eq!(identity.username, None);
    let (_, body) = server.asked.lock().remove(0);
    let expected = json!({"clientid": "sensor", "username": null, "password": null,
        "peerhost": null});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_password_that_is_not_text_is_left_to_others() {
    let server = Server::that_says(204, "").await;
    let http = open(&settings(&server.url));
    let binary = Credentials {
        password: Some(Secret::new(&[0xFF])),
        ..credentials("")
    };
    assert!(matches!(http.authenticate(&binary).await, Opinion::Ignore));
    assert_eq!(server.times_asked(), 0);
}

#[tokio::test]
async fn denies_and_ignores() {
    let server = Server::that_says(401, "").await;
    let http = open(&settings(&server.url));
    assert!(matches!(
        http.authenticate(&credentials("x")).await,
        Opinion::Deny(Denial::Denied)
    ));
    let server = Server::that_says(200, r#"{"result": "ignore"}"#).await;
    let http = open(&settings(&server.url));
    assert!(matches!(
        http.authenticate(&credentials("x")).await,
        Opinion::Ignore
    ));
}

#[tokio::test]
async fn shows_its_token_to_the_server_only() {
    let server = Server::that_says(204, "").await;
    let folder = TempDir::new().unwrap();
    let token_file = folder.path().join("token");
    fs::write(&token_file, "t0ken\n").unwrap();
    let http = open(&HttpAuthenticatorConfig {
        token_file: Some(token_file),
        ..settings(&server.url)
    });
    http.authenticate(&credentials("secret")).await;
    let (headers, _) = server.asked.lock().remove(0);
    assert_eq!(headers["authorization"], "Bearer t0ken");
    assert!(!format!("{http:?}").contains("t0ken"));
}

#[tokio::test]
async fn keeps_its_connection() {
    let server = Server::that_says(204, "").await;
    let http = open(&settings(&server.url));
    for _ in 0..5 {
        http.authenticate(&credentials("secret")).await;
    }
    assert_eq!(server.times_asked(), 5);
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_dead_server_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let reason = failure(&open(&settings(&url))).await;
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test]
async fn a_slow_server_is_a_failure() {
    for begun in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\nX:",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
    ] {
        let http = open(&HttpAuthenticatorConfig {
            timeout: Duration::from_millis(50),
            ..settings(&raw_server(begun).await)
        });
        let reason = failure(&http).await;
        assert_eq!(reason, "no complete answer in time", "{begun:?}");
    }
}

#[tokio::test]
async fn garbage_is_a_failure() {
    for garbage in [
        &b"MQTT is not HTTP\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
    ] {
        let reason = failure(&open(&settings(&raw_server(garbage).await))).await;
        assert!(!reason.contains("in time"), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}

#[tokio::test]
async fn a_huge_answer_is_a_failure() {
    let server = Server::start(|| async {
        let filler = " ".repeat(super::MAX_ANSWER);
        format!(r#"{{"result": "allow"}}{filler}"#).into_response()
    })
    .await;
    let reason = failure(&open(&settings(&server.url))).await;
    assert!(reason.contains("larger than 65536 bytes"), "{reason}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::that_says(204, "").await;
    let target = other.url.clone();
    let server = Server::start(move || {
        let target = target.clone();
        async move { Redirect::temporary(&target).into_response() }
    })
    .await;
    let reason = failure(&open(&settings(&server.url))).await;
    assert!(reason.contains("307"), "{reason}");
    assert_eq!(other.times_asked(), 0);
}

#[tokio::test]
async fn remembers_answers_for_the_same_credentials() {
    let server = Server::that_says(204, "").await;
    let http = open(&HttpAuthenticatorConfig {
        cache: Some(Duration::from_secs(60)),
        ..settings(&server.url)
    });
    for _ in 0..3 {
        let Opinion::Allow(identity) = http.authenticate(&credentials("secret")).await else {
            panic!("not allowed");
        };
        assert_eq!(identity.username.as_deref(), Some("anna"));
    }
    assert_eq!(server.times_asked(), 1);
    http.authenticate(&credentials("guess")).await;
    assert_eq!(server.times_asked(), 2);
}

#[tokio::test]
async fn does_not_remember_failures_or_what_the_server_forbids() {
    let remembering = |url: &str| HttpAuthenticatorConfig {
        cache: Some(Duration::from_secs(60)),
        ..settings(url)
    };
    let failing = Server::that_says(503, "").await;
    let http = open(&remembering(&failing.url));
    failure(&http).await;
    failure(&http).await;
    assert_eq!(failing.times_asked(), 2);

    let forbidding = Server::start(|| async {
        (StatusCode::NO_CONTENT, [("cache-control", "no-store")]).into_response()
    })
    .await;
    let http = open(&remembering(&forbidding.url));
    http.authenticate(&credentials("secret")).await;
    http.authenticate(&credentials("secret")).await;
    assert_eq!(forbidding.times_asked(), 2);
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_left_alone() {
    let server = Server::that_says(500, "").await;
    let http = open(&HttpAuthenticatorConfig {
        breaker_failures: NonZero::new(2).unwrap(),
        breaker_pause: Duration::from_secs(3600),
        ..settings(&server.url)
    });
    for _ in 0..2 {
        let reason = failure(&http).await;
        assert!(reason.contains("500"), "{reason}");
    }
    let reason = failure(&http).await;
    assert!(reason.contains("left alone"), "{reason}");
    assert_eq!(server.times_asked(), 2);
}

#[tokio::test]
async fn only_so_many_requests_are_under_way() {
    const LIMIT: u16 = 3;
    let in_turn = Arc::new(Barrier::new(LIMIT.into()));
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let server = Server::start(move || {
        let (in_turn, under_way, seen) = (in_turn.clone(), under_way.clone(), seen.clone());
        async move {
            let now = under_way.fetch_add(1, Ordering::Relaxed) + 1;
            seen.fetch_max(now, Ordering::Relaxed);
            in_turn.wait().await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            StatusCode::NO_CONTENT.into_response()
        }
    })
    .await;
    let http = open(&HttpAuthenticatorConfig {
        max_concurrent: NonZero::new(LIMIT).unwrap(),
        ..settings(&server.url)
    });
    let logins: Vec<_> = (0..LIMIT * 4).map(|_| credentials("secret")).collect();
    let opinions = join_all(logins.iter().map(|login| http.authenticate(login))).await;
    assert!(
        opinions
            .iter()
            .all(|opinion| matches!(opinion, Opinion::Allow(_)))
    );
    assert_eq!(most.load(Ordering::Relaxed), usize::from(LIMIT));
}

/// A server with TLS that allows everybody, and its certificate in a file.
async fn tls_server(folder: &TempDir) -> (String, PathBuf) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = folder.path().join("ca.pem");
    fs::write(&ca_file, cert.pem()).unwrap();
    let acceptor = acceptor(cert.der().clone(), &signing_key);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(socket).await else {
                continue;
            };
            let _question = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    });
    (format!("https://localhost:{port}/"), ca_file)
}

fn acceptor(certificate: rustls::pki_types::CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_servers_certificate_must_be_of_a_trusted_authority() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let (url, ca_file) = tls_server(&folders[0]).await;
    let (_, other_ca_file) = tls_server(&folders[1]).await;
    let trusting = |ca_file: PathBuf| HttpAuthenticatorConfig {
        ca_file: Some(ca_file),
        ..settings(&url)
    };
    let opinion = open(&trusting(ca_file.clone()))
        .authenticate(&credentials("secret"))
        .await;
    assert!(matches!(opinion, Opinion::Allow(_)), "{opinion:?}");
    let reason = failure(&open(&trusting(other_ca_file))).await;
    assert!(reason.contains("certificate"), "{reason}");
    let by_address = url.replace("localhost", "127.0.0.1");
    let reason = failure(&open(&HttpAuthenticatorConfig {
        url: Some(by_address),
        ..trusting(ca_file)
    }))
    .await;
    assert!(reason.contains("certificate"), "{reason}");
}

#[test]
fn bad_settings_are_named() {
    let missing = PathBuf::from("/nonexistent/file");
    let good = settings("https://localhost/");
    let cases = [
        (HttpAuthenticatorConfig::default(), "http.url"),
        (settings("not a URL"), "http.url"),
        (settings("ftp://localhost/"), "http.url"),
        (settings("/auth"), "http.url"),
        (settings("http://anna:secret@localhost/"), "http.url"),
        (
            HttpAuthenticatorConfig {
                token_file: Some(missing.clone()),
                ..good.clone()
            },
            "http.tokenFile /nonexistent/file",
        ),
        (
            HttpAuthenticatorConfig {
                token_file: Some(PathBuf::from("/dev/null")),
                ..good.clone()
            },
            "http.tokenFile /dev/null",
        ),
        (
            HttpAuthenticatorConfig {
                ca_file: Some(missing),
                ..good
            },
            "http.caFile /nonexistent/file",
        ),
    ];
    for (config, named) in cases {
        let reason = Http::open("http (1)".to_owned(), &config).unwrap_err();
        assert!(reason.contains(named), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}
