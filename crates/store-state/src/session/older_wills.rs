//! Wills of earlier connections of a client, which a later one waits for.

use super::TakenFrom;
use super::by_epoch::ByEpoch;
use super::held::HeldWills;
use super::record::Owner;
use crate::session::StoredWill;

/// The epoch of the earliest connection of a client whose will is being published, or held.
pub(super) fn earliest(
    firing: &ByEpoch<Box<StoredWill>>,
    held: &HeldWills,
    client: &str,
) -> Option<u64> {
    let firing = firing.first_of(client);
    firing.into_iter().chain(held.first_of(client)).min()
}

/// What a connection of `by` is to wait for before it is answered. `superseded`: the epoch of the client's last connection,
/// with which it is `owner`'s. `held`, `earliest`: the earliest will that is held, and of all.
pub(super) fn taken_from(
    (by, owner): (Owner, Option<Owner>),
    superseded: u64,
    held: Option<u64>,
    earliest: Option<u64>,
) -> TakenFrom {
    match earliest {
        // It was held when the client was taken over before, by a connection that has not seen to its end.
        Some(_) if held.is_some_and(|held| held != superseded) => TakenFrom::Unknown,
        None if owner.is_none() => TakenFrom::Nobody,
        earliest => TakenFrom::Node {
            node: owner.unwrap_or(by).node,
            will: held.or(earliest).unwrap_or(0),
        },
    }
}
