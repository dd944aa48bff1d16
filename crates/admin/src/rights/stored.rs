//! People and keys of the control store, as this node has them.
//!
//! Invariant: nobody is let in by a copy that may be of before the node's start, or that is too old by the configuration.

use std::time::{SystemTime, UNIX_EPOCH};

use control::{ApiKey, Hash, KeySecret, UnixMs};
use control_view::{Standing, View};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::keys::split;
use super::standing::{PersonStanding, Source};
use super::{KeyId, Role};

/// What a key is good for.
pub(super) struct Found {
    pub(super) id: KeyId,
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) audits: bool,
}

/// Whether the view may let somebody in.
pub(super) fn is_usable(view: &View) -> bool {
    view.standing() == Standing::Confirmed && !view.is_refused()
}

/// Whose a shown key is. How long that takes does not depend on the secret.
pub(super) fn key(view: &View, shown: &str, now: SystemTime) -> Option<Found> {
    let (id, secret) = split(shown)?;
    let key = view.key(id.number())?;
    let now = unix_ms(now);
    is_good(&key.record, secret, now).then(|| Found {
        id,
        name: key.record.name.to_string(),
        role: key.record.role.into(),
        audits: key.record.audits,
    })
}

fn is_good(key: &ApiKey, secret: &str, now: UnixMs) -> bool {
    let shown: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
    let is_of = |of: &KeySecret| {
        let Hash(sha256) = &of.sha256;
        let has_ended = of.ends_ms.is_some_and(|ends| ends <= now);
        bool::from(sha256.ct_eq(&shown)) && !has_ended
    };
    !key.has_ended(now) && key.secrets.iter().any(is_of)
}

/// What a person may do; `None`: there is none of this name who can log in.
pub(super) fn person(view: &View, name: &str) -> Option<PersonStanding> {
    let person = view.person(name)?;
    person.record.enabled.then(|| PersonStanding {
        role: person.record.role.into(),
        audits: person.record.audits,
        must_change: person.record.must_change,
        since: person.record.logins_since,
        source: Source::Store,
    })
}

pub(crate) fn unix_ms(time: SystemTime) -> UnixMs {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_good_until_its_end_and_that_of_its_key() {
        let secret = |text: &str, ends: Option<u64>| KeySecret {
            sha256: Hash(Sha256::digest(text.as_bytes()).into()),
            ends_ms: ends.map(UnixMs),
        };
        let key = |ends: Option<u64>| ApiKey {
            name: "ci".into(),
            role: control::Role::Viewer,
            audits: false,
            created_ms: UnixMs(1),
            ends_ms: ends.map(UnixMs),
            secrets: [secret("new", None), secret("old", Some(50))].into(),
        };
        let good = |ends, shown, now| is_good(&key(ends), shown, UnixMs(now));
        assert!(good(None, "new", 99) && good(None, "old", 49));
        assert!(!good(None, "old", 50) && !good(None, "other", 1));
        assert!(good(Some(60), "new", 59) && !good(Some(60), "new", 60));
    }
}
