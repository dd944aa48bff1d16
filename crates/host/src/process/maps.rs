//! What the resident memory of a process is made of, from /proc/pid/smaps.
//!
//! Invariant: the parts are the whole. The file is read line by line, and never held.
//!
//! Deliberately absent: pages that the kernel holds for the process, such as those of sockets; they are no part of its resident
//! memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::Process;

/// The largest mapping behind a guard page that counts as a stack, in bytes.
const LARGEST_STACK: usize = 64 << 20;

/// Resident bytes of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResidentParts {
    /// Pages of files as they are on the disk: code and constants of the program and of its libraries. The kernel can drop them.
    pub files: usize,
    /// Variables of the program and of its libraries, and what the loader has changed in them.
    pub data: usize,
    /// Stacks of threads: anonymous mappings that lie directly behind a guard page.
    pub stacks: usize,
    /// Other anonymous mappings: those of the allocator among them.
    pub anonymous: usize,
    /// How many stacks there are.
    pub stack_count: usize,
}

impl ResidentParts {
    /// All of them.
    #[must_use]
    pub fn sum(&self) -> usize {
        self.files + self.data + self.stacks + self.anonymous
    }
}

impl Process {
    /// What its resident memory is made of, exact. Looks at all of its pages, some 10 ms for each GB.
    ///
    /// # Errors
    /// The process has ended ([`io::ErrorKind::NotFound`]), or it belongs to another user.
    pub fn resident_parts(&self) -> io::Result<ResidentParts> {
        let file = File::open(format!("/proc/{}/smaps", self.pid()))?;
        parts(BufReader::new(file))
    }
}

/// The mapping whose lines are read.
#[derive(Clone, Copy)]
struct Mapping {
    begin: usize,
    end: usize,
    is_guard: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Stack,
    Anonymous,
}

fn parts(mut smaps: impl BufRead) -> io::Result<ResidentParts> {
    let mut parts = ResidentParts::default();
    let mut mapping: Option<Mapping> = None;
    let mut resident = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if smaps.read_line(&mut line)? == 0 {
            return Ok(parts);
        }
        if let Some(next) = header(&line, mapping) {
            parts.stack_count += usize::from(next.kind == Kind::Stack);
            mapping = Some(next);
        } else if let Some(bytes) = kilobytes(&line, "Rss:") {
            resident = bytes;
        } else if let Some(anonymous) = kilobytes(&line, "Anonymous:") {
            // It comes behind "Rss:" of the same mapping.
            match mapping.map(|mapping| mapping.kind) {
                Some(Kind::File) => {
                    parts.data += anonymous.min(resident);
                    parts.files += resident.saturating_sub(anonymous);
                }
                Some(Kind::Stack) => parts.stacks += resident,
                Some(Kind::Anonymous) | None => parts.anonymous += resident,
            }
            resident = 0;
        }
    }
}

/// The first line of a mapping, such as `7f1c-7f2c rw-p 00000000 fe:00 1234 /usr/lib/a.so`.
fn header(line: &str, before: Option<Mapping>) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (begin, end) = fields.next()?.split_once('-')?;
    let begin = usize::from_str_radix(begin, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let permissions = fields.next()?;
    let name = fields.nth(3).unwrap_or_default();
    let follows_guard = before.is_some_and(|before| before.is_guard && before.end == begin);
    let kind = match name {
        "[stack]" => Kind::Stack,
        "" if follows_guard && permissions.starts_with("rw") && end - begin <= LARGEST_STACK => {
            Kind::Stack
        }
        "" => Kind::Anonymous,
        name if name.starts_with('[') => Kind::Anonymous,
        _ => Kind::File,
    };
    Some(Mapping {
        begin,
        end,
        is_guard: name.is_empty() && permissions.starts_with("---"),
        kind,
    })
    .filter(|mapping| mapping.begin < mapping.end)
}

/// The number of a line such as `Rss:     12 kB`, in bytes.
fn kilobytes(line: &str, field: &str) -> Option<usize> {
    let rest = line.strip_prefix(field)?.trim();
    let number: usize = rest.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapping_is_of_one_part() {
        let smaps = "\
1000-3000 r-xp 00000000 fe:00 12 /bin/a b
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex
3000-5000 rw-p 00002000 fe:00 12 /bin/a b
Rss:                   8 kB
Anonymous:             4 kB
5000-9000 rw-p 00000000 00:00 0 
Rss:                  16 kB
Anonymous:            16 kB
a000-b000 ---p 00000000 00:00 0 
Rss:                   0 kB
Anonymous:             0 kB
b000-f000 rw-p 00000000 00:00 0 
Rss:                  12 kB
Anonymous:            12 kB
f000-ff000 rw-p 00000000 00:00 0 [heap]
Rss:                   4 kB
Anonymous:             4 kB
7ff000-7fff00 rw-p 00000000 00:00 0 [stack]
Rss:                  20 kB
Anonymous:            20 kB
";
        let kb = |number: usize| number * 1_024;
        let expected = ResidentParts {
            files: kb(12),
            data: kb(4),
            stacks: kb(32),
            anonymous: kb(20),
            stack_count: 2,
        };
        assert_eq!(parts(smaps.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn the_parts_of_this_process_are_its_resident_memory() {
        let parts = Process::own().resident_parts().unwrap();
        let whole = Process::own().resident_bytes().unwrap() as usize;
        assert!(parts.files > 100_000 && parts.anonymous > 4_096 && parts.stack_count > 0);
        assert!(whole.abs_diff(parts.sum()) < whole / 4, "{parts:?} {whole}");
    }
}
