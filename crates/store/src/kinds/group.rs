//! The Raft group of a shard.
//!
//! Invariant: the number of a group never changes: logs hold it, and nodes of other versions send it.

use store_state::api::{ShardNumber, StoreId};

use crate::kinds::kind::Kind;

/// The group of a shard in the log.
pub(crate) fn group_of<M: Kind>(shard: ShardNumber) -> u64 {
    (u64::from(M::STORE.number()) << 32) | (u64::from(shard) + 1)
}

/// The shard of a group in the log; `None`: there is no such store or shard.
pub(crate) fn shard_of_group(group: u64) -> Option<(StoreId, ShardNumber)> {
    let store = StoreId::from_number(u8::try_from(group >> 32).ok()?)?;
    let shard = ShardNumber::try_from((group & 0xFFFF_FFFF).checked_sub(1)?).ok()?;
    Some((store, shard))
}

#[cfg(test)]
mod tests {
    use store_state::control::ControlMachine;
    use store_state::inbox::InboxMachine;
    use store_state::retain::RetainMachine;
    use store_state::session::SessionMachine;

    use super::*;

    /// Logs hold these numbers, and nodes of other versions send them.
    #[test]
    fn a_group_is_numbered_by_its_store_and_shard() {
        let groups = [
            (
                group_of::<SessionMachine>(0),
                0x0000_0001,
                StoreId::Session,
                0,
            ),
            (
                group_of::<InboxMachine>(7),
                0x1_0000_0008,
                StoreId::Inbox,
                7,
            ),
            (
                group_of::<RetainMachine>(65_535),
                0x2_0001_0000,
                StoreId::Retain,
                65_535,
            ),
            (
                group_of::<ControlMachine>(0),
                0x3_0000_0001,
                StoreId::Control,
                0,
            ),
        ];
        for (group, number, store, shard) in groups {
            assert_eq!(group, number);
            assert_eq!(shard_of_group(group), Some((store, shard)));
        }
        for unknown in [
            0,
            0x1_0000_0000,
            0x4_0000_0001,
            0x0001_0001,
            0x100_0000_0001,
        ] {
            assert_eq!(shard_of_group(unknown), None, "{unknown:x}");
        }
    }
}
