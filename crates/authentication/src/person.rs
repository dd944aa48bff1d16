//! Passwords of people who use the HTTP API.

use std::sync::LazyLock;

use crate::password_hash::{PasswordHash, hash_by_argon2id};

/// A hash that stands for those of people who are not there.
static DECOY: LazyLock<Option<PasswordHash>> = LazyLock::new(|| {
    let hash = hash_by_argon2id(b"of nobody").ok()?;
    PasswordHash::parse(&hash).ok()
});

/// Whether a password fits a hash as password files have it. `None`: there is no such person; it takes about as long. Costs
/// milliseconds of CPU.
#[must_use]
pub fn fits(hash: Option<&str>, password: &[u8]) -> bool {
    let read = hash.and_then(|hash| PasswordHash::parse(hash).ok());
    let fits = match (&read, &*DECOY) {
        (Some(hash), _) | (None, Some(hash)) => hash.fits(password),
        (None, None) => false,
    };
    fits && read.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_fits_its_hash_only() {
        let hash = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
        assert!(!fits(Some(hash), b"wrong"));
        assert!(!fits(None, b"") && !fits(Some("plain"), b"plain"));
        let own = hash_by_argon2id(b"right").unwrap();
        assert!(fits(Some(&own), b"right") && !fits(Some(&own), b"right "));
    }
}
