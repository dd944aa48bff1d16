//! What a node is told about its cluster when it starts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// How a node takes part in its cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node's identifier: made with its data folder, never reused.
    pub node: u64,
    /// How often the node was started; grows with each start.
    pub incarnation: u64,
    /// The name of the cluster's environment. Nodes of different ones never meet.
    pub env: String,
    /// The address or name that other nodes reach this one by.
    pub host: String,
    /// The address to listen on. `None`: all of this machine, of IPv4, IPv6 or both as `host` has.
    pub listen: Option<IpAddr>,
    /// The port of links (TCP) and gossip (UDP), here and in `domain`.
    pub port: u16,
    /// Other nodes, `host:port`.
    pub seeds: Vec<String>,
    /// A name that resolves to the addresses of other nodes.
    pub domain: Option<String>,
    /// Whether this node begins a new cluster, if it belongs to none, no member lets it in, and each other address of the seeds
    /// and the domain has proven to be a node without a cluster.
    pub bootstrap: bool,
    /// How long such a node waits for members that dial it, if it knows no other node.
    pub found_after: Duration,
    /// Somebody has said that the data folder is to be taken as it is, though it may be an old copy: no majority of the
    /// members is waited for, and what the folder remembers of the others' folders is forgotten. Counts for this start.
    pub accepts_folder: bool,
    /// The data folder: the file `cluster` is kept there.
    pub folder: PathBuf,
    /// How nodes recognise each other.
    pub security: Security,
    /// The version of this program, for the other nodes to see.
    pub version: String,
    /// The versions of the protocol that its messages are written in, from the first handshake on;
    /// [`Cluster::require`](crate::Cluster::require) may raise the oldest one later.
    pub protocol: Versions,
    /// Small facts for the other nodes; see [`Cluster::set_info`](crate::Cluster::set_info).
    pub info: BTreeMap<String, String>,
    /// Of the small facts of the other members, the keys that are kept in the data folder and known again when this node
    /// was started. A file is written and synced whenever one of these facts changes, at most once a second: name only
    /// facts that stay as they are while a process runs.
    pub kept_info: Vec<String>,
    /// Intervals and time limits.
    pub timings: Timings,
    /// When it becomes true, a node that waits for a member to join gives up within a second.
    pub give_up: Arc<AtomicBool>,
}

/// The versions of the protocol between nodes that a program speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest.
    pub oldest: u16,
    /// The highest.
    pub newest: u16,
}

impl Versions {
    /// That of programs which were made before versions were agreed on.
    pub(crate) const FIRST: Self = Self {
        oldest: 1,
        newest: 1,
    };

    /// [`Versions::FIRST`], as serde wants it.
    pub(crate) const fn first() -> Self {
        Self::FIRST
    }

    /// The highest version that both speak.
    #[must_use]
    pub fn highest_common(self, other: Self) -> Option<u16> {
        let highest = self.newest.min(other.newest);
        (highest >= self.oldest.max(other.oldest)).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

/// How nodes recognise each other. Secret and TLS can be used together.
#[derive(Clone, Debug)]
pub struct Security {
    /// What all nodes of the cluster know. It never travels; without TLS, what links carry can be read and
    /// changed on its way all the same.
    pub secret: Option<Secret>,
    /// Links are encrypted, and both sides show a certificate. Gossip is only signed.
    pub tls: Option<TlsFiles>,
    /// Which addresses this node and the others may have while there is neither: nobody is connected to, or heard, at
    /// another one. It is given no IPv4-mapped IPv6 addresses, but those of IPv4.
    pub open_to: fn(IpAddr) -> bool,
}

impl Security {
    /// Whether nothing but addresses keeps strangers out.
    pub(crate) fn is_open(&self) -> bool {
        self.secret.is_none() && self.tls.is_none()
    }

    /// Whether a node may have this address.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        !self.is_open() || (self.open_to)(address.to_canonical())
    }
}

/// The PEM files of mutual TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The node's certificate chain, its own first. It must be good for the host that the others dial.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Authorities that sign the certificates of nodes.
    pub authorities: PathBuf,
}

/// Bytes that are not printed, and wiped when they are dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes over the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Intervals and time limits. The defaults fit a network whose round trips take less than 100 ms.
#[derive(Clone, Debug)]
pub struct Timings {
    /// What is sent at least this often on each connection, both ways.
    pub keep_alive: Duration,
    /// A connection on which nothing came for this long is closed.
    pub silence: Duration,
    /// A peer that takes no bytes for this long is closed.
    ///
    /// Limit: a node that takes no bytes, says nothing | 5 s, 2 s | the connection is given up and dialled again
    pub stall: Duration,
    /// A member that was not heard for this long is suspect.
    pub suspect: Duration,
    /// A member that was not heard for this long is down.
    pub down: Duration,
    /// Between two rounds of gossip.
    pub gossip: Duration,
    /// Between the first two attempts to connect.
    pub backoff_min: Duration,
    /// Between two attempts to connect, at most.
    pub backoff_max: Duration,
    /// For connecting, and for shaking hands.
    pub handshake: Duration,
    /// How often the others are told how far this node has come. A copy of the data folder that was made this long
    /// before the end of its process is known as an old one.
    pub stamp: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_millis(300),
            silence: Duration::from_secs(2),
            stall: Duration::from_secs(5),
            suspect: Duration::from_millis(1500),
            down: Duration::from_secs(3),
            gossip: Duration::from_millis(200),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            handshake: Duration::from_secs(5),
            stamp: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_count_where_there_is_neither_secret_nor_tls() {
        let secret = || Some(Secret::new(b"secret".to_vec()));
        let tls = || {
            Some(TlsFiles {
                certificate: PathBuf::new(),
                key: PathBuf::new(),
                authorities: PathBuf::new(),
            })
        };
        for (secret, tls, address, admitted) in [
            (None, None, "10.0.0.1", true),
            (None, None, "::ffff:10.0.0.1", true),
            (None, None, "192.0.2.1", false),
            (None, None, "::ffff:192.0.2.1", false),
            (None, None, "2001:db8::1", false),
            (secret(), None, "192.0.2.1", true),
            (None, tls(), "192.0.2.1", true),
            (secret(), tls(), "2001:db8::1", true),
        ] {
            let security = Security {
                secret,
                tls,
                open_to: |address| matches!(address, IpAddr::V4(v4) if v4.is_private()),
            };
            let found = security.admits(address.parse().unwrap());
            assert_eq!(found, admitted, "{security:?} {address}");
        }
    }

    #[test]
    fn the_highest_version_that_both_speak_is_used() {
        let versions = |oldest, newest| Versions { oldest, newest };
        for (ours, theirs, common) in [
            ((1, 1), (1, 1), Some(1)),
            ((1, 3), (2, 5), Some(3)),
            ((2, 5), (1, 3), Some(3)),
            ((1, 2), (2, 2), Some(2)),
            ((1, 2), (3, 4), None),
            ((3, 4), (1, 2), None),
            // What makes no sense has nothing in common.
            ((1, 2), (2, 1), None),
        ] {
            let (ours, theirs) = (versions(ours.0, ours.1), versions(theirs.0, theirs.1));
            assert_eq!(ours.highest_common(theirs), common, "{ours}, {theirs}");
        }
    }
}
