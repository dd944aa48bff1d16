//! Whether this process may open as many connections as a scenario has.

use std::fmt;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that are no connections: standard streams, epoll, timer, files being written or read.
const OTHERS: usize = 32;

/// The limit on open files is below what a scenario needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFewDescriptors {
    /// Connections of the scenario.
    pub connections: usize,
    /// Connections that fit.
    pub fitting: usize,
}

impl TooFewDescriptors {
    /// The scenario has to shrink to the 1/n-th to fit; this is n.
    #[must_use]
    pub fn divisor(&self) -> usize {
        self.connections.div_ceil(self.fitting.max(1))
    }
}

impl fmt::Display for TooFewDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections are wanted, but the limit on open files (ulimit -n) allows {}",
            self.connections, self.fitting
        )
    }
}

impl std::error::Error for TooFewDescriptors {}

/// Raises this process's soft limit on open files to the hard one and says whether that is enough.
///
/// # Errors
/// It is not.
pub fn reserve_descriptors(connections: usize) -> Result<(), TooFewDescriptors> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if setrlimit(Resource::Nofile, limit).is_err() {
            limit.current = before;
        }
    }
    fits(connections, limit.current)
}

/// `limit` of `None` is no limit.
fn fits(connections: usize, limit: Option<u64>) -> Result<(), TooFewDescriptors> {
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let fitting = limit.saturating_sub(OTHERS);
    if connections > fitting {
        return Err(TooFewDescriptors {
            connections,
            fitting,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_allows_a_little_less_than_itself() {
        assert_eq!(fits(992, Some(1_024)), Ok(()));
        assert_eq!(fits(100_000_000, None), Ok(()));
        let error = fits(100_000, Some(1_024)).unwrap_err();
        assert_eq!(error.fitting, 992);
        assert_eq!(error.divisor(), 101);
        assert!(100_000_usize.div_ceil(error.divisor()) <= error.fitting);
    }
}
