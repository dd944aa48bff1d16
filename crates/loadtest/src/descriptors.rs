//! How many connections a process may have open.

use std::fs::File;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that are no connections: standard streams, epoll, timer, files being written or read.
const OTHERS: u64 = 32;

/// Open files for which the kernel's table is to have room, at 8 bytes each.
const ROOM: u64 = 1 << 17;

/// Connections that a process of this machine can have when it has raised its limit on open files to
/// the hard one.
#[must_use]
pub fn most_connections() -> usize {
    fitting(getrlimit(Resource::Nofile).maximum)
}

/// Raises this process's soft limit on open files to the hard one, and makes room in the kernel's table of
/// them: when that is full, each opening of a file waits some 10 ms while it grows, and the broker would
/// look slow. To be called before there are threads. If the limit stays, connections will be refused.
pub fn prepare_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let files = getrlimit(Resource::Nofile)
        .current
        .unwrap_or(ROOM)
        .min(ROOM);
    let highest = i32::try_from(files.saturating_sub(1)).unwrap_or(i32::MAX);
    // The table grows when a file is opened under the highest number. Without it, it grows later.
    let _ = File::open("/dev/null").map(|any| fcntl_dupfd_cloexec(&any, highest).map(drop));
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
