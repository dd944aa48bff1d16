//! Values from files, or why there is none.

use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::machine::parse_memory;

/// What a file says.
pub(super) type Reading<T> = Result<T, Unread>;

/// Why a value is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// No such file, or no such line in it.
    Absent,
    Failed(io::ErrorKind),
    /// The file holds something else.
    Garbled(String),
}

impl Unread {
    /// At most so many characters of a garbled value are kept.
    const EXCERPT: usize = 40;

    fn garbled(text: &str) -> Self {
        Self::Garbled(text.chars().take(Self::EXCERPT).collect())
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("not there"),
            Self::Failed(kind) => write!(f, "unreadable ({kind})"),
            Self::Garbled(text) => write!(f, "not understood ({text:?})"),
        }
    }
}

/// The files of a machine.
#[derive(Clone, Debug)]
pub(super) struct Source(PathBuf);

impl Source {
    /// `root` stands for `/`.
    pub(super) fn new(root: &Path) -> Self {
        Self(root.to_owned())
    }

    pub(super) fn text(&self, path: impl AsRef<Path>) -> Reading<String> {
        fs::read_to_string(self.0.join(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unread::Absent,
            kind => Unread::Failed(kind),
        })
    }

    pub(super) fn is_folder(&self, path: impl AsRef<Path>) -> bool {
        self.0.join(path).is_dir()
    }

    /// By its name as in sysctl(8).
    pub(super) fn sysctl<T: FromStr>(&self, name: &str) -> Reading<T> {
        let text = self.text(Path::new("proc/sys").join(name.replace('.', "/")))?;
        parse(&text)
    }

    /// The limit on open files of this process.
    pub(super) fn open_files(&self) -> Reading<OpenFiles> {
        line(&self.text("proc/self/limits")?, "Max open files")
    }

    /// Memory that programs may have without others being swapped out.
    pub(super) fn memory_available(&self) -> Reading<Bytes> {
        let meminfo = self.text("proc/meminfo")?;
        parse_memory(&meminfo, "MemAvailable:")
            .map(Bytes)
            .ok_or(Unread::Absent)
    }
}

/// The whole text is the value.
pub(super) fn parse<T: FromStr>(text: &str) -> Reading<T> {
    let text = text.trim();
    text.parse().map_err(|_| Unread::garbled(text))
}

/// What follows `prefix` on its line is the value.
fn line<T: FromStr>(text: &str, prefix: &str) -> Reading<T> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(prefix));
    parse(value.ok_or(Unread::Absent)?)
}

/// The value is not of the kind that was expected; the caller has its text.
#[derive(Debug)]
pub(super) struct NotThatKind;

/// An amount of memory. Shown in MiB, rounded down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0 >> 20)
    }
}

/// Several numbers in one setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Numbers<const N: usize>(pub(super) [u64; N]);

impl<const N: usize> FromStr for Numbers<N> {
    type Err = NotThatKind;

    fn from_str(text: &str) -> Result<Self, NotThatKind> {
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        let numbers = numbers.map_err(|_| NotThatKind)?;
        Ok(Self(numbers.try_into().map_err(|_| NotThatKind)?))
    }
}

impl<const N: usize> fmt::Display for Numbers<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|number| number.to_string()).join(" "))
    }
}

/// Limits on open files; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenFiles {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

impl FromStr for OpenFiles {
    type Err = NotThatKind;

    /// `1024   524288   files`
    fn from_str(text: &str) -> Result<Self, NotThatKind> {
        let mut words = text.split_whitespace();
        let mut limit = || match words.next() {
            Some("unlimited") => Ok(None),
            Some(number) => number.parse().map(Some).map_err(|_| NotThatKind),
            None => Err(NotThatKind),
        };
        Ok(Self {
            soft: limit()?,
            hard: limit()?,
        })
    }
}

impl fmt::Display for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
        let (soft, hard) = (limit(self.soft), limit(self.hard));
        write!(f, "{soft} (soft), {hard} (hard)")
    }
}

/// Ports that connecting sockets get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortRange {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl PortRange {
    pub(super) fn len(self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    pub(super) fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = NotThatKind;

    fn from_str(text: &str) -> Result<Self, NotThatKind> {
        let Numbers([first, last]) = text.parse()?;
        let port = |number: u64| u16::try_from(number).map_err(|_| NotThatKind);
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(NotThatKind);
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.first, self.last)
    }
}

/// A list of ports as in `8080,9148-9150`; may be empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    pub(super) fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// The same list with `port` at its end.
    pub(super) fn with(&self, port: u16) -> Self {
        let mut ranges = self.0.clone();
        ranges.push(port..=port);
        Self(ranges)
    }
}

impl FromStr for Ports {
    type Err = NotThatKind;

    fn from_str(text: &str) -> Result<Self, NotThatKind> {
        let port = |text: &str| text.parse::<u16>().map_err(|_| NotThatKind);
        let range = |text: &str| match text.split_once('-') {
            Some((first, last)) => Ok(port(first)?..=port(last)?),
            None => port(text).map(|port| port..=port),
        };
        let entries = text.split(',').filter(|entry| !entry.is_empty());
        Ok(Self(entries.map(range).collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let entries: Vec<String> = self.0.iter().map(entry).collect();
        f.write_str(&entries.join(","))
    }
}
