//! The samples of a profile, added up: how often each stack of each thread was seen.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use crate::MOST_STACKS;
use crate::modules::Module;

/// A thread, by the number that `/proc` has for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// A place in a file or in memory, in bytes from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Address(pub u64);

/// How often something was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Samples(pub u64);

/// A thread that was seen.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Thread {
    /// As `/proc` has it.
    pub id: ThreadId,
    /// Of 15 bytes at most; empty if the thread had ended before anybody asked for it.
    pub name: String,
}

/// A place in code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// Which of the modules; `None`: none of them, and the address is that in memory.
    pub module: Option<usize>,
    /// In the file of the module: within the instruction that was executed, or that called.
    pub address: Address,
}

/// A stack of a thread, and how often it was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// Which of the threads.
    pub thread: usize,
    /// How often.
    pub count: Samples,
    /// The innermost first, at most [`crate::DEEPEST`].
    pub frames: Vec<Frame>,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Table {
    counts: HashMap<ThreadId, HashMap<Box<[u64]>, Samples>>,
    names: BTreeMap<ThreadId, String>,
    stacks: usize,
    pub(crate) samples: Samples,
    /// Samples of stacks beyond [`MOST_STACKS`].
    pub(crate) lost: Samples,
}

impl Table {
    /// Adds a sample.
    pub(crate) fn add(&mut self, thread: ThreadId, addresses: &[u64]) {
        self.names
            .entry(thread)
            .or_insert_with(|| name_of(thread).unwrap_or_default());
        let of_thread = self.counts.entry(thread).or_default();
        if let Some(count) = of_thread.get_mut(addresses) {
            count.0 += 1;
        } else if self.stacks < MOST_STACKS {
            of_thread.insert(addresses.into(), Samples(1));
            self.stacks += 1;
        } else {
            self.lost.0 += 1;
            return;
        }
        self.samples.0 += 1;
    }

    /// The threads, and the stacks with addresses of modules, those that were seen most first.
    pub(crate) fn finish(self, modules: &[Module]) -> (Vec<Thread>, Vec<Stack>) {
        let names = self.names.into_iter();
        let threads: Vec<Thread> = names.map(|(id, name)| Thread { id, name }).collect();
        let mut stacks = Vec::with_capacity(self.stacks);
        for (id, counts) in self.counts {
            let thread = threads.binary_search_by_key(&id, |thread| thread.id);
            let thread = thread.expect("each thread that was seen has a name");
            for (addresses, count) in counts {
                let frames = addresses.iter().map(|address| frame(modules, *address));
                stacks.push(Stack {
                    thread,
                    count,
                    frames: frames.collect(),
                });
            }
        }
        stacks.sort_by(|a, b| {
            let rest = (a.thread, &a.frames).cmp(&(b.thread, &b.frames));
            b.count.cmp(&a.count).then(rest)
        });
        (threads, stacks)
    }
}

fn name_of(thread: ThreadId) -> Option<String> {
    let name = fs::read(format!("/proc/self/task/{}/comm", thread.0)).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

fn frame(modules: &[Module], address: u64) -> Frame {
    let module = modules
        .iter()
        .position(|module| module.range.contains(&address));
    let base = module.map_or(0, |index| modules[index].base.0);
    Frame {
        module,
        address: Address(address.wrapping_sub(base)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(range: std::ops::Range<u64>, base: u64) -> Module {
        Module {
            path: "/bin/a".into(),
            build_id: None,
            is_program: true,
            range,
            base: Address(base),
        }
    }

    #[test]
    fn equal_stacks_of_a_thread_are_one_and_addresses_are_those_of_files() {
        let mut table = Table::default();
        for (thread, addresses) in [
            (7, [0x1010, 0x1020]),
            (8, [0x1010, 0x1020]),
            (7, [0x1010, 0x1020]),
            (7, [0x9000, 0x1020]),
        ] {
            table.add(ThreadId(thread), &addresses);
        }
        assert_eq!((table.samples, table.lost), (Samples(4), Samples(0)));
        let (threads, stacks) = table.finish(&[module(0x1000..0x2000, 0xf00)]);
        let ids: Vec<u32> = threads.iter().map(|thread| thread.id.0).collect();
        assert_eq!(ids, [7, 8]);
        let at = |address| Frame {
            module: Some(0),
            address: Address(address),
        };
        let elsewhere = Frame {
            module: None,
            address: Address(0x9000),
        };
        let stack = |thread, count, frames: [Frame; 2]| Stack {
            thread,
            count: Samples(count),
            frames: frames.into(),
        };
        let expected = [
            stack(0, 2, [at(0x110), at(0x120)]),
            stack(0, 1, [elsewhere, at(0x120)]),
            stack(1, 1, [at(0x110), at(0x120)]),
        ];
        assert_eq!(stacks, expected);
    }

    #[test]
    fn samples_of_more_stacks_than_are_kept_are_lost_and_those_of_known_ones_are_not() {
        let mut table = Table::default();
        for address in 0..MOST_STACKS as u64 + 3 {
            table.add(ThreadId(7), &[address]);
        }
        table.add(ThreadId(7), &[0]);
        let seen = Samples(MOST_STACKS as u64 + 1);
        assert_eq!((table.samples, table.lost), (seen, Samples(3)));
        assert_eq!(table.finish(&[]).1.len(), MOST_STACKS);
    }
}
