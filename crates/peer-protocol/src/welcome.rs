//! What a node that joins has to know, as its cluster tells it in the handshake.

use std::{error, fmt};

use bytes::{BufMut as _, Bytes, BytesMut};
use store_state::api::{PerStore, StoreId};

/// What all nodes of a cluster have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// How many shards each store began with that every cluster has. None is 0; those of other stores are not said, and 1.
    pub shards: PerStore<u16>,
    /// The seed of the hash of names. 0 is left out: what is left is what nodes say and understand that have none.
    pub name_seed: u64,
}

/// Why a node cannot join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WelcomeError {
    /// There is no welcome of so many bytes.
    Length(usize),
    /// A store has no shards.
    NoShards,
}

impl fmt::Display for WelcomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a welcome of {bytes} bytes is not understood"),
            Self::NoShards => f.write_str("a store without shards"),
        }
    }
}

impl error::Error for WelcomeError {}

impl Welcome {
    /// The welcome as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for store in StoreId::OF_NAMES {
            out.put_u16(self.shards[store]);
        }
        if self.name_seed != 0 {
            out.put_u64(self.name_seed);
        }
        out.freeze()
    }

    /// Reads a welcome.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, WelcomeError> {
        let length = WelcomeError::Length(bytes.len());
        let (counts, seed) = bytes.split_first_chunk::<6>().ok_or(length)?;
        let (pairs, _) = counts.as_chunks::<2>();
        let mut shards = PerStore::all(1);
        for (store, pair) in StoreId::OF_NAMES.into_iter().zip(pairs) {
            shards[store] = u16::from_be_bytes(*pair);
        }
        if shards.iter().any(|(_, count)| *count == 0) {
            return Err(WelcomeError::NoShards);
        }
        let name_seed = match seed {
            [] => 0,
            seed => u64::from_be_bytes(seed.try_into().map_err(|_| length)?),
        };
        Ok(Self { shards, name_seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_welcome_says_the_shards_and_the_seed() {
        let shards = PerStore {
            session: 1,
            inbox: 2,
            retain: 300,
            control: 1,
        };
        for name_seed in [0, 1, u64::MAX] {
            let welcome = Welcome { shards, name_seed };
            let bytes = welcome.encode();
            assert_eq!(Welcome::decode(&bytes), Ok(welcome));
            for cut in 0..bytes.len() {
                // Without a seed it is that of a cluster that has none.
                let decoded = Welcome::decode(&bytes[..cut]);
                assert_eq!(decoded.is_ok(), cut == 6, "{cut} bytes");
            }
        }
        let without = |shards| Welcome {
            shards,
            name_seed: 0,
        };
        // As nodes said it when there was no seed.
        assert_eq!(without(PerStore::all(1)).encode().len(), 6);
        let without_inbox = PerStore {
            inbox: 0,
            ..PerStore::all(1)
        };
        let none = Welcome::decode(&without(without_inbox).encode());
        assert_eq!(none, Err(WelcomeError::NoShards));
    }
}
