//! The stores: how they are named, numbered and indexed.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// One of the stores of a node.
///
/// In log entries, messages between nodes and identifiers of Raft groups a store is its [`number`](Self::number).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum StoreId {
    /// Client identifiers: their owners, expiry, will messages.
    Session,
    /// Subscriptions and queues of persistent sessions.
    Inbox,
    /// Retained messages.
    Retain,
    /// What administrators change: users, groups, rules. One shard, which is never split, and which a cluster has from the first
    /// change on.
    Control,
}

impl StoreId {
    /// All stores, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Session, Self::Inbox, Self::Retain, Self::Control];

    /// The stores that every cluster has, whose shards are split by the slots of names.
    pub const OF_NAMES: [Self; 3] = [Self::Session, Self::Inbox, Self::Retain];

    /// The name: of the store's folder, of its settings, and in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Inbox => "inbox",
            Self::Retain => "retain",
            Self::Control => "control",
        }
    }

    /// The number that encodings use. It never changes: disks hold it, and nodes of other versions send it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Session => 0,
            Self::Inbox => 1,
            Self::Retain => 2,
            Self::Control => 3,
        }
    }

    /// The store of a number; `None`: there is no such store.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Session),
            1 => Some(Self::Inbox),
            2 => Some(Self::Retain),
            3 => Some(Self::Control),
            _ => None,
        }
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<StoreId> for u8 {
    fn from(store: StoreId) -> Self {
        store.number()
    }
}

/// There is no store of this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownStore(pub u8);

impl fmt::Display for UnknownStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no store {}", self.0)
    }
}

impl std::error::Error for UnknownStore {}

impl TryFrom<u8> for StoreId {
    type Error = UnknownStore;

    fn try_from(number: u8) -> Result<Self, UnknownStore> {
        Self::from_number(number).ok_or(UnknownStore(number))
    }
}

/// One value for each store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerStore<T> {
    /// The session store's.
    pub session: T,
    /// The inbox store's.
    pub inbox: T,
    /// The retain store's.
    pub retain: T,
    /// The control store's.
    pub control: T,
}

impl<T> PerStore<T> {
    /// The values that `value` gives for each store.
    pub fn from_fn(mut value: impl FnMut(StoreId) -> T) -> Self {
        Self {
            session: value(StoreId::Session),
            inbox: value(StoreId::Inbox),
            retain: value(StoreId::Retain),
            control: value(StoreId::Control),
        }
    }

    /// The same value for each store.
    pub fn all(value: T) -> Self
    where
        T: Clone,
    {
        Self::from_fn(|_| value.clone())
    }

    /// The values, with their stores, in the order of the stores' numbers.
    pub fn iter(&self) -> impl Iterator<Item = (StoreId, &T)> {
        StoreId::ALL.into_iter().map(|store| (store, &self[store]))
    }

    /// The results of `change` for each value.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> PerStore<U> {
        PerStore {
            session: change(self.session),
            inbox: change(self.inbox),
            retain: change(self.retain),
            control: change(self.control),
        }
    }
}

impl<T> Index<StoreId> for PerStore<T> {
    type Output = T;

    fn index(&self, store: StoreId) -> &T {
        match store {
            StoreId::Session => &self.session,
            StoreId::Inbox => &self.inbox,
            StoreId::Retain => &self.retain,
            StoreId::Control => &self.control,
        }
    }
}

impl<T> IndexMut<StoreId> for PerStore<T> {
    fn index_mut(&mut self, store: StoreId) -> &mut T {
        match store {
            StoreId::Session => &mut self.session,
            StoreId::Inbox => &mut self.inbox,
            StoreId::Retain => &mut self.retain,
            StoreId::Control => &mut self.control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disks hold these numbers, and nodes of other versions send them.
    #[test]
    fn stores_are_encoded_as_their_numbers() {
        for (store, number, name) in [
            (StoreId::Session, 0, "session"),
            (StoreId::Inbox, 1, "inbox"),
            (StoreId::Retain, 2, "retain"),
            (StoreId::Control, 3, "control"),
        ] {
            assert_eq!((store.number(), store.name()), (number, name));
            assert_eq!(postcard::to_stdvec(&store).unwrap(), [number]);
            assert_eq!(postcard::from_bytes(&[number]), Ok(store));
        }
        assert_eq!(StoreId::try_from(4), Err(UnknownStore(4)));
        assert!(postcard::from_bytes::<StoreId>(&[4]).is_err());
    }

    #[test]
    fn values_are_found_under_their_store() {
        let mut names = PerStore::from_fn(StoreId::name);
        for (store, name) in names.iter() {
            assert_eq!(*name, store.name());
        }
        names[StoreId::Inbox] = "x";
        assert_eq!(
            names.map(str::len),
            PerStore {
                session: 7,
                inbox: 1,
                retain: 6,
                control: 7
            }
        );
    }
}
