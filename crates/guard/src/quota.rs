//! How often something that strangers cause is written to the log.

use parking_lot::Mutex;

use crate::SECOND_MS;
use crate::window::Window;

/// A number of lines per second; those left out are counted.
#[derive(Debug)]
pub struct Quota {
    per_second: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Window,
    left_out: u64,
}

impl Quota {
    /// So many lines per second.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            state: Mutex::default(),
        }
    }

    /// Whether a line may be written, and how many before it were left out.
    pub fn take(&self, now_ms: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.lines.count(now_ms, SECOND_MS) > self.per_second {
            state.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_quota_are_counted() {
        let quota = Quota::new(2);
        assert_eq!(
            [0, 1, 2, 999].map(|at| quota.take(5_000 + at)),
            [Some(0), Some(0), None, None]
        );
        assert_eq!(
            [1_000, 1_001].map(|at| quota.take(5_000 + at)),
            [Some(2), Some(0)]
        );
    }
}
