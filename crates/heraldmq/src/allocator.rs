//! The memory allocator: jemalloc, with built-in settings for a process that lives long and has
//! bursts of connections. `_RJEM_MALLOC_CONF` in the environment overrides them.

use admin::api::{AllocatorBytes, Amount};
use tikv_jemalloc_ctl::{epoch, stats};

/// What it holds now; `None`: it does not say. Some 10 µs.
pub(crate) fn figures() -> Option<AllocatorBytes> {
    // Figures are those of the last advance.
    epoch::advance().ok()?;
    let amount = |bytes: usize| Amount(bytes as u64);
    Some(AllocatorBytes {
        allocated: amount(stats::allocated::read().ok()?),
        active: amount(stats::active::read().ok()?),
        metadata: amount(stats::metadata::read().ok()?),
        resident: amount(stats::resident::read().ok()?),
        retained: amount(stats::retained::read().ok()?),
    })
}

/// - `background_thread`: unused memory goes back to the system also while the broker is idle, and
///   event loops do not spend time on it.
/// - `narenas`: by default there are four arenas per core; each keeps its own unused memory, so many
///   cores would mean much memory that nobody uses. Arenas are made when needed, so that a small
///   machine pays nothing for the bound.
/// - `dirty_decay_ms`, `muzzy_decay_ms`: after a burst, memory goes back within seconds.
const OPTIONS: &str = "background_thread:true,narenas:16,dirty_decay_ms:5000,muzzy_decay_ms:0\0";

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads at its first use: a pointer to a C string.
#[used]
#[expect(
    unsafe_code,
    reason = "jemalloc finds its settings by the name of this symbol, which nobody else defines"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &[u8; OPTIONS.len()] = match OPTIONS.as_bytes().first_chunk() {
    Some(bytes) => bytes,
    None => panic!("a string has as many bytes as it is long"),
};
