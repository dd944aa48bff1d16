use super::*;

const USERS: &str = "\
user:$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=
user:$scram-sha-512$4096$Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=$ERxGuwQnAHA2amc01Vb1Qb9WPqMb68u8swldhuOn4MR7udux+oQ/DNrgcAy5c0/SEZybLeGYZ5jFkWH5ELNOXA==$gFCGdO8qeAVvqKCfFpqPXI2n2596CVtax0k6IH3gzt94xA9+DgAD6NwrELJ0AjguZNc0dWJxduOe037HEcD1UA==
a=b,c:$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=
";

const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

/// RFC 7677 §3.
const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

fn files(text: &str) -> [ScramSource; 1] {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    std::fs::write(&path, text).expect("written");
    [ScramSource::File(
        ScramUsers::open(Some(&path)).expect("read"),
    )]
}

/// An exchange with the nonce of the RFC.
fn begin(
    mechanism: Mechanism,
    client_first: &str,
) -> (String, Box<dyn authentication_api::Exchange>) {
    let [ScramSource::File(file)] = &files(USERS) else {
        panic!("not a file");
    };
    let client = ClientFirst::parse(client_first.as_bytes()).expect(client_first);
    let keys = file.users.scram_keys(&client.name, mechanism).cloned();
    let keys = keys.expect("a user of the file");
    challenge(Exchange::begin(client, (keys, Origin::File), SERVER_NONCE))
}

fn challenge(step: Step) -> (String, Box<dyn authentication_api::Exchange>) {
    match step {
        Step::Challenge(data, exchange) => (String::from_utf8(data).expect("text"), exchange),
        step => panic!("{step:?}"),
    }
}

fn is_denied(step: &Step) -> bool {
    matches!(step, Step::Denied(denial) if denial.is_guess())
}

#[test]
fn an_exchange_goes_as_in_rfc_7677() {
    let (server_first, exchange) = begin(Mechanism::Sha256, CLIENT_FIRST);
    assert_eq!(
        server_first,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    match exchange.answer(CLIENT_FINAL.as_bytes()) {
        Step::Done(identity, data) => {
            assert_eq!(identity.username.as_deref(), Some("user"));
            assert_eq!(data, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        }
        step => panic!("{step:?}"),
    }
}

#[test]
fn sha_512_goes_as_python_computes_it() {
    let (_, exchange) = begin(Mechanism::Sha512, CLIENT_FIRST);
    let client_final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=/3obeUE1tHCJjbQttd+ChF5ox2IU1rNjj2wVDnbQ5LdNT126oy4QgLz2tHw/Uj7Gwb6PRuHOS3HC+45exxT58A==";
    match exchange.answer(client_final.as_bytes()) {
        Step::Done(_, data) => assert_eq!(
            data,
            b"v=5AwW78p+EVPirB3A5lrHcvrN8pVKRlR3opLuRoxXrN9ubKokkPzVPzWNNNuBbrtZrv5mpfKZ7+QCDSZWeZQEqw=="
        ),
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_wrong_answer_is_denied() {
    let nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let proof = "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    for answer in [
        String::new(),
        "c=biws".to_owned(),
        // The proof of another password, none, a short one, one that is no base64.
        format!("c=biws,{nonce},p=eHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="),
        format!("c=biws,{nonce}"),
        format!("c=biws,{nonce},p="),
        format!("c=biws,{nonce},p=dHzb"),
        format!("c=biws,{nonce},p=%"),
        // Another nonce, a longer one, another channel.
        format!("c=biws,r=rOprNGfwEbeRWgbNEkqO,{proof}"),
        format!("c=biws,{nonce}x,{proof}"),
        format!("c=eSws,{nonce},{proof}"),
        // Signed without the extension.
        format!("c=biws,{nonce},x=1,{proof}"),
        format!("{CLIENT_FINAL}{}", " ".repeat(MAX_DATA_BYTES)),
    ] {
        let (_, exchange) = begin(Mechanism::Sha256, CLIENT_FIRST);
        assert!(is_denied(&exchange.answer(answer.as_bytes())), "{answer}");
    }
}

#[test]
fn malformed_first_messages_are_denied() {
    let files = files(USERS);
    for message in [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,n=user,r=",
        "n,,n=,r=abc",
        "n,,n=us=2Xer,r=abc",
        "n,,n=user=,r=abc",
        "n,,n=user,r=a b",
        "n,,n=user,r=a\u{e4}",
        "n,,m=1,n=user,r=abc",
        "n,,r=abc,n=user",
        "n,a=other,n=user,r=abc",
        "n,user,n=user,r=abc",
        "p=tls-exporter,,n=user,r=abc",
        "x,,n=user,r=abc",
    ] {
        let step = begin_with(&files, message);
        assert!(is_denied(&step), "{message}: {step:?}");
    }
    let long = format!("n,,n=user,r={}", "a".repeat(MAX_DATA_BYTES));
    assert!(is_denied(&begin_with(&files, &long)));
}

#[test]
fn names_are_unescaped_and_may_be_said_twice() {
    let (server_first, _) = begin(Mechanism::Sha256, "y,a=a=3Db=2Cc,n=a=3Db=2Cc,r=abc,x=1");
    assert!(server_first.starts_with("r=abc%hvY"), "{server_first}");
}

fn begin_with(files: &[ScramSource], message: &str) -> Step {
    super::begin(files, "c", "SCRAM-SHA-256", message.as_bytes()).expect("known method")
}

#[test]
fn other_methods_are_unknown() {
    let files = files(USERS);
    for method in [
        "",
        "PLAIN",
        "SCRAM-SHA-1",
        "SCRAM-SHA-256-PLUS",
        "scram-sha-256",
    ] {
        assert!(super::begin(&files, "c", method, CLIENT_FIRST.as_bytes()).is_none());
    }
    assert!(super::begin(&[], "c", "SCRAM-SHA-256", CLIENT_FIRST.as_bytes()).is_none());
}

#[test]
fn nonces_are_new_each_time() {
    let files = files(USERS);
    let (first, _) = challenge(begin_with(&files, CLIENT_FIRST));
    let (second, _) = challenge(begin_with(&files, CLIENT_FIRST));
    assert_ne!(first, second);
}

/// What follows the nonce.
fn salt_and_iterations(server_first: &str) -> &str {
    server_first.split_once(',').expect("a salt").1
}

#[test]
fn an_unknown_user_is_asked_like_a_known_one_and_denied_at_the_end() {
    let ask = |name: &str, users: &str| {
        let message = format!("n,,n={name},r=abc");
        challenge(begin_with(&files(users), &message))
    };
    let (mallory, exchange) = ask("mallory", USERS);
    let salt = salt_and_iterations(&mallory);
    assert_eq!(salt.len(), "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".len());
    assert!(salt.ends_with("==,i=4096"), "{salt}");
    // The same after a restart, and when users are added.
    let more = format!("{USERS}bob{}", &USERS[4..USERS.find('\n').expect("lines")]);
    assert_eq!(salt_and_iterations(&ask("mallory", USERS).0), salt);
    assert_eq!(salt_and_iterations(&ask("mallory", &more).0), salt);
    assert_ne!(salt_and_iterations(&ask("eve", USERS).0), salt);

    let nonce = mallory.split_once(',').expect("a nonce").0;
    let answer = format!("c=biws,{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let denied = exchange.answer(answer.as_bytes());
    assert!(matches!(denied, Step::Denied(Denial::UnknownUser)));
    let (alice, exchange) = ask("user", USERS);
    let nonce = alice.split_once(',').expect("a nonce").0;
    let answer = format!("c=biws,{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let denied = exchange.answer(answer.as_bytes());
    assert!(matches!(denied, Step::Denied(Denial::WrongPassword)));
    // Nobody has such keys: salt and iterations are made up as well.
    assert!(salt_and_iterations(&ask("mallory", "").0).ends_with("==,i=15000"));
}

#[test]
fn debug_output_shows_no_key() {
    let (_, exchange) = begin(Mechanism::Sha256, CLIENT_FIRST);
    let shown = format!("{exchange:?} {:?}", files(USERS));
    for secret in ["WG5d8oPm", "wfPLwcE6", "ERxGuwQn", "gFCGdO8q"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
