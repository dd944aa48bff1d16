//! Salted SHA-256 and SHA-512 of passwords: what EMQX stores unless told otherwise, and what Mosquitto stored before 2.0.
//!
//! A guess costs next to nothing, so these are read where an import was told to accept them, and nowhere else. Comparisons take the
//! same time wherever the difference is.
//!
//! ```text
//! $sha256-prefix$SALT$HASH    SHA-256 of the salt and then the password; also sha512-prefix
//! $sha256-suffix$SALT$HASH    SHA-256 of the password and then the salt; also sha512-suffix
//! $6$SALT$HASH                SHA-512 of the password and then the salt, as mosquitto_passwd wrote it
//! ```
//!
//! SALT and HASH are in base64 with padding. The `$6$` of crypt(3) is another format, and malformed here.

use aws_lc_rs::{
    constant_time,
    digest::{self, Context},
};

use crate::password_hash::{HashError, decode, exactly};

pub(crate) struct SaltedSha {
    algorithm: &'static digest::Algorithm,
    is_salt_first: bool,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl SaltedSha {
    /// Whether hashes of this format are salted SHA.
    pub(crate) fn is_format(format: &str) -> bool {
        kind(format).is_some()
    }

    /// Reads what stands behind the format's name.
    pub(crate) fn parse<'a>(
        format: &str,
        fields: impl Iterator<Item = &'a str>,
    ) -> Result<Self, HashError> {
        let (algorithm, is_salt_first) = kind(format).ok_or(HashError::Unknown)?;
        let [salt, hash] = exactly(fields)?;
        let hash = Self {
            algorithm,
            is_salt_first,
            salt: decode(salt)?,
            hash: decode(hash)?,
        };
        if hash.hash.len() != algorithm.output_len() {
            return Err(HashError::Malformed);
        }
        Ok(hash)
    }

    /// Whether this is the password.
    pub(crate) fn fits(&self, password: &[u8]) -> bool {
        let parts = match self.is_salt_first {
            true => [&self.salt, password],
            false => [password, &self.salt],
        };
        let mut context = Context::new(self.algorithm);
        for part in parts {
            context.update(part);
        }
        let shown = context.finish();
        constant_time::verify_slices_are_equal(shown.as_ref(), &self.hash).is_ok()
    }
}

/// The digest of a format, and whether the salt comes before the password.
fn kind(format: &str) -> Option<(&'static digest::Algorithm, bool)> {
    Some(match format {
        "sha256-prefix" => (&digest::SHA256, true),
        "sha256-suffix" => (&digest::SHA256, false),
        "sha512-prefix" => (&digest::SHA512, true),
        "sha512-suffix" | "6" => (&digest::SHA512, false),
        _ => return None,
    })
}
