//! The limit on open files, which is the limit on connections.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit to the hard one. Shells start processes with a soft limit of 1,024 for the
/// sake of `select`, which is not used here.
pub(super) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            warn!(%error, "cannot raise the limit on open files");
        }
    }
}
