//! How many connections a process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that are no connections: standard streams, epoll, timer, files being written or read.
const OTHERS: u64 = 32;

/// Connections that a process of this machine can have when it has raised its limit on open files to
/// the hard one.
#[must_use]
pub fn most_connections() -> usize {
    fitting(getrlimit(Resource::Nofile).maximum)
}

/// Raises this process's soft limit on open files to the hard one. If that is refused, connections will
/// be.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// `limit` of `None` is no limit.
fn fitting(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit.saturating_sub(OTHERS)).map_or(usize::MAX, |fitting| fitting.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_allows_a_little_less_than_itself() {
        assert_eq!(fitting(Some(1_024)), 992);
        assert_eq!(fitting(Some(1)), 1);
        assert_eq!(fitting(None), usize::MAX);
    }
}
