//! Seeds that a thread can fix.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use foldhash::{fast, quality};

thread_local! {
    /// What the seed of the next table follows from; `None`: nothing, it is random.
    static NEXT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on, the seeds of all tables that this thread makes follow from `seed`.
pub fn follow(seed: u64) {
    NEXT.set(Some(seed));
}

/// The seed of one more table.
fn draw() -> u64 {
    match NEXT.get() {
        Some(next) => {
            NEXT.set(Some(next.wrapping_add(1)));
            fast::FixedState::default().hash_one(next)
        }
        None => RandomState::new().hash_one(0),
    }
}

/// Makes the hashers of a table, fast ones: tables use the upper bits, or all.
#[derive(Clone, Debug)]
pub struct HashBuilder(fast::FixedState);

impl Default for HashBuilder {
    fn default() -> Self {
        Self(fast::FixedState::with_seed(draw()))
    }
}

impl BuildHasher for HashBuilder {
    type Hasher = fast::FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// Makes hashers whose results are compared in place of the keys.
#[derive(Clone, Debug)]
pub struct QualityHashBuilder(quality::FixedState);

impl Default for QualityHashBuilder {
    fn default() -> Self {
        Self(quality::FixedState::with_seed(draw()))
    }
}

impl BuildHasher for QualityHashBuilder {
    type Hasher = quality::FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use super::*;

    /// The order in which a new table is iterated.
    fn order() -> Vec<u32> {
        crate::HashSet::from_iter(0..100).into_iter().collect()
    }

    #[test]
    fn tables_of_a_thread_follow_its_seed() {
        let orders = |seed| {
            follow(seed);
            (order(), order(), QualityHashBuilder::default().hash_one(7))
        };
        let first = orders(1);
        assert_ne!(first.0, first.1, "two tables have seeds of their own");
        assert_eq!(first, orders(1));
        assert_ne!(first, orders(2));
    }

    #[test]
    fn a_thread_that_follows_no_seed_draws_random_ones() {
        let draw = || {
            std::thread::spawn(|| (draw(), draw()))
                .join()
                .expect("it ends")
        };
        let (one, other) = (draw(), draw());
        assert_ne!(one, other);
        assert_ne!(one.0, one.1);
    }

    #[test]
    fn hashes_depend_on_the_tables_seed() {
        follow(3);
        let (one, other) = (HashBuilder::default(), HashBuilder::default());
        let hash = |builder: &HashBuilder| {
            let mut hasher = builder.build_hasher();
            hasher.write(b"a topic");
            hasher.finish()
        };
        assert_ne!(hash(&one), hash(&other));
        assert_eq!(hash(&one), hash(&one.clone()));
    }
}
