//! Why a node does not start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::rule_file::RuleFileError;

/// The exit code of a node whose data folder is an old copy, when it starts or while it runs: no further start will
/// succeed with it.
pub const OLD_FOLDER: u8 = 3;

/// Why a node does not start.
#[derive(Debug)]
pub enum StartError {
    /// A listener cannot be opened.
    Listen {
        /// What it is for.
        kind: &'static str,
        /// Host and port as configured.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// An authenticator cannot be set up.
    Authentication(authentication::OpenError),
    /// The certificate files of a listener cannot be used.
    Certificate {
        /// What the listener is for.
        kind: &'static str,
        /// Host and port as configured.
        address: String,
        /// Which file, and why.
        source: transport::TlsFileError,
    },
    /// The rule file is not taken.
    Rules(RuleFileError),
    /// A file that the configuration names, or one in the data folder, cannot be used.
    File {
        /// What it is for.
        kind: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The data folder cannot be used.
    Folder(store::FolderError),
    /// The node cannot take part in its cluster.
    Cluster(cluster::StartError),
    /// What the cluster has told this node when it joined is not understood.
    Welcome(String),
    /// The data folder has sessions of its own, and the node is to join a cluster that has others.
    NotEmpty(PathBuf),
    /// The data folder belongs to a member of a cluster, and the configuration is that of a node that runs
    /// alone.
    Member(PathBuf),
    /// The node of the data folder has left its cluster, so it founds none, and the configuration has nobody to join.
    FoundsNone(PathBuf),
    /// Nothing can be pushed to the collector of OpenTelemetry.
    Telemetry(telemetry::OpenError),
    /// An outlet or an inlet can never run.
    Outlet {
        /// `outlet` or `inlet`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// The store cannot be opened.
    Store(store::OpenError),
    /// Threads or event queues cannot be made.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen {
                kind,
                address,
                source,
            } => write!(f, "cannot listen on {address} ({kind}): {source}"),
            Self::Authentication(source) => write!(f, "cannot set up authentication: {source}"),
            Self::Certificate {
                kind,
                address,
                source,
            } => write!(f, "cannot listen on {address} ({kind}): {source}"),
            Self::Rules(source) => source.fmt(f),
            Self::File { kind, path, source } => {
                write!(f, "cannot use {} ({kind}): {source}", path.display())
            }
            Self::Folder(source) => write!(f, "cannot open the store: the data folder: {source}"),
            Self::Cluster(source) => write!(f, "cannot take part in the cluster: {source}"),
            Self::Welcome(what) => write!(f, "cannot join the cluster: {what}"),
            Self::NotEmpty(folder) => write!(
                f,
                "cannot join the cluster: {} holds the sessions of a node that ran alone; \
                 `bootstrap: true` founds a cluster with them where clusterConfig names no member of another one, an empty \
                 folder joins one",
                folder.display()
            ),
            Self::Member(folder) => write!(
                f,
                "{} is the data folder of a member of a cluster, and the configuration has no clusterConfig: \
                 give the one that the node had, or another dataDir for a node that runs alone",
                folder.display()
            ),
            Self::FoundsNone(folder) => write!(
                f,
                "the node of {} has left its cluster: it joins as a new node, and founds none even with `bootstrap: true`. Set \
                 clusterConfig.seedEndpoints or clusterDomainName, or remove the file `left` to have it found a new cluster",
                folder.display()
            ),
            Self::Telemetry(source) => write!(f, "cannot set up OpenTelemetry: {source}"),
            Self::Outlet { kind, name, why } => write!(f, "cannot run {kind} {name}: {why}"),
            Self::Store(source) => write!(f, "cannot open the store: {source}"),
            Self::System(source) => write!(f, "cannot start the event loops: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::File { source, .. } | Self::System(source) => {
                Some(source)
            }
            Self::Authentication(source) => Some(source),
            Self::Certificate { source, .. } => Some(source),
            Self::Rules(source) => Some(source),
            Self::Folder(source) => Some(source),
            Self::Cluster(source) => Some(source),
            Self::Welcome(_)
            | Self::NotEmpty(_)
            | Self::Member(_)
            | Self::FoundsNone(_)
            | Self::Outlet { .. } => None,
            Self::Telemetry(source) => Some(source),
            Self::Store(source) => Some(source),
        }
    }
}

impl StartError {
    /// Whether the other nodes refuse the data folder for ever, as an old copy.
    #[must_use]
    pub fn is_old_folder(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.is_old_folder())
    }

    /// Whether the configuration has to be changed, or a file that it names, before the node can start.
    #[must_use]
    pub fn is_in_configuration(&self) -> bool {
        match self {
            Self::Authentication(_)
            | Self::Certificate { .. }
            | Self::Rules(_)
            | Self::Telemetry(_)
            | Self::Outlet { .. }
            | Self::File { .. }
            | Self::Member(_)
            | Self::FoundsNone(_) => true,
            Self::Cluster(error) => error.is_in_configuration(),
            // What a listener is to be cannot be, wherever it listens.
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::InvalidInput => true,
            Self::Listen { .. }
            | Self::Folder(_)
            | Self::Welcome(_)
            | Self::NotEmpty(_)
            | Self::Store(_)
            | Self::System(_) => false,
        }
    }
}
