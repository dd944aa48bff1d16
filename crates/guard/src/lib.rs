//! Who is shut out: limits per address, waits after failed logins, flapping clients, bans.
//!
//! Purpose: [`Guard`] is asked when a connection is accepted and when a CONNECT has come, before anything
//! is spent on either, and is told how logins end.
//!
//! Invariants: time is an argument, in ms, and never goes back. What strangers make it remember is bounded:
//! beyond `abuse.trackedEntries` of a kind the least recently seen are forgotten, and names are kept as
//! hashes under a seed of this process. Open connections are counted exactly, and no longer than they are
//! open. An IPv6 address counts as its /64 network, which is what one customer has.
//!
//! Deliberately absent: sockets, files and MQTT; the broker closes, answers and writes down.

mod address;
mod attempt;
mod ban;
mod bans;
mod budget;
mod changes;
mod failing;
mod failures;
mod limits;
mod open;
mod quota;
mod reports;
mod seldom;
mod slow_start;
mod source;
mod tracked;
mod window;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use config::{AbuseConfig, Network};
use parking_lot::RwLock;

pub use attempt::{Attempt, NotNow, Shown};
pub use ban::{Ban, Subject};
pub use bans::{Bans, TooMany};
pub use changes::{Change, Lifted, PARTS, Version};
pub use failing::{Failed, FailedAt, FailingAddress, FailingUser};
pub use quota::Quota;
pub use reports::FailedLogin;
pub use seldom::{Repeated, Seldom};
pub use slow_start::Logins;
pub use source::Source;

use address::Address;
use failing::Failing;
use failures::Failures;
use limits::Limits;
use open::Open;
use reports::Reports;
use tracked::Tracked;
use window::Window;

/// Time for which `connectionsPerSecondPerAddress` counts.
const SECOND_MS: u64 = 1_000;

/// Who is shut out. All loops of a node share it.
#[derive(Debug)]
pub struct Guard {
    limits: RwLock<Limits>,
    open: Open,
    arrivals: Tracked<Network, Window>,
    /// Logins by address.
    addresses: Tracked<Network, Address>,
    /// Failed logins by address and user name.
    logins: Tracked<(Network, Name), Failures>,
    /// Failed logins by user name, from all addresses.
    accounts: Tracked<Name, Failures>,
    /// Failed logins by address and credentials.
    wrong: Tracked<(Network, Name), Failures>,
    /// Credentials that were right when they were judged last.
    proven: Tracked<Name, ()>,
    /// Where users have logged in from: there the failures of other addresses do not count.
    homes: Tracked<(Network, Name), ()>,
    clients: Tracked<Name, Flapping>,
    bans: RwLock<Arc<Bans>>,
    refused: [AtomicU64; Refusal::ALL.len()],
    failed_logins: AtomicU64,
    failed_elsewhere: AtomicU64,
    /// Who fails, for people.
    failing: Failing,
    /// What other nodes are to be told; only in a cluster.
    reports: OnceLock<Reports>,
    names: RandomState,
}

/// A client identifier, a user name, or a user name with its password, hashed under keys of this process (SipHash): the
/// length of names is the choice of strangers, and nobody finds out a password by what is remembered here.
type Name = u64;

/// How often a client identifier has connected.
#[derive(Debug, Default)]
struct Flapping {
    connects: Window,
    banned_until_ms: u64,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The address, user name or client identifier is banned.
    Banned,
    /// The address has as many connections open as it may.
    Connections,
    /// The address opens connections faster than it may.
    ConnectionRate,
    /// Logins for the user name, or with the same credentials, have failed at the address: they must wait.
    FailedLogins,
    /// The client identifier has connected too often.
    Flapping,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Banned,
        Self::Connections,
        Self::ConnectionRate,
        Self::FailedLogins,
        Self::Flapping,
    ];

    /// The reason's name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Banned => "banned",
            Self::Connections => "connections",
            Self::ConnectionRate => "connection_rate",
            Self::FailedLogins => "failed_logins",
            Self::Flapping => "flapping",
        }
    }
}

/// A connection that is counted for its address as long as this is kept.
#[derive(Debug)]
pub struct Ticket {
    guard: Arc<Guard>,
    address: Network,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.guard.open.leave(&self.address);
    }
}

/// How much is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    /// Addresses that have opened connections lately.
    pub arrivals: usize,
    /// Addresses with logins that have failed or are being judged.
    pub addresses: usize,
    /// Pairs of address and user name with failed logins.
    pub logins: usize,
    /// Pairs of address and credentials that have failed there.
    pub wrong: usize,
    /// Credentials that were right when they were judged last.
    pub proven: usize,
    /// User names with failed logins.
    pub accounts: usize,
    /// Pairs of address and user name that have logged in.
    pub homes: usize,
    /// Client identifiers that have connected lately.
    pub clients: usize,
}

impl Guard {
    /// With the limits of a configuration, and nobody banned.
    #[must_use]
    pub fn new(config: &AbuseConfig) -> Self {
        let entries = config.tracked_entries as usize;
        Self {
            limits: RwLock::new(config.into()),
            open: Open::default(),
            arrivals: Tracked::new(entries),
            addresses: Tracked::new(entries),
            logins: Tracked::new(entries),
            accounts: Tracked::new(entries),
            wrong: Tracked::new(entries),
            proven: Tracked::new(entries),
            homes: Tracked::new(entries),
            clients: Tracked::new(entries),
            bans: RwLock::default(),
            refused: Default::default(),
            failed_logins: AtomicU64::new(0),
            failed_elsewhere: AtomicU64::new(0),
            failing: Failing::default(),
            reports: OnceLock::new(),
            names: RandomState::new(),
        }
    }

    /// Applies changed limits. Connections that were open while `connectionsPerAddress` was not set are not
    /// counted. Failed logins are forgotten: with files read again, what was wrong may be right.
    pub fn reload(&self, config: &AbuseConfig) {
        *self.limits.write() = config.into();
        self.addresses.change_all(Address::forgive);
        self.logins.change_all(Failures::clear);
        self.wrong.change_all(Failures::clear);
    }

    /// Whether a connection from this address may be kept. `None`: it is, and need not be counted.
    ///
    /// # Errors
    /// Why not: close it, nothing of it has been read.
    pub fn admit_connection(
        self: &Arc<Self>,
        source: Source,
        now_ms: u64,
    ) -> Result<Option<Ticket>, Refusal> {
        if self.bans.read().find_address(source.ip, now_ms).is_some() {
            return Err(self.refuse(Refusal::Banned));
        }
        let limits = *self.limits.read();
        let Some(address) = limits.counted(source) else {
            return Ok(None);
        };
        if let Some(rate) = limits.connections_per_second {
            let arrived = self
                .arrivals
                .with(address, |window| window.count(now_ms, SECOND_MS));
            if arrived > rate.get() {
                return Err(self.refuse(Refusal::ConnectionRate));
            }
        }
        let Some(most) = limits.connections else {
            return Ok(None);
        };
        if !self.open.enter(address, most) {
            return Err(self.refuse(Refusal::Connections));
        }
        Ok(Some(Ticket {
            guard: Arc::clone(self),
            address,
        }))
    }

    /// Whether a CONNECT may be looked at. `source`: none for a Unix domain socket.
    ///
    /// # Errors
    /// Why not.
    pub fn admit_login(
        &self,
        source: Option<Source>,
        username: Option<&str>,
        client_id: &str,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        if self.is_banned(source.map(|source| source.ip), username, client_id, now_ms) {
            return Err(self.refuse(Refusal::Banned));
        }
        let limits = *self.limits.read();
        let is_counted = source.is_some_and(|source| limits.counted(source).is_some());
        if is_counted
            && limits.flapping_connections.is_some()
            && self.is_flapping(client_id, now_ms)
        {
            return Err(self.refuse(Refusal::Flapping));
        }
        Ok(())
    }

    /// A client is connected.
    ///
    /// # Errors
    /// Once too often: it is banned for a while, and to be disconnected.
    pub fn connected(
        &self,
        source: Option<Source>,
        client_id: &str,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        let limits = *self.limits.read();
        let Some(most) = limits.flapping_connections else {
            return Ok(());
        };
        if source.and_then(|source| limits.counted(source)).is_none() {
            return Ok(());
        }
        let flaps = self.clients.with(self.name(client_id), |client| {
            let connects = client.connects.count(now_ms, limits.flapping_window_ms);
            let flaps = connects > most.get().into();
            if flaps {
                client.banned_until_ms = now_ms + limits.flapping_ban_ms;
            }
            flaps
        });
        if flaps {
            return Err(self.refuse(Refusal::Flapping));
        }
        Ok(())
    }

    /// Whether a ban concerns the address, the user name or the client identifier.
    #[must_use]
    pub fn is_banned(
        &self,
        ip: Option<IpAddr>,
        username: Option<&str>,
        client_id: &str,
        now_ms: u64,
    ) -> bool {
        let bans = self.bans.read();
        bans.find(ip, username, client_id, now_ms).is_some()
    }

    /// The bans.
    #[must_use]
    pub fn bans(&self) -> Arc<Bans> {
        Arc::clone(&self.bans.read())
    }

    /// Replaces the bans.
    pub fn set_bans(&self, bans: Bans) {
        *self.bans.write() = Arc::new(bans);
    }

    /// Those refused for a reason since the start.
    #[must_use]
    pub fn refused(&self, reason: Refusal) -> u64 {
        let count = self.refused.get(reason as usize);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Logins denied since the start.
    #[must_use]
    pub fn failed_logins(&self) -> u64 {
        self.failed_logins.load(Ordering::Relaxed)
    }

    /// The addresses whose logins have failed most, with their user names, the first `limit`.
    #[must_use]
    pub fn failing(&self, limit: usize) -> Vec<FailingAddress> {
        self.failing.most(limit)
    }

    /// How much is remembered now.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        Remembered {
            arrivals: self.arrivals.len(),
            addresses: self.addresses.len(),
            logins: self.logins.len(),
            wrong: self.wrong.len(),
            proven: self.proven.len(),
            accounts: self.accounts.len(),
            homes: self.homes.len(),
            clients: self.clients.len(),
        }
    }

    fn is_flapping(&self, client_id: &str, now_ms: u64) -> bool {
        self.clients.look(&self.name(client_id), |client| {
            now_ms < client.banned_until_ms
        })
    }

    fn refuse(&self, reason: Refusal) -> Refusal {
        if let Some(count) = self.refused.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        reason
    }

    fn name(&self, text: &str) -> Name {
        self.names.hash_one(text)
    }

    fn credentials(&self, username: Option<&str>, password: &[u8]) -> Name {
        self.names.hash_one((username, password))
    }
}

#[cfg(test)]
mod tests;
