//! How a user is to prove who it is: what requests say of it, and what is kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use control::{Hash, Verifier};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::access::{Access, WeakHashes};
use crate::problem::{Kind, Problem};

/// The longest password, in bytes: longer ones do not fit into CONNECT.
const LONGEST_PASSWORD: usize = 65_535;

/// Characters of a secret: 256 random bits are 43 characters of base64.
const SECRET: std::ops::RangeInclusive<usize> = 43..=1_024;

/// Hashes of one user.
const MOST_HASHES: usize = 4;

/// What a request says.
pub(super) enum Proof {
    /// Nothing.
    None,
    /// A password, which is hashed.
    Password(Zeroizing<String>),
    /// A secret is to be made.
    Generate,
    /// What is kept.
    Given(Box<[Verifier]>),
}

impl Proof {
    /// Of the fields of a body.
    pub(super) fn read(
        access: &dyn Access,
        password: Option<String>,
        generate: bool,
        hash: Option<String>,
        secret: Option<String>,
    ) -> Result<Self, Problem> {
        let (password, hash, secret) = (
            password.map(Zeroizing::new),
            hash.map(Zeroizing::new),
            secret.map(Zeroizing::new),
        );
        match (password, generate, hash, secret) {
            (None, false, None, None) => Ok(Self::None),
            (Some(password), false, None, None) => match password.len() {
                1..=LONGEST_PASSWORD => Ok(Self::Password(password)),
                _ => Err(wrong("password", &format!("1 to {LONGEST_PASSWORD} bytes"))),
            },
            (None, true, None, None) => Ok(Self::Generate),
            (None, false, Some(hash), None) => hashes(access, &hash),
            (None, false, None, Some(secret)) => {
                let is_of_secret = |b: u8| b.is_ascii_alphanumeric() || b"+/-_=".contains(&b);
                match SECRET.contains(&secret.len()) && secret.bytes().all(is_of_secret) {
                    true => Ok(Self::Given([kept(&secret)].into())),
                    false => Err(wrong(
                        "secret",
                        "43 to 1024 characters of base64 or hexadecimal digits, which were drawn at random",
                    )),
                }
            }
            _ => {
                let why = "at most one of `password`, `generate`, `hash` and `secret` can be given";
                Err(Problem::new(Kind::InvalidBody, why))
            }
        }
    }

    /// What is kept of it, and the secret that was made. `before`: what is kept if the request says nothing.
    pub(super) async fn settle(
        self,
        access: &dyn Access,
        before: Option<&[Verifier]>,
        is_dry_run: bool,
    ) -> Result<(Box<[Verifier]>, Option<String>), Problem> {
        match self {
            Self::None => {
                let before = before.ok_or_else(|| {
                    let why = "a new user needs one of `password`, `generate`, `hash` and `secret`";
                    Problem::new(Kind::InvalidBody, why)
                })?;
                Ok((before.into(), None))
            }
            // A dry run hashes nothing, and shows no secret: what stands for it is different from what there is.
            Self::Password(_) | Self::Generate if is_dry_run => {
                Ok(([kept(&generate())].into(), None))
            }
            Self::Password(password) => Ok(([access.hash(password).await?].into(), None)),
            Self::Generate => {
                let secret = generate();
                Ok(([kept(&secret)].into(), Some(secret.to_string())))
            }
            Self::Given(verifiers) => Ok((verifiers, None)),
        }
    }
}

/// Hashes, one a line.
fn hashes(access: &dyn Access, text: &str) -> Result<Proof, Problem> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let verifiers = lines.map(|line| {
        access
            .verifier(line, WeakHashes::Refuse)
            .map_err(|why| wrong("hash", &format!("hashes of passwords; a line has {why}")))
    });
    let verifiers = verifiers.collect::<Result<Vec<_>, _>>()?;
    match verifiers.len() {
        1..=MOST_HASHES => Ok(Proof::Given(verifiers.into())),
        _ => Err(wrong("hash", &format!("at most {MOST_HASHES}, one a line"))),
    }
}

/// The problem of a field whose value is not shown.
fn wrong(field: &str, accepted: &str) -> Problem {
    let problem = Problem::new(Kind::InvalidBody, format!("`{field}` is to be {accepted}"));
    problem
        .with("pointer", format!("/{field}"))
        .with("accepted", accepted)
}

pub(super) fn generate() -> Zeroizing<String> {
    let bytes = Zeroizing::new(rand::random::<[u8; 32]>());
    Zeroizing::new(URL_SAFE_NO_PAD.encode(*bytes))
}

fn kept(secret: &str) -> Verifier {
    Verifier::Secret(Hash(Sha256::digest(secret.as_bytes()).into()))
}
