//! Who fails to log in, for people who look for the cause.
//!
//! Bounded: [`ADDRESSES`] addresses with [`USERS`] user names each, the least recently seen forgotten; names are cut
//! to [`NAME`] bytes. Only failures are written down, so logins that succeed pay nothing for it.

use std::num::NonZero;

use config::Network;
use lru::LruCache;
use parking_lot::Mutex;

use crate::slow_start::Logins;

/// Addresses that are remembered.
///
/// Limit: addresses and user names that people see failing | {} addresses, {USERS} names each | the least recently
/// seen are forgotten
const ADDRESSES: NonZero<usize> = NonZero::new(256).expect("not zero");

/// User names of one address that are remembered.
const USERS: NonZero<usize> = NonZero::new(16).expect("not zero");

/// Bytes of a user name that are kept.
const NAME: usize = 128;

/// An address whose logins have failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailingAddress {
    /// The address; of IPv6 the /64 network.
    pub address: Network,
    /// What has failed there, of all user names, since it is remembered.
    pub total: Failed,
    /// The user names that were tried last, those that failed most first: 16 at most.
    pub users: Vec<FailingUser>,
}

/// A user name that was tried at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailingUser {
    /// Its first 128 bytes; `None`: no user name was given.
    pub name: Option<Box<str>>,
    /// What has failed.
    pub failed: Failed,
}

/// When a login has failed, in ms of the broker's clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FailedAt(pub u64);

/// How often, and when last.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Logins that were judged and denied.
    pub denied: Logins,
    /// Logins that were refused unjudged, since others before them had failed.
    pub refused: Logins,
    /// When the last one was.
    pub last: FailedAt,
}

impl Failed {
    fn all(&self) -> u64 {
        u64::from(self.denied.0) + u64::from(self.refused.0)
    }
}

#[derive(Debug)]
struct OfAddress {
    total: Failed,
    users: LruCache<Option<Box<str>>, Failed>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Failing(Mutex<LruCache<Network, OfAddress>>);

impl Default for Failing {
    fn default() -> Self {
        Self(Mutex::new(LruCache::sparse(ADDRESSES)))
    }
}

impl Failing {
    /// A login was judged and denied.
    pub(crate) fn failed(&self, address: Network, user: Option<&str>, now_ms: u64) {
        self.add(address, user, now_ms, |failed| failed.denied.add_one());
    }

    /// A login was refused unjudged.
    pub(crate) fn refused(&self, address: Network, user: Option<&str>, now_ms: u64) {
        self.add(address, user, now_ms, |failed| failed.refused.add_one());
    }

    fn add(&self, address: Network, user: Option<&str>, now_ms: u64, count: fn(&mut Failed)) {
        let name = user.map(|user| Box::from(&user[..user.floor_char_boundary(NAME)]));
        let mut addresses = self.0.lock();
        let of = addresses.get_or_insert_mut(address, || OfAddress {
            total: Failed::default(),
            users: LruCache::sparse(USERS),
        });
        for failed in [
            &mut of.total,
            of.users.get_or_insert_mut(name, Failed::default),
        ] {
            count(failed);
            failed.last = FailedAt(now_ms);
        }
    }

    /// Those that failed most first.
    pub(crate) fn most(&self, limit: usize) -> Vec<FailingAddress> {
        let addresses = self.0.lock();
        let mut rows: Vec<_> = addresses.iter().collect();
        rows.sort_by_key(|(_, of)| std::cmp::Reverse(of.total.all()));
        rows.truncate(limit);
        let row = |(address, of): (&Network, &OfAddress)| {
            let mut users: Vec<_> = of
                .users
                .iter()
                .map(|(name, failed)| FailingUser {
                    name: name.clone(),
                    failed: *failed,
                })
                .collect();
            users.sort_by_key(|user| std::cmp::Reverse(user.failed.all()));
            FailingAddress {
                address: *address,
                total: of.total,
                users,
            }
        };
        rows.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> Network {
        Network::around(Ipv4Addr::from_bits(0x0a00_0000 + number).into(), 64)
    }

    #[test]
    fn those_that_fail_most_come_first() {
        let failing = Failing::default();
        failing.failed(address(1), Some("alice"), 5);
        for at in 0..3 {
            failing.failed(address(2), Some("bob"), at);
            failing.refused(address(2), Some("bob"), 10 + at);
        }
        failing.failed(address(2), None, 20);
        let most = failing.most(9);
        assert_eq!(most.len(), 2);
        let bob = Failed {
            denied: Logins(3),
            refused: Logins(3),
            last: FailedAt(12),
        };
        assert_eq!(
            (most[0].address, most[0].total.denied),
            (address(2), Logins(4))
        );
        assert_eq!(most[0].users[0].failed, bob);
        assert_eq!(most[0].users[1].name, None);
        assert_eq!(failing.most(1).len(), 1);
    }

    #[test]
    fn what_strangers_choose_is_bounded() {
        let failing = Failing::default();
        for number in 0..1_000 {
            failing.failed(address(number), Some("x"), 0);
            failing.failed(address(0), Some(&format!("é{number}").repeat(200)), 0);
        }
        let most = failing.most(usize::MAX);
        assert_eq!(most.len(), ADDRESSES.get());
        assert_eq!(
            (most[0].total.denied, most[0].users.len()),
            (Logins(1_001), 16)
        );
        let longest = most[0].users.iter().filter_map(|user| user.name.as_deref());
        assert!(longest.map(str::len).max() <= Some(NAME));
    }
}
