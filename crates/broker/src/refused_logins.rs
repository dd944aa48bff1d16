//! Who was not let in on this node, and why, for people who look for the cause.
//!
//! Bounded: [`ADDRESSES`] addresses with [`ROWS`] combinations of user name and cause each, the least recently seen forgotten;
//! texts that strangers choose are cut to [`TEXT`] bytes. Whoever tries many names pushes out names of his own address only.

use std::fmt::{self, Write as _};
use std::num::NonZero;

use broker_core::{Cause, RefusedLogin};
use config::Network;
use lru::LruCache;
use mqtt_session::Timestamp;
use net_api::Kind;
use parking_lot::Mutex;

/// Addresses that are remembered.
const ADDRESSES: NonZero<usize> = NonZero::new(256).expect("not zero");

/// Combinations of user name and cause of one address that are remembered.
const ROWS: NonZero<usize> = NonZero::new(32).expect("not zero");

/// Bytes of a text that are kept.
const TEXT: usize = 128;

/// The length of the prefix of an IPv6 network that counts as one address.
const V6_PREFIX: u8 = 64;

/// Refused logins of an address and a user name with the same cause.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Refused {
    /// `None`: a Unix socket, or it is not known.
    pub(crate) address: Option<Network>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) why: Why,
    pub(crate) last: Last,
}

/// Why, and where the API or a listener of MQTT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// A client of MQTT.
    Mqtt(Cause),
    /// A person who logs in to the API.
    Http(HttpCause),
}

/// Why a person is not let in to the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HttpCause {
    UnknownUser,
    WrongPassword,
    Banned,
    FailedLogins,
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times(pub(crate) u64);

/// How often, and what was seen last.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Last {
    pub(crate) times: Times,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) client_id: Option<Box<str>>,
    pub(crate) listener: Option<Kind>,
    pub(crate) detail: Option<Box<str>>,
}

/// A user name and a cause.
type Combination = (Option<Box<str>>, &'static str);

type OfAddress = LruCache<Combination, (Why, Last)>;

/// Those that were refused last.
#[derive(Debug)]
pub(crate) struct RefusedLogins(Mutex<LruCache<Option<Network>, OfAddress>>);

impl Default for RefusedLogins {
    fn default() -> Self {
        Self(Mutex::new(LruCache::sparse(ADDRESSES)))
    }
}

impl RefusedLogins {
    /// A client was not let in, at a time in ms of Unix time.
    pub(crate) fn handle_client(&self, refused: &RefusedLogin<'_>, at_ms: u64) {
        let ip = refused.peer.and_then(|peer| peer.ip());
        self.add(
            ip.map(|ip| Network::around(ip, V6_PREFIX)),
            refused.user,
            Why::Mqtt(refused.cause),
            Last {
                times: Times(0),
                first: Timestamp(at_ms),
                last: Timestamp(at_ms),
                client_id: refused.client_id.map(cut),
                listener: refused.listener,
                detail: refused.detail.map(cut_display),
            },
        );
    }

    /// A person was not let in to the API, at a time in ms of Unix time.
    pub(crate) fn handle_person(
        &self,
        ip: Option<std::net::IpAddr>,
        user: &str,
        cause: HttpCause,
        at_ms: u64,
    ) {
        self.add(
            ip.map(|ip| Network::around(ip, V6_PREFIX)),
            Some(user),
            Why::Http(cause),
            Last {
                times: Times(0),
                first: Timestamp(at_ms),
                last: Timestamp(at_ms),
                client_id: None,
                listener: None,
                detail: None,
            },
        );
    }

    fn add(&self, address: Option<Network>, user: Option<&str>, why: Why, seen: Last) {
        let mut addresses = self.0.lock();
        let of = addresses.get_or_insert_mut(address, || LruCache::sparse(ROWS));
        let key = (user.map(cut), why.as_str());
        let (_, known) = of.get_or_insert_mut(key, || (why, seen.clone()));
        *known = Last {
            times: Times(known.times.0 + 1),
            first: known.first,
            ..seen
        };
    }

    /// The latest ones first.
    pub(crate) fn latest(&self, limit: usize) -> Vec<Refused> {
        let mut rows: Vec<Refused> = Vec::new();
        for (address, of) in &*self.0.lock() {
            rows.extend(of.iter().map(|((user, _), (why, last))| Refused {
                address: *address,
                user: user.clone(),
                why: *why,
                last: last.clone(),
            }));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.last.last));
        rows.truncate(limit);
        rows
    }
}

#[cfg(test)]
impl HttpCause {
    const ALL: [Self; 4] = [
        Self::UnknownUser,
        Self::WrongPassword,
        Self::Banned,
        Self::FailedLogins,
    ];
}

impl Why {
    /// The cause's name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Mqtt(cause) => cause.as_str(),
            Self::Http(HttpCause::UnknownUser) => "api_unknown_user",
            Self::Http(HttpCause::WrongPassword) => "api_wrong_password",
            Self::Http(HttpCause::Banned) => "api_banned",
            Self::Http(HttpCause::FailedLogins) => "api_failed_logins",
        }
    }

    /// The cause as a sentence.
    pub(crate) fn explanation(self) -> &'static str {
        match self {
            Self::Mqtt(cause) => cause.explanation(),
            Self::Http(HttpCause::UnknownUser) => {
                "HTTP API or dashboard: there is no such person, neither in the store nor in http.userFile, or the person is disabled."
            }
            Self::Http(HttpCause::WrongPassword) => {
                "HTTP API or dashboard: the user exists, and the password is a different one."
            }
            Self::Http(HttpCause::Banned) => {
                "HTTP API or dashboard: the address or the user is banned."
            }
            Self::Http(HttpCause::FailedLogins) => {
                "HTTP API or dashboard: the password was not checked, because too many logins have failed before (abuse.failedLogins)."
            }
        }
    }
}

/// The beginning of a text that a stranger has chosen.
fn cut(text: &str) -> Box<str> {
    let end = text.floor_char_boundary(TEXT);
    text.get(..end).unwrap_or_default().into()
}

/// The same of something that is written.
fn cut_display(text: &dyn fmt::Display) -> Box<str> {
    let mut kept = Beginning(String::new());
    // It fails when there is enough.
    let _ = write!(kept, "{text}");
    kept.0.into()
}

struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT - self.0.len();
        let end = text.floor_char_boundary(room);
        self.0.push_str(text.get(..end).unwrap_or_default());
        if end < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use guard::Refusal;
    use net_api::PeerAddress;

    use super::*;

    fn login<'a>(ip: impl Into<IpAddr>, user: &'a str, cause: Cause) -> RefusedLogin<'a> {
        RefusedLogin {
            client_id: Some("c"),
            user: Some(user),
            peer: Some(PeerAddress::Ip((ip.into(), 5).into())),
            listener: Some(Kind::Tcp),
            cause,
            detail: None,
        }
    }

    fn address(number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + number)
    }

    #[test]
    fn the_same_cause_is_counted_and_another_has_a_row_of_its_own() {
        let logins = RefusedLogins::default();
        let banned = Cause::Guard(Refusal::Banned);
        logins.handle_client(&login(address(1), "ann", banned), 5);
        logins.handle_client(&login(address(1), "ann", Cause::Store), 6);
        let detail = "x".repeat(500);
        let again = RefusedLogin {
            client_id: Some("d"),
            detail: Some(&detail),
            ..login(address(1), "ann", banned)
        };
        logins.handle_client(&again, 7);
        let rows = logins.latest(9);
        assert_eq!(rows.len(), 2);
        let last = Last {
            times: Times(2),
            first: Timestamp(5),
            last: Timestamp(7),
            client_id: Some("d".into()),
            listener: Some(Kind::Tcp),
            detail: Some(detail[..TEXT].into()),
        };
        assert_eq!((rows[0].why, &rows[0].last), (Why::Mqtt(banned), &last));
        assert_eq!(rows[1].why, Why::Mqtt(Cause::Store));
        assert_eq!(logins.latest(1), rows[..1]);
    }

    #[test]
    fn the_docs_have_each_cause_with_its_explanation() {
        let docs = include_str!("../../../docs/operate/security.md").replace('`', "");
        let mqtt = Cause::ALL.map(Why::Mqtt);
        for why in mqtt.into_iter().chain(HttpCause::ALL.map(Why::Http)) {
            let row = format!("| {} | {} |", why.as_str(), why.explanation());
            assert!(docs.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let logins = RefusedLogins::default();
        for host in 0..100 {
            let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host);
            logins.handle_client(&login(ip, "ann", Cause::Memory), 1);
        }
        assert_eq!(logins.latest(9).len(), 1);
    }

    #[test]
    fn what_strangers_choose_is_bounded() {
        let logins = RefusedLogins::default();
        for number in 0..1_000 {
            let name = format!("é{number}").repeat(200);
            logins.handle_client(&login(address(0), &name, Cause::Memory), 1);
            logins.handle_client(&login(address(number), "x", Cause::Memory), 2);
        }
        let rows = logins.latest(usize::MAX);
        let of_first = Network::around(address(0).into(), V6_PREFIX);
        let names = rows.iter().filter(|row| row.address == Some(of_first));
        assert_eq!(names.count(), ROWS.get());
        assert_eq!(rows.len(), ADDRESSES.get() - 1 + ROWS.get());
        let longest = rows.iter().filter_map(|row| row.user.as_deref());
        assert!(longest.map(str::len).max() <= Some(TEXT));
    }
}
