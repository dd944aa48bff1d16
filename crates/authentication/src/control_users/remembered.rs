//! Passwords that were verified, so that a client that comes again costs no slow hash.
//!
//! Invariants: what was verified is kept only as a hash under a key of the process, from which nobody guesses a password
//! without the key. It counts for one revision of a user: whatever changes in the user, the password is checked anew.

use std::fmt;
use std::time::{Duration, Instant};

use authentication_api::Secret;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use aws_lc_rs::rand::SystemRandom;
use control::Revision;
use quick_cache::sync::Cache;

/// Verified passwords that are remembered; beyond that those that are asked for least are forgotten. Each takes about 64
/// bytes.
const MOST: usize = 100_000;

/// How long.
const LIFETIME: Duration = Duration::from_secs(3_600);

/// What stands for a user and a password.
pub(super) type Fingerprint = [u8; 32];

/// A limited number of verified passwords.
pub(super) struct Remembered {
    key: Key,
    verified: Cache<Fingerprint, Instant>,
}

impl Remembered {
    /// # Errors
    /// The operating system gives no random numbers.
    pub(super) fn new() -> Result<Self, String> {
        let key = Key::generate(HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the operating system gives no random numbers".to_owned())?;
        Ok(Self {
            key,
            verified: Cache::new(MOST),
        })
    }

    /// A hash of the revision of a user and a password; the same for no two that differ.
    pub(super) fn fingerprint(&self, name: &str, of: Revision, password: &Secret) -> Fingerprint {
        let Revision(revision) = of;
        let mut hash = Context::with_key(&self.key);
        // The length keeps the name and the password apart.
        hash.update(&(name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
        hash.update(&revision.to_be_bytes());
        hash.update(password.bytes());
        let mut fingerprint = Fingerprint::default();
        fingerprint.copy_from_slice(hash.sign().as_ref());
        fingerprint
    }

    /// Whether a password was verified within the hour.
    pub(super) fn has(&self, fingerprint: &Fingerprint, now: Instant) -> bool {
        let verified_at = self.verified.get(fingerprint);
        verified_at.is_some_and(|at| now.saturating_duration_since(at) < LIFETIME)
    }

    /// A password was verified.
    pub(super) fn add(&self, fingerprint: Fingerprint, now: Instant) {
        self.verified.insert(fingerprint, now);
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remembered({})", self.verified.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_remembered_for_one_revision_of_one_user_and_an_hour() {
        let remembered = Remembered::new().unwrap();
        let secret = |text: &str| Secret::new(text.as_bytes());
        let verified = remembered.fingerprint("ann", Revision(3), &secret("s"));
        let start = Instant::now();
        remembered.add(verified, start);
        assert!(remembered.has(&verified, start + LIFETIME - Duration::from_secs(1)));
        assert!(!remembered.has(&verified, start + LIFETIME));
        for (name, revision, password) in [
            ("ann", 4, "s"),
            ("ann", 3, "S"),
            ("an", 3, "s"),
            ("anns", 3, ""),
        ] {
            let other = remembered.fingerprint(name, Revision(revision), &secret(password));
            assert!(
                !remembered.has(&other, start),
                "{name} {revision} {password}"
            );
        }
    }

    #[test]
    fn no_more_are_remembered_than_there_may_be() {
        let remembered = Remembered::new().unwrap();
        let start = Instant::now();
        for number in 0..2 * MOST as u64 {
            let mut fingerprint = Fingerprint::default();
            fingerprint[..8].copy_from_slice(&number.to_be_bytes());
            remembered.add(fingerprint, start);
        }
        assert!(remembered.verified.len() <= MOST);
    }
}
