use std::{
    path::Path,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use config::{AuthenticatorConfig, AuthenticatorKind};

use super::*;
use crate::{Storage, with_user};
use authentication_api::{Identity, Secret};

const DEADLINE: Duration = Duration::from_secs(20);

fn config(chain: Vec<AuthenticatorConfig>) -> AuthenticationConfig {
    AuthenticationConfig {
        chain,
        ..AuthenticationConfig::default()
    }
}

fn authenticator(kind: AuthenticatorKind, file: Option<&Path>) -> AuthenticatorConfig {
    AuthenticatorConfig {
        kind,
        file: file.map(Into::into),
        ..AuthenticatorConfig::default()
    }
}

fn password_file(path: &Path) -> AuthenticationConfig {
    config(vec![authenticator(
        AuthenticatorKind::PasswordFile,
        Some(path),
    )])
}

/// Writes a file with one user, whose password is "secret".
fn write_user(path: &Path, name: &str) {
    let hash = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
    std::fs::write(path, format!("{name}:{hash}\n")).expect("written");
}

fn credentials(username: &str, password: &str) -> Credentials {
    Credentials {
        client_id: "c".into(),
        username: Some(username.into()),
        password: Some(Secret::new(password.as_bytes())),
        address: None,
        certificate_name: None,
    }
}

fn ask(authentication: &Authentication, credentials: Credentials) -> Receiver<Verdict> {
    let (sender, receiver) = mpsc::channel();
    authentication.authenticate(credentials, move |verdict| {
        sender.send(verdict).expect("somebody waits");
    });
    receiver
}

fn answer(authentication: &Authentication, username: &str, password: &str) -> Verdict {
    ask(authentication, credentials(username, password))
        .recv_timeout(DEADLINE)
        .expect("an answer")
}

fn allowed(verdict: Verdict) -> Box<Identity> {
    match verdict {
        Verdict::Allow(identity) => identity,
        Verdict::Deny(denial) => panic!("denied: {denial:?}"),
    }
}

fn is_denied(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Deny(denial) if denial.is_guess())
}

#[test]
fn a_password_file_is_asked_and_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    write_user(&path, "alice");
    let authentication =
        Authentication::open(&password_file(&path), Arc::default()).expect("opened");
    assert!(!authentication.is_empty());
    let identity = allowed(answer(&authentication, "alice", "secret"));
    assert_eq!(identity.username.as_deref(), Some("alice"));
    assert!(is_denied(&answer(&authentication, "alice", "Secret")));
    assert!(is_denied(&answer(&authentication, "bob", "secret")));
    assert_eq!(authentication.pending.load(Ordering::Relaxed), 0);

    write_user(&path, "bob");
    authentication
        .reload(&password_file(&path))
        .expect("reloaded");
    allowed(answer(&authentication, "bob", "secret"));
    assert!(is_denied(&answer(&authentication, "alice", "secret")));
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    write_user(&path, "alice");
    let authentication =
        Authentication::open(&password_file(&path), Arc::default()).expect("opened");
    std::fs::write(&path, "alice:secret").expect("written");
    let both = config(vec![
        authenticator(AuthenticatorKind::TlsIdentity, None),
        authenticator(AuthenticatorKind::PasswordFile, Some(&path)),
    ]);
    let error = authentication.reload(&both).expect_err("a plain password");
    assert!(
        error
            .to_string()
            .starts_with("authenticator passwordFile (2): "),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
    allowed(answer(&authentication, "alice", "secret"));
}

#[test]
fn what_is_missing_is_named() {
    for kind in [
        AuthenticatorKind::PasswordFile,
        AuthenticatorKind::Scram,
        AuthenticatorKind::Jwt,
    ] {
        let config = config(vec![authenticator(kind, None)]);
        let error = Authentication::open(&config, Arc::default()).expect_err("incomplete");
        assert!(
            error
                .to_string()
                .starts_with(&format!("authenticator {kind} (1): ")),
            "{error}"
        );
    }
}

#[test]
fn who_has_no_user_name_is_not_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    write_user(&path, "alice");
    let mut config = password_file(&path);
    config
        .chain
        .push(authenticator(AuthenticatorKind::TlsIdentity, None));
    let authentication = Authentication::open(&config, Arc::default()).expect("opened");
    let anonymous = Credentials {
        username: None,
        certificate_name: Some("device".into()),
        ..credentials("", "secret")
    };
    let verdict = ask(&authentication, anonymous).recv_timeout(DEADLINE);
    let identity = allowed(verdict.expect("an answer"));
    assert_eq!(identity.username.as_deref(), Some("device"));
}

#[test]
fn scram_alone_is_an_authenticator_but_knows_no_passwords() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let text = with_user("", "alice", b"secret", Storage::Scram).expect("made");
    std::fs::write(&path, text).expect("written");
    let config = config(vec![authenticator(AuthenticatorKind::Scram, Some(&path))]);
    let authentication = Authentication::open(&config, Arc::default()).expect("opened");
    assert!(!authentication.is_empty());
    assert!(is_denied(&answer(&authentication, "alice", "secret")));
    let step = authentication.begin_exchange("c", "SCRAM-SHA-512", b"n,,n=alice,r=abc");
    assert!(matches!(step, Some(Step::Challenge(..))), "{step:?}");
    assert!(authentication.begin_exchange("c", "PLAIN", b"").is_none());
}

#[test]
fn so_many_logins_may_be_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    write_user(&path, "alice");
    let mut config = password_file(&path);
    config.max_pending = 2;
    let authentication = Authentication::open(&config, Arc::default()).expect("opened");
    let first = Login::begin(&authentication.pending, |_| {});
    assert!(!authentication.is_crowded());
    let second = Login::begin(&authentication.pending, |_| {});
    assert!(authentication.is_crowded());
    drop(first);
    assert!(!authentication.is_crowded());
    drop(second);
}

#[test]
fn logins_under_way_are_answered_when_the_threads_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    write_user(&path, "alice");
    let authentication =
        Authentication::open(&password_file(&path), Arc::default()).expect("opened");
    let answers: Vec<_> = (0..50)
        .map(|_| ask(&authentication, credentials("alice", "secret")))
        .collect();
    drop(authentication);
    for answer in answers {
        answer.recv_timeout(DEADLINE).expect("an answer");
    }
}

#[tokio::test]
async fn a_password_is_hashed_on_the_threads_of_logins() {
    let authentication =
        Authentication::open(&AuthenticationConfig::default(), Arc::default()).unwrap();
    let hash = authentication
        .hash("secret".to_owned().into())
        .await
        .unwrap();
    let hash = crate::password_hash::PasswordHash::parse(&hash).unwrap();
    assert!(hash.fits(b"secret") && !hash.fits(b"Secret"));
}
