//! The files that the process runs code of: the program and its libraries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use framehop::{ExplicitModuleSectionInfo, Unwinder as _};
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags};

use crate::handler::Unwinder;
use crate::table::Address;

/// A file that the process runs code of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Where it was when it was loaded.
    pub path: PathBuf,
    /// What tells its build from all others; `None`: its linker was not told to make one, or the file cannot be read any more.
    pub build_id: Option<Vec<u8>>,
    /// Whether it is the program itself.
    pub is_program: bool,
    /// Where its code is.
    pub(crate) range: Range<u64>,
    /// What addresses in the file are less than those in memory.
    pub(crate) base: Address,
}

/// All of them, and how stacks through them are followed.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn loaded() -> io::Result<(Vec<Module>, Unwinder)> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read("/proc/self/maps")?;
    let mut unwinder = Unwinder::new();
    let mut modules = Vec::new();
    for (path, mapped) in executable(&String::from_utf8_lossy(&maps)) {
        let is_program = path == program;
        let file = match is_program {
            // Also if the file was replaced meanwhile.
            true => Path::new("/proc/self/exe"),
            false => &path,
        };
        // A library that was replaced is not what runs: its frames have addresses only.
        let found = File::open(file).ok().and_then(|file| read(file, &mapped));
        let (build_id, base) = match found {
            Some(found) => {
                let (name, range) = (path.to_string_lossy(), mapped.range.clone());
                let base = found.base;
                let module =
                    framehop::Module::new(name.into_owned(), range, base.0, found.sections);
                unwinder.add_module(module);
                (found.build_id, base)
            }
            None => {
                let base = mapped.range.start.saturating_sub(mapped.offset.0);
                (None, Address(base))
            }
        };
        modules.push(Module {
            path,
            build_id,
            is_program,
            range: mapped.range,
            base,
        });
    }
    modules.sort_by_key(|module| module.range.start);
    Ok((modules, unwinder))
}

/// Where code of a file is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapped {
    /// From the first to the last.
    range: Range<u64>,
    /// Of the first, in the file.
    offset: Address,
}

/// The executable mappings of files in the text of `/proc/self/maps`.
fn executable(maps: &str) -> BTreeMap<PathBuf, Mapped> {
    let mut all: BTreeMap<PathBuf, Mapped> = BTreeMap::new();
    for line in maps.lines() {
        if let Some((path, mapped)) = line_of_file(line) {
            all.entry(path)
                .and_modify(|known| known.range.end = known.range.end.max(mapped.range.end))
                .or_insert(mapped);
        }
    }
    all
}

/// Such as `7f00-7f10 r-xp 00001000 fe:00 42    /usr/lib/libc.so.6`.
fn line_of_file(line: &str) -> Option<(PathBuf, Mapped)> {
    let path = line.find('/').map(|at| &line[at..])?;
    let mut fields = line.split(' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    let mapped = Mapped {
        range: number(start)?..number(end)?,
        offset: Address(number(fields.next()?)?),
    };
    Some((path.into(), mapped))
}

/// What a file says of its code.
struct Found {
    build_id: Option<Vec<u8>>,
    base: Address,
    sections: ExplicitModuleSectionInfo<Vec<u8>>,
}

/// `None`: it is no ELF file, or has no code at that place.
fn read(file: File, mapped: &Mapped) -> Option<Found> {
    // Of a file with symbols, most is not needed.
    let parts = ReadCache::new(file);
    let file = object::File::parse(&parts).ok()?;
    let place = file.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        // A mapping begins at the page that the segment begins in.
        let begin = offset & !0xfff;
        // The page may also have the end of the segment before, which is not executable.
        let is_code = match segment.flags() {
            SegmentFlags::Elf { p_flags, .. } => p_flags & object::elf::PF_X == object::elf::PF_X,
            _ => false,
        };
        let is_of = is_code && (begin..offset.saturating_add(size)).contains(&mapped.offset.0);
        let address = segment.address().wrapping_sub(offset);
        is_of.then(|| address.wrapping_add(mapped.offset.0))
    })?;
    let section = |name: &str| {
        let section = file.section_by_name(name)?;
        let data = section.uncompressed_data().ok()?.into_owned();
        let begin = section.address();
        Some((begin..begin + section.size(), data))
    };
    let address = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    Some(Found {
        build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
        base: Address(mapped.range.start.wrapping_sub(place)),
        sections: ExplicitModuleSectionInfo {
            text_svma: address(".text"),
            got_svma: address(".got"),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_code_are_found_by_file() {
        let maps = "\
1000-2000 r--p 00000000 fe:00 42    /bin/a b
2000-3000 r-xp 00001000 fe:00 42    /bin/a b
5000-6000 r-xp 00003000 fe:00 42    /bin/a b
7000-8000 r-xp 00000000 fe:00 43    /lib/c
9000-a000 rw-p 00000000 00:00 0     [heap]
b000-c000 r-xp 00000000 00:00 0     [vdso]
d000-e000 r-xp
";
        let mapped = |range, offset| Mapped {
            range,
            offset: Address(offset),
        };
        let expected = [
            (PathBuf::from("/bin/a b"), mapped(0x2000..0x6000, 0x1000)),
            (PathBuf::from("/lib/c"), mapped(0x7000..0x8000, 0)),
        ];
        assert_eq!(executable(maps), BTreeMap::from(expected));
    }
}
