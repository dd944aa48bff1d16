//! Whether a member can be reached, judged by times alone.

use crate::options::Timings;

/// Whether a member can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Our Data connection to it is up, and it was heard on its own.
    Up,
    /// One of the two is missing, not for long.
    Suspect,
    /// One of the two was missing for long, or the member's process has ended.
    Down {
        /// When it last was in reach, in milliseconds of [`Cluster::now_ms`](crate::Cluster::now_ms).
        since_ms: u64,
        /// Its host says that nobody listens there.
        has_ended: bool,
    },
}

/// What is known of the Data connections from and to a member. Times as in [`Reach::Down`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contact {
    /// Our connection to it is up.
    pub(crate) connected: bool,
    /// When our connection was last up.
    pub(crate) connected_ms: u64,
    /// When it was last heard.
    pub(crate) heard_ms: u64,
    /// It has said that it is about to stop.
    pub(crate) stopping: bool,
    /// Our last attempt to connect was refused by its host.
    pub(crate) refused: bool,
}

impl Contact {
    /// There was no connection since then.
    pub(crate) fn since(ms: u64) -> Self {
        Self {
            connected: false,
            connected_ms: ms,
            heard_ms: ms,
            stopping: false,
            refused: false,
        }
    }
}

pub(crate) fn judge(contact: Contact, now_ms: u64, timings: &Timings) -> Reach {
    let since_ms = match contact.connected {
        true => contact.heard_ms,
        false => contact.heard_ms.min(contact.connected_ms),
    };
    let silent = u128::from(now_ms.saturating_sub(since_ms));
    let has_ended = contact.refused && !contact.connected;
    let has_stopped = contact.stopping && !contact.connected;
    if silent >= timings.down.as_millis() || has_ended || has_stopped {
        Reach::Down {
            since_ms,
            has_ended,
        }
    } else if silent >= timings.suspect.as_millis() || !contact.connected {
        Reach::Suspect
    } else {
        Reach::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(connected: bool, connected_ms: u64, heard_ms: u64, now_ms: u64) -> Reach {
        let contact = Contact {
            connected,
            connected_ms,
            heard_ms,
            stopping: false,
            refused: false,
        };
        judge(contact, now_ms, &Timings::default())
    }

    fn down(since_ms: u64) -> Reach {
        Reach::Down {
            since_ms,
            has_ended: false,
        }
    }

    #[test]
    fn who_is_heard_is_up_and_who_is_not_is_first_suspect_then_down() {
        for (now_ms, expected) in [
            (1_000, Reach::Up),
            (2_499, Reach::Up),
            (2_500, Reach::Suspect),
            (3_999, Reach::Suspect),
            (4_000, down(1_000)),
            (9_000, down(1_000)),
        ] {
            assert_eq!(reach(true, 0, 1_000, now_ms), expected, "{now_ms}");
        }
    }

    #[test]
    fn a_lost_connection_makes_suspect_at_once_and_down_in_the_end() {
        assert_eq!(reach(false, 1_000, 1_001, 1_001), Reach::Suspect);
        // It still reaches us, but we do not reach it.
        assert_eq!(reach(false, 1_000, 4_000, 4_000), down(1_000));
    }

    #[test]
    fn who_stops_in_order_is_down_with_its_connection() {
        let mut contact = Contact {
            connected: true,
            connected_ms: 5,
            heard_ms: 5,
            stopping: true,
            refused: false,
        };
        assert_eq!(judge(contact, 6, &Timings::default()), Reach::Up);
        contact.connected = false;
        assert_eq!(judge(contact, 6, &Timings::default()), down(5));
    }

    #[test]
    fn whose_host_refuses_is_down_at_once() {
        let mut contact = Contact {
            connected: false,
            connected_ms: 5,
            heard_ms: 5,
            stopping: false,
            refused: true,
        };
        let ended = Reach::Down {
            since_ms: 5,
            has_ended: true,
        };
        assert_eq!(judge(contact, 6, &Timings::default()), ended);
        contact.connected = true;
        assert_eq!(judge(contact, 6, &Timings::default()), Reach::Up);
    }

    #[test]
    fn a_clock_that_was_read_earlier_does_no_harm() {
        assert_eq!(reach(true, 0, 1_000, 999), Reach::Up);
    }
}
