use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::PathBuf,
    sync::OnceLock,
    thread,
    time::SystemTime,
};

use authorization::{Action, Client, Effect};
use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der},
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jsonwebtoken::{EncodingKey, encode, jwk::Jwk};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;
use authentication_api::Secret;

const SECRET: &[u8] = b"a secret of at least 32 bytes, no less";

/// A private key, and its public one in PEM.
struct Pair {
    private: EncodingKey,
    public: String,
}

fn pem(tag: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {tag}-----\n{}\n-----END {tag}-----\n",
        STANDARD.encode(der)
    )
}

/// Made once: RSA keys take their time.
fn rsa() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("generated");
        let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("encoded");
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).expect("encoded");
        Pair {
            private: EncodingKey::from_rsa_pem(pem("PRIVATE KEY", private.as_ref()).as_bytes())
                .expect("a key"),
            public: pem("PUBLIC KEY", public.as_ref()),
        }
    })
}

fn ec(p384: bool) -> Pair {
    let algorithm = if p384 {
        &ECDSA_P384_SHA384_FIXED_SIGNING
    } else {
        &ECDSA_P256_SHA256_FIXED_SIGNING
    };
    let pair = EcdsaKeyPair::generate(algorithm).expect("generated");
    let private = pair.to_pkcs8v1().expect("encoded");
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).expect("encoded");
    Pair {
        private: EncodingKey::from_ec_der(private.as_ref()),
        public: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn ed25519() -> Pair {
    let pair = Ed25519KeyPair::generate().expect("generated");
    let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("encoded");
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).expect("encoded");
    Pair {
        private: EncodingKey::from_ed_der(private.as_ref()),
        public: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn hmac() -> EncodingKey {
    EncodingKey::from_secret(SECRET)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn sign(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, key).expect("signed")
}

/// An authenticator with a folder for its files.
struct Setup {
    folder: TempDir,
    config: JwtConfig,
}

impl Setup {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            config: JwtConfig::default(),
        }
    }

    fn with_secret() -> Self {
        let mut setup = Self::new();
        setup.config.secret_file = Some(setup.file("secret", SECRET));
        setup
    }

    fn with_public_key(pem: &str) -> Self {
        let mut setup = Self::new();
        setup.config.public_key_file = Some(setup.file("key.pem", pem.as_bytes()));
        setup
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    fn open(&self) -> Result<Jwt, String> {
        let shared = Shared::new(&Handle::current(), 1, Arc::default()).expect("random numbers");
        Jwt::open("jwt (1)".to_owned(), &self.config, &shared)
    }

    async fn ask(&self, credentials: &Credentials) -> Opinion {
        let jwt = self.open().expect("complete");
        jwt.authenticate(credentials).await
    }

    /// What it says to a token that stands in the password.
    async fn opinion(&self, token: &str) -> Opinion {
        self.ask(&credentials(None, token)).await
    }

    /// What it says to claims that are signed with the secret.
    async fn claimed(&self, claims: &Value) -> Opinion {
        self.opinion(&sign(Algorithm::HS256, &hmac(), claims)).await
    }
}

fn credentials(username: Option<&str>, password: &str) -> Credentials {
    Credentials {
        client_id: "device-1".into(),
        username: username.map(Into::into),
        password: Some(Secret::new(password.as_bytes())),
        address: None,
        certificate_name: None,
    }
}

fn identity(opinion: Opinion) -> Identity {
    match opinion {
        Opinion::Allow(identity) => *identity,
        opinion => panic!("{opinion:?}"),
    }
}

fn is_denied(opinion: &Opinion) -> bool {
    matches!(opinion, Opinion::Deny(Denial::Denied))
}

#[tokio::test]
async fn each_type_of_key_verifies_its_algorithms() {
    let claims = json!({"exp": now() + 60});
    let rsa = rsa();
    let rsa_key = (&rsa.private, &rsa.public);
    let (p256, p384, ed) = (ec(false), ec(true), ed25519());
    for (algorithm, (private, public)) in [
        (Algorithm::RS256, rsa_key),
        (Algorithm::RS384, rsa_key),
        (Algorithm::RS512, rsa_key),
        (Algorithm::PS256, rsa_key),
        (Algorithm::PS384, rsa_key),
        (Algorithm::PS512, rsa_key),
        (Algorithm::ES256, (&p256.private, &p256.public)),
        (Algorithm::ES384, (&p384.private, &p384.public)),
        (Algorithm::EdDSA, (&ed.private, &ed.public)),
    ] {
        let token = sign(algorithm, private, &claims);
        let setup = Setup::with_public_key(public);
        identity(setup.opinion(&token).await);
        let stranger = Setup::with_public_key(&ec(false).public);
        assert!(is_denied(&stranger.opinion(&token).await), "{algorithm:?}");
    }
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let token = sign(algorithm, &hmac(), &claims);
        identity(Setup::with_secret().opinion(&token).await);
        let other = EncodingKey::from_secret(b"another secret of at least 32 bytes.");
        let token = sign(algorithm, &other, &claims);
        assert!(is_denied(&Setup::with_secret().opinion(&token).await));
    }
}

#[tokio::test]
async fn a_public_key_is_no_secret() {
    let rsa = rsa();
    let setup = Setup::with_public_key(&rsa.public);
    let key = EncodingKey::from_secret(rsa.public.as_bytes());
    let token = sign(Algorithm::HS256, &key, &json!({"exp": now() + 60}));
    assert!(is_denied(&setup.opinion(&token).await));

    let mut setup = Setup::new();
    setup.config.secret_file = Some(setup.file("key.pem", rsa.public.as_bytes()));
    let error = setup.open().map(|_| ()).expect_err("a PEM file");
    assert!(error.contains("publicKeyFile"), "{error}");
}

#[tokio::test]
async fn a_token_without_a_signature_is_denied() {
    let encode = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let claims = encode(json!({"exp": now() + 60}));
    for algorithm in ["none", "None", "NONE", "HS256"] {
        let token = format!("{}.{claims}.", encode(json!({"alg": algorithm})));
        assert!(is_denied(&Setup::with_secret().opinion(&token).await));
    }
}

#[tokio::test]
async fn a_token_that_was_changed_is_denied() {
    let token = sign(Algorithm::HS256, &hmac(), &json!({"sub": "alice"}));
    let parts: Vec<&str> = token.split('.').collect();
    let claims = URL_SAFE_NO_PAD.encode(json!({"sub": "root"}).to_string());
    let changed = format!("{}.{claims}.{}", parts[0], parts[2]);
    assert!(is_denied(&Setup::with_secret().opinion(&changed).await));
    for bad in ["..", "a.b.c", &format!("{}..{}", parts[0], parts[2])] {
        assert!(is_denied(&Setup::with_secret().opinion(bad).await), "{bad}");
    }
}

#[tokio::test]
async fn what_is_no_token_is_for_the_next() {
    let setup = Setup::with_secret();
    for password in ["", "secret", "a.b", "a.b.c.d"] {
        let opinion = setup.opinion(password).await;
        assert!(matches!(opinion, Opinion::Ignore), "{password}");
    }
    let mut without = credentials(Some("a.b.c"), "");
    without.password = None;
    assert!(matches!(setup.ask(&without).await, Opinion::Ignore));
    without.password = Some(Secret::new(b"\xff..\xff"));
    assert!(matches!(setup.ask(&without).await, Opinion::Ignore));
}

#[tokio::test]
async fn critical_extensions_are_not_understood() {
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["b64".to_owned()]);
    let token = encode(&header, &json!({}), &hmac()).expect("signed");
    assert!(is_denied(&Setup::with_secret().opinion(&token).await));
}

#[tokio::test]
async fn a_token_counts_for_its_time_and_the_leeway() {
    let setup = Setup::with_secret();
    let (now, leeway) = (now(), setup.config.leeway.as_secs());
    for claims in [
        json!({}),
        json!({"exp": now + 60}),
        json!({"exp": (now + 60) as f64 + 0.5}),
        json!({"exp": now - 1}),
        json!({"nbf": now + leeway - 1}),
    ] {
        identity(setup.claimed(&claims).await);
    }
    // What was genuine and has ended is no guess.
    for claims in [json!({"exp": now - leeway - 2}), json!({"exp": 0})] {
        let opinion = setup.claimed(&claims).await;
        assert!(
            matches!(opinion, Opinion::Deny(Denial::Ended)),
            "{claims}: {opinion:?}"
        );
    }
    for claims in [
        json!({"exp": -1}),
        json!({"exp": "tomorrow"}),
        json!({"exp": null}),
        json!({"nbf": now + leeway + 60}),
        json!({"nbf": "yesterday"}),
    ] {
        assert!(is_denied(&setup.claimed(&claims).await), "{claims}");
    }
}

#[tokio::test]
async fn a_client_may_stay_until_its_token_is_not_taken_any_more() {
    let mut setup = Setup::with_secret();
    let end = now() + 60;
    let claims = json!({"exp": end});
    let leeway = setup.config.leeway.as_secs();
    let expires_at = identity(setup.claimed(&claims).await).expires_at;
    assert_eq!(expires_at, Some(end + leeway));
    assert_eq!(identity(setup.claimed(&json!({})).await).expires_at, None);
    setup.config.disconnect_at_expiry = false;
    assert_eq!(identity(setup.claimed(&claims).await).expires_at, None);
}

#[tokio::test]
async fn issuer_and_audience_must_be_there_and_right() {
    let mut setup = Setup::with_secret();
    identity(setup.claimed(&json!({"iss": "any", "aud": "any"})).await);
    setup.config.issuer = Some("us".to_owned());
    setup.config.audience = Some("mqtt".to_owned());
    for claims in [
        json!({"iss": "us", "aud": "mqtt"}),
        json!({"iss": "us", "aud": ["web", "mqtt"]}),
    ] {
        identity(setup.claimed(&claims).await);
    }
    for claims in [
        json!({}),
        json!({"iss": "us"}),
        json!({"aud": "mqtt"}),
        json!({"iss": "them", "aud": "mqtt"}),
        json!({"iss": "us", "aud": "web"}),
        json!({"iss": "us", "aud": ["web"]}),
        json!({"iss": "us", "aud": []}),
        json!({"iss": 1, "aud": "mqtt"}),
    ] {
        assert!(is_denied(&setup.claimed(&claims).await), "{claims}");
    }
}

#[tokio::test]
async fn the_user_name_is_what_the_token_confirms() {
    let mut setup = Setup::with_secret();
    let token = sign(Algorithm::HS256, &hmac(), &json!({"sub": "alice"}));
    let said = |name| credentials(name, &token);
    // Without the claim a name is only what the client says.
    let unconfirmed = identity(setup.ask(&said(Some("root"))).await);
    assert_eq!(unconfirmed.username, None);
    assert!(!unconfirmed.is_superuser);

    setup.config.username_claim = Some("sub".to_owned());
    for name in [None, Some("alice")] {
        let confirmed = identity(setup.ask(&said(name)).await);
        assert_eq!(confirmed.username.as_deref(), Some("alice"));
    }
    assert!(is_denied(&setup.ask(&said(Some("bob"))).await));
    assert!(is_denied(&setup.claimed(&json!({})).await));
    assert!(is_denied(&setup.claimed(&json!({"sub": 7})).await));
}

#[tokio::test]
async fn a_token_can_stand_in_the_user_name() {
    let mut setup = Setup::with_secret();
    setup.config.from = JwtFrom::Username;
    setup.config.username_claim = Some("sub".to_owned());
    let token = sign(Algorithm::HS256, &hmac(), &json!({"sub": "alice"}));
    let confirmed = identity(setup.ask(&credentials(Some(&token), "")).await);
    assert_eq!(confirmed.username.as_deref(), Some("alice"));
    let opinion = setup.ask(&credentials(None, &token)).await;
    assert!(matches!(opinion, Opinion::Ignore), "{opinion:?}");
}

#[tokio::test]
async fn a_token_can_be_for_one_client() {
    let mut setup = Setup::with_secret();
    setup.config.client_id_claim = Some("client".to_owned());
    identity(setup.claimed(&json!({"client": "device-1"})).await);
    for claims in [
        json!({"client": "device-2"}),
        json!({"client": 1}),
        json!({}),
    ] {
        assert!(is_denied(&setup.claimed(&claims).await), "{claims}");
    }
}

#[tokio::test]
async fn only_listed_algorithms_are_taken() {
    let mut setup = Setup::with_secret();
    setup.config.algorithms = vec!["HS512".to_owned()].into();
    identity(
        setup
            .opinion(&sign(Algorithm::HS512, &hmac(), &json!({})))
            .await,
    );
    assert!(is_denied(&setup.claimed(&json!({})).await));
    for unknown in ["none", "HS1"] {
        setup.config.algorithms = vec![unknown.to_owned()].into();
        let error = setup.open().map(|_| ()).expect_err(unknown);
        assert!(error.contains(unknown), "{error}");
    }
}

fn effect(identity: &Identity, action: Action, topic: &str) -> Option<Effect> {
    let client = Client {
        client_id: "device-1",
        username: None,
        address: None,
    };
    let rules = identity.rules.as_ref().expect("rules");
    rules.decide(&client, action, topic).map(|it| it.effect)
}

#[tokio::test]
async fn lists_of_topics_allow_these_and_deny_the_rest() {
    let setup = Setup::with_secret();
    let claims = json!({"acl": {"pub": ["a/%c"], "sub": ["b/#"], "all": ["c"]}});
    let identity = identity(setup.claimed(&claims).await);
    for (action, topic, allowed) in [
        (Action::Publish, "a/device-1", true),
        (Action::Retain, "a/device-1", true),
        (Action::Publish, "a/device-2", false),
        (Action::Subscribe, "a/device-1", false),
        (Action::Subscribe, "b/#", true),
        (Action::Receive, "b/1", true),
        (Action::Publish, "b/1", false),
        (Action::Publish, "c", true),
        (Action::Subscribe, "c", true),
        (Action::Subscribe, "#", false),
        (Action::Subscribe, "$SYS/#", false),
        (Action::Subscribe, "$priv/#", false),
        (Action::Receive, "$priv/x", false),
        (Action::Publish, "$priv/x", false),
        (Action::Subscribe, "$SYSTEM/#", false),
    ] {
        let expected = if allowed { Effect::Allow } else { Effect::Deny };
        let decided = effect(&identity, action, topic);
        assert_eq!(decided, Some(expected), "{action:?} {topic}");
    }
}

#[tokio::test]
async fn a_list_of_rules_leaves_the_rest_to_others() {
    let setup = Setup::with_secret();
    let claims = json!({"acl": [
        {"permission": "deny", "action": "publish", "topic": "a/b"},
        {"permission": "allow", "action": "all", "topic": "a/#"},
    ]});
    let identity = identity(setup.claimed(&claims).await);
    assert_eq!(
        effect(&identity, Action::Publish, "a/b"),
        Some(Effect::Deny)
    );
    assert_eq!(
        effect(&identity, Action::Publish, "a/c"),
        Some(Effect::Allow)
    );
    assert_eq!(effect(&identity, Action::Publish, "b"), None);
}

#[tokio::test]
async fn rules_that_are_not_understood_deny_the_token() {
    let setup = Setup::with_secret();
    for acl in [
        json!("all"),
        json!(null),
        json!({"pub": "a"}),
        json!({"pub": [1]}),
        json!({"pub": ["a#"]}),
        json!({"publish": ["a"]}),
        json!([{"permission": "maybe", "action": "all", "topic": "a"}]),
        json!([{"permission": "allow", "action": "all", "topic": "a", "qos": [0]}]),
        json!([{"permission": "allow", "action": "all"}]),
    ] {
        assert!(
            is_denied(&setup.claimed(&json!({"acl": acl})).await),
            "{acl}"
        );
    }
}

fn jwk(key: &EncodingKey, algorithm: Algorithm, id: &str) -> Value {
    let mut jwk = Jwk::from_encoding_key(key, algorithm).expect("a key");
    jwk.common.key_id = Some(id.to_owned());
    serde_json::to_value(&jwk).expect("JSON")
}

fn sign_as(id: Option<&str>, algorithm: Algorithm, key: &EncodingKey) -> String {
    let mut header = Header::new(algorithm);
    header.kid = id.map(str::to_owned);
    encode(&header, &json!({}), key).expect("signed")
}

#[tokio::test]
async fn keys_of_a_set_are_found_by_their_identifier() {
    let (p256, p384, ed) = (ec(false), ec(true), ed25519());
    let rsa = &rsa().private;
    let mut setup = Setup::new();
    let set = json!({"keys": [
        jwk(rsa, Algorithm::RS256, "rsa"),
        jwk(&p256.private, Algorithm::ES256, "p256"),
        jwk(&p384.private, Algorithm::ES384, "p384"),
        jwk(&ed.private, Algorithm::EdDSA, "ed"),
        {"kty": "unheard of"},
        7,
    ]});
    setup.config.jwks_file = Some(setup.file("set", set.to_string().as_bytes()));
    for (id, algorithm, key) in [
        ("rsa", Algorithm::RS256, rsa),
        ("p256", Algorithm::ES256, &p256.private),
        ("p384", Algorithm::ES384, &p384.private),
        ("ed", Algorithm::EdDSA, &ed.private),
    ] {
        identity(setup.opinion(&sign_as(Some(id), algorithm, key)).await);
        identity(setup.opinion(&sign_as(None, algorithm, key)).await);
        let token = sign_as(Some("other"), algorithm, key);
        assert!(is_denied(&setup.opinion(&token).await), "{id}");
    }
    // The set says what the key is for.
    let token = sign_as(Some("rsa"), Algorithm::PS256, rsa);
    assert!(is_denied(&setup.opinion(&token).await));
}

#[tokio::test]
async fn keys_of_a_set_for_other_purposes_do_not_count() {
    let p256 = ec(false);
    let mut for_encryption = jwk(&p256.private, Algorithm::ES256, "p256");
    for_encryption["use"] = json!("enc");
    let symmetric = json!({"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)});
    for (key, algorithm, private) in [
        (for_encryption, Algorithm::ES256, p256.private),
        (symmetric, Algorithm::HS256, hmac()),
    ] {
        let mut setup = Setup::new();
        let set = json!({"keys": [key, jwk(&rsa().private, Algorithm::RS256, "rsa")]});
        setup.config.jwks_file = Some(setup.file("set", set.to_string().as_bytes()));
        let token = sign_as(None, algorithm, &private);
        assert!(is_denied(&setup.opinion(&token).await), "{algorithm:?}");
    }
}

/// The address of a server that gives this answer to one request.
fn server(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = BufReader::new(stream.try_clone().expect("a handle")).lines();
        let first = request.next().expect("a request").expect("text");
        assert_eq!(first, "GET /keys HTTP/1.1");
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("sent");
    });
    format!("http://{address}/keys")
}

#[tokio::test]
async fn a_key_set_comes_from_a_server() {
    let p256 = ec(false);
    let set = json!({"keys": [jwk(&p256.private, Algorithm::ES256, "p256")]}).to_string();
    let mut setup = Setup::new();
    setup.config.jwks_url = Some(server("200 OK", set));
    let token = sign_as(Some("p256"), Algorithm::ES256, &p256.private);
    let jwt = setup.open().expect("complete");
    identity(jwt.authenticate(&credentials(None, &token)).await);
    let token = sign_as(Some("p256"), Algorithm::ES256, &ec(false).private);
    let opinion = jwt.authenticate(&credentials(None, &token)).await;
    assert!(is_denied(&opinion), "{opinion:?}");
}

#[tokio::test]
async fn a_server_without_a_key_set_is_a_failure() {
    let token = sign_as(None, Algorithm::ES256, &ec(false).private);
    for (status, body) in [
        ("404 Not Found", "{\"keys\": []}".to_owned()),
        ("200 OK", "nonsense".to_owned()),
        ("200 OK", " ".repeat(1024 * 1024 + 1)),
    ] {
        let mut setup = Setup::new();
        setup.config.jwks_url = Some(server(status, body));
        let opinion = setup.opinion(&token).await;
        assert!(matches!(opinion, Opinion::Failed(_)), "{opinion:?}");
    }
    let mut setup = Setup::new();
    setup.config.jwks_url = Some("ftp://localhost/keys".to_owned());
    let error = setup.open().map(|_| ()).expect_err("not HTTP");
    assert!(error.starts_with("jwt.jwksUrl: "), "{error}");
}

#[tokio::test]
async fn keys_that_are_none_are_refused() {
    for bad in ["", "{}", "[]", "{\"keys\": 7}", "{\"keys\": []}"] {
        let mut setup = Setup::new();
        setup.config.jwks_file = Some(setup.file("set", bad.as_bytes()));
        assert!(setup.open().is_err(), "{bad}");
    }
    let private = pem("PRIVATE KEY", b"x");
    let two = format!("{0}{0}", rsa().public);
    for bad in ["", "secret", &private, &two, &pem("PUBLIC KEY", b"x")] {
        assert!(Setup::with_public_key(bad).open().is_err(), "{bad}");
    }
    let mut setup = Setup::new();
    setup.config.secret_file = Some(setup.file("secret", b"too short\n"));
    assert!(setup.open().is_err());
    setup.config.secret_file = Some(setup.folder.path().join("absent"));
    assert!(setup.open().is_err());
}

#[tokio::test]
async fn a_line_break_at_the_end_of_a_secret_does_not_count() {
    let mut setup = Setup::new();
    setup.config.secret_file = Some(setup.file("secret", &[SECRET, b"\n"].concat()));
    identity(setup.claimed(&json!({})).await);
}

#[tokio::test]
async fn debug_output_shows_no_secret() {
    let shown = format!("{:?}", Setup::with_secret().open().expect("complete"));
    assert!(!shown.contains("at least"), "{shown}");
    assert!(!shown.contains(&format!("{:?}", &SECRET[..4])), "{shown}");
}
