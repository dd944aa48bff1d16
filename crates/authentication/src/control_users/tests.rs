use std::sync::mpsc;
use std::time::Duration;

use authentication_api::{Step, Verdict};
use authorization::{Action, Client};
use config::{AuthenticationConfig, AuthenticatorConfig, AuthenticatorKind};
use control::{Changed, Group, Priority};

use super::*;
use crate::Authentication;
use crate::users::{Storage, with_user};

/// Of "secret", by bcrypt.
const BCRYPT: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

/// SCRAM-SHA-256 of "pencil" (RFC 7677 §3).
const SCRAM: &str = "$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn secret(text: &str) -> Verifier {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.as_ref());
    Verifier::Secret(Hash(bytes))
}

fn user(verifiers: impl Into<Box<[Verifier]>>) -> User {
    User {
        enabled: true,
        verifiers: verifiers.into(),
        groups: Box::default(),
        rules: Box::default(),
        client_ids: None,
        class: None,
        superuser: false,
        ends_ms: None,
        note: Box::default(),
        logins_since: Revision(0),
    }
}

fn boxed(texts: &[&str]) -> Box<[Box<str>]> {
    texts.iter().map(|text| Box::from(*text)).collect()
}

fn group(priority: i32, rules: &[&str], includes: &[&str]) -> Group {
    Group {
        priority: Priority(priority),
        rules: boxed(rules),
        includes: boxed(includes),
        class: None,
        note: Box::default(),
    }
}

fn change(view: &View, change: impl FnOnce(&mut Changed, Revision)) {
    let revision = Revision(view.revision().0 + 1);
    let mut changed = Changed {
        revision,
        ..Changed::default()
    };
    change(&mut changed, revision);
    assert!(view.changed(&changed));
}

fn put(view: &View, name: &str, user: Option<User>) {
    change(view, |changed, revision| {
        let stored = user.map(|record| Arc::new(Stored { revision, record }));
        changed.users.push((name.into(), stored));
    });
}

fn put_group(view: &View, name: &str, group: Group) {
    change(view, |changed, revision| {
        let record = group;
        let stored = Arc::new(Stored { revision, record });
        changed.groups.push((name.into(), Some(stored)));
    });
}

/// A view that can be believed, with one user.
fn view(name: &str, record: User) -> Arc<View> {
    let view = Arc::<View>::default();
    put(&view, name, Some(record));
    view.confirmed(Revision(0));
    view
}

fn chain(kinds: &[AuthenticatorKind]) -> AuthenticationConfig {
    AuthenticationConfig {
        chain: kinds
            .iter()
            .map(|kind| AuthenticatorConfig {
                kind: *kind,
                ..AuthenticatorConfig::default()
            })
            .collect(),
        ..AuthenticationConfig::default()
    }
}

fn open(config: &AuthenticationConfig, view: &Arc<View>) -> Authentication {
    Authentication::open(config, Arc::clone(view)).unwrap()
}

fn log_in(authentication: &Authentication, client_id: &str, name: &str, password: &str) -> Verdict {
    let credentials = Credentials {
        client_id: client_id.into(),
        username: Some(name.into()),
        password: Some(Secret::new(password.as_bytes())),
        address: None,
        certificate_name: None,
    };
    let (sender, receiver) = mpsc::channel();
    authentication.authenticate(credentials, move |verdict| sender.send(verdict).unwrap());
    receiver.recv_timeout(Duration::from_secs(30)).unwrap()
}

fn denial(verdict: Verdict) -> Option<Denial> {
    match verdict {
        Verdict::Allow(_) => None,
        Verdict::Deny(denial) => Some(denial),
    }
}

fn identity(verdict: Verdict) -> Box<Identity> {
    match verdict {
        Verdict::Allow(identity) => identity,
        Verdict::Deny(denial) => panic!("{denial:?}"),
    }
}

#[test]
fn users_are_judged_by_any_of_their_verifiers() {
    let all = [
        secret("token"),
        Verifier::Hash(BCRYPT.into()),
        Verifier::Scram(SCRAM.into()),
    ];
    let view = view("ann", user(all));
    put(&view, "bob", Some(user([])));
    let chain = chain(&[AuthenticatorKind::Control]);
    let authentication = open(&chain, &view);
    let said = |name, password| denial(log_in(&authentication, "c", name, password));
    for password in ["token", "secret", "pencil", "token", "secret"] {
        assert_eq!(said("ann", password), None, "{password}");
    }
    assert_eq!(said("ann", "Secret"), Some(Denial::WrongPassword));
    assert_eq!(said("bob", ""), Some(Denial::WrongPassword));
    assert_eq!(said("eve", "secret"), Some(Denial::UnknownUser));
}

#[test]
fn a_weak_hash_that_an_import_has_put_into_the_store_counts() {
    const WEAK: &str = "$sha256-suffix$ZGUxMDI0ZjQ2MmZiODM5MTBmZDEzMTUxYmQ0YmQyMzU=$pcUvyUgNJfawwW6eYRYhQSltlRGI7srAaOn3DNYaPec=";
    let view = view("ann", user([Verifier::Hash(WEAK.into())]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let said = |password| denial(log_in(&authentication, "c", "ann", password));
    assert_eq!(said("secret"), None);
    assert_eq!(said("Secret"), Some(Denial::WrongPassword));
}

#[test]
fn a_user_who_may_not_connect_is_told_apart_only_by_the_right_password() {
    let view = view(
        "ann",
        User {
            client_ids: Some("gw-*".into()),
            ..user([secret("s")])
        },
    );
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let said = |id, password| denial(log_in(&authentication, id, "ann", password));
    assert_eq!(said("gw-1", "s"), None);
    assert_eq!(said("x", "s"), Some(Denial::ClientId));
    let ended = User {
        ends_ms: Some(UnixMs(1)),
        ..user([secret("s")])
    };
    put(&view, "ann", Some(ended));
    assert_eq!(said("gw-1", "s"), Some(Denial::Ended));
    let disabled = User {
        enabled: false,
        ..user([secret("s")])
    };
    put(&view, "ann", Some(disabled));
    assert_eq!(said("gw-1", "s"), Some(Denial::Disabled));
    assert_eq!(said("gw-1", "t"), Some(Denial::WrongPassword));
}

#[test]
fn nobody_is_let_in_by_a_copy_that_may_be_old() {
    let view = Arc::<View>::default();
    for config in [chain(&[AuthenticatorKind::Control]), chain(&[])] {
        let authentication = open(&config, &view);
        let is_default = config.chain.is_empty();
        assert_eq!(
            authentication.is_empty(),
            is_default && view.standing() == Standing::Unused
        );
        put(&view, "ann", Some(user([secret("s")])));
        assert!(!authentication.is_empty());
        let said = denial(log_in(&authentication, "c", "ann", "s"));
        assert_eq!(said, Some(Denial::Unavailable));
        let step = authentication.begin_exchange("c", "SCRAM-SHA-256", b"n,,n=ann,r=abc");
        assert!(
            matches!(step, Some(Step::Denied(Denial::Unavailable))),
            "{step:?}"
        );
    }
}

#[test]
fn without_a_chain_the_store_counts_once_it_has_a_user() {
    let view = Arc::<View>::default();
    let authentication = open(&chain(&[]), &view);
    assert!(authentication.is_empty());
    assert!(
        authentication
            .begin_exchange("c", "SCRAM-SHA-256", b"n,,n=a,r=b")
            .is_none()
    );
    view.begun();
    assert!(!authentication.is_empty());
    view.confirmed(Revision(0));
    assert!(authentication.is_empty());
    put(&view, "ann", Some(user([secret("s")])));
    assert!(!authentication.is_empty());
    assert_eq!(denial(log_in(&authentication, "c", "ann", "s")), None);
    put(&view, "ann", None);
    assert!(authentication.is_empty());
    assert!(!open(&chain(&[AuthenticatorKind::TlsIdentity]), &view).is_empty());
}

#[test]
fn the_order_of_the_chain_decides_between_file_and_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, format!("ann:{BCRYPT}\n")).unwrap();
    let view = view("ann", user([secret("of the store")]));
    let both = [AuthenticatorKind::PasswordFile, AuthenticatorKind::Control];
    for (kinds, file_counts) in [(both, true), ([both[1], both[0]], false)] {
        let mut config = chain(&kinds);
        for member in &mut config.chain {
            let is_file = member.kind == AuthenticatorKind::PasswordFile;
            member.file = is_file.then(|| path.clone());
        }
        let authentication = open(&config, &view);
        let lets_in = |password| denial(log_in(&authentication, "c", "ann", password)).is_none();
        assert_eq!(lets_in("secret"), file_counts);
        assert_eq!(lets_in("of the store"), !file_counts);
    }
}

#[test]
fn what_was_verified_counts_for_one_revision() {
    let view = view("ann", user([Verifier::Hash(BCRYPT.into())]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let said = |password| denial(log_in(&authentication, "c", "ann", password));
    assert_eq!(said("secret"), None);
    assert_eq!(said("secret"), None);
    let text = with_user("", "ann", b"other", Storage::Argon2id).unwrap();
    let hash = text.trim().strip_prefix("ann:").unwrap();
    put(&view, "ann", Some(user([Verifier::Hash(hash.into())])));
    assert_eq!(said("secret"), Some(Denial::WrongPassword));
    assert_eq!(said("other"), None);
}

#[test]
fn a_hash_that_cannot_be_read_is_no_wrong_password() {
    let view = view("ann", user([Verifier::Hash("$new$1".into()), secret("s")]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let said = |password| denial(log_in(&authentication, "c", "ann", password));
    assert_eq!(said("s"), None);
    assert_eq!(said("t"), Some(Denial::Unavailable));
}

#[test]
fn rules_are_those_of_the_user_then_of_its_groups() {
    let view = view("ann", user([secret("s")]));
    put_group(
        &view,
        "base",
        group(9, &["deny publish a", "allow publish e"], &[]),
    );
    put_group(
        &view,
        "low",
        group(-1, &["allow publish a", "allow publish b"], &[]),
    );
    put_group(
        &view,
        "high-b",
        group(5, &["deny publish b", "deny publish c"], &[]),
    );
    put_group(&view, "high-a", group(5, &["allow publish c"], &["base"]));
    let groups = boxed(&["high-a", "high-b", "low"]);
    let record = |rules: &[&str]| User {
        groups: groups.clone(),
        rules: boxed(rules),
        ..user([secret("s")])
    };
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let allowed = |rules: &[&str]| {
        put(&view, "ann", Some(record(rules)));
        let identity = identity(log_in(&authentication, "c", "ann", "s"));
        let rules = identity.rules.clone().unwrap();
        let client = Client {
            client_id: "c",
            username: Some("ann"),
            address: None,
        };
        ["a", "b", "c", "d", "e"].map(|topic| {
            let decision = rules.decide(&client, Action::Publish, topic);
            decision.map(|decision| decision.effect == authorization::Effect::Allow)
        })
    };
    let (yes, no) = (Some(true), Some(false));
    // high-a, base, high-b, low.
    assert_eq!(allowed(&[]), [no, no, yes, None, yes]);
    assert_eq!(allowed(&["deny publish e"]), [no, no, yes, None, no]);
    assert_eq!(allowed(&["allow publish a"]), [yes, no, yes, None, yes]);
    // A group changes.
    put_group(&view, "base", group(0, &["allow publish d"], &[]));
    assert_eq!(allowed(&[]), [yes, no, yes, yes, None]);
}

#[test]
fn users_of_the_same_groups_share_their_rules() {
    let view = view("ann", user([]));
    put_group(&view, "g", group(0, &["allow publish a"], &[]));
    for name in ["ann", "bob"] {
        let record = User {
            groups: boxed(&["g"]),
            ..user([secret("s")])
        };
        put(&view, name, Some(record));
    }
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let rules = |name| {
        let identity = identity(log_in(&authentication, "c", name, "s"));
        identity.rules.clone().unwrap()
    };
    assert!(Arc::ptr_eq(&rules("ann"), &rules("bob")));
}

#[test]
fn a_rule_that_cannot_be_read_is_never_skipped() {
    let view = view("ann", user([]));
    put_group(
        &view,
        "g",
        group(0, &["allow publish a", "forbid publish b"], &[]),
    );
    let record = User {
        groups: boxed(&["g"]),
        ..user([secret("s")])
    };
    put(&view, "ann", Some(record));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    for _ in 0..2 {
        let said = denial(log_in(&authentication, "c", "ann", "s"));
        assert_eq!(said, Some(Denial::Unavailable));
    }
    let set = RuleSets::default().of_user("ann", &view.user("ann").unwrap(), view.groups());
    let reason = set.rules.as_ref().unwrap_err();
    assert!(
        reason.contains("\"forbid publish b\" of the group \"g\""),
        "{reason}"
    );
}

#[test]
fn what_the_record_says_comes_with_the_login() {
    let view = view("ann", user([]));
    let classy = Group {
        class: Some("of the group".into()),
        ..group(0, &[], &[])
    };
    put_group(&view, "g", classy);
    let record = User {
        groups: boxed(&["g"]),
        superuser: true,
        ends_ms: Some(UnixMs(u64::MAX)),
        ..user([secret("s")])
    };
    put(&view, "ann", Some(record.clone()));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let ann = identity(log_in(&authentication, "c", "ann", "s"));
    assert_eq!(ann.username.as_deref(), Some("ann"));
    assert!(ann.is_superuser && ann.rules.is_none());
    assert_eq!(ann.class.as_deref(), Some("of the group"));
    assert_eq!(ann.expires_at, Some(u64::MAX / 1_000));
    assert_eq!(
        ann.source,
        Source::Control {
            since: view.revision()
        }
    );
    let class = Some("its own".into());
    put(&view, "ann", Some(User { class, ..record }));
    let ann = identity(log_in(&authentication, "c", "ann", "s"));
    assert_eq!(ann.class.as_deref(), Some("its own"));
}

#[test]
fn a_login_counts_until_its_user_says_otherwise() {
    let record = user([secret("s")]);
    let view = view("ann", record.clone());
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let since = view.revision();
    let now = || authentication.user_now(Source::Control { since }, "ann");
    assert!(matches!(now(), UserNow::Same));
    put_group(&view, "g", group(0, &["allow publish a"], &[]));
    let rules = boxed(&["allow publish a"]);
    put(
        &view,
        "ann",
        Some(User {
            rules,
            ..record.clone()
        }),
    );
    match now() {
        UserNow::Identity(identity) => {
            assert!(identity.rules.is_some());
            let since = view.revision();
            assert_eq!(identity.source, Source::Control { since });
        }
        now => panic!("{now:?}"),
    }
    let rules = boxed(&["forbid publish a"]);
    put(
        &view,
        "ann",
        Some(User {
            rules,
            ..record.clone()
        }),
    );
    assert!(
        matches!(now(), UserNow::Same),
        "what cannot be read changes nothing"
    );
    for gone in [
        None,
        Some(User {
            enabled: false,
            ..record.clone()
        }),
        Some(User {
            ends_ms: Some(UnixMs(1)),
            ..record.clone()
        }),
        Some(User {
            logins_since: Revision(since.0 + 1),
            ..record.clone()
        }),
    ] {
        put(&view, "ann", gone);
        assert!(matches!(now(), UserNow::Gone));
    }
    put(
        &view,
        "ann",
        Some(User {
            logins_since: since,
            ..record
        }),
    );
    assert!(matches!(now(), UserNow::Identity(_)));
    let other = open(&chain(&[AuthenticatorKind::TlsIdentity]), &view);
    assert!(matches!(
        other.user_now(Source::Control { since }, "ann"),
        UserNow::Gone
    ));
}

/// Runs an exchange of `ann`, whose password is "pencil"; `meanwhile`: before its last message.
fn exchange(
    view: &Arc<View>,
    client_id: &str,
    meanwhile: impl FnOnce(),
) -> Result<Box<Identity>, Denial> {
    let authentication = open(&chain(&[AuthenticatorKind::Control]), view);
    let bare = "n=ann,r=abc";
    let first = format!("n,,{bare}");
    let step = authentication.begin_exchange(client_id, "SCRAM-SHA-256", first.as_bytes());
    let Some(Step::Challenge(data, exchange)) = step else {
        panic!("{step:?}");
    };
    let server_first = String::from_utf8(data).unwrap();
    let nonce = server_first.split(',').next().unwrap();
    let without_proof = format!("c=biws,{nonce}");
    let messages = format!("{bare},{server_first},{without_proof}");
    let proof = ScramKeys::proof_of(SCRAM, b"pencil", messages.as_bytes());
    meanwhile();
    match exchange.answer(format!("{without_proof},p={proof}").as_bytes()) {
        Step::Done(identity, _) => Ok(identity),
        Step::Denied(denial) => Err(denial),
        step => panic!("{step:?}"),
    }
}

#[test]
fn an_exchange_under_way_does_not_outlive_a_change_of_its_user() {
    let record = user([Verifier::Scram(SCRAM.into())]);
    let fresh = || view("ann", record.clone());
    let at = fresh();
    let ann = exchange(&at, "c", || {}).unwrap();
    assert_eq!(
        ann.source,
        Source::Control {
            since: at.revision()
        }
    );
    // Somebody else changes.
    let at = fresh();
    assert!(exchange(&at, "c", || put(&at, "bob", None)).is_ok());
    for (meanwhile, expected) in [
        (None, Denial::UnknownUser),
        (
            Some(User {
                enabled: false,
                ..record.clone()
            }),
            Denial::Disabled,
        ),
        (
            Some(User {
                note: "n".into(),
                ..record.clone()
            }),
            Denial::Denied,
        ),
    ] {
        let at = fresh();
        let said = exchange(&at, "c", || put(&at, "ann", meanwhile));
        assert_eq!(said.unwrap_err(), expected);
    }
    let client_ids = Some("gw-*".into());
    let at = view(
        "ann",
        User {
            client_ids,
            ..record.clone()
        },
    );
    assert_eq!(exchange(&at, "c", || {}).unwrap_err(), Denial::ClientId);
    assert!(exchange(&at, "gw-1", || {}).is_ok());
}

#[test]
fn a_name_that_is_unknown_gets_keys_like_those_of_users() {
    let view = view("ann", user([Verifier::Scram(SCRAM.into())]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let server_first = |name: &str| {
        let first = format!("n,,n={name},r=abc");
        let step = authentication.begin_exchange("c", "SCRAM-SHA-256", first.as_bytes());
        let Some(Step::Challenge(data, _)) = step else {
            panic!("{step:?}");
        };
        let data = String::from_utf8(data).unwrap();
        let (_, salt_and_iterations) = data.split_once(',').unwrap();
        salt_and_iterations.to_owned()
    };
    let eve = server_first("eve");
    assert!(eve.ends_with(",i=4096"), "{eve}");
    assert_eq!(server_first("eve"), eve);
    assert_ne!(server_first("abe"), eve);
    assert_eq!(server_first("ann").len(), eve.len());
}

/// What a login costs, printed: `cargo test --release -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn cost_of_a_login() {
    let view = view("ann", user([secret("s")]));
    put_group(&view, "g", group(0, &["allow publish a/%c/#"], &[]));
    let record = |verifier| User {
        groups: boxed(&["g"]),
        ..user([verifier])
    };
    put(&view, "ann", Some(record(secret("s"))));
    put(&view, "bob", Some(record(Verifier::Hash(BCRYPT.into()))));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let users = ControlUsers::new(Arc::clone(&view), HashThreads::new(1)).unwrap();
    for (name, password) in [("ann", "s"), ("bob", "secret")] {
        let credentials = Credentials {
            client_id: "c".into(),
            username: Some(name.into()),
            password: Some(Secret::new(password.as_bytes())),
            address: None,
            certificate_name: None,
        };
        let once = || match runtime.block_on(users.opinion(&credentials)) {
            Opinion::Allow(_) => {}
            opinion => panic!("{opinion:?}"),
        };
        once();
        let begun = Instant::now();
        for _ in 0..100_000 {
            once();
        }
        let each = begun.elapsed() / 100_000;
        println!("{name}: {each:?} a login");
    }
}

#[test]
fn nobody_logs_in_by_a_copy_that_is_refused_and_who_is_connected_stays() {
    let view = view("ann", user([secret("s"), Verifier::Scram(SCRAM.into())]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let since = view.revision();
    assert_eq!(denial(log_in(&authentication, "c", "ann", "s")), None);
    view.refuse(true);
    for name in ["ann", "nobody"] {
        let denied = denial(log_in(&authentication, "c", name, "s"));
        assert_eq!(denied, Some(Denial::Unavailable), "{name}");
    }
    let users = ControlUsers::new(Arc::clone(&view), HashThreads::new(1)).unwrap();
    let keys = users.scram_keys("ann", Mechanism::Sha256);
    assert_eq!(keys.err(), Some(Denial::Unavailable));
    let now = authentication.user_now(Source::Control { since }, "ann");
    assert!(matches!(now, UserNow::Same), "{now:?}");
    view.refuse(false);
    assert_eq!(denial(log_in(&authentication, "c", "ann", "s")), None);
}

#[test]
fn rules_that_cannot_be_read_are_told_until_they_are_changed() {
    let view = view("ann", user([secret("s")]));
    let authentication = open(&chain(&[AuthenticatorKind::Control]), &view);
    let with_rule = |line: &str| User {
        rules: boxed(&[line]),
        ..user([secret("s")])
    };
    put(&view, "ann", Some(with_rule("forbid publish t")));
    assert_eq!(authentication.unreadable_rules(), None, "nobody has tried");
    let denied = denial(log_in(&authentication, "c", "ann", "s"));
    assert_eq!(denied, Some(Denial::Unavailable));
    let told = authentication.unreadable_rules().unwrap();
    assert!(told.contains("a rule of the user"), "{told}");
    put(&view, "ann", Some(with_rule("deny publish t")));
    assert_eq!(authentication.unreadable_rules(), None);
    put_group(&view, "g", group(0, &["forbid publish t"], &[]));
    let in_group = User {
        groups: boxed(&["g"]),
        ..user([secret("s")])
    };
    put(&view, "ann", Some(in_group));
    log_in(&authentication, "c", "ann", "s");
    let told = authentication.unreadable_rules().unwrap();
    assert!(told.contains("of the group \"g\""), "{told}");
    put_group(&view, "g", group(0, &["deny publish t"], &[]));
    assert_eq!(authentication.unreadable_rules(), None);
}
