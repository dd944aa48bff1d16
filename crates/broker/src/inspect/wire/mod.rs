//! The border between what nodes send each other (`inspection`) and the HTTP API (`admin`).
//!
//! Invariant: conversions name each field on both sides. A field that is added to one of them does not compile until somebody has decided
//! what the other one says of it, and none of the API changes what nodes send.
//!
//! Deliberately absent: which rows there are, and how they are put together.

mod to_api;
mod to_wire;

use std::collections::BTreeMap;

use admin::page::{Found, Missing};
use inspection::merge::Merged;

/// What another node has said, as the API says it.
pub(super) trait ToApi {
    /// The API's type.
    type Api;

    /// The same.
    fn to_api(self) -> Self::Api;
}

/// What the API or this node says, as nodes send it.
pub(super) trait ToWire {
    /// The type between nodes.
    type Wire;

    /// The same.
    fn to_wire(self) -> Self::Wire;
}

/// A page whose rows are as nodes send them, with what is missing of it.
pub(super) fn found_to_api<T: ToApi>(merged: Merged<T>, partial: Vec<Missing>) -> Found<T::Api> {
    let Merged {
        items,
        last,
        scanned,
    } = merged;
    Found {
        items: items.to_api(),
        last,
        partial,
        scanned,
    }
}

/// Types that both sides have from the standard library.
macro_rules! plain {
    ($($name:ty),* $(,)?) => { $(
        impl ToApi for $name {
            type Api = Self;

            fn to_api(self) -> Self {
                self
            }
        }

        impl ToWire for $name {
            type Wire = Self;

            fn to_wire(self) -> Self {
                self
            }
        }
    )* };
}

plain!(bool, u8, u16, u32, u64, usize, i64, f64, String);

impl<T: ToApi> ToApi for Option<T> {
    type Api = Option<T::Api>;

    fn to_api(self) -> Self::Api {
        self.map(T::to_api)
    }
}

impl<T: ToWire> ToWire for Option<T> {
    type Wire = Option<T::Wire>;

    fn to_wire(self) -> Self::Wire {
        self.map(T::to_wire)
    }
}

impl<T: ToApi> ToApi for Box<T> {
    type Api = T::Api;

    fn to_api(self) -> Self::Api {
        (*self).to_api()
    }
}

impl<T: ToApi> ToApi for Vec<T> {
    type Api = Vec<T::Api>;

    fn to_api(self) -> Self::Api {
        self.into_iter().map(T::to_api).collect()
    }
}

impl<T: ToWire> ToWire for Vec<T> {
    type Wire = Vec<T::Wire>;

    fn to_wire(self) -> Self::Wire {
        self.into_iter().map(T::to_wire).collect()
    }
}

impl<T: ToApi> ToApi for BTreeMap<String, T> {
    type Api = BTreeMap<String, T::Api>;

    fn to_api(self) -> Self::Api {
        self.into_iter()
            .map(|(key, value)| (key, value.to_api()))
            .collect()
    }
}
