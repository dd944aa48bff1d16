//! Answers that are remembered.
//!
//! Invariant: what was asked is kept only as a keyed hash, from which nobody guesses a password without
//! the key.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use aws_lc_rs::rand::SystemRandom;
use quick_cache::sync;
use tokio::time::Instant;

use super::answer::{Answer, Reply};
use authentication_api::Credentials;

/// A limited number of answers. Beyond it those that are asked for least are forgotten.
pub(super) struct Cache {
    key: Key,
    lifetime: Duration,
    answers: sync::Cache<Fingerprint, Remembered>,
}

/// What stands for credentials.
pub(super) type Fingerprint = [u8; 32];

#[derive(Clone)]
struct Remembered {
    answer: Answer,
    until: Instant,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache of {} answers", self.answers.len())
    }
}

impl Cache {
    /// Remembers so many answers, none for longer than `lifetime`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(capacity: usize, lifetime: Duration) -> Result<Self, String> {
        let key = Key::generate(HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(Self {
            key,
            lifetime,
            answers: sync::Cache::new(capacity),
        })
    }

    /// A hash of all that the server is told; the same for no two logins that differ.
    pub(super) fn fingerprint(&self, credentials: &Credentials) -> Fingerprint {
        let address = credentials.address.map(|address| address.to_string());
        let fields = [
            Some(credentials.client_id.as_bytes()),
            credentials.username.as_deref().map(str::as_bytes),
            credentials
                .password
                .as_ref()
                .map(|password| password.bytes()),
            address.as_deref().map(str::as_bytes),
        ];
        let mut hash = Context::with_key(&self.key);
        for field in fields {
            // The length keeps fields apart; none is not the same as empty.
            let length = field.map_or(u64::MAX, |field| field.len() as u64);
            hash.update(&length.to_be_bytes());
            hash.update(field.unwrap_or_default());
        }
        let mut fingerprint = Fingerprint::default();
        fingerprint.copy_from_slice(hash.sign().as_ref());
        fingerprint
    }

    pub(super) fn get(&self, fingerprint: &Fingerprint, now: Instant) -> Option<Answer> {
        let remembered = self.answers.get(fingerprint)?;
        (now < remembered.until).then_some(remembered.answer)
    }

    /// Remembers an answer for as long as both sides allow.
    pub(super) fn insert(&self, fingerprint: Fingerprint, reply: &Reply, now: Instant) {
        let lifetime = reply.lifetime.unwrap_or(Duration::MAX).min(self.lifetime);
        if let Some(until) = now.checked_add(lifetime)
            && until > now
        {
            let answer = reply.answer.clone();
            self.answers
                .insert(fingerprint, Remembered { answer, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Answer, Cache, Reply};
    use authentication_api::{Credentials, Secret};

    const LIFETIME: Duration = Duration::from_secs(60);

    fn credentials(client_id: &str, username: Option<&str>, password: Option<&str>) -> Credentials {
        Credentials {
            client_id: client_id.into(),
            username: username.map(Into::into),
            password: password.map(|password| Secret::new(password.as_bytes())),
            address: None,
            certificate_name: None,
        }
    }

    fn deny(lifetime: Option<Duration>) -> Reply {
        Reply {
            answer: Answer::Deny,
            lifetime,
        }
    }

    #[test]
    fn the_server_can_say_less_but_not_more() {
        let cache = Cache::new(10, LIFETIME).unwrap();
        let now = Instant::now();
        let [short, none, long] = ["short", "none", "long"]
            .map(|client_id| cache.fingerprint(&credentials(client_id, None, None)));
        cache.insert(short, &deny(Some(LIFETIME / 2)), now);
        cache.insert(none, &deny(Some(Duration::ZERO)), now);
        cache.insert(long, &deny(Some(LIFETIME * 2)), now);
        assert_eq!(cache.answers.len(), 2);
        assert!(cache.get(&short, now).is_some());
        assert!(cache.get(&short, now + LIFETIME / 2).is_none());
        assert!(cache.get(&none, now).is_none());
        assert!(cache.get(&long, now + LIFETIME).is_none());
    }

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let cache = Cache::new(10, LIFETIME).unwrap();
        let now = Instant::now();
        let asked = cache.fingerprint(&credentials("c", Some("u"), Some("p")));
        assert!(cache.get(&asked, now).is_none());
        cache.insert(asked, &deny(None), now);
        let just_before = now + LIFETIME - Duration::from_millis(1);
        assert!(matches!(cache.get(&asked, just_before), Some(Answer::Deny)));
        assert!(cache.get(&asked, now + LIFETIME).is_none());
    }

    #[test]
    fn logins_that_differ_are_told_apart() {
        let cache = Cache::new(10, LIFETIME).unwrap();
        let mut other_address = credentials("c", Some("u"), Some("p"));
        other_address.address = Some("192.0.2.1".parse().unwrap());
        let different = [
            credentials("c", Some("u"), Some("p")),
            credentials("c", Some("u"), Some("q")),
            credentials("c", Some("u"), Some("")),
            credentials("c", Some("u"), None),
            credentials("c", Some("up"), Some("")),
            credentials("c", None, Some("p")),
            credentials("cu", Some(""), Some("p")),
            other_address,
        ]
        .map(|credentials| cache.fingerprint(&credentials));
        for (index, one) in different.iter().enumerate() {
            assert!(!different[index + 1..].contains(one), "{index}");
        }
        let again = cache.fingerprint(&credentials("c", Some("u"), Some("p")));
        assert_eq!(again, different[0]);
        let elsewhere = Cache::new(10, LIFETIME).unwrap();
        let keyed_otherwise = elsewhere.fingerprint(&credentials("c", Some("u"), Some("p")));
        assert_ne!(keyed_otherwise, different[0]);
    }

    #[test]
    fn it_forgets_what_is_too_much() {
        let cache = Cache::new(10, LIFETIME).unwrap();
        let now = Instant::now();
        for number in 0..1_000 {
            let asked = cache.fingerprint(&credentials(&number.to_string(), None, None));
            cache.insert(asked, &deny(None), now);
        }
        assert!(cache.answers.len() <= 10);
    }
}
