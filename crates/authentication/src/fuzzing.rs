//! What clients show, as fuzz targets.

use std::sync::OnceLock;

use authorization::{Action, Client};
use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use config::JwtConfig;
use futures_util::FutureExt as _;

use crate::{
    jwt,
    scram::{ScramSource, ScramUsers},
};
use authentication_api::{Credentials, Step};

const SECRET: &[u8] = b"a secret of at least 32 bytes, no less";

/// A token whose signature fits, with any header and any claims: a header behind its length of two bytes, then
/// the claims.
///
/// # Panics
/// Something is wrong with what reads them.
pub fn token(bytes: &[u8]) {
    static OPENED: OnceLock<jwt::Jwt> = OnceLock::new();
    let jwt = OPENED.get_or_init(|| {
        let config = JwtConfig {
            username_claim: Some("sub".to_owned()),
            ..JwtConfig::default()
        };
        jwt::Jwt::with_secret(config, SECRET).expect("a secret that is long enough")
    });
    let (header, claims) = counted(bytes);
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    let credentials = Credentials {
        client_id: "c".into(),
        username: None,
        password: None,
        address: None,
        certificate_name: None,
    };
    let token = format!("{signed}.{signature}");
    let judged = jwt.identity_of(&token, &credentials).now_or_never();
    if let Some(identity) = judged.expect("nobody is asked")
        && let Some(rules) = identity.rules
    {
        let client = Client {
            client_id: "c",
            username: identity.username.as_deref(),
            address: None,
        };
        for topic in ["a", "b/c", "$SYS/x", "$priv/#", "#"] {
            for action in [Action::Publish, Action::Subscribe, Action::Receive] {
                let _ = rules.decide(&client, action, topic);
            }
        }
    }
}

/// The two messages of a client, the first behind its length of two bytes. A nonce that the client cannot know
/// is put into the second one.
///
/// # Panics
/// Something is wrong with what reads them.
pub fn scram(bytes: &[u8]) {
    const USERS: &str = "user:$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    static OPENED: OnceLock<[ScramSource; 1]> = OnceLock::new();
    let files = OPENED.get_or_init(|| {
        [ScramSource::File(
            ScramUsers::of_text(USERS).expect("a user"),
        )]
    });
    let (first, second) = counted(bytes);
    let step = crate::scram::begin(files, "c", "SCRAM-SHA-256", first);
    if let Some(Step::Challenge(data, exchange)) = step {
        let server_first = String::from_utf8(data).expect("text");
        let nonce = server_first.split(',').next().expect("a nonce");
        let second = [b"c=biws,", nonce.as_bytes(), second].concat();
        let answer = exchange.answer(&second);
        assert!(matches!(answer, Step::Denied(_)), "a proof was guessed");
    }
}

/// What stands behind a length of two bytes, and the rest.
fn counted(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return (bytes, &[]);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.split_at(length.min(rest.len()))
}
