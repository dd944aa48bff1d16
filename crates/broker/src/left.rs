//! A node that has left its cluster: what it notes in its data folder, how its next start begins anew, and who answers
//! meanwhile if its process stays.
//!
//! Invariant: a node that has left founds no cluster until it has joined as a new one.
//!
//! What of the data folder goes, and why: the stores and the log, because other nodes have the replicas; the files of
//! `cluster`, because the others refuse the identifier for ever; the bans, because the members have them and may lift some
//! meanwhile; the alarms, because they are those of a node that there is no more. `audit.pending` stays: what was done here
//! is not in the audit yet.
//!
//! Deliberately absent: the emptying (`store`), and how a node leaves (`drain.rs`).

use std::borrow::Cow;
use std::fmt;

use config::Config;

use crate::start_error::StartError;
use crate::{HttpPort, alarms, ban_file};

/// If the node of the data folder has left its cluster, the folder is emptied. `None`: it has not, or has joined again since.
///
/// # Errors
/// A folder cannot be emptied, or nothing says whom the node is to join.
pub(crate) fn begin_anew(config: &Config) -> Result<Option<store::Left>, StartError> {
    let own = [alarms::FILE].into_iter().chain(ban_file::FILES);
    let others: Vec<&str> = own.chain(cluster::FILES).collect();
    match store::empty_if_left(&config.data_dir, &others).map_err(StartError::Folder)? {
        Some(left) => begin_after(left, config),
        None => Ok(None),
    }
}

fn begin_after(left: store::Left, config: &Config) -> Result<Option<store::Left>, StartError> {
    if left.was_emptied {
        let folder = left.folder().display();
        tracing::info!(%folder, "the data folder was emptied: its node had left the cluster");
    }
    let cluster = &config.cluster_config;
    let is_member = config.data_dir.join(cluster::RECORD).exists();
    if is_member || !cluster.is_enabled() {
        left.forget().map_err(StartError::Folder)?;
        return Ok(None);
    }
    if cluster.seed_endpoints.is_empty() && cluster.cluster_domain_name.is_none() {
        return Err(StartError::FoundsNone(left.folder().to_owned()));
    }
    Ok(Some(left))
}

/// The configuration of a start that must found no cluster, if the node has left one.
pub(crate) fn founds_nothing(config: Cow<'_, Config>, has_left: bool) -> Cow<'_, Config> {
    if !has_left || !config.bootstrap {
        return config;
    }
    let mut config = config.into_owned();
    config.bootstrap = false;
    Cow::Owned(config)
}

/// What is done when node `node` has left: it is noted in the data folder before `then`.
pub(crate) fn noted(
    config: &Config,
    node: u64,
    then: Box<dyn Fn() + Send + Sync>,
) -> Box<dyn Fn() + Send + Sync> {
    let folder = config.data_dir.clone();
    Box::new(move || {
        if let Err(error) = store::note_left(&folder, node) {
            let folder = folder.display();
            tracing::error!(
                %folder, %error,
                "it cannot be noted that this node has left: empty the data folder before the next start"
            );
        }
        then();
    })
}

/// The HTTP port of a process whose node has ended: it says that the process lives and is not ready, until this is dropped.
pub struct NotReady(Option<HttpPort>);

impl NotReady {
    /// Opens the port.
    ///
    /// # Errors
    /// It cannot be opened, or its files cannot be used.
    pub fn answer(config: &Config) -> Result<Self, StartError> {
        HttpPort::open(&config.http).map(|port| Self(Some(port)))
    }
}

impl Drop for NotReady {
    fn drop(&mut self) {
        if let Some(port) = self.0.take() {
            port.hand_over();
        }
    }
}

impl fmt::Debug for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotReady")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_left_does_not_found() {
        let config = Config {
            bootstrap: true,
            ..Config::default()
        };
        let founds = |has_left| founds_nothing(Cow::Borrowed(&config), has_left).bootstrap;
        assert!(founds(false));
        assert!(!founds(true));
    }

    #[test]
    fn a_node_that_has_left_has_to_know_whom_to_join() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: folder.path().to_owned(),
            ..Config::default()
        };
        config.cluster_config.host = config::Host::new("127.0.0.1");
        assert!(begin_anew(&config).unwrap().is_none());
        store::note_left(folder.path(), 7).unwrap();
        let error = begin_anew(&config).unwrap_err();
        assert!(error.is_in_configuration());
        let said = error.to_string();
        assert!(said.contains("seedEndpoints"), "{said}");
        // Alone it needs nobody.
        config.cluster_config.host = None;
        assert!(begin_anew(&config).unwrap().is_none());
        assert!(!folder.path().join("left").exists());
    }
}
