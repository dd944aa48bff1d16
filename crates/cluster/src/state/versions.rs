//! The versions of the protocol that this node speaks. The oldest one only rises.

use tokio::sync::watch;

use crate::options::Versions;

#[derive(Debug)]
pub(crate) struct OwnVersions(watch::Sender<Versions>);

impl OwnVersions {
    pub(crate) fn new(versions: Versions) -> Self {
        Self(watch::Sender::new(versions))
    }

    pub(crate) fn get(&self) -> Versions {
        *self.0.borrow()
    }

    /// From now on no version before this one is spoken. On failure nothing changes: none would be left, namely these.
    pub(crate) fn require(&self, version: u16) -> Result<(), Versions> {
        let mut required = Ok(());
        self.0.send_if_modified(|versions| {
            let oldest = versions.oldest.max(version);
            let left = Versions {
                oldest,
                ..*versions
            };
            if left.oldest > left.newest {
                required = Err(left);
                return false;
            }
            let rises = left != *versions;
            *versions = left;
            rises
        });
        required
    }

    /// Returns when this version is not spoken any more.
    pub(crate) async fn outdated(&self, version: u16) {
        let mut versions = self.0.subscribe();
        // The sender is borrowed, and lives as long.
        let _ = versions.wait_for(|own| own.oldest > version).await;
    }
}
