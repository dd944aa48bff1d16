//! Hashed passwords: which formats are known, what they may cost, and whether a password fits.
//!
//! Invariants: a hash from outside cannot ask for more memory or time than the limits here, and a password
//! that was not hashed is refused. Comparisons take the same time wherever the difference is.

use std::{fmt, num::NonZero, ops::RangeInclusive};

use argon2::{
    Argon2, Params, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash as PhcHash,
};
use aws_lc_rs::pbkdf2;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};

use crate::salted_sha::SaltedSha;
use crate::scram_keys::ScramKeys;

/// Limit: password hashes at once; cost of one | {authentication.hashThreads}; {} KiB, {MAX_ARGON2_PASSES} passes of
/// argon2id | logins wait; the hash is refused
const MAX_ARGON2_KIB: u32 = 256 * 1024;
const MAX_ARGON2_PASSES: u32 = 32;
const MAX_ARGON2_LANES: u32 = 16;
const MAX_BCRYPT_COST: u32 = 15;

/// The most rounds of PBKDF2 that a hash may ask for: about a second.
pub(crate) const MAX_PBKDF2_ITERATIONS: u32 = 2_000_000;

/// Bytes that a hash by PBKDF2 has, where its format leaves the choice: each block of the digest takes the iterations once more.
const PBKDF2_BYTES: RangeInclusive<usize> = 16..=64;

/// A password that was hashed.
pub(crate) enum PasswordHash {
    /// `$argon2id$v=19$m=…,t=…,p=…$salt$hash`.
    Argon2id(Box<PhcHash>),
    /// `$2a$`, `$2b$` or `$2y$`.
    Bcrypt(Box<str>),
    /// `$7$iterations$salt$hash`, as mosquitto_passwd writes it (SHA-512), and `$pbkdf2-sha256$…` or `$pbkdf2-sha512$…` as
    /// passlib does: base64 without padding, and with `.` for `+`.
    Pbkdf2(Box<Pbkdf2Hash>),
    /// `$scram-sha-256$…` or `$scram-sha-512$…`.
    Scram(Box<ScramKeys>),
    /// `$sha256-prefix$salt$hash` and the like, and `$6$salt$hash` of Mosquitto before 2.0.
    SaltedSha(Box<SaltedSha>),
}

/// Whether hashes are taken by which a stolen list of them gives passwords away soon, because a guess costs next to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WeakHashes {
    /// They are an error.
    Refuse,
    /// They are read: salted SHA-256 and SHA-512.
    Accept,
}

pub(crate) struct Pbkdf2Hash {
    algorithm: pbkdf2::Algorithm,
    iterations: NonZero<u32>,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Why a text is no hash of a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HashError {
    /// It does not begin like any known format; perhaps it is the password itself.
    Unknown,
    /// It begins like a known format, but is not one.
    Malformed,
    /// Checking a password would take too much memory or time.
    TooExpensive,
    /// Guessing a password takes too little time.
    Weak,
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => {
                "not a hash by argon2id, bcrypt, PBKDF2, mosquitto_passwd ($7$) or for SCRAM; plain passwords are not accepted"
            }
            Self::Malformed => "a malformed hash",
            Self::TooExpensive => "a hash whose parameters would take too much memory or time",
            Self::Weak => {
                "a salted SHA hash, which only an import into the control store reads, if it is told to accept weak hashes"
            }
        })
    }
}

/// What a hash of a password can be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredAs {
    /// For passwords.
    Password,
    /// For SCRAM, and for passwords.
    Scram,
}

/// What a hash, as it stands in a password file, can be used for.
///
/// # Errors
/// It is no hash of a known format, or a weak one, or a password would take too much memory or time to be checked by it. The error
/// has nothing of the text.
pub fn stored_as(hash: &str) -> Result<StoredAs, String> {
    stored_as_with(hash, WeakHashes::Refuse)
}

/// What a hash of a user of the control store can be used for: as [`stored_as`], where an import may accept weak hashes.
///
/// # Errors
/// As [`stored_as`]; weak hashes are one only if they are to be refused.
pub fn stored_as_with(hash: &str, weak: WeakHashes) -> Result<StoredAs, String> {
    let hash = PasswordHash::parse_with(hash, weak).map_err(|error| error.to_string())?;
    Ok(match hash.scram_keys() {
        Some(_) => StoredAs::Scram,
        None => StoredAs::Password,
    })
}

impl PasswordHash {
    /// Reads a hash in any known format that is not weak.
    pub(crate) fn parse(text: &str) -> Result<Self, HashError> {
        Self::parse_with(text, WeakHashes::Refuse)
    }

    /// Reads a hash in any known format.
    pub(crate) fn parse_with(text: &str, weak: WeakHashes) -> Result<Self, HashError> {
        let mut fields = text.split('$');
        let (Some(""), Some(format)) = (fields.next(), fields.next()) else {
            return Err(HashError::Unknown);
        };
        match format {
            "argon2id" => argon2id(text),
            "2a" | "2b" | "2y" => bcrypt(text),
            "7" => mosquitto(fields),
            "pbkdf2-sha256" => passlib(pbkdf2::PBKDF2_HMAC_SHA256, fields),
            "pbkdf2-sha512" => passlib(pbkdf2::PBKDF2_HMAC_SHA512, fields),
            _ if SaltedSha::is_format(format) => match weak {
                WeakHashes::Refuse => Err(HashError::Weak),
                WeakHashes::Accept => {
                    Ok(Self::SaltedSha(Box::new(SaltedSha::parse(format, fields)?)))
                }
            },
            _ => Ok(Self::Scram(Box::new(ScramKeys::parse(format, fields)?))),
        }
    }

    /// What SCRAM needs, if it was stored for that.
    pub(crate) fn scram_keys(&self) -> Option<&ScramKeys> {
        match self {
            Self::Scram(keys) => Some(keys),
            _ => None,
        }
    }

    /// Whether this is the password. Takes milliseconds: only for [`HashThreads`](crate::hash_threads).
    pub(crate) fn fits(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2id(hash) => Argon2::default().verify_password(password, &**hash).is_ok(),
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Pbkdf2(hash) => pbkdf2::verify(
                hash.algorithm,
                hash.iterations,
                &hash.salt,
                password,
                &hash.hash,
            )
            .is_ok(),
            Self::Scram(keys) => keys.fit(password),
            Self::SaltedSha(hash) => hash.fits(password),
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// Hashes a password by argon2id with the parameters that OWASP recommends (19 MiB, 2 passes, 1 lane).
pub(crate) fn hash_by_argon2id(password: &[u8]) -> Result<String, argon2::password_hash::Error> {
    Ok(Argon2::default().hash_password(password)?.to_string())
}

fn argon2id(text: &str) -> Result<PasswordHash, HashError> {
    let hash = PhcHash::new(text).map_err(|_| HashError::Malformed)?;
    let params = Params::try_from(&hash).map_err(|_| HashError::Malformed)?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(HashError::Malformed);
    }
    let is_affordable = params.m_cost() <= MAX_ARGON2_KIB
        && params.t_cost() <= MAX_ARGON2_PASSES
        && params.p_cost() <= MAX_ARGON2_LANES;
    is_affordable
        .then(|| PasswordHash::Argon2id(Box::new(hash)))
        .ok_or(HashError::TooExpensive)
}

fn bcrypt(text: &str) -> Result<PasswordHash, HashError> {
    let parts: bcrypt::HashParts = text.parse().map_err(|_| HashError::Malformed)?;
    match parts.get_cost() {
        0..4 => Err(HashError::Malformed),
        4..=MAX_BCRYPT_COST => Ok(PasswordHash::Bcrypt(text.into())),
        _ => Err(HashError::TooExpensive),
    }
}

fn mosquitto<'a>(fields: impl Iterator<Item = &'a str>) -> Result<PasswordHash, HashError> {
    let [iterations, salt, hash] = exactly(fields)?;
    let hash = Pbkdf2Hash {
        algorithm: pbkdf2::PBKDF2_HMAC_SHA512,
        iterations: iterations_of(iterations)?,
        salt: decode(salt)?,
        hash: decode(hash)?,
    };
    if hash.hash.len() != 64 {
        return Err(HashError::Malformed);
    }
    Ok(PasswordHash::Pbkdf2(Box::new(hash)))
}

fn passlib<'a>(
    algorithm: pbkdf2::Algorithm,
    fields: impl Iterator<Item = &'a str>,
) -> Result<PasswordHash, HashError> {
    let [iterations, salt, hash] = exactly(fields)?;
    let decode = |text: &str| {
        let bytes = STANDARD_NO_PAD.decode(text.replace('.', "+"));
        bytes.map_err(|_| HashError::Malformed)
    };
    let hash = Pbkdf2Hash {
        algorithm,
        iterations: iterations_of(iterations)?,
        salt: decode(salt)?,
        hash: decode(hash)?,
    };
    if hash.salt.is_empty() || !PBKDF2_BYTES.contains(&hash.hash.len()) {
        return Err(HashError::Malformed);
    }
    Ok(PasswordHash::Pbkdf2(Box::new(hash)))
}

/// So many fields and no more.
pub(crate) fn exactly<'a, const COUNT: usize>(
    fields: impl Iterator<Item = &'a str>,
) -> Result<[&'a str; COUNT], HashError> {
    let fields: Vec<&str> = fields.take(COUNT + 1).collect();
    fields.try_into().map_err(|_| HashError::Malformed)
}

/// Rounds of PBKDF2, within the limit.
pub(crate) fn iterations_of(text: &str) -> Result<NonZero<u32>, HashError> {
    let iterations: NonZero<u32> = text.parse().map_err(|_| HashError::Malformed)?;
    if iterations.get() > MAX_PBKDF2_ITERATIONS {
        return Err(HashError::TooExpensive);
    }
    Ok(iterations)
}

/// Bytes from base64; there must be some.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, HashError> {
    let bytes = STANDARD.decode(text).map_err(|_| HashError::Malformed)?;
    if bytes.is_empty() {
        return Err(HashError::Malformed);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
