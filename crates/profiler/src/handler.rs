//! What is done in a signal handler: the stack of the interrupted thread goes into the log of a free place.
//!
//! Invariant: nobody waits for a place. Both the handler and the sampling only try to take one, so that giving it back wakes nobody,
//! which would not be allowed in a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::{
    CacheNative, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative,
};
use parking_lot::Mutex;

use crate::DEEPEST;
use crate::system::{self, PAGE};
use crate::table::{Samples, ThreadId};

/// How stacks are followed: by the tables that the program is released with.
pub(crate) type Unwinder = UnwinderNative<Vec<u8>, MustNotAllocateDuringUnwind>;

/// Threads whose stacks are noted at the same moment; samples of further ones are lost.
const PLACES: usize = 8;

/// Words of a log: 300 to 1,000 samples, of which there are 20 in 100 ms on one core.
const LOG_WORDS: usize = 16_384;

static PLACE: [Mutex<Option<Box<Place>>>; PLACES] = [const { Mutex::new(None) }; PLACES];

/// Samples that found no place since the process started.
static LOST: AtomicU64 = AtomicU64::new(0);

struct Place {
    unwinder: Arc<Unwinder>,
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    /// Of each sample: the thread, the number of addresses, and these, the innermost first.
    log: Vec<u64>,
}

/// Lets the handler note stacks.
pub(crate) fn open(unwinder: &Arc<Unwinder>) {
    for place in &PLACE {
        let new = Box::new(Place {
            unwinder: Arc::clone(unwinder),
            cache: CacheNative::new_in(),
            log: Vec::with_capacity(LOG_WORDS),
        });
        drop(take(place, |place| place.replace(new)));
    }
}

/// Ends that, and gives the memory back.
pub(crate) fn close() {
    for place in &PLACE {
        drop(take(place, Option::take));
    }
}

/// Samples that have been lost since the process started.
pub(crate) fn lost() -> Samples {
    Samples(LOST.load(Ordering::Relaxed))
}

/// Hands over what was noted since the last time, each sample with its thread and its addresses, the innermost first.
pub(crate) fn drain(mut each: impl FnMut(ThreadId, &[u64])) {
    let mut spare = Vec::with_capacity(LOG_WORDS);
    for place in &PLACE {
        take(place, |place| {
            if let Some(place) = place {
                std::mem::swap(&mut place.log, &mut spare);
            }
        });
        let mut rest = spare.as_slice();
        while let [thread, depth, behind @ ..] = rest {
            let depth = usize::try_from(*depth).unwrap_or(usize::MAX);
            let (addresses, next) = behind.split_at(depth.min(behind.len()));
            each(
                ThreadId(u32::try_from(*thread).unwrap_or_default()),
                addresses,
            );
            rest = next;
        }
        spare.clear();
    }
}

/// Takes a place without waiting in the kernel: a handler holds it for some 10 µs.
fn take<T>(place: &Mutex<Option<Box<Place>>>, act: impl FnOnce(&mut Option<Box<Place>>) -> T) -> T {
    loop {
        if let Some(mut place) = place.try_lock() {
            return act(&mut place);
        }
        std::thread::yield_now();
    }
}

/// Notes the stack of the interrupted thread, which begins at `ip` with these registers.
pub(crate) fn note(ip: u64, registers: UnwindRegsNative) {
    let thread = system::thread_id();
    let first = thread as usize % PLACES;
    let (before, from) = PLACE.split_at(first);
    let mut places = from.iter().chain(before);
    let is_noted = match places.find_map(Mutex::try_lock) {
        // Without a sampling a signal has come late.
        Some(mut place) => place
            .as_mut()
            .is_none_or(|place| place.note(thread, ip, registers)),
        None => false,
    };
    if !is_noted {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

impl Place {
    /// `false`: the log is full.
    fn note(&mut self, thread: u32, ip: u64, registers: UnwindRegsNative) -> bool {
        let log = &mut self.log;
        if log.capacity() - log.len() < DEEPEST + 2 {
            return false;
        }
        let begin = log.len();
        log.extend([thread.into(), 0]);
        let mut window = Window::new();
        let mut read = |address| window.read(address);
        let mut frames = self
            .unwinder
            .iter_frames(ip, registers, &mut self.cache, &mut read);
        let mut depth = 0;
        while depth < DEEPEST as u64
            && let Ok(Some(frame)) = frames.next()
        {
            log.push(frame.address_for_lookup());
            depth += 1;
        }
        if let Some(word) = log.get_mut(begin + 1) {
            *word = depth;
        }
        true
    }
}

/// The page of the stack that was read last.
struct Window {
    begin: Option<u64>,
    page: [u8; PAGE],
}

impl Window {
    fn new() -> Self {
        Self {
            begin: None,
            page: [0; PAGE],
        }
    }

    /// The word at an address of the own memory.
    fn read(&mut self, address: u64) -> Result<u64, ()> {
        let (begin, at) = (address & !(PAGE as u64 - 1), address % PAGE as u64);
        if self.begin != Some(begin) {
            self.begin = None;
            if !system::read_page(begin, &mut self.page) {
                return Err(());
            }
            self.begin = Some(begin);
        }
        let bytes = usize::try_from(at).ok().and_then(|at| self.page.get(at..));
        let word = bytes.and_then(<[u8]>::first_chunk).ok_or(())?;
        Ok(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_refused_and_other_memory_is_read() {
        let word = Box::new(0x1234_5678_9abc_def0_u64);
        let address = std::ptr::from_ref(&*word).addr() as u64;
        let mut window = Window::new();
        assert_eq!(window.read(address), Ok(*word));
        assert_eq!(window.read(8), Err(()));
        assert_eq!(window.read(u64::MAX - 7), Err(()));
        assert_eq!(window.read(address), Ok(*word));
    }
}
