//! Collections that are cut in two.
//!
//! Invariant: what is sorted is read once, in order, and made anew from what is sorted. To insert the entries one by one,
//! as `Iterator::partition` does, takes a search for each (`benches/split.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::mem;

use hashing::{HashBuilder, HashMap};

/// Takes out the values of which `leaves` is true.
pub(crate) fn set<T: Ord>(from: &mut BTreeSet<T>, leaves: impl Fn(&T) -> bool) -> BTreeSet<T> {
    let (others, own): (Vec<_>, Vec<_>) = mem::take(from).into_iter().partition(leaves);
    *from = own.into_iter().collect();
    others.into_iter().collect()
}

/// Takes out the entries of which `leaves` is true, by their keys.
pub(crate) fn sorted_map<K: Ord, V>(
    from: &mut BTreeMap<K, V>,
    leaves: impl Fn(&K) -> bool,
) -> BTreeMap<K, V> {
    let entries = mem::take(from).into_iter();
    let (others, own): (Vec<_>, Vec<_>) = entries.partition(|(key, _)| leaves(key));
    *from = own.into_iter().collect();
    others.into_iter().collect()
}

/// Takes out the entries of which `leaves` is true, by their keys; `from` keeps its memory.
pub(crate) fn hash_map<K: Eq + Hash, V>(
    from: &mut HashMap<K, V>,
    leaves: impl Fn(&K) -> bool,
) -> HashMap<K, V> {
    // As for a cut in the middle. To grow from nothing takes as long as to fill the table twice.
    let mut others = HashMap::with_capacity_and_hasher(from.len() / 2, HashBuilder::default());
    others.extend(from.extract_if(|key, _| leaves(key)));
    others.shrink_to_fit();
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_in_one_half() {
        for len in [0, 1, 2, 1_000] {
            for first in [0, 1, len / 2, len] {
                let leaves = |n: &u32| *n >= first;
                let own: Vec<_> = (0..first.min(len)).collect();
                let others: Vec<_> = (first..len).collect();
                let mut from: BTreeSet<_> = (0..len).collect();
                let taken = set(&mut from, leaves);
                assert!(from.iter().eq(&own) && taken.iter().eq(&others));
                let mut from: BTreeMap<_, _> = (0..len).map(|n| (n, n)).collect();
                let taken = sorted_map(&mut from, leaves);
                assert!(from.keys().eq(&own) && taken.values().eq(&others));
                let mut from: HashMap<_, _> = (0..len).map(|n| (n, n)).collect();
                let taken = hash_map(&mut from, leaves);
                let sorted = |map: &HashMap<u32, u32>| {
                    let mut keys: Vec<_> = map.keys().copied().collect();
                    keys.sort_unstable();
                    keys
                };
                assert_eq!((sorted(&from), sorted(&taken)), (own, others));
            }
        }
    }
}
