//! Classes of clients: which class a client is of, and the limits of each.
//!
//! Deliberately absent: the limits of queues in the stores, which the stores are told ([`store_state::Limits`]).

use mqtt_session::{ClassId, Policy};
use net_api::{Kind, RateGroup, Rates};

use crate::connect::own_clients;
use crate::excerpt::excerpt;
use crate::settings::Settings;

/// What people call the class of clients that match no other.
pub const DEFAULT_CLASS: &str = "device";

/// A class of clients.
#[derive(Clone, Debug)]
pub struct Class {
    /// What stores know it by.
    pub id: ClassId,
    /// What people call it.
    pub name: Box<str>,
    /// Which clients are of it.
    pub matching: ClassMatch,
    /// Its limits.
    pub limits: ClassLimits,
}

/// What holds for the clients of a class.
#[derive(Clone, Debug)]
pub struct ClassLimits {
    /// The rules of sessions.
    pub policy: Policy,
    /// Bytes per second of a connection.
    pub rates: Rates,
    /// PUBLISH packets per second of a connection; 0: no limit.
    pub publishes_per_s: u64,
    /// Bytes of the topic filters of a session.
    pub subscription_bytes: u64,
    /// What queues leave free on the disk.
    pub queue_disk_free: DiskBytes,
}

/// Bytes of a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct DiskBytes(pub u64);

/// Which clients are of a class: all that is not empty must match, each by one of its patterns.
#[derive(Clone, Debug, Default)]
pub struct ClassMatch {
    /// Of the user.
    pub users: Vec<Pattern>,
    /// Of the client identifier.
    pub client_ids: Vec<Pattern>,
    /// Of the name in the certificate.
    pub certificates: Vec<Pattern>,
    /// The kinds of listeners.
    pub listeners: Vec<Kind>,
}

/// Text in which `*` stands for any characters, also none.
#[derive(Clone, Debug)]
pub struct Pattern(Box<str>);

/// A client that is to have a class.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The user that it has authenticated as.
    pub user: Option<&'a str>,
    /// The client identifier.
    pub client_id: &'a str,
    /// The name in its certificate.
    pub certificate: Option<&'a str>,
    /// The kind of the listener that it came by.
    pub listener: Option<Kind>,
}

impl Pattern {
    /// Any text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// In proportion to the lengths of both.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        match self.0.split_once('*') {
            None => *self.0 == *text,
            Some((first, rest)) => text
                .strip_prefix(first)
                .is_some_and(|text| matches_behind_a_star(rest, text)),
        }
    }
}

/// Whether a text ends as a pattern says, of which this stands behind a star.
fn matches_behind_a_star(pattern: &str, text: &str) -> bool {
    let (middle, last) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    let mut parts = middle.split('*');
    let left = parts.try_fold(text, |left, part| Some(left.split_once(part)?.1));
    left.is_some_and(|left| left.ends_with(last))
}

impl ClassMatch {
    /// Whether a client is of the class.
    #[must_use]
    pub fn matches(&self, candidate: &Candidate<'_>) -> bool {
        self.mismatch(candidate).is_none()
    }

    /// The option of the configuration that a client does not match, the first; `None`: it is of the class.
    #[must_use]
    pub fn mismatch(&self, candidate: &Candidate<'_>) -> Option<&'static str> {
        let one_of = |patterns: &[Pattern], text: Option<&str>| {
            let is_matched = |text: &str| patterns.iter().any(|pattern| pattern.matches(text));
            patterns.is_empty() || text.is_some_and(is_matched)
        };
        // One after the other: a client chooses how long its identifier is.
        if !one_of(&self.users, candidate.user) {
            Some("user")
        } else if !one_of(&self.client_ids, Some(candidate.client_id)) {
            Some("clientId")
        } else if !one_of(&self.certificates, candidate.certificate) {
            Some("certificate")
        } else if !self.has_listener(candidate.listener) {
            Some("listener")
        } else {
            None
        }
    }

    fn has_listener(&self, kind: Option<Kind>) -> bool {
        self.listeners.is_empty() || kind.is_some_and(|kind| self.listeners.contains(&kind))
    }
}

impl Settings {
    /// The class of a client: the first that it matches; `None`: the default one.
    #[must_use]
    pub fn class_for(&self, candidate: &Candidate<'_>) -> Option<&Class> {
        let mut classes = self.classes.iter();
        classes.find(|class| class.matching.matches(candidate))
    }

    /// A class by its name.
    #[must_use]
    pub fn class_named(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| *class.name == *name)
    }

    /// A class by its number; `None`: the default one, or one that is not configured any more.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        let mut classes = self.classes.iter();
        // Most clients have none.
        (!id.is_default()).then(|| classes.find(|class| class.id == id))?
    }

    /// The rates of the groups that [`Self::rate_group`] names: of each class, and behind them those of the broker's own connections,
    /// which have no limit. What goes through these was limited where it came from, or is by the outlet's target.
    pub(crate) fn group_rates(&self) -> Vec<Rates> {
        let classes = self.classes.iter().map(|class| class.limits.rates);
        classes.chain([Rates::default()]).collect()
    }

    /// The group of a client's connection among those that loops have rates for. `id`: of its class.
    pub(crate) fn rate_group(&self, client_id: &str, id: ClassId) -> RateGroup {
        if own_clients::is_outlet(client_id) {
            return RateGroup(u8::try_from(self.classes.len() + 1).unwrap_or_default());
        }
        let mut classes = self.classes.iter();
        let place = (!id.is_default()).then(|| classes.position(|class| class.id == id));
        // There are 32 classes at most.
        let number = place
            .flatten()
            .and_then(|place| u8::try_from(place + 1).ok());
        RateGroup(number.unwrap_or_default())
    }

    /// The limits of the clients of a class.
    #[must_use]
    pub fn limits_of(&self, id: ClassId) -> &ClassLimits {
        self.class(id).map_or(&self.limits, |class| &class.limits)
    }

    /// The rules of the sessions of a class.
    #[must_use]
    pub fn policy_of(&self, id: ClassId) -> &Policy {
        &self.limits_of(id).policy
    }
}

/// The class of a client that has logged in: the one that its login names, or the first that it matches. Of a name that no class
/// has, the log says so, if `line` gives it a line: how many were left out before.
pub(crate) fn class_of_login(
    settings: &Settings,
    named: Option<&str>,
    candidate: &Candidate<'_>,
    line: impl FnOnce() -> Option<u64>,
) -> ClassId {
    let by_name = named.and_then(|name| settings.class_named(name));
    let is_default = named == Some(DEFAULT_CLASS);
    if let Some(class) = named.filter(|_| by_name.is_none() && !is_default)
        && let Some(left_out) = line()
    {
        tracing::warn!(
            client_id = &*excerpt(candidate.client_id),
            class = &*excerpt(class),
            left_out,
            "a login names a class that the configuration does not have; the client gets the class that it matches"
        );
    }
    let class = match is_default {
        true => None,
        false => by_name.or_else(|| settings.class_for(candidate)),
    };
    class.map_or(ClassId::DEFAULT, |class| class.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_class_is_called_as_in_the_configuration() {
        assert_eq!(DEFAULT_CLASS, config::DEFAULT_CLASS);
    }

    #[test]
    fn the_broker_s_own_connections_have_no_rates_of_a_class() {
        let mut settings = crate::tests::world::settings();
        let rate = net_api::BytesPerSecond(7);
        settings.limits.rates.bytes_in = rate;
        let limits = settings.limits.clone();
        settings.classes.push(Class {
            id: ClassId::of("outlets"),
            name: "outlets".into(),
            matching: ClassMatch::default(),
            limits,
        });
        let rates_of = |client_id: &str| {
            let group = settings.rate_group(client_id, ClassId::of("outlets"));
            let place = usize::from(group.0).checked_sub(1);
            place.and_then(|place| settings.group_rates().get(place).copied())
        };
        assert_eq!(rates_of("device").map(|of| of.bytes_in), Some(rate));
        assert_eq!(rates_of("$outlet/site/in"), Some(Rates::default()));
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, matching, others) in [
            ("", &[""][..], &["a"][..]),
            ("a", &["a"], &["", "A", "aa"]),
            ("*", &["", "a", "a*b"], &[]),
            ("a*", &["a", "ab", "a*"], &["", "ba"]),
            ("*a", &["a", "ba", "aa"], &["", "ab"]),
            ("a*a", &["aa", "aba", "aaa"], &["a", "ab", "ba"]),
            ("*-b-*", &["-b-", "a-b-c", "-b--b-"], &["-b", "b-", "a-bc-"]),
            (
                "a*b*c*d",
                &["abcd", "a1b2c3d", "abbccd"],
                &["acbd", "abc", "abcdx"],
            ),
            ("ab*ba", &["abba"], &["aba"]),
            ("a**b", &["ab", "axb"], &["a"]),
            ("ü*", &["über"], &["u"]),
        ] {
            let is_matched = |text: &&str| Pattern::new(pattern).matches(text);
            assert!(matching.iter().all(is_matched), "{pattern}");
            assert!(!others.iter().any(is_matched), "{pattern}");
        }
        // Not in proportion to the product of the lengths.
        let pattern = Pattern::new(&"a*".repeat(20_000));
        assert!(!pattern.matches(&("a".repeat(19_999) + &"b".repeat(40_000))));
    }

    #[test]
    fn all_that_is_given_must_match() {
        let patterns = |all: &[&str]| all.iter().map(|text| Pattern::new(text)).collect();
        let matching = ClassMatch {
            users: patterns(&["app-*", "root"]),
            client_ids: patterns(&["*-sub"]),
            certificates: Vec::new(),
            listeners: vec![Kind::Tls, Kind::Wss],
        };
        let candidate = Candidate {
            user: Some("app-7"),
            client_id: "x-sub",
            certificate: None,
            listener: Some(Kind::Tls),
        };
        assert!(matching.matches(&candidate));
        for other in [
            Candidate {
                user: None,
                ..candidate
            },
            Candidate {
                user: Some("ap"),
                ..candidate
            },
            Candidate {
                client_id: "x-pub",
                ..candidate
            },
            Candidate {
                listener: Some(Kind::Tcp),
                ..candidate
            },
            Candidate {
                listener: None,
                ..candidate
            },
        ] {
            assert!(!matching.matches(&other), "{other:?}");
        }
        let user = Some("root");
        assert!(matching.matches(&Candidate { user, ..candidate }));
        assert!(ClassMatch::default().matches(&candidate));
    }
}
