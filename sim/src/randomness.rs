//! All randomness comes from the seed, so that a seed repeats its run.
//!
//! What the standard library and others draw from the operating system they take from the function below, which the
//! linker finds here before it looks into the C library: keys of the standard library's hash tables, the choice that
//! `select!` makes first, and openraft's election timeouts. Hash tables of the store and of the broker's core are seeded
//! by the crate `hashing`, those of raft-engine by `ahash`: both would take addresses of the process as seeds else.

#![expect(unsafe_code, reason = "a function of the C library is replaced")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::random_state::{RandomSource, set_random_source};
use consensus::simulation::Chance;

thread_local! {
    static CHANCE: RefCell<Option<Chance>> = const { RefCell::new(None) };
}

/// From now on all that this thread draws follows from `seed`. To be called first in a thread, and once in a process:
/// tokio's and `ahash`'s seeds are counted over all threads.
pub(crate) fn follow(seed: u64) {
    CHANCE.set(Some(Chance(seed)));
    hashing::follow(seed);
    let source = Counter(AtomicUsize::new(seed as usize));
    assert!(
        set_random_source(source).is_ok(),
        "a process follows one seed"
    );
}

/// Seeds of raft-engine's hash tables: each is the one after the last.
struct Counter(AtomicUsize);

impl RandomSource for Counter {
    fn gen_hasher_seed(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// # Safety
/// As of the C library's: there are `len` bytes at `buffer`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, _flags: u32) -> isize {
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, len) };
    CHANCE.with_borrow_mut(|chance| match chance {
        Some(chance) => bytes.fill_with(|| chance.below(256) as u8),
        None => draw(bytes),
    });
    len as isize
}

/// For threads that follow no seed.
fn draw(bytes: &mut [u8]) {
    use std::io::Read as _;
    let source = std::fs::File::open("/dev/urandom");
    let filled = source.and_then(|mut source| source.read_exact(bytes));
    filled.expect("the operating system has randomness");
}
