//! The limit on open files, which is the limit on connections, and the kernel's table of them.

use std::fs::File;
use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Open files that the kernel's table has room for from the start, at 8 bytes each. It doubles when it is
/// full, and in a process with threads each time waits until every core has passed through the kernel:
/// some 10 to 20 ms, in which nobody is accepted.
const ROOM: u64 = 1 << 17;

/// Raises the soft limit to the hard one, and makes room in the table. Shells start processes with a soft
/// limit of 1,024 for the sake of `select`, which is not used here.
pub(super) fn prepare() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            warn!(%error, "cannot raise the limit on open files");
        }
    }
    let current = getrlimit(Resource::Nofile).current;
    if let Err(error) = make_room(current.unwrap_or(ROOM).min(ROOM)) {
        warn!(%error, "cannot make room for open files; connections will stall while the table grows");
    }
}

/// Grows the table by opening a file under the highest number.
fn make_room(files: u64) -> io::Result<()> {
    let any = File::open("/dev/null")?;
    let highest = i32::try_from(files.saturating_sub(1)).unwrap_or(i32::MAX);
    drop(fcntl_dupfd_cloexec(&any, highest)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_room_afterwards() {
        make_room(1_000).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: u64 = size.unwrap().trim().parse().unwrap();
        assert!(size >= 1_000, "{size}");
    }
}
