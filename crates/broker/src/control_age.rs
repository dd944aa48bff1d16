//! How long a node has not known whether its copy of the control store is current.
//!
//! Purpose: [`ControlAge`] counts that time, and says whether it is so long that logins are refused.
//!
//! Deliberately absent: who leads the store (`control.rs`), and the refusal (`authentication`).

use std::time::Duration;

use control_view::Standing;
use parking_lot::Mutex;

/// When the copy was known to be current, and when that is too long ago.
#[derive(Debug, Default)]
pub(crate) struct ControlAge {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// When the copy was current, in ms of the process's clock; the first look, if it never was.
    current_ms: Option<u64>,
    refuse_after: Option<Duration>,
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// For how long the node has not known whether its copy is current; zero while it does.
    pub(crate) age: Duration,
    /// Nobody may log in by it.
    pub(crate) is_refused: bool,
}

impl ControlAge {
    /// From the next look on, logins are refused after this time.
    pub(crate) fn configure(&self, refuse_after: Option<Duration>) {
        self.inner.lock().refuse_after = refuse_after;
    }

    /// What is known at a time, in ms of the process's clock. `is_led`: a node leads the store that this one hears, or this one.
    pub(crate) fn look(&self, standing: Standing, is_led: bool, now_ms: u64) -> Seen {
        let is_current = match standing {
            // There is nothing that could be out of date.
            Standing::Unused => true,
            Standing::Unconfirmed => false,
            Standing::Confirmed => is_led,
        };
        let mut inner = self.inner.lock();
        if is_current {
            inner.current_ms = Some(now_ms);
        }
        let since = *inner.current_ms.get_or_insert(now_ms);
        let age = Duration::from_millis(now_ms.saturating_sub(since));
        let is_refused = !is_current && inner.refuse_after.is_some_and(|after| age >= after);
        Seen { age, is_refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ages_while_the_leader_is_not_heard() {
        let age = ControlAge::default();
        let look = |standing, is_led, now_ms| age.look(standing, is_led, now_ms).age.as_millis();
        assert_eq!(look(Standing::Unused, false, 5_000), 0);
        assert_eq!(look(Standing::Unconfirmed, true, 6_000), 1_000);
        assert_eq!(look(Standing::Confirmed, true, 7_000), 0);
        assert_eq!(look(Standing::Confirmed, false, 7_900), 900);
        assert_eq!(look(Standing::Confirmed, false, 40_000), 33_000);
        // The clock may have been set back.
        assert_eq!(look(Standing::Confirmed, false, 1), 0);
        assert_eq!(look(Standing::Confirmed, true, 41_000), 0);
    }

    #[test]
    fn a_node_that_was_started_cut_off_counts_from_its_first_look() {
        let age = ControlAge::default();
        let look = |now_ms| age.look(Standing::Unconfirmed, false, now_ms).age;
        assert_eq!(look(900_000), Duration::ZERO);
        assert_eq!(look(931_000), Duration::from_secs(31));
    }

    #[test]
    fn logins_are_refused_after_the_time_that_is_configured() {
        let age = ControlAge::default();
        let refused = |is_led, now_ms| {
            let seen = age.look(Standing::Confirmed, is_led, now_ms);
            seen.is_refused
        };
        assert!(!refused(true, 1_000));
        assert!(!refused(false, 1_000_000), "0: never");
        age.configure(Some(Duration::from_secs(60)));
        assert!(refused(false, 1_000_001));
        assert!(!refused(true, 1_000_002));
        assert!(!refused(false, 1_060_001));
        assert!(refused(false, 1_060_002));
        age.configure(None);
        assert!(!refused(false, 1_060_003));
    }
}
