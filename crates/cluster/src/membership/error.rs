//! Why a node cannot take part in a cluster, or do what it is told to.

use std::net::{IpAddr, SocketAddr};
use std::{error, fmt, io};

use transport::TlsFileError;

use crate::folder::record::RecordError;
use crate::members::list::INFO_LIMIT;
use crate::options::Versions;
use crate::protocol::refusal::ShutOut;

/// Why a node cannot take part.
#[derive(Debug)]
pub enum StartError {
    /// It belongs to no cluster, begins none, and knows nobody to ask.
    NobodyToAsk,
    /// It was evicted.
    Evicted,
    /// Another member refuses it for good.
    ShutOut(ShutOut),
    /// [`Options::give_up`](crate::Options::give_up) became true before a member was found.
    GivenUp,
    /// The file `cluster` cannot be used.
    Record(RecordError),
    /// A file for TLS cannot be used.
    Tls(TlsFileError),
    /// The certificate is not one for the name that the others are to reach this node by.
    Certificate(io::Error),
    /// The port cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The name that the others are to reach this node by has this address, which [`Security::open_to`](crate::Security::open_to) does not allow.
    PublicHost(String, IpAddr),
    /// [`Handler::welcomed`](crate::Handler::welcomed) has failed.
    Welcome(String),
    /// What other nodes are to be told is too long.
    Info(InfoError),
    /// The thread cannot be started, or has ended.
    Thread(io::Error),
}

impl StartError {
    /// Whether the data folder is an old copy: no further start will succeed with it.
    #[must_use]
    pub fn is_old_folder(&self) -> bool {
        matches!(self, Self::ShutOut(ShutOut::OldFolder { .. }))
    }

    /// Whether the configuration has to be changed, or a file that it names, before the node can start.
    #[must_use]
    pub fn is_in_configuration(&self) -> bool {
        match self {
            Self::NobodyToAsk | Self::Tls(_) | Self::Certificate(_) | Self::PublicHost(..) => true,
            Self::Record(RecordError::OtherEnv(..)) => true,
            Self::Evicted
            | Self::ShutOut(_)
            | Self::GivenUp
            | Self::Record(_)
            | Self::Listen(..)
            | Self::Welcome(_)
            | Self::Info(_)
            | Self::Thread(_) => false,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyToAsk => f.write_str(
                "this node belongs to no cluster and knows no member of one: set \
                 clusterConfig.seedEndpoints or clusterDomainName to join one, or bootstrap on one \
                 node to begin one",
            ),
            Self::Evicted => f.write_str(
                "this node was evicted from its cluster: empty its data folder to join as a new node",
            ),
            Self::ShutOut(reason) => write!(f, "the other members refuse this node: {reason}"),
            Self::GivenUp => f.write_str("no member of a cluster was found"),
            Self::Record(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Certificate(error) => write!(f, "no other node would let this one in: {error}"),
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address} for other nodes: {error}")
            }
            Self::PublicHost(host, address) => write!(
                f,
                "the other nodes would reach this one by {host}, whose address {address} is public: set \
                 clusterConfig.secretFile on all nodes, because whoever reaches the port could become a member"
            ),
            Self::Welcome(reason) => write!(f, "what a member says cannot be used: {reason}"),
            Self::Info(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the thread of the cluster: {error}"),
        }
    }
}

impl error::Error for StartError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Record(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::Certificate(error) | Self::Listen(_, error) | Self::Thread(error) => Some(error),
            Self::Info(error) => Some(error),
            Self::NobodyToAsk
            | Self::Evicted
            | Self::ShutOut(_)
            | Self::GivenUp
            | Self::PublicHost(..)
            | Self::Welcome(_) => None,
        }
    }
}

impl From<RecordError> for StartError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// Why a node is not evicted.
#[derive(Debug)]
pub enum EvictError {
    /// A node cannot evict itself.
    Itself,
    /// Too many were evicted.
    Full,
    /// It is evicted, but this node may forget that when it stops.
    Record(RecordError),
}

impl fmt::Display for EvictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself => f.write_str("a node cannot evict itself; ask another member"),
            Self::Full => f.write_str("as many nodes were evicted as can be remembered"),
            Self::Record(error) => write!(f, "the node is evicted, but not on the disk: {error}"),
        }
    }
}

impl error::Error for EvictError {}

/// A node cannot require a version of the protocol that it does not speak itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionError {
    /// What would be left: the oldest, which was to be required, is after the newest that the node speaks.
    pub left: Versions,
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { oldest, newest } = self.left;
        write!(
            f,
            "the version {oldest} of the protocol between nodes cannot be required: this program speaks none after {newest}"
        )
    }
}

impl error::Error for VersionError {}

/// A node tells too much: see [`INFO_LIMIT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfoError;

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "what a node tells the others has more than {INFO_LIMIT} bytes"
        )
    }
}

impl error::Error for InfoError {}
