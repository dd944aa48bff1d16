//! What is stored of a password for SCRAM (RFC 5802 §3), and how it is written:
//! `$scram-sha-256$iterations$salt$StoredKey$ServerKey`, the last three in base64.
//!
//! The password cannot be read from it, but who has it can play the server, and try passwords.

use std::{borrow::Cow, fmt, num::NonZero, str};

use aws_lc_rs::{constant_time, digest, error::Unspecified, hmac, pbkdf2, rand};
use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::password_hash::{HashError, decode, iterations_of};

/// RFC 7677 §4 asks for at least as many.
const MIN_ITERATIONS: u32 = 4_096;

/// Rounds for new passwords. Clients compute them at each login, small devices too.
const NEW_ITERATIONS: NonZero<u32> = NonZero::new(15_000).expect("more than 0");

/// Length of salts for new passwords.
const SALT_BYTES: usize = 16;

/// A mechanism of the SCRAM family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Sha256,
    Sha512,
}

impl Mechanism {
    pub(crate) const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// By the name that stands in an authentication method.
    pub(crate) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.method() == method)
    }

    fn method(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The name in files of users.
    fn format(self) -> &'static str {
        match self {
            Self::Sha256 => "scram-sha-256",
            Self::Sha512 => "scram-sha-512",
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    /// H() of RFC 5802.
    pub(crate) fn hash(self, data: &[u8]) -> digest::Digest {
        digest::digest(self.digest(), data)
    }

    /// HMAC() of RFC 5802.
    pub(crate) fn sign(self, key: &[u8], data: &[u8]) -> hmac::Tag {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data)
    }

    /// Length of a hash, and so of every key.
    pub(crate) fn key_bytes(self) -> usize {
        self.digest().output_len()
    }
}

/// What the server knows of a password.
#[derive(Clone)]
pub(crate) struct ScramKeys {
    pub(crate) mechanism: Mechanism,
    pub(crate) iterations: NonZero<u32>,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Zeroizing<Vec<u8>>,
    pub(crate) server_key: Zeroizing<Vec<u8>>,
}

impl ScramKeys {
    /// Reads what stands behind the format's name.
    pub(crate) fn parse<'a>(
        format: &str,
        mut fields: impl Iterator<Item = &'a str>,
    ) -> Result<Self, HashError> {
        let mechanism = Mechanism::ALL
            .into_iter()
            .find(|it| it.format() == format)
            .ok_or(HashError::Unknown)?;
        let mut field = || fields.next().ok_or(HashError::Malformed);
        let keys = Self {
            mechanism,
            iterations: iterations_of(field()?)?,
            salt: decode(field()?)?,
            stored_key: Zeroizing::new(decode(field()?)?),
            server_key: Zeroizing::new(decode(field()?)?),
        };
        let is_well_formed = fields.next().is_none()
            && keys.iterations.get() >= MIN_ITERATIONS
            && keys.stored_key.len() == mechanism.key_bytes()
            && keys.server_key.len() == mechanism.key_bytes();
        is_well_formed.then_some(keys).ok_or(HashError::Malformed)
    }

    /// Keys for a new password, with a salt of their own.
    pub(crate) fn new(mechanism: Mechanism, password: &[u8]) -> Result<Self, Unspecified> {
        let mut salt = vec![0; SALT_BYTES];
        rand::fill(&mut salt)?;
        Ok(Self::derive(mechanism, NEW_ITERATIONS, salt, password))
    }

    /// Keys of nobody, as those for a new password look.
    pub(crate) fn random(mechanism: Mechanism) -> Result<Self, Unspecified> {
        let random = |bytes| {
            let mut key = vec![0; bytes];
            rand::fill(&mut key).map(|()| key)
        };
        Ok(Self {
            mechanism,
            iterations: NEW_ITERATIONS,
            salt: random(SALT_BYTES)?,
            stored_key: Zeroizing::new(random(mechanism.key_bytes())?),
            server_key: Zeroizing::new(random(mechanism.key_bytes())?),
        })
    }

    /// The proof of a client that knows the password which keys are of, of these messages.
    #[cfg(test)]
    pub(crate) fn proof_of(keys: &str, password: &[u8], messages: &[u8]) -> String {
        let hash = crate::password_hash::PasswordHash::parse(keys).unwrap();
        let keys = hash.scram_keys().unwrap();
        let mechanism = keys.mechanism;
        let mut salted = vec![0; mechanism.key_bytes()];
        let algorithm = mechanism.pbkdf2();
        pbkdf2::derive(
            algorithm,
            keys.iterations,
            &keys.salt,
            password,
            &mut salted,
        );
        let client_key = mechanism.sign(&salted, b"Client Key");
        let signature = mechanism.sign(&keys.stored_key, messages);
        let proof = client_key.as_ref().iter().zip(signature.as_ref());
        STANDARD.encode(proof.map(|(key, signed)| key ^ signed).collect::<Vec<u8>>())
    }

    fn derive(
        mechanism: Mechanism,
        iterations: NonZero<u32>,
        salt: Vec<u8>,
        password: &[u8],
    ) -> Self {
        let mut salted = Zeroizing::new(vec![0; mechanism.key_bytes()]);
        let prepared = Zeroizing::new(prepared(password).into_owned());
        pbkdf2::derive(
            mechanism.pbkdf2(),
            iterations,
            &salt,
            &prepared,
            &mut salted,
        );
        let client_key = mechanism.sign(&salted, b"Client Key");
        let server_key = mechanism.sign(&salted, b"Server Key");
        Self {
            mechanism,
            iterations,
            salt,
            stored_key: Zeroizing::new(mechanism.hash(client_key.as_ref()).as_ref().to_vec()),
            server_key: Zeroizing::new(server_key.as_ref().to_vec()),
        }
    }

    /// Whether they are those of this password.
    pub(crate) fn fit(&self, password: &[u8]) -> bool {
        let derived = Self::derive(self.mechanism, self.iterations, self.salt.clone(), password);
        constant_time::verify_slices_are_equal(&derived.stored_key, &self.stored_key).is_ok()
    }

    /// As it stands in a file of users.
    pub(crate) fn to_text(&self) -> String {
        format!(
            "${}${}${}${}${}",
            self.mechanism.format(),
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(&*self.stored_key),
            STANDARD.encode(&*self.server_key),
        )
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramKeys({:?})", self.mechanism)
    }
}

/// The password as clients prepare it (SASLprep, RFC 4013); as it is, if it cannot be prepared.
fn prepared(password: &[u8]) -> Cow<'_, [u8]> {
    let text = str::from_utf8(password).ok();
    match text.and_then(|text| stringprep::saslprep(text).ok()) {
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        _ => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests;
