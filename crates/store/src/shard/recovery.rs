//! What is damaged of the replica of a shard, and what makes it whole again: for people.
//!
//! Invariants: what is noted stays until the replica has everything again, or is removed; the time is that of the first note.
//!
//! Deliberately absent: the recovery itself (`placement/mending.rs`), and faults that are no damage (`fault.rs`).

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::storage::snapshot::ReceivedBytes;

/// Characters of what is said of the damage.
const LONGEST: usize = 400;

/// What makes a damaged replica whole again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Nothing: no other replica is known to have the data, or the damage is of a kind that the node does not repair. A person has to act.
    Nothing,
    /// The other replicas, after this wait.
    Waits(RecoveryWait),
    /// The leader of the shard, which sends its table: so much has come.
    Receives(ReceivedBytes),
}

impl Recovery {
    /// The leader is to send its table, and has sent nothing yet.
    pub(crate) const RECEIVES: Self = Self::Receives(ReceivedBytes(0));
}

/// What a closed replica waits for before it is made anew. Displayed as a sentence without its end, such as
/// `waits for node 00000000000000b2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecoveryWait {
    /// The pause after damage, which is longer each time.
    Pause,
    /// No other node says that it leads the shard.
    Leader,
    /// The leader does not count this node among the members.
    Membership,
    /// This voter is down.
    Node(u64),
    /// The voters have not confirmed that they have everything that is here.
    Voters,
    /// A shard that was split off begins with the table here, or the replica here begins with another one's.
    Split,
}

impl fmt::Display for RecoveryWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause => f.write_str("waits before it is made anew again"),
            Self::Leader => f.write_str("waits until another node leads the shard"),
            Self::Membership => f.write_str("waits until the leader has this node as a member"),
            Self::Node(node) => write!(f, "waits for node {node:016x}"),
            Self::Voters => f.write_str("waits until the other nodes confirm that they have all"),
            Self::Split => f.write_str("waits for a split of the shard"),
        }
    }
}

/// What is noted of a damaged replica.
#[derive(Debug)]
struct Noted {
    damage: String,
    since: Instant,
    recovery: Recovery,
}

/// The damage of the replica of a shard, if there is any.
#[derive(Debug, Default)]
pub(crate) struct RecoveryStatus(Mutex<Option<Noted>>);

impl RecoveryStatus {
    /// The replica cannot be used, and nothing makes it whole as far as is known now.
    pub(crate) fn handle_damage(&self, damage: &str) {
        let damage = damage.chars().take(LONGEST).collect();
        let mut noted = self.0.lock();
        let since = noted
            .as_ref()
            .map_or_else(Instant::now, |noted| noted.since);
        *noted = Some(Noted {
            damage,
            since,
            recovery: Recovery::Nothing,
        });
    }

    /// The recovery is at another step. Nothing is noted of a replica without damage.
    pub(crate) fn handle_step(&self, recovery: Recovery) {
        if let Some(noted) = &mut *self.0.lock() {
            noted.recovery = recovery;
        }
    }

    /// So many bytes of the table have come from the leader in this transfer.
    pub(crate) fn handle_received(&self, bytes: ReceivedBytes) {
        if let Some(noted) = &mut *self.0.lock()
            && let Recovery::Receives(received) = &mut noted.recovery
        {
            *received = bytes;
        }
    }

    /// The replica has everything again, or is removed.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// What is damaged, for how long that is known, and what makes it whole. `None`: nothing is damaged.
    pub(crate) fn get(&self) -> Option<(String, Duration, Recovery)> {
        let noted = self.0.lock();
        let noted = noted.as_ref()?;
        let recovery = noted.recovery.clone();
        Some((noted.damage.clone(), noted.since.elapsed(), recovery))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_of_the_last_transfer_count_and_the_first_time_stays() {
        let status = RecoveryStatus::default();
        status.handle_step(Recovery::RECEIVES);
        assert!(status.get().is_none(), "nothing is damaged");
        status.handle_damage("a block");
        let (damage, first, recovery) = status.get().unwrap();
        assert_eq!((damage.as_str(), recovery), ("a block", Recovery::Nothing));
        status.handle_received(ReceivedBytes(9));
        status.handle_step(Recovery::Waits(RecoveryWait::Node(2)));
        status.handle_received(ReceivedBytes(3));
        status.handle_step(Recovery::RECEIVES);
        status.handle_received(ReceivedBytes(5));
        status.handle_received(ReceivedBytes(0));
        status.handle_received(ReceivedBytes(7));
        let (_, now, recovery) = status.get().unwrap();
        assert_eq!(recovery, Recovery::Receives(ReceivedBytes(7)));
        assert!(now >= first);
        status.clear();
        assert!(status.get().is_none());
    }
}
