//! Sessions of people who have logged in with a user name and a password, on the node where they did.
//!
//! Invariant: a session ends 30 min after the last request, 12 h after the login, at the logout, and when its user has no role any
//! more. Of the token, which is in the browser's cookie, only the hash is kept.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use control::Revision;

use super::Role;
use super::standing::PersonStanding;
use crate::api::At;
use crate::cluster::NodeId;

/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How long a session lasts.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions of a node, and of one user on it. Further ones end those that were used longest ago.
///
/// Limit: sessions of people at a node; logins that are checked or wait; answers about sessions of other nodes | {},
/// {SESSIONS_OF_USER} of a user; {LOGINS}, {LOGINS_OF_ADDRESS} of an address, one at a time; {gate::MOST_REMEMBERED}
/// for {gate::REMEMBERED} | the one used longest ago ends; 429; asked again
const SESSIONS: usize = 1_024;
const SESSIONS_OF_USER: usize = 16;

/// Bytes of a secret.
const SECRET: usize = 32;

/// The people of `http.userFile` who may log in.
pub trait People: fmt::Debug + Send + Sync + 'static {
    /// The role of a user; `None`: there is no such user.
    fn role(&self, user: &str) -> Option<Role>;

    /// All of them, in the order of their names.
    fn all(&self) -> Vec<(String, Role)>;

    /// Whether this is the password of the user. Takes as long for a user who does not exist; it costs milliseconds of CPU.
    fn has_password(&self, user: &str, password: &[u8]) -> bool;
}

/// What a browser shows: the node that knows the session, and a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionToken {
    pub(crate) node: NodeId,
    pub(crate) hash: TokenHash,
}

/// What a session is found by: SHA-256 of its token in base64url.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TokenHash(String);

impl SessionToken {
    /// `None`: it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (node, secret) = text.split_once('-')?;
        let is_secret = URL_SAFE_NO_PAD.decode(secret).ok()?.len() == SECRET;
        let node = node.parse().ok()?;
        is_secret.then(|| Self {
            node,
            hash: TokenHash::of(text),
        })
    }
}

impl TokenHash {
    fn of(text: &str) -> Self {
        Self(URL_SAFE_NO_PAD.encode(Sha256::digest(text)))
    }
}

impl From<String> for TokenHash {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hash.0
    }
}

/// A session, as other nodes are told of it.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSession {
    /// Who has logged in.
    pub user: String,
    /// What the user may do now.
    pub role: Role,
    /// What a request that changes something shows beside the cookie.
    pub csrf_token: String,
    /// When it ends, whatever is done.
    pub ends_at: At,
}

impl fmt::Debug for LoginSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSession")
            .field("user", &self.user)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// A session that has begun.
pub(crate) struct Begun {
    pub(crate) token: Zeroizing<String>,
    pub(crate) session: LoginSession,
}

/// The sessions of a node.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<TokenHash, Entry>>);

struct Entry {
    user: String,
    /// What the person's record said at the login: it ends the session if it says something else.
    since: Revision,
    csrf_token: String,
    begun: Instant,
    used: Instant,
    ends_at: At,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

impl Entry {
    fn has_ended(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= IDLE || now.duration_since(self.begun) >= LONGEST
    }
}

impl Sessions {
    /// Begins one on this node.
    pub(crate) fn begin(
        &self,
        node: NodeId,
        user: &str,
        standing: PersonStanding,
        now: Instant,
    ) -> Begun {
        let PersonStanding { role, since, .. } = standing;
        let secret = Zeroizing::new(rand::random::<[u8; SECRET]>());
        let token = format!("{node}-{}", URL_SAFE_NO_PAD.encode(*secret));
        let token = Zeroizing::new(token);
        let csrf_token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; SECRET]>());
        let ends = SystemTime::now() + LONGEST;
        let ends = ends.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ends_at = At::unix_ms(u64::try_from(ends.as_millis()).unwrap_or(u64::MAX));
        let mut table = self.0.lock();
        table.retain(|_, entry| !entry.has_ended(now));
        let oldest = |table: &HashMap<TokenHash, Entry>, is_in: &dyn Fn(&Entry) -> bool| {
            let of = table.iter().filter(|(_, entry)| is_in(entry));
            of.min_by_key(|(_, entry)| entry.used)
                .map(|(hash, _)| hash.clone())
        };
        let is_own = |entry: &Entry| entry.user == user;
        let own = table.values().filter(|entry| is_own(entry)).count();
        let replaced = match (own >= SESSIONS_OF_USER, table.len() >= SESSIONS) {
            (true, _) => oldest(&table, &is_own),
            (false, true) => oldest(&table, &|_| true),
            (false, false) => None,
        };
        if let Some(hash) = replaced {
            table.remove(&hash);
        }
        let entry = Entry {
            user: user.to_owned(),
            since,
            csrf_token: csrf_token.clone(),
            begun: now,
            used: now,
            ends_at: ends_at.clone(),
        };
        table.insert(TokenHash::of(&token), entry);
        let user = user.to_owned();
        Begun {
            token,
            session: LoginSession {
                user,
                role,
                csrf_token,
                ends_at,
            },
        }
    }

    /// The session, if it goes on. `is_use`: somebody uses it now.
    pub(crate) fn find(
        &self,
        hash: &TokenHash,
        is_use: bool,
        person: impl FnOnce(&str) -> Option<PersonStanding>,
        now: Instant,
    ) -> Option<LoginSession> {
        let mut table = self.0.lock();
        let entry = table.get_mut(hash)?;
        let standing = person(&entry.user);
        let counts = |of: &PersonStanding| of.since == entry.since && !entry.has_ended(now);
        let Some(PersonStanding { role, .. }) = standing.filter(counts) else {
            table.remove(hash);
            return None;
        };
        if is_use {
            entry.used = now;
        }
        Some(LoginSession {
            user: entry.user.clone(),
            role,
            csrf_token: entry.csrf_token.clone(),
            ends_at: entry.ends_at.clone(),
        })
    }

    /// Ends one.
    pub(crate) fn end(&self, hash: &TokenHash) {
        self.0.lock().remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Source;

    fn operator(since: u64) -> PersonStanding {
        PersonStanding {
            role: Role::Operator,
            audits: false,
            must_change: false,
            since: Revision(since),
            source: Source::Store,
        }
    }

    fn known(user: &str) -> Option<PersonStanding> {
        ["anna", "ben"].contains(&user).then(|| operator(7))
    }

    fn hash(begun: &Begun) -> TokenHash {
        SessionToken::parse(&begun.token).unwrap().hash
    }

    #[test]
    fn a_session_ends_by_idleness_by_age_by_logout_and_with_its_user() {
        let start = Instant::now();
        let minutes = |count: u64| start + Duration::from_secs(60 * count);
        let sessions = Sessions::default();
        let begin = |user| sessions.begin(NodeId(42), user, operator(7), start);
        let found =
            |begun: &Begun, is_use, now| sessions.find(&hash(begun), is_use, known, now).is_some();
        let (idle, used, ended, gone) = (begin("anna"), begin("anna"), begin("ben"), begin("carl"));
        assert!(idle.token.starts_with("000000000000002a-"));
        assert_eq!(idle.session.role, Role::Operator);
        // Whoever only looks does not use it.
        assert!(found(&idle, false, minutes(29)));
        assert!(!found(&idle, false, minutes(30)));
        assert!(!found(&idle, false, minutes(29)));
        for quarter in 1..48 {
            assert!(found(&used, true, minutes(15 * quarter)), "{quarter}");
        }
        assert!(!found(&used, true, minutes(12 * 60)));
        assert!(found(&ended, true, start));
        sessions.end(&hash(&ended));
        assert!(!found(&ended, true, start));
        assert!(!found(&gone, true, start));
        let other = begin("anna");
        assert_eq!(sessions.find(&hash(&other), true, |_| None, start), None);
        // Another password ends what was begun before.
        let other = begin("anna");
        let changed = |_: &str| Some(operator(8));
        assert_eq!(sessions.find(&hash(&other), true, changed, start), None);
        assert!(!found(&other, true, start));
    }

    #[test]
    fn one_user_has_no_place_of_others_and_a_node_has_so_many() {
        let start = Instant::now();
        let sessions = Sessions::default();
        let other = sessions.begin(NodeId(1), "ben", operator(7), start);
        let mut of_anna = Vec::new();
        for number in 0..=SESSIONS_OF_USER as u64 {
            let now = start + Duration::from_secs(number);
            of_anna.push(sessions.begin(NodeId(1), "anna", operator(7), now));
        }
        let found = |begun: &Begun| sessions.find(&hash(begun), false, known, start).is_some();
        assert!(found(&other) && !found(&of_anna[0]) && found(&of_anna[1]));
        for number in 0..SESSIONS {
            let now = start + Duration::from_secs(100);
            sessions.begin(NodeId(1), &number.to_string(), operator(7), now);
        }
        assert_eq!(sessions.0.lock().len(), SESSIONS);
        assert!(!found(&other));
    }

    #[test]
    fn what_is_no_token_is_asked_of_nobody() {
        let begun = Sessions::default().begin(NodeId(7), "a", operator(0), Instant::now());
        let secret = begun.token.split_once('-').unwrap().1;
        assert_eq!(SessionToken::parse(&begun.token).unwrap().node, NodeId(7));
        for text in [
            "",
            "-",
            "7",
            "7-",
            "7-abc",
            &format!("x-{secret}"),
            &format!("7-{secret}A"),
        ] {
            assert_eq!(SessionToken::parse(text), None, "{text}");
        }
    }
}
